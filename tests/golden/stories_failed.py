"""Stories that end badly: killed processes, torn and damaged files, lost power, failing disks."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import test_golden_directories as golden
import trio
from story import (
    KIB,
    Story,
    cut_last,
    flip,
    logs_of,
    lose_the_end,
    lower,
    story,
    take,
    tear,
    write_out,
)

import callboard
from callboard.simulations.disk.inodes import lose_unsynced
from callboard.simulations.disk.memory_disk import MemoryDisk

# -- journals


async def _busy(tell: Story, runtime: Any, rounds: int) -> None:
    """Two groups and a catalog that write much into their journals."""
    topic = await runtime.create_topic("work")
    total = 4 * rounds + 20
    await tell.publish_batch(topic, [b"work %d" % n for n in range(total)])
    async with topic.subscribe("steady") as steady, topic.subscribe("spoiled") as spoiled:
        for message in await take(spoiled, 4):
            await message.nack(delay=3600.0, reason="x" * 200)
        for number in range(rounds):
            for message in await take(steady, 4):
                if message.offset % 9 == 0 and message.attempt == 1:
                    await message.release()
                else:
                    await message.ack()
            for message in await take(spoiled, 1):
                if message.attempt == 1 and number % 2:
                    await message.nack(reason="once more: " + "y" * 100)
                else:
                    await message.ack()
            if number % 5 == 0:
                await runtime.alter_topic("work", max_message_bytes=100_000 + number)
                async with topic.subscribe(f"passing-{number}") as passing:
                    await take(passing, 3)
        await take(steady, 3)
        await take(spoiled, 3)
        tell.kill()


@story()
async def journals_with_snapshots(tell: Story) -> None:
    """The delivery journal and the catalog were shortened by snapshots, with leases out and delays to come; events
    follow the snapshots; killed."""
    lower(committer__SNAPSHOT_EVERY_BYTES=2 * KIB, catalog__SNAPSHOT_EVERY_BYTES=KIB)
    async with tell.open() as runtime:
        await _busy(tell, runtime, 30)


@story()
async def journals_of_many_segments(tell: Story) -> None:
    """Journals that were rolled into several segments without a snapshot; killed."""
    lower(journal__JOURNAL_SEGMENT_BYTES=3 * KIB)
    async with tell.open() as runtime:
        await _busy(tell, runtime, 30)


@story()
async def durable_actor(tell: Story) -> None:
    """A user's durable actor, with a snapshot and events after it; killed."""
    async with tell.open() as runtime:
        ledger = await runtime.spawn(golden.Ledger, name="ledger")
        for number in range(11):
            await ledger.ask([f"account-{number % 3}", number])
        tell.kill()


# -- ways to spoil files


def tear_all(directory: Path) -> None:
    """Half a frame at the end of a partition, its delivery journal and the catalog."""
    for name in ("log", "delivery", "catalog"):
        tear(logs_of(directory, name)[-1])


def cut_events(directory: Path) -> None:
    """The last frame of the delivery journal was never stored."""
    cut_last(logs_of(directory, "delivery")[-1], 1)


def flip_record(directory: Path) -> None:
    """One wrong bit in the frame of offset 10."""
    flip(logs_of(directory, "log")[0], 10)


def flip_events(directory: Path) -> None:
    """One wrong bit in the middle of the delivery journal."""
    flip(logs_of(directory, "delivery")[-1], 8)


def spoil_what_is_stored_twice(directory: Path) -> None:
    """One copy of each header, one slot of the committed file, one index; another index is missing."""
    logs = logs_of(directory, "log")
    for number, path in enumerate([*logs, *logs_of(directory, "delivery"), *logs_of(directory, "catalog")]):
        content = bytearray(path.read_bytes())
        content[20 + 64 * (number % 2)] ^= 1
        path.write_bytes(content)
    spoiled, *missing = sorted(logs[0].parent.glob("*.index"))
    for path in missing:
        path.unlink()
    for path in (spoiled, logs[0].with_name("committed")):
        content = bytearray(path.read_bytes())
        content[9] ^= 1
        path.write_bytes(content)


def repair(directory: Path) -> None:
    """Run `callboard repair`."""
    command = Path(sys.executable).with_name("callboard")
    subprocess.run([command, "repair", "--directory", str(directory)], check=True)


# -- processes that died


