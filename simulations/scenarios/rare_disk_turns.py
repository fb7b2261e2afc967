"""Moments in which a disk refuses, or takes long, just when that matters, made on purpose. See `rare_moments.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
import trio.lowlevel

from callboard.log.errors import CallboardError, LeaseLost, StorageError
from callboard.log.format.committed import decode_committed
from callboard.log.limits import KIB
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.rare_lease_turns import FLOOD, STEPS, ask_often, cancel_after

if TYPE_CHECKING:
    from callboard.simulations.scenarios.rare_moment_client import MomentClient

WAIT_S: Final = 3.0
LONG_S: Final = 600.0
SEGMENT: Final = 64 * KIB
PIECES: Final = 20
PIECE: Final = 8 * KIB


def segments_of(topic: Any, partition: int = 0) -> str:
    """What the paths of a partition's segments have in common, and those of its journal have not."""
    return f"{topic.topic_id}/{partition}/0"


def first_segment_of(topic: Any, partition: int = 0, suffix: str = ".log") -> str:
    """The path of a file of its first segment."""
    return f"{topic.topic_id}/{partition}/{0:020d}{suffix}"


def journal_of(topic: Any) -> str:
    """The same of its delivery journal."""
    return f"{topic.topic_id}/0/delivery/0"


def bytes_of(at: MomentClient, path: str, *, durable: bool) -> dict[str, bytes]:
    """What files with this in their paths hold, or hold after a power cut, without the zeros at their ends."""
    return {
        name: bytes(content.read(0, content.length)).rstrip(b"\0")
        for name, content in at.machine.disk.contents(durable=durable).items()
        if path in name
    }


INDEX: Final = ".index"
"""Of files that are made again from the log: nobody waits for them to be synced."""


def unsynced(at: MomentClient, path: str) -> list[str]:
    """Files whose bytes a power cut would take, of those with this in their paths."""
    left = bytes_of(at, path, durable=True)
    return [name for name, data in bytes_of(at, path, durable=False).items() if left.get(name) != data]


# -- publishing


async def fail_a_batch_in_parts(at: MomentClient) -> None:
    """A batch of which one partition stores nothing for certain, and another perhaps something, fails indefinitely."""
    topic, disk = await at.new_topic(partitions=2), at.machine.disk
    refusing = between(at.draws, 0, 1)
    certain = disk.fail_next("zero", "ENOSPC", path_contains=first_segment_of(topic, refusing), times=100)
    unsure = disk.fail_next("write", "EIO", path_contains=segments_of(topic, 1 - refusing))
    keys = [b"%d" % number for number in range(16)]
    try:
        await topic.publish_batch(keys, keys=keys)
    except CallboardError as error:
        if certain.hits and unsure.hits:
            at.expect(error.indefinite, True, "whether a batch that may be stored in part fails indefinitely")
    finally:
        disk.faults.withdraw(certain)
        disk.faults.withdraw(unsure)


async def flush_what_nobody_waited_for(at: MomentClient) -> None:
    """When a flush returns, everything before it is synced, whatever its level."""
    topic = await at.new_topic()
    for number in range(between(at.draws, 1, 5)):
        await topic.publish(b"%d" % number, acks=one_of(at.draws, ("none", "none", "leader")))
    await topic.flush()
    if at.is_undisturbed:
        left = [name for name in unsynced(at, segments_of(topic)) if not name.endswith(INDEX)]
        at.expect(left, [], "what a flush has left unsynced")


async def note_what_was_told(at: MomentClient) -> None:
    """Offsets that publishers were told are noted beside the log, synced or not, so that nobody else gets them."""
    topic = await at.new_topic()
    for number in range(between(at.draws, 1, 4)):
        receipt = await topic.publish(b"%d" % number, acks="leader")
        known = decode_committed(at.machine.disk.file(f"topics/{topic.topic_id}/0/committed")).visible_end
        at.expect_undisturbed(known > receipt.offset, True, "whether an offset that was told is noted")


async def publish_without_space(at: MomentClient) -> None:
    """What is refused because the disk is full is refused for certain, and taken when there is space."""
    topic, disk = await at.new_topic(segment_bytes=SEGMENT), at.machine.disk
    verb, suffix = one_of(
        at.draws,
        (("zero", ".log"), ("create", ".log"), ("zero", ".index"), ("create", ".index"), ("write", ".index")),
    )
    path = first_segment_of(topic, 0, suffix) if verb != "create" or suffix != ".log" else segments_of(topic)
    fault = disk.fail_next(verb, "ENOSPC", path_contains=path)
    try:
        with at.in_time(3 * WAIT_S, "publishing after a disk was full for a moment"):
            for _ in range(PIECES):
                while True:
                    try:
                        await topic.publish(bytes(PIECE))
                        break
                    except StorageError as error:
                        if error.indefinite and verb != "write" and at.is_undisturbed:
                            raise at.broken(
                                f"on a full disk a publish fails indefinitely: {error}"
                            ) from error
                        await trio.sleep(0.2)
    finally:
        disk.faults.withdraw(fault)


