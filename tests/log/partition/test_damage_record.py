"""What was lost is told at every opening until somebody acknowledges it."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from callboard.log.errors import FormatTooNew
from callboard.log.limits import DAMAGES_KEPT, KIB
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.segments.damage_record import (
    DAMAGES_NAME,
    VERSION,
    DamageEntry,
    DamageRecord,
    decode,
    encode,
)
from callboard.log.segments.segments import Damage, Gap

LOST = Damage("orders/0/1.log", 128, 256, 10, 19)
OTHER = Damage("orders/0/1.log", 300, 400, 30, 34, "it belongs to another log")
HARMLESS = Damage("orders/0/1.log", 0, 128, 10, 9)


async def damaged_world(make_world: Any, *, place: int) -> Any:
    """A closed log of several segments in which a byte of the segment at `place` is flipped."""
    world = make_world(segment_bytes=64 * KIB)
    await world.open()
    for _ in range(120):
        await world.append(size=1800)
    await world.log.close()
    paths = sorted(path for path in world.disk.files() if path.endswith(".log"))
    assert len(paths) > 2
    world.disk.flip(paths[place], 5000)
    return world


async def read_everything(world: Any) -> list[tuple[int, int]]:
    """Read to the end; returns the offsets that are lost."""
    lost: list[tuple[int, int]] = []
    offset = world.log.start_offset
    while offset < world.log.visible_end:
        reading = await world.log.read(offset, max_records=1000)
        lost += reading.lost
        offset = reading.next_offset
    return lost


@pytest.mark.parametrize("place", [0, 1, -1])
async def test_damage_is_told_at_every_opening(make_world: Any, place: int) -> None:
    """What one life of a partition found damaged, the next ones tell, whether or not anybody reads there again."""
    world = await damaged_world(make_world, place=place)
    await world.open()
    lost = await read_everything(world)
    assert lost
    told, count = world.log.damages, world.log.record.lost_records
    assert sum(last + 1 - first for first, last in lost) == count
    for _ in range(3):
        await world.log.close()
        await world.open()
        assert (told, count) == (world.log.damages, world.log.record.lost_records)
    await read_everything(world)
    assert (told, count) == (world.log.damages, world.log.record.lost_records)


@pytest.mark.parametrize("is_accepted", [False, True])
async def test_an_offset_that_was_lost_is_never_given_again(make_world: Any, is_accepted: bool) -> None:
    """The last frame was found damaged, and now nothing but the record tells that there was one."""
    world = make_world()
    await world.open()
    await world.append(2, 4, size=60)
    kept = world.log.size_bytes
    await world.append(1, 4, size=60)
    await world.log.close()
    folder = "topics/t/0"
    path = f"{folder}/{0:020}.log"
    lost = Damage(path, kept, world.log.size_bytes, 8, 11)
    world.disk.plant_file(path, world.disk.files()[path][:kept])
    world.disk.plant_file(f"{folder}/{DAMAGES_NAME}", encode([DamageEntry(lost, 1, is_accepted)]))
    await world.files_gone(f"{folder}/committed")
    await world.open()
    assert 12 == world.log.next_offset
    assert (Gap(8, 11, "damaged"),) == world.log.gaps
    await world.append(1)
    assert 13 == world.log.next_offset


async def test_a_segment_that_cannot_be_read_is_told_at_every_opening(make_world: Any) -> None:
    """A file that one opening sets aside is told by the next one too."""
    world = await damaged_world(make_world, place=1)
    path = min(path for path in world.disk.files() if path.endswith(".log"))
    world.disk.plant_file(path, b"\xa5" * 9000)
    await world.open()
    told = world.log.damages
    assert world.log.record.lost_records
    await world.log.close()
    await world.open()
    assert told == world.log.damages


async def test_accepted_damage_is_told_no_more(make_world: Any) -> None:
    """`repair` with `accept` ends the telling; what it gives up itself is told until then, and by verify."""
    world = await damaged_world(make_world, place=1)
    report = await repair_directory(world.disk)
    assert report.lost
    await world.open()
    count = sum(last + 1 - first for _, first, last in report.lost)
    assert count == world.log.record.lost_records
    await read_everything(world)
    assert count == world.log.record.lost_records
    await world.log.close()
    report = await verify_directory(world.disk)
    assert {"recorded"} <= {note.kind for note in report.notes}
    planned = await repair_directory(world.disk, accept=True, dry_run=True)
    assert ["accept"] == [action.kind for action in planned.actions]
    assert "recorded" in {note.kind for note in (await verify_directory(world.disk)).notes}
    done = await repair_directory(world.disk, accept=True)
    assert planned.actions == done.actions
    assert () == (await repair_directory(world.disk, accept=True)).actions
    assert "recorded" not in {note.kind for note in (await verify_directory(world.disk)).notes}
    await world.open()
    await read_everything(world)
    assert ((), 0) == (world.log.damages, world.log.record.lost_records)


async def test_a_record_that_cannot_be_read_is_told(make_world: Any) -> None:
    """Damage of the record itself is damage."""
    world = await damaged_world(make_world, place=1)
    await world.open()
    await read_everything(world)
    await world.log.close()
    path = next(path for path in world.disk.files() if path.endswith("/" + DAMAGES_NAME))
    world.disk.flip(path, 30)
    await world.open()
    assert "cannot be read" in str(world.log.damages[0])


def test_records_come_back() -> None:
    """What is encoded is decoded; what a later version wrote is not taken for damage."""
    entries = [DamageEntry(LOST, 5, is_accepted=True), DamageEntry(OTHER, 9), DamageEntry(HARMLESS, 0)]
    data = encode(entries)
    assert entries == decode(data)
    head, body = data[:4] + (VERSION + 1).to_bytes(4, "little"), data[12:]
    with pytest.raises(FormatTooNew):
        decode(head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body)
    with pytest.raises(ValueError, match="not a record"):
        decode(data[:-1])


def test_the_first_version_is_read() -> None:
    """Records whose checksum does not cover the head are read: earlier versions wrote them so."""
    entries = [DamageEntry(LOST, 5, is_accepted=True), DamageEntry(OTHER, 9)]
    body = encode(entries)[12:]
    head = b"CBDM" + (1).to_bytes(4, "little")
    assert entries == decode(head + zlib.crc32(body).to_bytes(4, "little") + body)


def test_a_flipped_bit_is_damage() -> None:
    """One bit that is wrong anywhere is damage, also in the version: that no newer Callboard wrote."""
    data = encode([DamageEntry(LOST, 5), DamageEntry(OTHER, 9)])
    for bit in range(8 * len(data)):
        rotten = bytearray(data)
        rotten[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="not a record"):
            decode(bytes(rotten))


async def test_each_lost_offset_counts_once(make_world: Any) -> None:
    """The same loss found twice, or in parts, is one loss; the record is bounded."""
    record = DamageRecord(await make_world().disk.incarnate("x"), "orders/0")
    assert [LOST, OTHER, HARMLESS] == record.add([LOST, LOST, OTHER, HARMLESS], 7)
    part = Damage("elsewhere", 0, 0, 12, 13)
    assert [] == record.add([part, OTHER], 8)
    assert 15 == record.lost_records
    wider = Damage("elsewhere", 0, 0, 15, 31)
    assert [wider] == record.add([wider], 9)
    assert 25 == record.lost_records
    record.add([Damage("many", at, at, 0, -1) for at in range(2 * DAMAGES_KEPT)], 10)
    assert DAMAGES_KEPT == len(record.entries)
