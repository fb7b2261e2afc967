"""Delivery journals whose last append rots, that make no sense, or that a later version wrote."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
import trio

import callboard
from callboard.actors.notices import JournalSalvaged
from callboard.actors.partition.group_records import RECORDS_VERSION
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, ignore
from callboard.log.limits import Limits
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.scenarios.damaging import journal_frames

MESSAGES = 20
GROUPS = ("first", "second", "third")


async def fill(runtime: Any) -> None:
    """Three messages, of which the first is settled."""
    topic = await runtime.create_topic("orders")
    await topic.publish_batch([b"one", b"two", b"three"])
    async with topic.subscribe("group") as consumer:
        await (await consumer.get()).ack()


def rot_last_append(world: Any) -> None:
    """Flip one bit in the last byte of the delivery journal that is not zero."""
    path = world.journals()[-1]
    world.disk.flip(path, len(world.disk.files()[path].rstrip(b"\0")) - 1, 1)


def told(runtime: Any) -> list[str]:
    """What was told of salvaged journals."""
    return [logged.event.damage for logged in runtime.events() if isinstance(logged.event, JournalSalvaged)]


async def test_a_bit_that_rots_in_the_last_append_before_a_restart_is_told(
    autojump_clock: Any, world: Any
) -> None:
    """An actor's restart knows how far its journal was proven: what is missing is named, and nothing else is lost."""
    async with world.open() as runtime:
        await fill(runtime)
        assert not told(runtime)
        runtime.crash("topics/orders/0", RuntimeError("drill"))
        rot_last_append(world)
        assert {1, 2} <= set(await world.drain(runtime))
        assert len(told(runtime)) == 1
        assert "are lost" in told(runtime)[0]
        (partition,) = (await runtime.stats()).partitions
        assert "/0/delivery: records" in partition.damages[0]
    async with world.open() as runtime:
        assert await world.drain(runtime) == {}
        assert not told(runtime)


async def test_a_bit_that_rots_in_the_last_append_before_an_opening_is_told(
    autojump_clock: Any, world: Any
) -> None:
    """So does the next process, by the file `committed` beside the journal."""
    async with world.doomed() as runtime:
        await fill(runtime)
    rot_last_append(world)
    async with world.open() as runtime:
        assert {1, 2} <= set(await world.drain(runtime))
        assert len(told(runtime)) == 1


async def test_a_journal_whose_segments_are_gone_is_told(autojump_clock: Any, world: Any) -> None:
    """What the segments held is lost and told; every message comes again."""
    async with world.open() as runtime:
        await fill(runtime)
    for path in world.journals():
        world.disk.tree.unlink(path)
    async with world.open() as runtime:
        assert set(await world.drain(runtime)) == {0, 1, 2}
        assert len(told(runtime)) == 1


async def test_a_journal_whose_only_header_is_gone_is_told(autojump_clock: Any, world: Any) -> None:
    """Without its header nothing in a segment can be read: repair begins the journal anew, and says so."""
    async with world.open() as runtime:
        await fill(runtime)
    path = world.journals()[-1]
    world.put(path, b"x" * 128 + world.disk.files()[path][128:])
    for salvaged in (1, 0):
        async with world.open() as runtime:
            assert set(await world.drain(runtime)) == ({0, 1, 2} if salvaged else set())
            assert len(told(runtime)) == salvaged


async def test_what_was_never_synced_may_be_torn_without_a_word(autojump_clock: Any, world: Any) -> None:
    """A power cut that takes settlements nobody was told of is no damage."""
    async with world.doomed(lambda _: ()) as runtime:
        await fill(runtime)
        async with runtime.topic("orders").subscribe("group") as consumer:
            await (await consumer.get()).ack(wait=False)
    async with world.open() as runtime:
        assert {2} <= set(await world.drain(runtime))
        assert not told(runtime)


