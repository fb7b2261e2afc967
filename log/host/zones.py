"""Time zones: their rules are files of the operating system, or of the package `tzdata` where it has none.

They are read once per zone and process, like a module that is imported; the rules of a zone do not change while a
program runs.
"""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from callboard.log.errors import InvalidArgument
from callboard.log.limits import NAME_BYTES_MAX
from callboard.log.plain import shown, text


def load_zone(name: object) -> tzinfo:
    """The zone of that name. Raises `InvalidArgument`."""
    word = text(name)
    if word and len(word) <= NAME_BYTES_MAX and word.isascii() and word.isprintable():
        try:
            return ZoneInfo(word)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is no file
            pass
    raise InvalidArgument(
        f"there is no time zone {shown(name)}. Nothing was changed. Use a name of the IANA database, such as"
        ' "Europe/Berlin" or "UTC"; names may differ in capitals only.'
    )