async def publish_through_failures(at: MomentClient) -> None:
    """What was stored while a disk failed now and then is there, and where it was, after the partition has crashed."""
    topic, disk = await at.new_topic(segment_bytes=SEGMENT), at.machine.disk
    told: dict[int, bytes] = {}

    async def publish(number: int) -> None:
        values = [b"%d %d" % (number, part) + bytes(PIECE) for part in range(3)]
        try:
            receipts = await topic.publish_batch(values)
        except CallboardError:
            await trio.sleep(0.1)
        else:
            told.update(zip((receipt.offset for receipt in receipts), values, strict=True))

    fault = disk.fail_next(
        one_of(at.draws, ("write", "sync", "create", "zero")),
        "EIO",
        path_contains=segments_of(topic),
        times=between(at.draws, 1, 2),
        after=between(at.draws, 0, 14),
    )
    try:
        for number in range(5):
            async with trio.open_nursery() as nursery:  # several commits' worth, or one of several segments
                for part in range(5):
                    nursery.start_soon(publish, 5 * number + part)
    finally:
        disk.faults.withdraw(fault)
    at.crash(topic)
    there = {record.offset: record.value async for record in topic.read()}
    lost = [offset for offset, value in told.items() if there.get(offset) != value]
    at.expect_undisturbed(lost, [], "what was stored beside failures, and is not there,")


# -- leases and acks


async def ack_beside_a_failure(at: MomentClient) -> None:
    """An ack that returned is synced, also when the log failed in the commit that it was in."""
    topic, disk = await at.filled(1), at.machine.disk

    async def publish() -> None:
        try:
            await topic.publish(b"beside")
        except CallboardError:
            return

    async with topic.subscribe(at.new_name(), visibility_timeout=LONG_S) as consumer:
        message = await consumer.get(timeout=WAIT_S)
        if message is None:
            return
        fault = disk.fail_next("write", "EIO", path_contains=segments_of(topic))
        slowness = disk.slow(topic.topic_id, 0.01)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish)
                if at.draws.random() < 0.5:
                    await trio.lowlevel.checkpoint()
                before = bytes_of(at, journal_of(topic), durable=True)
                await message.ack()
                is_synced = bytes_of(at, journal_of(topic), durable=True) != before
        finally:
            disk.faults.withdraw(fault)
            disk.unslow(slowness)
        at.expect_undisturbed(is_synced, True, "whether an ack that returned is synced")


async def read_leased_records_slowly(at: MomentClient) -> None:
    """A lease whose records took long to be read lasts as long as its consumer is told, and is its first attempt."""
    topic, group, disk = await at.filled(1), at.new_name(), at.machine.disk
    await at.runtime.restart(at.path_of(topic))  # what is in memory is forgotten,
    disk.cold = True  # by the system too
    stall = disk.hang(segments_of(topic))

    async def heal() -> None:
        await trio.sleep(one_of(at.draws, (0.8, 1.5)))
        disk.unhang(stall)

    try:
        async with (
            topic.subscribe(group, visibility_timeout=1.0) as consumer,
            topic.subscribe(group) as other,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(heal)
                message = await consumer.get(timeout=WAIT_S)
            if message is None:
                return
            at.expect_undisturbed(message.attempt, 1, "the attempt of what was read slowly")
            left_s = message.deadline - at.machine.clock.monotonic()
            if left_s > 0.1:
                found = await other.get(timeout=left_s - 0.1)
                at.expect_undisturbed(found, None, "receiving what another has")
    finally:
        disk.cold = False
        disk.unhang(stall)


async def give_up_a_flush(at: MomentClient) -> None:
    """A flush that is cancelled, while acks are sent again after a crash, leaves them to the next one."""
    topic, group = await at.filled(1), at.new_name()
    async with topic.subscribe(group, visibility_timeout=2.0) as consumer, topic.subscribe(group) as other:
        message = await consumer.get(timeout=WAIT_S)
        if message is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.crash_with_questions_in_hand, topic, 0.05)
            await trio.sleep(0.01)
            await message.ack(wait=False)
        await topic.describe()
        async with trio.open_nursery() as nursery:
            with at.small_mailbox(topic):
                for _ in range(FLOOD):
                    nursery.start_soon(ask_often, topic)
                for _ in range(4):
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel_after, scope, between(at.draws, 1, STEPS))
                        await consumer.flush()
        try:
            await consumer.flush()
        except LeaseLost:
            return
        found = await other.get(timeout=WAIT_S)
        at.expect_undisturbed(found, None, "receiving what was acked and flushed")


DISK_TURNS: Final = (
    fail_a_batch_in_parts,
    flush_what_nobody_waited_for,
    note_what_was_told,
    publish_without_space,
    publish_without_space,
    publish_through_failures,
    ack_beside_a_failure,
    read_leased_records_slowly,
    give_up_a_flush,
)
