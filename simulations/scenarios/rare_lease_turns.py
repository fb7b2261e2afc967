"""Moments that leases and their consumers meet seldom, each made on purpose.

A turn makes the moment itself: it crashes a partition while it is asked something, lets a disk wait, fills a mailbox.
Where no fault of the plan struck, it then knows what must come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
import trio.lowlevel

from callboard.log.errors import CallboardError, LeaseLost, StorageError, TopicNotFound
from callboard.log.limits import KIB
from callboard.simulations.scenarios.draws import between, one_of

if TYPE_CHECKING:
    from callboard.simulations.scenarios.rare_moment_client import MomentClient

WAIT_S: Final = 3.0
"""How long a message is waited for that is there."""
LONG_S: Final = 600.0
"""A visibility timeout that does not run out."""
STEPS: Final = 40
"""Of other tasks, among which a crash comes."""
FLOOD: Final = 6
"""This many tasks ask a partition at once, without a pause."""
ASKED: Final = 100
"""So often each of them."""


# -- what becomes of a lease


async def nack_after_the_lease(at: MomentClient) -> None:
    """A nack counts after its lease has run out, as long as nobody has the message: it comes after the nack's delay."""
    topic = await at.filled(1)
    async with topic.subscribe(at.new_name(), visibility_timeout=0.2, max_in_flight=1) as consumer:
        message = await consumer.get(timeout=WAIT_S)
        if message is None:
            return
        await trio.sleep(0.3)
        began = trio.current_time()
        await at.accepted(message.nack, delay=1.0)
        again = await consumer.get(timeout=WAIT_S)
        waited_s = trio.current_time() - began
        at.expect_undisturbed(
            again is not None and waited_s > 0.99, True, f"a late nack, {waited_s:g} s later,"
        )


async def extend_through_a_crash(at: MomentClient) -> None:
    """A lease that was extended lasts as long as was told, also when its partition's actor crashes."""
    topic, group = await at.filled(1), at.new_name()
    settings = {"visibility_timeout": 0.5}
    async with topic.subscribe(group, **settings) as holder, topic.subscribe(group) as other:
        message = await holder.get(timeout=WAIT_S)
        if message is None:
            return
        try:
            await message.extend(8.0)
        except LeaseLost:
            return  # it took long
        at.crash(topic)
        found = await other.get(timeout=WAIT_S)
        at.expect_undisturbed(found, None, "receiving what another has extended")
        await at.accepted(message.ack)


async def leave_amid_a_crash(at: MomentClient) -> None:
    """What a consumer holds that leaves is free for others, also when its partition crashes meanwhile."""
    topic, group = await at.filled(2), at.new_name()
    async with trio.open_nursery() as nursery:
        async with topic.subscribe(group, visibility_timeout=LONG_S) as holder:
            held = [await holder.get(timeout=WAIT_S) for _ in range(2)]
            nursery.start_soon(at.crash_with_questions_in_hand, topic, 0.1)
            await trio.sleep(0.01)
    if None in held:
        return
    async with topic.subscribe(group) as other:
        found = [await other.get(timeout=WAIT_S) for _ in range(2)]
        at.expect_undisturbed(
            None in found, False, "whether what a consumer held is missing after it has left"
        )


async def end_on_a_refusing_disk(at: MomentClient) -> None:
    """A group that cannot be ended, because the disk refuses, is there for those who join later."""
    topic, group = await at.filled(1), at.new_name()
    async with topic.subscribe(group, durable=False):
        fault = at.machine.disk.fail_next(
            "write", "EIO", path_contains="catalog", times=between(at.draws, 1, 3)
        )
    try:
        await trio.sleep(one_of(at.draws, (0.0, 0.05)))
    finally:
        at.machine.disk.faults.withdraw(fault)
    with at.in_time(2 * WAIT_S, "joining a group that could not be ended"):
        async with topic.subscribe(group, durable=False) as consumer:
            await consumer.get(timeout=WAIT_S)


async def renew_through_a_crash(at: MomentClient) -> None:
    """A body keeps its lease when its partition crashes as it handles the renewal."""
    topic = await at.filled(1)
    # On a slow disk the partition takes long to come back.
    visible_s = max(1.5, 150 * at.machine.disk.latency_s)
    async with topic.subscribe(at.new_name(), visibility_timeout=visible_s) as consumer:
        with at.keeps_lease():
            async with consumer.receive(timeout=WAIT_S) as message:
                if message is None:
                    return
                renewed_at = message.deadline - visible_s * 2 / 3
                await trio.sleep(max(0.0, renewed_at - at.machine.clock.monotonic() - 0.02))
                await at.crash_with_questions_in_hand(topic, 0.1)
                await trio.sleep(visible_s)


async def renew_short_beside_long(at: MomentClient) -> None:
    """A lease with a short visibility timeout is renewed in time while one with a long one is held."""
    topic, group = await at.filled(1), at.new_name()
    patient = topic.subscribe(at.new_name(), visibility_timeout=LONG_S)
    hasty = topic.subscribe(group, visibility_timeout=0.5)
    async with patient, hasty, topic.subscribe(group) as other:
        async with patient.receive(timeout=WAIT_S):
            with at.keeps_lease():
                async with hasty.receive(timeout=WAIT_S) as message:
                    if message is not None:
                        found = await other.get(timeout=2.0)
                        at.expect_undisturbed(found, None, "receiving what another one's body has")