async def append(world: Any, record: object, directory: str | None = None) -> bytes:
    """Append a record to the delivery journal (or another), as nothing of Callboard would; returns its segment."""
    if directory is None:
        directory = world.journals()[-1].rpartition("/")[0]
    files = await world.disk.incarnate("drill")
    journal = await Journal.open(
        files,
        directory,
        Owner(ignore, ignore, RECORDS_VERSION),
        clock=world.clock,
        entropy=SeededEntropy(5),
    )
    await journal.append([cbor2.dumps(record)])
    path = journal.segment.path
    await journal.close()
    return bytes(world.disk.files()[path])


@pytest.mark.parametrize("record", [[9, 1, []], [0, 1, [["Q"]]], {"kind": 1, "group": 1, "must": ["later"]}])
async def test_a_record_of_a_later_version_is_too_new(
    autojump_clock: Any, world: Any, record: object
) -> None:
    """The partition refuses it as such; nothing is repaired, nothing goes to quarantine, nothing changes."""
    async with world.open() as runtime:
        await fill(runtime)
    written = await append(world, record)
    async with world.open() as runtime:
        with pytest.raises(callboard.PartitionUnavailable) as raised:
            await world.values(runtime)
        assert isinstance(raised.value.__cause__, callboard.FormatTooNew)
        assert "repair" not in str(raised.value)
        assert not told(runtime)
    assert written == world.disk.files()[world.journals()[-1]]
    assert not [path for path in world.disk.files() if path.startswith("quarantine/")]


@pytest.mark.parametrize(
    ("record", "who"),
    [
        ([0, 1, [["A", 77, [1, 2]]]], "the event ('A', 77, (1, 2)) of group 1 does not fit"),
        ([0, 1, [["L", 0, 0, [1, 2, 1]]]], "the events of group 1 do not parse"),
        ([0, 8, []], "events name group 8, which was never opened"),
        ("?", "a record does not parse"),
    ],
)
async def test_events_that_do_not_fit_fail_the_partition_loudly(
    autojump_clock: Any, world: Any, record: object, who: str
) -> None:
    """They are a bug's symptom: the state is failed, the error names group and event, and nothing is rewritten."""
    async with world.open() as runtime:
        await fill(runtime)
    written = await append(world, record)
    async with world.open() as runtime:
        with pytest.raises(callboard.PartitionUnavailable) as raised:
            await world.values(runtime)
        assert raised.value.state == "failed"
        assert isinstance(raised.value.__cause__, callboard.JournalInvalid)
        assert who in str(raised.value)
        assert "--reset-deliveries" in str(raised.value)
        assert not told(runtime)
    assert written == world.disk.files()[world.journals()[-1]]


async def test_a_snapshot_equals_the_events_before_it(autojump_clock: Any, world: Any) -> None:
    """What waits for the journal as a snapshot is taken is an event before it: damage to the snapshot costs nothing."""
    world.disk.latency_s = 0.001

    async def settle(runtime: Any, group: str) -> None:
        async with runtime.topic("orders").subscribe(group) as consumer:
            for _ in range(MESSAGES):
                await (await consumer.get()).ack()

    async with world.open(limits=Limits(snapshot_every_bytes=300, journal_reserve_bytes=512)) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(MESSAGES)])
        async with trio.open_nursery() as nursery:
            for group in GROUPS:
                nursery.start_soon(settle, runtime, group)
    frames = journal_frames(world.disk, world.journals()[-1].rpartition("/")[0])
    snapshots = [frame for frame in frames if frame.is_superfluous]
    world.disk.flip(snapshots[-1].path, snapshots[-1].end - 1, 1)
    async with world.open() as runtime:
        for group in GROUPS:
            assert set(await world.drain(runtime, group=group)) == set()
        assert not told(runtime)


async def test_a_journal_heals_where_only_its_state_fits(autojump_clock: Any, world: Any) -> None:
    """A segment that finds no space for its reserve gives back what it took: without the reserve there is enough."""
    async with world.open() as runtime:
        await fill(runtime)
        async with runtime.topic("orders").subscribe("group") as consumer:
            first = await consumer.get()
            world.disk.fill(20 * 1024)
            world.disk.fail_next("sync", "EIO", path_contains="/delivery/")
            await first.ack()
            await (await consumer.get()).ack()
    async with world.open() as runtime:
        assert await world.drain(runtime) == {}
