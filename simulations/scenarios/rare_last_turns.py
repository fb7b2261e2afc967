"""Turns of which a run makes one at its end, when all others are made. See `rare_moments.py`.

Many need more than a partition that crashes: a runtime that is closed, or a process that is killed, and what the next
opening finds. They have a runtime of their own, on a disk of their own, beside the one that all turns share. To kill
its process is to go on with a copy of the disk from before the runtime was closed.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from callboard import Backoff, ChildSpec, DurableActor, SupervisorSpec
from callboard.actors.notices import UnreadDropped
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    LogCorrupt,
    PublishFailed,
    RestartLimitReached,
    StorageError,
)
from callboard.log.segments.segment_file import NEW_SUFFIX
from callboard.simulations.clock import VirtualClock
from callboard.simulations.scenarios.damaging import journal_frames
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.rare_disk_turns import journal_of, segments_of
from callboard.simulations.scenarios.rare_partition_turns import PIECE, SEGMENT, fill
from callboard.supervision import open_system

if TYPE_CHECKING:
    from callboard.simulations.disk.file_tree import FileTree
    from callboard.simulations.disk.memory_disk import MemoryDisk
    from callboard.simulations.scenarios.rare_moment_client import MomentClient

WAIT_S: Final = 3.0
LONG_S: Final = 600.0
SHORT_S: Final = 0.5
TOPIC: Final = "topic"
"""In a runtime of its own, which has no other."""
SENSELESS: Final = "senseless"
PER_SEGMENT: Final = 7
"""This many pieces fill a segment, but for less than a piece."""


# -- moments


async def alter_a_group_at_a_full_mailbox(at: MomentClient) -> None:
    """A group has the settings that it was given last, also when a partition hears of earlier ones after them.

    A member's joining waits in the partition's mailbox with the earlier ones, and those that follow find no room there.
    """
    topic, group = await at.filled(1), at.new_name()
    path = at.path_of(topic)
    async with topic.subscribe(group, visibility_timeout=LONG_S) as consumer:
        at.world.scheduler.hold(path)
        try:
            async with topic.subscribe(group) as other:
                with at.small_mailbox(topic):
                    await at.runtime.group(group).alter(visibility_timeout=SHORT_S)
                at.world.scheduler.release(path)
                message = await consumer.get(timeout=WAIT_S)
                if message is None:
                    return
                again = await other.get(timeout=WAIT_S)
                at.expect_undisturbed(
                    again is None, False, "whether a lease outlasts the time that its group was given"
                )
        finally:
            at.world.scheduler.release(path)


async def publish_again_after_a_crash(at: MomentClient) -> None:
    """A publish that failed indefinitely may be repeated: then it is there, once or twice.

    Its partition crashes before it has put aside what was written and not synced, so the next opening keeps that.
    """
    topic, disk = await at.new_topic(), at.machine.disk
    unsynced = disk.fail_next("sync", "EIO", path_contains=segments_of(topic))
    unhealed = disk.fail_next("create", "EIO", path_contains=segments_of(topic), times=1_000)
    try:
        await topic.publish(b"1")
    except CallboardError as error:
        at.crash(topic)
        if unsynced.hits:
            at.expect_undisturbed(
                error.indefinite, True, "whether a publish that could not be synced fails indefinitely"
            )
    finally:
        disk.faults.withdraw(unsynced)
        disk.faults.withdraw(unhealed)
    await trio.sleep(0.05)
    await topic.publish(b"1")
    found = [record.value async for record in topic.read()]
    at.world.sometimes("a message is in the log twice after a retry", len(found) > 1)
    at.expect_undisturbed(found in ([b"1"], [b"1"] * 2), True, "whether a repeated publish is there")


async def read_from_before_the_clock_was_set_back(at: MomentClient) -> None:
    """Who reads from an instant gets all from the first record that was appended then or later.

    That is so in a long segment in which the wall clock was set back, and also for a group that begins there. In all it
    is set back by less than an hour: what is further ahead counts otherwise.
    """
    clock = VirtualClock(at.machine.clock.wall_us(), monotonic=at.machine.clock.monotonic)
    async with at.own_runtime(at.own_disk(), clock) as runtime:
        topic = await runtime.create_topic(TOPIC)
        for _ in range(between(at.draws, 1, 3)):
            await fill(topic, between(at.draws, 2, 9))
            clock.shift(-one_of(at.draws, (0.5, 60.0, 1_000.0)))
        await fill(topic, between(at.draws, 5, 12))
        times = [record.append_time async for record in topic.read()]
        for past_us in (-1, 0, 0):
            instant = one_of(at.draws, times) + timedelta(microseconds=past_us)
            first = next(offset for offset, time in enumerate(times) if time >= instant)
            found = [record.offset async for record in topic.read(instant)]
            at.expect_undisturbed(found, [*range(first, len(times))], f"reading from {instant} on")
            async with topic.subscribe(at.new_name(), start=instant) as consumer:
                message = await consumer.get(timeout=WAIT_S)
                offset = None if message is None else message.offset
                at.expect_undisturbed(offset, first, f"the first message of a group from {instant} on")


# -- disks


async def fail_behind_a_new_segment(at: MomentClient) -> None:
    """What is stored after a commit that failed behind a segment's beginning is there when the partition opens again.

    What was visible before is not synced, so the log goes on below the offset at which that segment had begun.
    """
    topic, disk = await at.new_topic(segment_bytes=SEGMENT), at.machine.disk
    await fill(topic, PER_SEGMENT)
    end = (await topic.publish(b"unsynced", acks="leader")).offset + 1
    fault = disk.fail_next(
        one_of(at.draws, ("write", "zero", "sync")),
        "EIO",
        path_contains=f"{topic.topic_id}/0/{end:020d}.log",
    )
    try:
        await topic.publish(bytes(2 * PIECE))
    except CallboardError:
        pass
    finally:
        disk.faults.withdraw(fault)
    told: dict[int, bytes] = {}
    for number in range(between(at.draws, 1, 4)):
        value = b"%d" % number
        told[(await topic.publish(value)).offset] = value
    at.crash(topic)
    there = {record.offset: record.value async for record in topic.read()}
    lost = [offset for offset, value in told.items() if there.get(offset) != value]
    at.expect_undisturbed(lost, [], "what was stored behind a commit that failed, and is not there,")


async def open_a_catalog_with_a_rotten_end(at: MomentClient) -> None:
    """A catalog whose last record rots after its process was killed is damaged: nothing passes for a torn write."""
    disk = at.own_disk()
    async with at.own_runtime(disk) as runtime:
        for number in range(between(at.draws, 1, 3)):
            await runtime.create_topic(f"{TOPIC}-{number}")
        left = disk.snapshot()
    disk.restore(left)
    last = journal_frames(disk, "catalog")[-1]
    inode = disk.tree.inode(last.path)
    place = between(at.draws, last.start, last.end - 1)
    for content in (inode.volatile, inode.durable):
        content.stored[place] ^= 1 << between(at.draws, 0, 7)
    try:
        async with at.own_runtime(disk) as runtime:
            found = [topic.name for topic in runtime.topics()]
    except LogCorrupt:
        return
    at.expect_undisturbed(found, None, "opening a catalog whose last record is rotten")


async def close_while_settlements_are_owed(at: MomentClient) -> None:
    """What was settled while a disk refused is settled when the disk has taken it by the time of closing."""
    disk = at.own_disk()
    async with at.own_runtime(disk) as runtime:
        topic = await runtime.create_topic(TOPIC)
        await topic.publish(b"1")
        async with topic.subscribe("group", visibility_timeout=LONG_S) as consumer:
            message = await consumer.get(timeout=WAIT_S)
            if message is None:
                return
            fault = disk.fail_next("write", "EIO", path_contains=journal_of(topic), times=1_000)
            try:
                await message.ack()
            except StorageError:
                pass
        disk.faults.withdraw(fault)
    async with at.own_runtime(disk) as runtime, runtime.topic(TOPIC).subscribe("group") as consumer:
        found = await consumer.get(timeout=WAIT_S)
        at.expect_undisturbed(found, None, "receiving what was settled before a closing in good order")


async def killed_amid_creation(at: MomentClient) -> MemoryDisk:
    """A disk with a topic whose partition cannot open: its process was killed while it began the delivery journal.

    The disk is slow, and so full that it does not even let the unfinished file be removed, as disks are that copy what
    they change.
    """
    disk = at.own_disk()
    left: list[FileTree] = []

    def observe(owner: str, verb: str, path: str) -> None:
        del owner
        if verb == "sync" and path.startswith("topics/") and path.endswith(NEW_SUFFIX) and not left:
            left.append(disk.snapshot())

    disk.observer = observe
    async with at.own_runtime(disk) as runtime:
        await runtime.create_topic(TOPIC)
    disk.observer = None
    disk.restore(left[0])
    disk.slow("topics/", SHORT_S)
    disk.fail_next("unlink", "ENOSPC", path_contains="topics/", times=1_000)
    return disk


async def close_as_a_partition_finds_no_space(at: MomentClient) -> None:
    """A runtime that is closed while a partition finds no space to open in closes soon."""
    disk = await killed_amid_creation(at)
    with at.in_time(2 * WAIT_S, "closing beside a partition that finds no space to open in"):
        async with at.own_runtime(disk):
            await trio.sleep(between(at.draws, 0, 10) * 0.1)


async def close_before_a_partition_opens(at: MomentClient) -> None:
    """A runtime that is closed tells of messages that nobody waited for, if their partition did not open by then."""
    disk = await killed_amid_creation(at)
    is_published = False
    try:
        async with at.own_runtime(disk) as runtime:
            topic: Any = runtime.topic(TOPIC)
            await topic.publish(b"1", acks="none")
            is_published = True
    except PublishFailed:
        return
    at.expect_undisturbed(
        is_published, False, "whether closing told nothing of a message that was not stored"
    )


async def begin_a_group_as_segments_go(at: MomentClient) -> None:
    """A group that begins while retention drops segments has lost nothing: it begins at the first record that stays."""
    disk, lost = at.own_disk(), list[UnreadDropped]()
    async with at.own_runtime(disk) as runtime:
        runtime.subscribe_events(
            lambda event: lost.append(event) if isinstance(event, UnreadDropped) else None
        )
        topic = await runtime.create_topic(TOPIC, segment_bytes=SEGMENT)
        await fill(topic, between(at.draws, 2 * PER_SEGMENT, 5 * PER_SEGMENT))
        first: list[int] = []

        async def begin() -> None:
            async with topic.subscribe("group") as consumer:
                message = await consumer.get(timeout=WAIT_S)
                first.extend([] if message is None else [message.offset])

        async with trio.open_nursery() as nursery:
            stall = disk.hang(segments_of(topic))
            nursery.start_soon(partial(runtime.alter_topic, TOPIC, retention_bytes=SEGMENT))
            await trio.sleep(one_of(at.draws, (0.0, 0.1)))
            nursery.start_soon(begin)
            await trio.sleep(one_of(at.draws, (0.0, 0.1)))
            disk.unhang(stall)
        (partition,) = await topic.describe()
        at.expect_undisturbed(first, [partition.start_offset], "where a group begins as segments go")
        found = len(lost), sum(group.lost_records for group in partition.groups)
        at.expect_undisturbed(found, (0, 0), "what a group has lost that began as segments went")


class TurnLedger(DurableActor[Any, Any]):
    """Keeps what it is given, as `apply` gets it, but for what cannot be applied; two things make no snapshot."""

    snapshot_every = 1

    def __init__(self) -> None:
        self.kept: list[Any] = []

    async def receive(self, message: Any) -> list[Any]:
        """Keep it, unless it is None; what is kept then."""
        if message is not None:
            await self.persist(message)
        return [*self.kept]

    def apply(self, event: Any) -> None:
        """Keep it."""
        if event == SENSELESS:
            raise ValueError("it cannot be applied")
        self.kept.append(event)

    def snapshot(self) -> list[Any]:
        """All of it."""
        if len(self.kept) == 2:
            raise ValueError("no snapshot")
        return [*self.kept]

    def restore(self, state: list[Any]) -> None:
        """All of it."""
        self.kept = [*state]


async def replay_what_was_applied(at: MomentClient) -> None:
    """A durable actor that begins anew has the state that it had, and nothing that it could not apply."""
    ledger = ChildSpec(name="ledger", start=TurnLedger, backoff=Backoff(initial=0, maximum=0))
    root = SupervisorSpec(name="books", children=(ledger,))
    seeds = at.draws.fork(at.new_name())
    try:
        async with open_system(root, disk=at.own_disk(), clock=at.machine.clock, entropy=seeds) as system:
            ref = system.actor("ledger")
            for _ in range(between(at.draws, 1, 3)):
                kept = await ref.ask(one_of(at.draws, ((1, "two"), [(3,), 4], {"five": (6,)})))
            await at.refused(ActorCrashed, ref.ask, SENSELESS)
            at.expect(await ref.ask(None), kept, "what a durable actor holds that has begun anew")
    except RestartLimitReached as error:
        raise at.broken(f"a durable actor does not begin anew: {error}") from error
    except ActorCrashed as error:
        raise at.broken(f"a durable actor crashed over what it has stored: {error}") from error


async def begin_without_its_journal(at: MomentClient) -> None:
    """A durable actor does not begin with a state that it has left behind: its folder is gone, or an older copy."""
    disk, is_older = at.own_disk(), one_of(at.draws, (False, True))
    ledger = ChildSpec(name="ledger", start=TurnLedger, backoff=Backoff(initial=0, maximum=0))
    root = SupervisorSpec(name="books", children=(ledger,))
    clock, seeds = at.machine.clock, at.draws.fork(at.new_name())
    lives: list[dict[str, bytes]] = []
    for life in range(2):
        async with open_system(root, disk=disk, clock=clock, entropy=seeds) as system:
            await system.actor("ledger").ask(life)
        lives.append({path: data for path, data in disk.files().items() if path.startswith("actors/ledger/")})
    for path in lives[1]:
        disk.tree.unlink(path)
    for path, data in lives[0].items() if is_older else ():
        disk.plant_file(path, data)
    try:
        async with open_system(root, disk=disk, clock=clock, entropy=seeds) as system:
            kept = await system.actor("ledger").ask(None)
    except RestartLimitReached:
        return
    raise at.broken(f"a durable actor whose journal is {'older' if is_older else 'gone'} began with {kept!r}")


LAST_MOMENT_TURNS: Final = (
    begin_without_its_journal,
    alter_a_group_at_a_full_mailbox,
    publish_again_after_a_crash,
    read_from_before_the_clock_was_set_back,
    replay_what_was_applied,
)
LAST_DISK_TURNS: Final = (
    fail_behind_a_new_segment,
    open_a_catalog_with_a_rotten_end,
    close_while_settlements_are_owed,
    close_as_a_partition_finds_no_space,
    close_before_a_partition_opens,
    begin_a_group_as_segments_go,
)