async def cancel_a_body(at: MomentClient) -> None:
    """A message whose body is cancelled is free at once, and that is no attempt."""
    topic, group = await at.filled(1), at.new_name()
    settings = {"visibility_timeout": LONG_S}
    async with topic.subscribe(group, **settings) as consumer, topic.subscribe(group) as other:
        is_held = False
        with trio.CancelScope() as scope:
            async with consumer.receive(timeout=WAIT_S) as message:
                is_held = message is not None
                scope.cancel()
                await trio.lowlevel.checkpoint()
        if is_held:
            found = await other.get(timeout=WAIT_S)
            attempt = None if found is None else found.attempt
            at.expect_undisturbed(attempt, 1, "the attempt after a body that was cancelled")


async def work_long_on_one(at: MomentClient) -> None:
    """While one body takes long, other consumers get what was fetched with its message."""
    topic, group = await at.new_topic(), at.new_name()
    count = 40
    await topic.publish_batch([b"%d" % number for number in range(count)])
    settings = {"visibility_timeout": 2.0}
    async with topic.subscribe(group, **settings) as slow, topic.subscribe(group) as quick:
        seen = set()
        for _ in range(between(at.draws, 3, 12)):
            message = await slow.get(timeout=WAIT_S)
            if message is None:
                return
            await message.ack(wait=False)
            seen.add(message.offset)
        with at.keeps_lease():
            async with slow.receive(timeout=WAIT_S) as message:
                if message is None:
                    return
                seen.add(message.offset)
                while (other := await quick.get(timeout=0.9)) is not None:
                    await other.ack(wait=False)
                    seen.add(other.offset)
                at.expect_undisturbed(len(seen), count, "how many messages were given out beside a long body")


async def fill_a_batch_slowly(at: MomentClient) -> None:
    """A batch that takes long to fill has nothing in it that others were given meanwhile."""
    topic, group = await at.filled(2), at.new_name()
    taken: set[int] = set()

    async def fill() -> None:
        batch = await anext(slow.batches(max_records=50, max_wait=1.2))
        twice = taken & {message.offset for message in batch}
        at.expect_undisturbed(twice, set(), "what is in a batch although another has settled it")

    settings = {"visibility_timeout": 0.3, "distribution": one_of(at.draws, ("round-robin", "random"))}
    async with topic.subscribe(group, **settings) as slow, topic.subscribe(group) as quick:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill)
            await trio.sleep(0.05)
            for _ in range(4):
                message = await quick.get(timeout=0.3)
                if message is not None:
                    await message.ack()
                    taken.add(message.offset)
            await topic.publish(b"more")


async def back_off_often(at: MomentClient) -> None:
    """However often a message has failed, it comes again after `max_backoff` at the latest."""
    topic = await at.filled(1)
    async with topic.subscribe(
        at.new_name(), visibility_timeout=LONG_S, backoff=0.1, max_backoff=0.2
    ) as consumer:
        for number in range(9):
            message = await consumer.get(timeout=WAIT_S)
            at.expect_undisturbed(
                message is None, False, f"whether a message is missing after {number} nacks"
            )
            if message is None:
                return
            await message.nack()


async def crash_amid_a_cold_read(at: MomentClient) -> None:
    """A lease whose records are still read when the partition crashes is nobody's: its messages come at once."""
    topic, disk, count = await at.new_topic(segment_bytes=64 * KIB), at.machine.disk, 20
    for _ in range(count):
        await topic.publish(bytes(8 * KIB))
    at.crash(topic)  # what is in memory is forgotten
    await topic.describe()
    attempts: list[int] = []
    stall = disk.hang(f"{topic.topic_id}/0/0")  # the log's segments, not its journal

    async def crash_and_heal() -> None:
        await trio.sleep(one_of(at.draws, (0.05, 0.2)))
        at.crash(topic)
        disk.unhang(stall)

    try:
        async with topic.subscribe(at.new_name(), visibility_timeout=LONG_S) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(crash_and_heal)
                with at.in_time(2 * WAIT_S, "receiving what nobody had been given when a partition crashed"):
                    while len(attempts) < count:
                        batch = await anext(consumer.batches(max_records=count))
                        attempts += batch.attempts()
                        await batch.ack(wait=False)
        at.expect_undisturbed(set(attempts) - {1}, set(), "the attempts of what nobody had been given")
    finally:
        disk.unhang(stall)


# -- consumers that wait


async def ack_into_a_full_mailbox(at: MomentClient) -> None:
    """Acks that nobody waits for, and that found a mailbox full, are sent when it has room."""
    topic, group = await at.filled(1), at.new_name()
    settings = {"visibility_timeout": 1.5}
    async with topic.subscribe(group, **settings) as consumer, topic.subscribe(group) as other:
        message = await consumer.get(timeout=WAIT_S)
        if message is None:
            return
        with at.full_mailbox(topic):
            await message.ack(wait=False)
            await trio.sleep(0.05)
        found = await other.get(timeout=WAIT_S)
        at.expect_undisturbed(found, None, "receiving what was acked without waiting")


