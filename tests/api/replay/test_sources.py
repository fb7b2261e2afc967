"""What a replay reads does not depend on where reading begins, nor on how it is cut."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard.replay.sources as sources
from callboard.log.errors import RecordingInvalid
from callboard.recordings.reader import Span
from callboard.recordings.sharing import Share
from callboard.replay.merging import Merger
from callboard.replay.pacing import TimeLine
from callboard.replay.positions import ReplayPosition, Selection
from callboard.replay.sources import ReplayLane, ReplaySource, Timed

START_US = 1_700_000_000_000_000
IDS = (11, 22, 33)
AT_TEN = START_US + 10_000_000
HALF = Selection(fraction=Fraction(1, 2))
PICKED = sum(1 for count in (25, 18, 9) for number in range(count) if number % 5 and number % 7 in (1, 2, 3))


def source_of(recorded: Any, selection: Selection = Selection(), passes: int | None = 1) -> ReplaySource:
    """A source with short producer ids."""
    line = TimeLine(START_US, 60_000_000)
    return ReplaySource(
        recording=recorded.recording,
        selection=selection,
        line=line,
        passes=passes,
        producer_ids=IDS[: len(recorded.partitions)],
    )


def origins(timed: Timed) -> list[ReplayPosition]:
    """Where the records come from."""
    found: list[ReplayPosition] = []
    columns = timed.select(0, timed.columns.count)
    for count, producer, number, offset in columns.producers or ():
        found += [ReplayPosition(IDS.index(producer), number, offset + index) for index in range(count)]
    return found


async def merged(
    source: ReplaySource, lasts: list[ReplayPosition | None]
) -> list[list[tuple[ReplayPosition, bytes, int]]]:
    """All that a merger has for each target partition: origin, value and position in time."""
    merger = Merger(source, lasts)
    found: list[list[tuple[ReplayPosition, bytes, int]]] = [[] for _ in lasts]
    while (sent := await merger.next()) is not None:
        for index, timed in sent:
            values = timed.columns.value_list()
            found[index] += zip(origins(timed), values, timed.positions, strict=True)
    await merger.aclose()
    return found


async def test_the_order_depends_on_the_recording_alone(make_recording: Any, monkeypatch: Any) -> None:
    """S1: read in large parts or record by record, the same comes out."""
    recorded = await make_recording((40, 30, 20), frame=1)
    whole = await merged(source_of(recorded), [None, None])
    for records, size in ((1, 10**6), (3, 10**6), (17, 10**6), (10**6, 50)):
        monkeypatch.setattr(sources, "PART_RECORDS", records)
        monkeypatch.setattr(sources, "PART_BYTES", size)
        assert await merged(source_of(recorded), [None, None]) == whole
    assert sorted(value for part in whole for _, value, _ in part) == sorted(recorded.values)
    for part in whole:
        assert [at for _, _, at in part] == sorted(at for _, _, at in part)
        assert all(of.source == int(value.split(b"/")[0]) for of, value, _ in part)


@settings(max_examples=40)
@given(
    st.data(),
    st.integers(1, 5),
    st.sampled_from([Selection(), Selection(keys=("key-*-[1-3]",)), HALF]),
    st.integers(1, 3),
    st.booleans(),
)
async def test_a_merger_goes_on_behind_any_last_records(
    make_recording: Any, data: Any, targets: int, selection: Selection, passes: int, is_numbered: bool
) -> None:
    """S1: each target partition gets the rest of what it would have got, whatever the others have."""
    recorded = await make_recording((25, 18, 9), frame=4)
    wanted = PICKED if selection.keys else sum(_halves(recorded)) if selection.fraction else 52
    source = attrs.evolve(source_of(recorded, selection, passes), numbered=wanted if is_numbered else None)
    whole = await merged(source, [None] * targets)
    assert sum(map(len, whole)) == passes * wanted
    if is_numbered:
        numbers = sorted(at for part in whole for _, _, at in part)
        assert numbers == [number * 1_000_000 for number in range(passes * wanted)]
    stored = [data.draw(st.integers(0, len(part))) for part in whole]
    lasts = [part[count - 1][0] if count else None for part, count in zip(whole, stored, strict=True)]
    rest = await merged(source, lasts)
    assert rest == [part[count:] for part, count in zip(whole, stored, strict=True)]


def _halves(recorded: Any) -> list[bool]:
    share = Share(Fraction(1, 2))
    return [
        share.holds_offset(offset) if key is None else share.holds_key(key)
        for part in recorded.partitions
        for offset, (_, key, _) in enumerate(part)
    ]


@settings(max_examples=40)
@given(
    st.integers(0, 24),
    st.integers(0, 2),
    st.sampled_from([Selection(), Selection(keys=("key-*-[1-3]",)), Selection(span=Span(None, AT_TEN))]),
)
async def test_a_lane_goes_on_behind_any_last_record(
    make_recording: Any, offset: int, number: int, selection: Selection
) -> None:
    """S1: to the end of the pass, and with the passes after it."""
    recorded = await make_recording((25, 18, 9), frame=4)
    source = source_of(recorded, selection, 3)
    whole = await all_of(ReplayLane(source, 0, None))
    assert len({of for of, _, _ in whole}) == len(whole)
    rest = await all_of(ReplayLane(source, 0, ReplayPosition(0, number, offset)))
    wanted = [row for row in whole if (row[0].number, row[0].offset) > (number, offset)]
    # Where time falls, a later beginning knows of no earlier time.
    assert [row[:2] for row in rest] == [row[:2] for row in wanted]


async def all_of(lane: ReplayLane) -> list[tuple[ReplayPosition, bytes | None, int]]:
    """All that a lane has: origin, value and position in time."""
    found: list[tuple[ReplayPosition, bytes | None, int]] = []
    while (sent := await lane.next()) is not None:
        ((_, timed),) = sent
        found += zip(origins(timed), timed.columns.value_list(), timed.positions, strict=True)
    await lane.aclose()
    return found


async def test_a_loop_over_nothing_ends(make_recording: Any) -> None:
    """For ever, but no record matches: that would spin."""
    recorded = await make_recording()
    source = source_of(recorded, Selection(keys=("nobody",)), None)
    assert await all_of(ReplayLane(source, 0, None)) == []
    assert await merged(source, [None, None]) == [[], []]


async def test_a_last_record_that_is_not_there_is_told(make_recording: Any) -> None:
    """The recording is not the one that was replayed, whatever its digest says."""
    recorded = await make_recording()
    with pytest.raises(RecordingInvalid, match="verify"):
        await merged(source_of(recorded), [ReplayPosition(0, 0, 1_000), None])
