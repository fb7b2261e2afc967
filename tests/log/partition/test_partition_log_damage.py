"""Torn tails, flipped bytes, missing files: everything else is served, and what is lost is named."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.log.format.columns import Columns
from callboard.log.format.frame import encode_frame
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Sync

FIRST = "topics/t/0/00000000000000000000.log"
COMMITTED = "topics/t/0/committed"


async def closed_world(world: Any, *, batches: int = 6, records: int = 3, size: int = 60) -> list[int]:
    """A log of a few batches, closed; returns where its frames begin and the last one ends."""
    await world.open()
    ends = [world.log.size_bytes]
    for _ in range(batches):
        await world.append(1, records, size=size)
        ends.append(world.log.size_bytes)
    await world.log.close()
    return ends


def write_back(world: Any, path: str, data: bytes) -> None:
    """Replace a file's bytes behind everybody's back, as if they had always been so."""
    world.disk.plant_file(path, data)


async def test_a_torn_tail_of_every_length(make_world: Any) -> None:
    """However many bytes of the last frame reached the disk, the rest is whole and the torn bytes are kept aside."""
    probe = make_world()
    ends = await closed_world(probe)
    whole = probe.disk.files()[FIRST]
    last_frame = whole[ends[-2] : ends[-1]].rstrip(b"\0")
    for length in range(1, len(last_frame)):
        world = make_world()
        await world.open()
        await world.append(5, 3, size=60)
        world.disk.kill()
        frames = world.disk.files()[FIRST]
        write_back(world, FIRST, frames[: ends[-2]] + last_frame[:length] + bytes(4096))
        await world.open()
        kept = last_frame[:length].rstrip(b"\0")
        assert len(kept) == world.log.recovery.torn_bytes
        assert [kept] == [world.disk.files()[path] for path in world.log.recovery.quarantined]
        assert world.seen == await world.contents()
        assert 15 == world.log.next_offset
        await world.append(1)
        world.disk.crash()
        await world.check_twice(must_hold=world.promised)


async def test_a_payload_that_is_a_frame_is_not_served(make_world: Any) -> None:
    """A torn frame whose payload is itself a valid frame of another segment stays torn."""
    world = make_world()
    await world.open()
    await world.append(2)
    inner = b"".join(
        encode_frame(Columns.build([b"forged"] * 3), segment_id=99, base_offset=2, append_time_us=1)
    )
    staged = world.log.stage([Columns.build([inner, b"tail" * 100])], durable=True)
    await world.files.submit(staged.verbs)
    world.disk.kill()
    data = world.disk.files()[FIRST]
    at = data.index(inner)
    write_back(world, FIRST, data[: at + len(inner) + 50] + bytes(1_000))
    await world.open()
    assert {0, 1} == set(await world.contents())
    assert world.log.recovery.torn_bytes > len(inner)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_a_flipped_byte_anywhere_costs_its_frame_only(data: Any) -> None:
    """Any flipped byte of a segment's frames loses at most one frame, by name; a header's costs nothing."""
    from_seed = data.draw(st.integers(0, 3), label="seed")
    world = data.draw(st.just(WORLD["make"](from_seed)))
    ends = await closed_world(world)
    place = data.draw(st.integers(0, ends[-1] - 1), label="byte")
    mask = data.draw(st.integers(1, 255), label="mask")
    garble_mark = data.draw(st.booleans(), label="mark too")
    world.disk.flip(FIRST, place, mask)
    if garble_mark:
        write_back(world, COMMITTED, b"garbage!" * 8)
    await world.open()
    found = await world.contents()
    missing = set(world.seen) - set(found)
    hit = next((index for index, end in enumerate(ends) if place < end), 0)
    allowed = set() if hit == 0 else set(range(3 * (hit - 1), 3 * hit))
    assert missing in (set(), allowed)
    if hit == len(ends) - 1 and garble_mark:
        assert missing <= allowed
    else:
        world.check(found, must_hold={at: value for at, value in world.seen.items() if at not in allowed})
        assert world.log.next_offset == 18 or garble_mark
    world.disk.kill()
    again = await world.open()
    assert found == await world.contents()
    assert again.recovery.rewritten_records == 0


WORLD: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _worlds(make_world: Any) -> None:
    """Hypothesis cannot take function-scoped fixtures: the maker of worlds is passed by name."""
    WORLD["make"] = make_world


async def test_damage_in_a_sealed_segment_is_found_by_reading(make_world: Any) -> None:
    """Sealed segments are trusted at open; a read that meets damage names the offsets and serves the rest."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    for _ in range(30):
        await world.append(1, 3, size=2_000)
    await world.log.close()
    data = world.disk.files()[FIRST]
    world.disk.flip(FIRST, len(data) // 2)
    log = await world.open()
    assert () == log.damages
    found = await world.contents()
    assert 3 == len(world.seen) - len(found)
    assert [(first, first + 2) for first, _ in world.lost] == world.lost
    assert 1 == len(log.damages)
    assert (log.damages[0].first_offset, log.damages[0].last_offset) == world.lost[0]
    for cold in (True, False):
        world.disk.cold = cold
        assert found == await world.contents()


async def test_damage_at_both_ends_of_a_sealed_segment(make_world: Any) -> None:
    """The first and the last frame of a segment may be damaged like any other."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    for _ in range(30):
        await world.append(1, 3, size=2_000)
    await world.log.close()
    size = len(world.disk.files()[FIRST])
    world.disk.flip(FIRST, SEGMENT_HEADER_BYTES + 100)
    world.disk.flip(FIRST, size - 10)
    log = await world.open()
    found = await world.contents()
    assert 6 == len(world.seen) - len(found)
    assert (0, 2) == world.lost[0]
    assert 0 == log.start_offset
    assert (await log.read(1, max_records=1)).batches[0].base_offset == 3
    world.check(found, must_hold={at: world.seen[at] for at in found})


async def test_frames_that_were_cut_out_are_reported_as_missing_records(world: Any) -> None:
    """Where records are missing and every byte can be read, no range of bytes is named as unreadable."""
    ends = await closed_world(world)
    data = world.disk.files()[FIRST]
    write_back(world, FIRST, data[: ends[1]] + data[ends[2] :] + bytes(ends[2] - ends[1]))
    log = await world.open()
    await world.contents()
    words = f"records are missing before byte {ends[1]}"
    assert [f"{FIRST}: {words}; offsets 3 to 5 are lost"] == [str(damage) for damage in log.damages]

    await world.log.close()
    report = await verify_directory(world.disk)
    recorded = [found.message for found in report.notes if found.kind == "recorded"]
    assert [f"{words}: found earlier; `callboard repair --accept` acknowledges it"] == recorded


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("damage", ["cut", "two frames"])
async def test_reads_that_begin_inside_damage(make_world: Any, damage: str, cold: bool) -> None:
    """From whatever offset, again and again: a header that holds before a body that does not leads nobody astray."""
    world = make_world(segment_bytes=65_536)
    log = await world.open()
    ends = [SEGMENT_HEADER_BYTES]
    for _ in range(30):
        await world.append(1, 3, size=2_000)
        ends.append(log.size_bytes)
    await log.close()
    if damage == "cut":
        write_back(world, FIRST, world.disk.files()[FIRST][: ends[4] + 1000])
    else:
        world.disk.flip(FIRST, ends[4] + 1000)
        world.disk.flip(FIRST, ends[5] + 20)
    await world.open()
    found = await world.contents()
    assert set(range(12)) <= set(found)
    assert {12, 13, 14, 15, 16, 17}.isdisjoint(found)
    world.disk.cold = cold
    for at in [*range(90), *range(90)]:
        following = min(offset for offset in found if offset >= at)
        hot = world.log.read_hot(at, max_records=1)
        batches = hot or (await world.log.read(at, max_records=1)).batches
        assert [following] == [batch.base_offset for batch in batches]


async def test_both_copies_of_a_header_may_be_lost(make_world: Any) -> None:
    """A segment without a header is read with the id that its index names."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    await world.append(200, size=100)
    await world.log.close()
    assert FIRST.replace(".log", ".index") in world.disk.files()
    data = world.disk.files()[FIRST]
    write_back(world, FIRST, bytes(SEGMENT_HEADER_BYTES)[:-1] + b"x" + data[SEGMENT_HEADER_BYTES:])
    log = await world.open()
    assert world.seen == await world.contents()
    assert FIRST == log.recovery.damages[0].path


async def test_a_segment_without_header_and_index_is_set_aside(world: Any) -> None:
    """Its bytes go to quarantine, its offsets are named as lost and never given again."""
    await closed_world(world)
    data = world.disk.files()[FIRST]
    write_back(world, FIRST, b"?" * SEGMENT_HEADER_BYTES + data[SEGMENT_HEADER_BYTES:])
    log = await world.open()
    assert 18 == log.next_offset == log.start_offset
    assert 1 == len(log.recovery.quarantined)
    assert len(data) == len(world.disk.files()[log.recovery.quarantined[0]])
    assert any((0, 17) == (damage.first_offset, damage.last_offset) for damage in log.recovery.damages)
    await world.append(1)
    assert 18 in world.seen
    notes = (await verify_directory(world.disk)).notes
    assert [("gap", 0, 17)] == [
        (note.kind, note.first_offset, note.last_offset) for note in notes if note.kind != "recorded"
    ]
    assert "damaged" in notes[0].message


async def test_what_is_set_aside_survives_a_power_cut(world: Any) -> None:
    """The segment has a durable name at any time, the old one or the new one: nothing is just dropped."""
    await closed_world(world)
    data = world.disk.files()[FIRST]
    write_back(world, FIRST, b"?" * SEGMENT_HEADER_BYTES + data[SEGMENT_HEADER_BYTES:])
    spoiled = world.disk.files()[FIRST]
    log = await world.open()
    (aside,) = log.recovery.quarantined
    world.disk.crash()
    assert world.disk.files()[aside] == spoiled
    await world.open()
    assert world.disk.files()[aside] == spoiled


async def test_first_segments_that_are_set_aside_are_named_up_to_the_next(make_world: Any) -> None:
    """Two of them, before others that can be read: each with its own offsets."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    await world.append(500, size=400)
    await world.log.close()
    paths = sorted(name for name in world.disk.files() if name.endswith(".log"))
    assert len(paths) > 3
    bases = [int(path[-24:-4]) for path in paths]
    for path in paths[:2]:
        write_back(world, path, b"?" * SEGMENT_HEADER_BYTES + world.disk.files()[path][SEGMENT_HEADER_BYTES:])
        write_back(world, path.replace(".log", ".index"), b"?")
    log = await world.open()
    assert log.start_offset == bases[2]
    lost = [(damage.first_offset, damage.last_offset) for damage in log.recovery.damages]
    assert lost == [(bases[0], bases[1] - 1), (bases[1], bases[2] - 1)]
    assert set(await world.contents()) == set(range(bases[2], 500))


@pytest.mark.parametrize("content", [b"", b"CALL", bytes(128), bytes(100_000)])
async def test_a_segment_without_a_header_yet_is_made_anew(world: Any, content: bytes) -> None:
    """An empty, short or zeroed file under a segment's name holds nothing: the log goes on."""
    await closed_world(world)
    write_back(world, "topics/t/0/00000000000000000018.log", content)
    log = await world.open()
    assert 18 == log.next_offset
    await world.append(2)
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_half_made_files_are_removed(world: Any) -> None:
    """What a crash left half-made is removed at open: nothing in it was acknowledged."""
    await closed_world(world)
    for name in (
        "00000000000000000018.log.new",
        "00000000000000000018.index.new",
        "00000000000000000500.index",
    ):
        write_back(world, f"topics/t/0/{name}", b"half")
    await world.open()
    assert world.seen == await world.contents()
    assert not [name for name in world.disk.files() if name.endswith(".new") or "500" in name]


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_missing_segment_is_named(make_world: Any, which: int) -> None:
    """A segment that somebody deleted loses its offsets, by name when something was before it; the rest is served."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    while world.log.segment_count < 4:
        await world.append(1, 3, size=2_000)
    bases = [segment.base_offset for segment in world.log._segments]
    await world.log.close()
    await world.files_gone(f"topics/t/0/{bases[which]:020d}.log")
    log = await world.open()
    found = await world.contents()
    gone = set(range(bases[which], bases[which + 1]))
    assert set(world.seen) - gone == set(found)
    if which:
        assert [(bases[which], bases[which + 1] - 1)] == world.lost
        assert any(damage.first_offset == bases[which] for damage in log.damages)
    else:
        assert bases[1] == log.start_offset


async def test_a_missing_last_segment_is_named(make_world: Any) -> None:
    """When the last segment is gone, `committed` tells which offsets were lost; they are not used again."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    while world.log.segment_count < 3:
        await world.append(1, 3, size=2_000)
    last, end = world.log._segments[-1].base_offset, world.log.visible_end
    await world.log.close()
    await world.files_gone(f"topics/t/0/{last:020d}.log")
    log = await world.open()
    assert end == log.next_offset
    assert [(last, end - 1, "damaged")] == [(gap.first, gap.last, gap.reason) for gap in log.gaps]
    await world.append(2)
    world.disk.crash()
    assert set(range(last)) | {end, end + 1} == set(await world.check_twice(must_hold={}))


@pytest.mark.parametrize("content", [None, b"", b"x", bytes(5_000), b"\xff" * 5_000])
async def test_indexes_are_not_trusted(make_world: Any, content: bytes | None) -> None:
    """A missing or garbage index is built anew; reads find everything."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    while world.log.segment_count < 3:
        await world.append(5, 3, size=500)
    await world.log.close()
    for name in [name for name in world.disk.files() if name.endswith(".index")]:
        await world.files_gone(name)
    if content is not None:
        for segment in world.log._segments:
            write_back(world, f"topics/t/0/{segment.base_offset:020d}.index", content)
    await world.open()
    for offset in range(0, world.log.visible_end, 17):
        assert world.seen[offset] == (await world.log.read(offset, max_records=1)).batches[0].value(0)
    assert 0 == await world.log.offset_at(0)
    assert world.seen == await world.contents()


async def test_a_flipped_byte_of_an_index_is_noticed(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever byte of an index is flipped, recovery and reads give the same records."""
    monkeypatch.setattr("callboard.log.segments.index_file.INDEX_INTERVAL_BYTES", 4_000)
    world = make_world()
    await world.open()
    await world.append(60, 2, size=1_000)
    await world.log.close()
    path = FIRST.replace(".log", ".index")
    intact = world.disk.files()[path]
    source = random.Random(5)
    for place in (*range(0, 80, 3), *(source.randrange(len(intact)) for _ in range(20))):
        write_back(world, path, intact)
        world.disk.flip(path, place, 1 << source.randrange(8))
        await world.open()
        assert 0 == world.log.recovery.rewritten_records
        assert world.seen == await world.contents()
        world.disk.kill()


async def test_an_index_of_another_segment_is_not_believed(world: Any) -> None:
    """The index of another segment under this one's name is refused by its checksum."""
    await world.open()
    await world.append(200, size=300)
    await world.append(200, size=300)
    await world.log.close()
    indexes = sorted(name for name in world.disk.files() if name.endswith(".index"))
    other = type(world)(9, segment_bytes=65_536)
    await other.open()
    await other.append(300, size=100)
    await other.log.close()
    for name in indexes:
        write_back(world, name, other.disk.files()[FIRST.replace(".log", ".index")])
    await world.open()
    assert world.seen == await world.contents()


@pytest.mark.parametrize("shift", [-1, 1, 176])
async def test_an_index_that_lies_is_found_out(make_world: Any, shift: int) -> None:
    """An index with a good checksum that points beside the frames is not followed, at open nor by reads."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    await world.append(900, size=100)
    segments = list(world.log._segments)
    await world.log.close()
    for segment in segments:
        lying = SegmentIndex(segment.segment_id, segment.base_offset)
        for place in range(3):
            base = segment.base_offset + 10 + place * 40
            position = segment.file.position // 4 * (place + 1) + shift
            lying.note(position, 176, base, base, 1, world.clock.now_us)
        write_back(world, f"topics/t/0/{segment.base_offset:020d}.index", lying.encode())
    await world.open()
    assert 0 == world.log.recovery.rewritten_records
    assert () == world.log.recovery.damages
    for offset in range(0, 900, 7):
        assert world.seen[offset] == (await world.log.read(offset, max_records=1)).batches[0].value(0)
    assert world.seen == await world.contents()


@pytest.mark.parametrize("content", [None, b"", bytes(64), b"\xff" * 64])
async def test_without_committed_nothing_of_the_last_segment_is_proven(
    make_world: Any, content: bytes | None
) -> None:
    """A missing or garbage `committed` file makes recovery write the last segment anew, and loses nothing."""
    world = make_world(segment_bytes=65_536)
    await world.open()
    for _ in range(14):
        await world.append(1, 3, size=2_000)
    last = world.log._segments[-1]
    records = last.end_offset - last.base_offset
    await world.log.close()
    if content is None:
        await world.files_gone(COMMITTED)
    else:
        write_back(world, COMMITTED, content)
    log = await world.open()
    assert records == log.recovery.rewritten_records
    assert world.seen == await world.contents()
    world.disk.crash()
    await world.check_twice(must_hold=world.promised)


async def test_quarantine_is_bounded(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often torn bytes are found, a partition's quarantine keeps its limit, the oldest files go first."""
    monkeypatch.setattr("callboard.log.segments.quarantine.QUARANTINE_BYTES_MAX", 1_000)
    world = make_world()
    for turn in range(6):
        log = await world.open()
        await world.append(1)
        world.disk.kill()
        segment = log._segments.active.file
        data = world.disk.files()[segment.path]
        write_back(world, segment.path, data[: segment.position] + b"torn %d " % turn * 50)
    await world.open()
    kept = {name: data for name, data in world.disk.files().items() if name.startswith("quarantine/")}
    assert 0 < sum(map(len, kept.values())) <= 1_000
    assert any(b"torn 5" in data for data in kept.values())


async def test_a_damaged_record_before_a_failed_one_is_named(world: Any) -> None:
    """When the only good frame of a sealed segment is one that its successor replaced, what it lost is named."""
    await world.open()
    await world.append()
    world.disk.fail_next(Sync, OSError(errno.EIO, "rotten"))
    await world.append()
    await world.append()
    world.disk.flip(FIRST, SEGMENT_HEADER_BYTES + 13)
    world.disk.kill()
    await world.open()
    assert set(await world.contents()) == {1}
    assert world.lost == [(0, 0)]