async def give_up_at_a_full_mailbox(at: MomentClient) -> None:
    """A consumer that gives up while a mailbox is full hears of what comes later."""
    topic = await at.new_topic()
    async with topic.subscribe(at.new_name()) as consumer:
        async with trio.open_nursery() as nursery:
            for _ in range(FLOOD):
                nursery.start_soon(ask_often, topic)
            with at.small_mailbox(topic):
                for _ in range(10):
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel_after, scope, between(at.draws, 1, STEPS))
                        await consumer.get()
            nursery.cancel_scope.cancel()
        found: list[Any] = []

        async def get() -> None:
            found.append(await consumer.get(timeout=WAIT_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await trio.sleep(0.2)
            await topic.publish(b"1")
        at.expect_undisturbed(found == [None], False, "whether a consumer that had given up was not told")


async def ask_often(topic: Any) -> None:
    """Keep a partition's mailbox busy for a while."""
    for _ in range(ASKED):
        try:
            await topic.describe()
        except CallboardError:
            return


async def cancel_after(scope: trio.CancelScope, steps: int) -> None:
    """Cancel after this many steps of other tasks."""
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def wait_for_what_is_deleted(at: MomentClient) -> None:
    """A consumer that waits for room of its own, or for a failed partition, hears that its topic is deleted."""
    topic = await at.filled(2)
    is_failed = at.draws.random() < 0.5
    async with topic.subscribe(at.new_name(), visibility_timeout=LONG_S, max_in_flight=1) as consumer:
        if await consumer.get(timeout=WAIT_S) is None:
            return
        if is_failed:
            await at.fail(topic)
        async with trio.open_nursery() as nursery:
            with at.in_time(2 * WAIT_S, "hearing that a topic is deleted"):
                nursery.start_soon(_delete_soon, at, topic)
                await at.refused(TopicNotFound, consumer.get)


async def _delete_soon(at: MomentClient, topic: Any) -> None:
    await trio.sleep(0.1)
    await at.runtime.delete_topic(topic.name)


async def wait_for_a_revival(at: MomentClient) -> None:
    """A consumer that has met a failed partition, beside another, reads it again when it is revived."""
    topic = await at.new_topic(partitions=2)
    async with topic.subscribe(at.new_name()) as consumer:
        await consumer.get(timeout=0)
        found: list[Any] = []

        async def get() -> None:
            found.append(await consumer.get(timeout=3 * WAIT_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await at.fail(topic)
            await trio.sleep(0.2)
            await at.runtime.restart(at.path_of(topic))
            await topic.publish(b"1", partition=0)
        at.expect_undisturbed(found == [None], False, "whether a revived partition is not read")


# -- where groups begin, and what their order waits for


async def begin_behind_what_is_unsynced(at: MomentClient) -> None:
    """A group that begins at the end gets nothing that was published before it, synced or not."""
    topic = await at.new_topic()
    for number in range(between(at.draws, 1, 3)):
        await topic.publish(b"%d" % number, acks="leader")
    async with topic.subscribe(at.new_name(), start="end") as consumer:
        receipt = await topic.publish(b"next")
        message = await consumer.get(timeout=WAIT_S)
        offset = None if message is None else message.offset
        at.expect_undisturbed(offset, receipt.offset, "the first message of a group that begins at the end")


async def read_on_after_a_failed_read(at: MomentClient) -> None:
    """In a group with order per key a read that fails is made again, and everything comes."""
    topic, disk, count = await at.filled(6), at.machine.disk, 6
    at.crash(topic)  # what is in memory is forgotten
    await topic.describe()
    fault = disk.fail_read(f"{topic.topic_id}/0/0", times=between(at.draws, 1, 3))
    seen = set()
    try:
        async with topic.subscribe(at.new_name(), ordering="key", visibility_timeout=LONG_S) as consumer:
            for _ in range(2 * count):
                try:
                    message = await consumer.get(timeout=1.0)
                except StorageError:
                    continue
                if message is not None:
                    seen.add(message.offset)
                    await message.ack(wait=False)
                if len(seen) == count:
                    break
        at.expect_undisturbed(len(seen), count, "how many messages came after a read that failed")
    finally:
        disk.faults.withdraw(fault)


LEASE_TURNS: Final = (
    nack_after_the_lease,
    extend_through_a_crash,
    leave_amid_a_crash,
    end_on_a_refusing_disk,
    renew_through_a_crash,
    renew_short_beside_long,
    cancel_a_body,
    work_long_on_one,
    fill_a_batch_slowly,
    back_off_often,
    crash_amid_a_cold_read,
    ack_into_a_full_mailbox,
    give_up_at_a_full_mailbox,
    give_up_at_a_full_mailbox,
    wait_for_what_is_deleted,
    wait_for_a_revival,
    begin_behind_what_is_unsynced,
    read_on_after_a_failed_read,
)
