"""Time zones: their rules are files of the operating system, or of the package `tzdata` where it has none.

They are read once per zone and process, like a module that is imported; the rules of a zone do not change while a
program runs.
"""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from callboard.log.errors import InvalidArgument
from callboard.log.limits import NAME_BYTES_MAX


def load_zone(name: object) -> tzinfo:
    """The zone of that name. Raises `InvalidArgument`."""
    if isinstance(name, str) and 0 < len(name) <= NAME_BYTES_MAX and name.isascii() and name.isprintable():
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is no file
            pass
    raise InvalidArgument(
        f"there is no time zone {name!r:.60}. Nothing was changed. Use a name of the IANA database, such as"
        ' "Europe/Berlin" or "UTC"; names may differ in capitals only.'
    )
