"""Values of the runtime as plain data: for CBOR on the control socket, and for JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs


def plain(found: Any) -> Any:
    """An attrs value, and what it holds, as maps and lists."""
    if attrs.has(type(found)):
        return {field.name: plain(getattr(found, field.name)) for field in attrs.fields(type(found))}
    if isinstance(found, (list, tuple)):
        return [plain(item) for item in found]
    if isinstance(found, dict):
        return {str(key): plain(item) for key, item in found.items()}
    if isinstance(found, datetime):
        return found.isoformat()
    if isinstance(found, str):
        # File names need not be text; what is not is shown escaped.
        return found if found.isascii() else found.encode("utf-8", "backslashreplace").decode()
    if found is None or isinstance(found, (bool, int, float, bytes)):
        return found
    return repr(found)
