"""A delivery journal is read from its first segment on, with what is missing named."""

from __future__ import annotations

import pathlib
from collections import Counter
from typing import Any

import attrs
import pytest
import trio

from callboard.log.errors import OffsetOutOfRange
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.limits import KIB, Limits
from callboard.simulations.workload.analysis_plan import AnalysisPlan, plan_analysis
from callboard.simulations.workload.delivery_history import FactKind
from callboard.simulations.workload.journal_walk import JournalHistory, JournalPlace

RECORDS = 200


async def _ack_all(story: Any, runtime: Any) -> None:
    topic = await runtime.create_topic("orders")
    async with topic.subscribe("billing") as consumer:
        for _ in range(RECORDS):
            await story.publish(topic, 0)
            await story.ack(await consumer.get(timeout=1))
            await trio.sleep(1)


@pytest.fixture
def plan(story: Any) -> AnalysisPlan:
    """Of 200 records, acked one by one, with a journal that took snapshots on the way."""
    story.run(_ack_all, limits=Limits(snapshot_every_bytes=2 * KIB))
    return trio.run(plan_analysis, story.directory, None, None)


def walked(place: JournalPlace) -> tuple[JournalHistory, dict[int, tuple[FactKind, int]]]:
    """A reading, and how and when each offset was settled."""
    walk = JournalHistory(place)
    settled: dict[int, tuple[FactKind, int]] = {}
    for fact in walk.facts():
        if fact.kind is not FactKind.LEASED:
            for offset in range(fact.start, fact.stop):
                assert offset not in settled
                settled[offset] = fact.kind, fact.time_us
    return walk, settled


def test_segments_before_the_newest_snapshot_are_read(plan: AnalysisPlan, story: Any) -> None:
    """A runtime would begin with the newest snapshot; the history begins with the first segment."""
    (place,) = plan.places
    assert len(place.journal.bases) > 3
    walk, settled = walked(place.journal)
    assert settled == {offset: (FactKind.ACKED, us) for (_, offset), us in story.acked.items()}
    assert walk.lost == []
    (opening,) = walk.history.openings
    assert (opening.is_whole, opening.counts["acked"], opening.leased) == (True, RECORDS, 0)


def test_where_the_beginning_is_pruned_the_history_begins_with_a_snapshot(
    plan: AnalysisPlan, story: Any
) -> None:
    """What was settled before has no time, and lies below the opening's start; all else is as it was."""
    (place,) = plan.places
    rest = attrs.evolve(place.journal, bases=place.journal.bases[2:])
    walk, settled = walked(rest)
    (opening,) = walk.history.openings
    assert not opening.is_whole
    assert 0 < opening.start < RECORDS
    assert opening.since_us == walk.first_us
    assert {offset: us for offset, (_, us) in settled.items()} == {
        offset: us for (_, offset), us in story.acked.items() if offset >= opening.start
    }
    assert opening.counts["acked"] == RECORDS


def test_a_lost_segment_is_named_and_the_snapshot_behind_it_tells_its_outcome(
    plan: AnalysisPlan, story: Any
) -> None:
    """Without the header of a segment in the middle, its acks have no time, and are told once."""
    (place,) = plan.places
    bases = place.journal.bases
    path = pathlib.Path(story.directory, place.journal.directory, f"{bases[1]:020d}.log")
    path.write_bytes(b"\xff" * SEGMENT_HEADER_BYTES + path.read_bytes()[SEGMENT_HEADER_BYTES:])
    walk, settled = walked(place.journal)
    assert walk.lost == [(bases[1], bases[2] - 1)]
    kinds = Counter(kind for kind, _ in settled.values())
    assert set(settled) == set(range(RECORDS))
    assert kinds[FactKind.UNTIMED] + kinds[FactKind.ACKED] == RECORDS
    assert kinds[FactKind.UNTIMED] > 0
    timed = {offset: us for offset, (kind, us) in settled.items() if kind is FactKind.ACKED}
    assert all(story.acked[0, offset] == us for offset, us in timed.items())


def test_what_no_sync_had_proven_is_left_out(plan: AnalysisPlan) -> None:
    """A reading ends where it was planned to end, whatever the process has written since."""
    (place,) = plan.places
    whole = place.journal.end
    assert whole is not None
    _, settled = walked(attrs.evolve(place.journal, end=whole - 40))
    assert 0 < len(settled) < RECORDS


def test_a_segment_that_is_gone_is_told(plan: AnalysisPlan, story: Any) -> None:
    """Pruned between planning and reading: the error says to load again."""
    (place,) = plan.places
    pathlib.Path(story.directory, place.journal.directory, f"{place.journal.bases[0]:020d}.log").unlink()
    with pytest.raises(OffsetOutOfRange, match="there no more"):
        walked(place.journal)