async def _in_the_middle_of_work(tell: Story, runtime: Any) -> None:
    topic = await runtime.create_topic("jobs", partitions=2, segment_bytes=64 * KIB)
    for n in range(40):
        value = (b"%05d" % n) + b"=" * 4000
        level = "leader" if n % 4 == 3 else "all"
        await tell.publish(topic, value, partition=0 if n < 30 else 1, key=b"k%d" % n, acks=level)
    consumer = await topic.subscribe("workers").__aenter__()
    messages = {(m.partition, m.offset): m for m in await take(consumer, 40)}
    for offset in (0, 1, 2, 5, 6, 12):
        await messages[0, offset].ack()
    await messages[0, 3].nack(reason="again")
    await messages[0, 8].nack(delay=7200.0)
    await messages[1, 0].ack()
    passing = await topic.subscribe("passing", durable=False).__aenter__()
    await (await passing.get()).ack()


@story()
async def killed(tell: Story) -> None:
    """Killed with leases out, an ephemeral group, unsynced records, space kept ahead and a control socket."""
    lower(index_file__INDEX_CHECKPOINT_BYTES=10 * KIB)
    async with tell.open(control=True) as runtime:
        await _in_the_middle_of_work(tell, runtime)
        settled = (0, 1, 2, 5, 6, 12, 8)
        rest = [[0, n, 2] for n in range(30) if n not in settled] + [[1, n, 2] for n in range(1, 10)]
        tell.delivers["workers of jobs"] = rest
        tell.kill()


@story()
async def deleting_broken_off(tell: Story) -> None:
    """Killed while a topic was being deleted: one of its partitions is gone, the other is not; another one stays."""
    catalog = import_module("callboard.actors.broker.catalog")
    remove = catalog.remove_tree

    async def remove_one(files: Any, path: str) -> None:
        await remove(files, f"{path}/0")
        tell.kill()

    catalog.remove_tree = remove_one
    async with tell.open() as runtime:
        going = await runtime.create_topic("going", partitions=2)
        await going.publish_batch([b"%d" % n for n in range(10)])
        staying = await runtime.create_topic("staying")
        await tell.publish(staying, b"still here")
        for topic in (going, staying):
            async with topic.subscribe("both") as consumer:
                await (await consumer.get()).ack()
        tell.delivers["both of staying"] = []
        await runtime.delete_topic("going")


@story(spoil=tear_all)
async def torn_tails(tell: Story) -> None:
    """Killed while a partition, its delivery journal and the catalog were being written: half a frame at each end."""
    async with tell.open() as runtime:
        await _in_the_middle_of_work(tell, runtime)
        tell.kill()


@story(spoil=cut_events)
async def cut_journal_tail(tell: Story) -> None:
    """Killed, then without power: the last events of the delivery journal, unsynced, are gone."""
    async with tell.open() as runtime:
        await _in_the_middle_of_work(tell, runtime)
        tell.kill()


# -- damage


@story(spoil=flip_record, loses=1)
async def damaged_middle(tell: Story) -> None:
    """One wrong bit in a sealed segment, which a group has yet to cross."""
    async with tell.open() as runtime:
        await _in_the_middle_of_work(tell, runtime)


@story(loses=1)
async def damaged_and_opened(tell: Story) -> None:
    """The same damage, opened once already: what was found stays a damage; more was published behind it."""
    await _open_damaged(tell, lambda: None)


@story(loses=1)
async def repaired(tell: Story) -> None:
    """The same damage, repaired: a recorded gap, and what was taken out is kept in quarantine."""
    await _open_damaged(tell, lambda: repair(tell.directory))


async def _open_damaged(tell: Story, before: Callable[[], None]) -> None:
    async with tell.open() as runtime:
        await _in_the_middle_of_work(tell, runtime)
    flip_record(tell.directory)
    before()
    tell.clock.skip(60)
    async with tell.open() as runtime:
        for n in range(3):
            await tell.publish(runtime.topic("jobs"), b"behind the damage %d" % n, partition=0)
        async with runtime.topic("jobs").subscribe("behind", start=32) as consumer:
            await (await consumer.get()).ack()


@story(spoil=flip_events)
async def damaged_delivery_journal(tell: Story) -> None:
    """One wrong bit in the middle of a delivery journal: what the rest says is settled stays settled."""
    await _acknowledge_twelve(tell)


