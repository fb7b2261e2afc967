"""Moments that partitions and supervisors meet seldom, each made on purpose. See `rare_moments.py`.

A partition has its whole room when it takes a message as large as that: so large a message is taken only when nothing
else waits. What was not given back shows there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
import trio.lowlevel

from callboard import Backoff, ChildSpec, SupervisorSpec
from callboard.log.errors import ActorCrashed, ActorStopped, CallboardError, StorageError, TopicFull
from callboard.log.limits import KIB
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.rare_actor_turns import Odd, system_of

if TYPE_CHECKING:
    from callboard.simulations.scenarios.rare_moment_client import MomentClient

WAIT_S: Final = 3.0
LONG_S: Final = 600.0
SEGMENT: Final = 64 * KIB
"""The smallest segment, and the least that is kept."""
PIECE: Final = 8 * KIB
ROOM: Final = 64 * KIB
"""A budget that is larger is not filled."""
WAITERS: Final = 30
OUTLIVES_S: Final = 7.0
"""Nobody waits longer for room at a partition whose disk hangs."""


def room_of(at: MomentClient) -> int:
    """How many bytes may wait at a partition."""
    return at.world.limits.pending_bytes


async def publish_or_not(topic: Any, size: int, acks: str = "all") -> None:
    """Publish a message of that size; it may be refused."""
    try:
        await topic.publish(bytes(max(1, size)), acks=acks)
    except CallboardError:
        return


async def has_all_its_room(at: MomentClient, topic: Any) -> None:
    """Nothing waits at the topic's partition any more, so a message that needs all of its room is taken."""
    with at.in_time(WAIT_S, "publishing what needs all of a partition's room"):
        while True:
            try:
                await topic.publish(bytes(room_of(at)))
                return
            except CallboardError:
                await trio.sleep(0.05)


# -- room for publishers


async def end_amid_many_appends(at: MomentClient) -> None:
    """A partition that crashes, or is killed, with many commits' worth of records has its whole room afterwards."""
    if (room := room_of(at)) > ROOM:
        return
    topic, disk = await at.new_topic(), at.machine.disk
    all_heard = trio.Event()

    async def publish_many() -> None:
        async with trio.open_nursery() as publishers:
            for _ in range(7):
                acks = one_of(at.draws, ("all", "all", "none"))
                publishers.start_soon(publish_or_not, topic, room // 9, acks)
        all_heard.set()

    stall = disk.hang(topic.topic_id)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish_many)
            await trio.sleep(0.05)
            if at.draws.random() < 0.5:
                at.crash(topic)
            else:
                at.runtime._session.system.actor(
                    at.path_of(topic)
                ).kill()  # what a stop does when its grace is over
            await trio.sleep(one_of(at.draws, (0.0, 0.01)))
            disk.unhang(stall)
            with at.in_time(2 * WAIT_S, "hearing of what a partition had when it crashed"):
                await all_heard.wait()
            nursery.cancel_scope.cancel()
        await has_all_its_room(at, topic)
    finally:
        disk.unhang(stall)


async def fail_with_publishes_waiting(at: MomentClient) -> None:
    """A partition that failed while publishes waited has its whole room when it is revived."""
    if (room := room_of(at)) > ROOM:
        return
    topic = await at.new_topic()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(_publish_again_and_again, topic, room // 5)
        await at.fail(topic, held_s=0.02)
        nursery.cancel_scope.cancel()
    await at.runtime.restart(at.path_of(topic))
    await has_all_its_room(at, topic)


async def _publish_again_and_again(topic: Any, size: int) -> None:
    while True:
        await publish_or_not(topic, size)
        await trio.sleep(0.01)


async def give_up_as_room_comes(at: MomentClient) -> None:
    """Publishers that are cancelled in the moment in which they get room leave it to others."""
    if (room := room_of(at)) > ROOM:
        return
    topic, disk = await at.new_topic(), at.machine.disk
    scopes = [trio.CancelScope() for _ in range(WAITERS)]

    async def wait_for_room(scope: trio.CancelScope) -> None:
        with scope:
            await publish_or_not(topic, room)

    stall = disk.hang(topic.topic_id)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish_or_not, topic, room)
            await trio.sleep(0.01)
            for scope in scopes:
                nursery.start_soon(wait_for_room, scope)
                await trio.lowlevel.checkpoint()
            await trio.sleep(0.01)
            disk.unhang(stall)
            for _ in range(between(at.draws, 0, 5)):
                await trio.lowlevel.checkpoint()
            for scope in scopes:
                scope.cancel()
                await trio.lowlevel.checkpoint()
        await has_all_its_room(at, topic)
    finally:
        disk.unhang(stall)


