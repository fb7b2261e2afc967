"""What a settlement is about, checked: which offsets, after which delay, for which reason; and an ack on its way."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from callboard.actors.kernel import Reply
from callboard.actors.partition.commands import Settle
from callboard.actors.partition.port import PartitionPort
from callboard.log.errors import InvalidArgument


class SentAck(NamedTuple):
    """An ack that nobody waits for. `valid` as in `ConsumerLeases`."""

    port: PartitionPort
    message: Settle
    valid: bool
    reply: Reply


def without(ranges: list[tuple[int, int]], offsets: list[int]) -> list[tuple[int, int]]:
    """`ranges` without `offsets`; both are sorted."""
    left: list[tuple[int, int]] = []
    place = 0
    for start, stop in ranges:
        place = bisect_left(offsets, start, place)
        while place < len(offsets) and offsets[place] < stop:
            if start < offsets[place]:
                left.append((start, offsets[place]))
            start = offsets[place] + 1
            place += 1
        if start < stop:
            left.append((start, stop))
    return left


def check_nack(delay: object, reason: object) -> None:
    """Raise `InvalidArgument` unless these can be a nack's delay and reason."""
    if delay is not None:
        check_seconds("delay", delay)
    if reason is not None and not isinstance(reason, str):
        raise InvalidArgument(
            f"reason is {type(reason).__name__}, not text. Nothing was changed. Give str(...) of it."
        )


def check_seconds(what: str, seconds: object) -> None:
    """Raise `InvalidArgument` unless `seconds` is a finite number from 0 on."""
    valid = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not valid or not 0 <= seconds < 10**9:  # type: ignore[operator]
        raise InvalidArgument(
            f"{what} is {seconds!r:.40}, not a number of seconds from 0 on. Nothing was changed."
        )