@story()
async def repaired_delivery_journal(tell: Story) -> None:
    """One wrong bit in the middle of a delivery journal, repaired before it was opened."""
    await _acknowledge_twelve(tell)
    flip_events(tell.directory)
    repair(tell.directory)


async def _acknowledge_twelve(tell: Story) -> None:
    async with tell.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await tell.publish_batch(topic, [b"job %d" % n for n in range(20)])
        async with topic.subscribe("workers") as consumer:
            for message in await take(consumer, 12):
                await message.ack()


@story(spoil=spoil_what_is_stored_twice)
async def spoiled_copies(tell: Story) -> None:
    """One copy of what is stored twice is damaged, and so are indexes: nothing is lost."""
    lower(index_file__INDEX_CHECKPOINT_BYTES=10 * KIB)
    async with tell.open() as runtime:
        await _in_the_middle_of_work(tell, runtime)


@story()
async def torn_and_recovered(tell: Story) -> None:
    """A torn tail that an opening took out of service: it lies in quarantine."""
    async with tell.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await tell.publish_batch(topic, [b"job %d" % n for n in range(20)])
    tear(logs_of(tell.directory, "log")[-1])
    tell.clock.skip(60)
    async with tell.open() as runtime:
        await tell.publish(runtime.topic("jobs"), b"after the tear")


# -- gaps


async def _named_beyond_the_end(tell: Story) -> None:
    """Unsynced records were delivered and named by the journal; then the log lost them."""
    async with tell.open() as runtime:
        topic = await runtime.create_topic("jobs")
        for n in range(20):
            await tell.publish(topic, b"job %d" % n)
        async with topic.subscribe("workers") as consumer:
            for message in await take(consumer, 20):
                if message.offset % 3:
                    await message.ack()


@story(spoil=lose_the_end, loses=5)
async def gap_to_come(tell: Story) -> None:
    """A journal names offsets that the log has lost: opening jumps over them."""
    await _named_beyond_the_end(tell)


@story(loses=5)
async def gap_recorded(tell: Story) -> None:
    """The same, opened already: the next segment records the gap, and more follows it."""
    await _named_beyond_the_end(tell)
    lose_the_end(tell.directory)
    tell.clock.skip(60)
    async with tell.open() as runtime:
        await tell.publish(runtime.topic("jobs"), b"beyond the gap")


# -- failures of the disk and of power, simulated


@story(simulated=True)
async def failed_sync(tell: Story) -> None:
    """A sync failed: the segment was abandoned at its proven end, and another goes on from there; closed."""
    tell.disk = MemoryDisk(clock=tell.clock)
    async with tell.open() as runtime:
        topic = await runtime.create_topic("jobs")
        for n in range(10):
            await tell.publish(topic, b"job %d" % n)
        await topic.publish(b"unproven", acks="leader")
        for path in ("/0/0", "/0/delivery/"):
            tell.disk.fail_next("sync", OSError(errno.EIO, "simulated"), path_contains=path, pages="reverted")
            await _until_it_heals(tell, topic)
        async with topic.subscribe("workers") as consumer:
            for message in await take(consumer, 5):
                await message.ack()
    write_out(tell)


async def _until_it_heals(tell: Story, topic: Any) -> None:
    """Publish and acknowledge until both are well again."""
    for n in range(20):
        try:
            await tell.publish(topic, b"while it is sick %d" % n)
            async with topic.subscribe("sick") as consumer:
                await (await consumer.get()).ack()
        except callboard.CallboardError:
            continue


@story(simulated=True)
async def power_lost(tell: Story) -> None:
    """Power was lost: what was acknowledged as synced is there, what was not is gone; leases and delays stand."""
    tell.disk = MemoryDisk(clock=tell.clock)
    with trio.CancelScope() as life:
        try:
            async with tell.open() as runtime:
                topic = await runtime.create_topic("jobs")
                for n in range(10):
                    await tell.publish(topic, b"job %d" % n)
                async with topic.subscribe("workers") as consumer:
                    for message in (await take(consumer, 6))[:4]:
                        await message.ack()
                    for n in range(3):
                        await topic.publish(b"unsynced %d" % n, acks="leader")
                    tell.disk.crash(lose_unsynced)
                    write_out(tell)  # before anybody notices, and heals it
                    life.cancel()
                    await trio.lowlevel.checkpoint()
        except* callboard.CallboardError:
            pass