async def wait_at_a_stuck_partition(at: MomentClient) -> None:
    """Who waits for room at a partition whose disk hangs hears of that soon."""
    if (room := room_of(at)) > ROOM:
        return
    topic, disk = await at.new_topic(), at.machine.disk
    stall = disk.hang(topic.topic_id)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish_or_not, topic, room)
            await trio.sleep(0.01)
            with at.in_time(OUTLIVES_S, "hearing of a disk that hangs, while waiting for room,"):
                await publish_or_not(topic, room)
            is_told = any(
                entry.who.startswith(at.path_of(topic)) for entry in at.world.history.of("PartitionStuck")
            )
            at.world.sometimes("a partition was stuck", is_told)
            disk.unhang(stall)
    finally:
        disk.unhang(stall)


# -- space, retention, settings


async def heal_from_a_full_disk(at: MomentClient) -> None:
    """A partition whose disk was full, and that stores again, is not shown as full."""
    topic, disk = await at.filled(1), at.machine.disk
    fault = disk.fail_next("write", "ENOSPC", path_contains=f"{topic.topic_id}/0/0", times=100)
    try:
        await publish_or_not(topic, 10)
    finally:
        disk.faults.withdraw(fault)
    with at.in_time(2 * WAIT_S, "publishing after a disk was full"):
        while True:
            try:
                await topic.publish(b"again")
                break
            except StorageError:
                await trio.sleep(0.2)
    await trio.sleep(0.1)
    at.expect_undisturbed(
        (await topic.describe())[0].state, "running", "the state of a partition that stores again"
    )


async def fill(topic: Any, pieces: int) -> None:
    """Publish this many pieces, one by one."""
    for _ in range(pieces):
        await topic.publish(bytes(PIECE), key=b"other")


async def alter_age(at: MomentClient) -> None:
    """Records go when they are as old as `retention_age` says, that was set when they were there, or before."""
    topic = await at.new_topic(segment_bytes=SEGMENT)
    is_filled = at.draws.random() < 0.5
    await fill(topic, 20 if is_filled else 1)
    await at.runtime.alter_topic(topic.name, retention_age=1.5)
    if not is_filled:
        await fill(topic, 20)
    await trio.sleep(4.0)
    start = (await topic.describe())[0].start_offset
    at.expect_undisturbed(start > 0, True, "whether retention by age, which a topic was given later,")


async def age_beside_newer_records(at: MomentClient) -> None:
    """Old records go in time also when newer segments are there."""
    topic = await at.new_topic(segment_bytes=SEGMENT, retention_age=2.0)
    began = trio.current_time()
    await fill(topic, 9)
    filled_s = trio.current_time() - began
    await trio.sleep(1.5)
    await fill(topic, 9)
    await trio.sleep_until(began + 2.6 + filled_s)
    start = (await topic.describe())[0].start_offset
    at.expect_undisturbed(start > 0, True, "whether retention by age, beside newer segments,")


