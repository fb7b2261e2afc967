"""Maps that later versions add fields to: what an older reader may ignore, and what it must understand.

Records, snapshots and settings are maps from names to values. A field that a reader does not know is *optional*: the
reader keeps it and writes it again with the next snapshot. It is *mandatory* when the field `must` of the same map, an
array of names, lists it: then the reader refuses with `FormatTooNew`, because without the field it would misread
the rest. Kinds are integers: an unknown kind below `OPTIONAL_KINDS_FROM` is mandatory, any other may be ignored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import cbor2

from callboard.log.errors import FormatTooNew

CBOR_ERRORS: Final = (
    cbor2.CBORDecodeError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    RecursionError,
)
"""What decoding foreign bytes may raise."""
MUST: Final = "must"
OPTIONAL_KINDS_FROM: Final = 128


def unknown_fields(found: dict[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
    """The fields of `found` beyond `known`, to be kept.

    Raises `FormatTooNew` when one of them is mandatory, `ValueError` when `found` is no map of named fields.
    """
    if type(found) is not dict or any(type(name) is not str for name in found):
        raise ValueError(f"{where} is not a map of named fields")
    if len(found) == len(known) and all(name in found for name in known):
        return {}
    must = found.get(MUST, [])
    if type(must) is not list or any(type(name) is not str for name in must):
        raise ValueError(f"`must` of {where} is not an array of names")
    missing = [name for name in must if name not in known]
    if missing:
        raise too_new(f"{where} must not be read without its field {missing[0]!r}", found=missing[0])
    return {name: value for name, value in found.items() if name not in known and name != MUST}


def check_kind(kind: Any, known: Collection[int], where: str) -> bool:
    """Whether `kind` is known; False when it may be ignored.

    Raises `FormatTooNew` for an unknown mandatory kind, `ValueError` for what is no kind.
    """
    if type(kind) is not int or kind < 0:
        raise ValueError(f"{where} has no kind")
    if kind in known:
        return True
    if kind < OPTIONAL_KINDS_FROM:
        raise too_new(f"{where} has the unknown kind {kind}", found=kind)
    return False


def too_new(what: str, *, found: object, supported: object = None, path: str = "") -> FormatTooNew:
    """The error for bytes that only a later version can have written."""
    place = f"{path}: " if path else ""
    return FormatTooNew(
        f"{place}{what}: a newer Callboard wrote it. Nothing was changed. Upgrade Callboard to read it.",
        found=found,
        supported=supported,
        path=path,
    )
