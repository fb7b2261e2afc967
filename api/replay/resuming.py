"""Where a replay goes on: the last record of it in each partition of its topic, found by reading backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from callboard.actors.kernel import ActorRef, Question
from callboard.actors.mirror import MirroredTopic
from callboard.actors.partition.commands import Describe, Flush, PartitionStatistics, Read
from callboard.asking import ask_again
from callboard.log.limits import READ_BYTES_DEFAULT
from callboard.replay.positions import ReplayPosition, last_position

FIRST_SPAN: Final = 1
"""Records in the span that is read first: nearly always the last record is one of the replay's."""
SPAN_GROWTH: Final = 8
SPAN_MAX: Final = 65_536

A = TypeVar("A")


async def last_positions(live: MirroredTopic, source_of: dict[int, int]) -> list[ReplayPosition | None]:
    """The last record of a replay in each partition; None where there is none.

    `source_of` maps its producer ids to source partitions. What was sent before is waited for: it is stored then, or
    will never be.
    """
    return [await _last_in(port.label, port.ref, source_of) for port in live.ports]


async def _last_in(label: str, ref: ActorRef[Any], source_of: dict[int, int]) -> ReplayPosition | None:
    await _ask(label, ref, Flush())
    statistics: PartitionStatistics = await _ask(label, ref, Describe())
    stop, span = statistics.visible_end, FIRST_SPAN
    while stop > statistics.start_offset:
        start = max(statistics.start_offset, stop - span)
        found = await _last_between(label, ref, start, stop, source_of)
        if found is not None:
            return found
        stop, span = start, min(SPAN_MAX, span * SPAN_GROWTH)
    return None


async def _last_between(
    label: str, ref: ActorRef[Any], start: int, stop: int, source_of: dict[int, int]
) -> ReplayPosition | None:
    found: ReplayPosition | None = None
    while start < stop:
        answer: tuple[Sequence[Any], int, int] | None = await _ask(
            label, ref, Read(start, stop - start, READ_BYTES_DEFAULT)
        )
        if answer is None:
            break
        batches, start, _ = answer
        for columns in batches:
            found = last_position(columns, source_of) or found
    return found


async def _ask(label: str, ref: ActorRef[Any], command: Question[A]) -> A:
    return await ask_again(ref, command, f"looking for the end of the replay in {label}")