async def hold_back_in_a_passing_group(at: MomentClient) -> None:
    """A group that is not durable, and settles nothing, keeps no room from publishers."""
    topic = await at.new_topic(segment_bytes=SEGMENT, retention_bytes=SEGMENT)
    await topic.publish(b"first")
    async with topic.subscribe(at.new_name(), durable=False, visibility_timeout=LONG_S) as consumer:
        await consumer.get(timeout=WAIT_S)
        try:
            await fill(topic, 30)
        except TopicFull as error:
            if at.is_undisturbed:
                raise at.broken(f"a group that is not durable holds retention back: {error}") from error


async def drop_what_a_key_waits_for(at: MomentClient) -> None:
    """In a group with order per key, what retention drops unread keeps no later message of its key back."""
    topic = await at.new_topic(segment_bytes=SEGMENT, retention_bytes=SEGMENT, drop_unread=True)
    await topic.publish(b"first", key=b"key")
    async with topic.subscribe(at.new_name(), ordering="key", visibility_timeout=LONG_S) as consumer:
        message = await consumer.get(timeout=WAIT_S)
        if message is None:
            return
        await message.nack(delay=LONG_S)
        await fill(topic, 30)
        await topic.publish(b"last", key=b"key")
        with at.in_time(2 * WAIT_S, "receiving what comes after a message of its key that was dropped"):
            while message.value != b"last":
                message = await consumer.get()
                await message.ack(wait=False)


async def alter_what_has_failed(at: MomentClient) -> None:
    """A partition that had failed as its topic was altered has the new settings when it is revived."""
    topic = await at.new_topic()
    await at.fail(topic)
    await at.runtime.alter_topic(topic.name, segment_bytes=SEGMENT, retention_bytes=SEGMENT)
    await at.runtime.restart(at.path_of(topic))
    await fill(topic, 30)
    await trio.sleep(0.1)
    start = (await topic.describe())[0].start_offset
    at.expect_undisturbed(start > 0, True, "whether retention that was set while a partition had failed")


# -- supervisors


async def restart_before_its_time(at: MomentClient) -> None:
    """A child that waits for its backoff starts at once when it is restarted by hand."""
    slow = ChildSpec(name="slow", start=Odd, backoff=Backoff(initial=50.0, maximum=60.0, jitter=0.0))
    async with system_of(at, slow, intensity=3, period=1_000.0) as system:
        ref = system.actor("slow")
        await at.refused(ActorCrashed, ref.ask, "fail")
        await trio.sleep(one_of(at.draws, (0.0, 0.1)))
        with at.in_time(1.0, "restarting by hand a child that waits for its backoff"):
            await system.root.restart_child("slow")
            at.expect(await ref.ask(1), 1, "asking a child that was restarted by hand")


async def ask_below_a_failure(at: MomentClient) -> None:
    """Actors below a supervisor that has failed refuse what they are asked, and nobody waits."""
    one = ChildSpec(name="one", start=Odd, backoff=Backoff(initial=0, maximum=0))
    two = ChildSpec(name="two", start=Odd)
    inner = SupervisorSpec(name="inner", children=(two,))
    team = SupervisorSpec(name="team", intensity=0, significant=False, children=(one, inner))
    async with system_of(at, team, intensity=0) as system:
        await at.refused((ActorCrashed, ActorStopped), system.actor("team/one").ask, "fail")
        await trio.sleep(0.01)
        with at.in_time(1.0, "hearing that an actor is below a supervisor that has failed"):
            await at.refused(CallboardError, system.actor("team/inner/two").ask, 1)


PARTITION_TURNS: Final = (
    end_amid_many_appends,
    end_amid_many_appends,
    fail_with_publishes_waiting,
    give_up_as_room_comes,
    wait_at_a_stuck_partition,
    heal_from_a_full_disk,
    alter_age,
    age_beside_newer_records,
    hold_back_in_a_passing_group,
    drop_what_a_key_waits_for,
    alter_what_has_failed,
    restart_before_its_time,
    ask_below_a_failure,
)
