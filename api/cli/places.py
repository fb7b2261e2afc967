"""Places in a topic, as they are typed: beginning, end, an offset, or an instant."""

from __future__ import annotations

from datetime import datetime

from callboard.cli.output import say
from callboard.consumer.reader import plain_start
from callboard.control.verbs import is_negative
from callboard.log.errors import InvalidArgument
from callboard.log.host.clock import HostClock
from callboard.log.offline.reader import LogReader
from callboard.message import parse_instant, to_us

Place = int | str | datetime
"""An offset, "beginning", "end", or an instant."""


def zoned(text: str) -> datetime:
    """An instant in ISO 8601. One without a zone is UTC, which is reported. Raises `ValueError`."""
    instant = parse_instant(text)
    if datetime.fromisoformat(text).tzinfo is None:
        say(f"{text} has no zone: it is taken as {instant.isoformat()}")
    return instant


def parse_start(text: str) -> Place:
    """ "beginning", "end", an offset, or an ISO 8601 instant (UTC unless it says otherwise)."""
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdecimal() and len(text) < 20:
        plain_start("the place to start", int(text))
        return int(text)
    if is_negative(text):
        raise InvalidArgument(
            f"{text:.60} lies before the start: offsets begin at 0. Say beginning for the oldest message that is kept."
        )
    try:
        return zoned(text)
    except ValueError:
        raise InvalidArgument(
            f'{text!r:.60} is no place to start: use "beginning", "end", an offset, or an instant such as'
            " 2026-11-21T12:00:00+00:00."
        ) from None


async def offset_of(reader: LogReader, place: Place) -> int:
    """The offset of a place in a partition, from the first on that is kept; an offset may lie behind the end."""
    if isinstance(place, datetime):
        return await reader.offset_at(to_us(place), HostClock().wall_us())
    if isinstance(place, int):
        return max(place, reader.start_offset)
    return reader.start_offset if place == "beginning" else reader.visible_end
