"""Moments in which a task waits, and what would wake it meets a crash, a cancellation or a refusal, made on purpose.

See `rare_moments.py`. Each turn needs one thing to go wrong, or two, and knows what must come all the same.
"""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import trio
import trio.lowlevel

from callboard import Backoff, ChildSpec
from callboard.actors.groups.coordinator import JOIN_PATIENCE_S
from callboard.actors.partition.spec import partition_directory
from callboard.actors.timers.commands import LOOK_S
from callboard.log.errors import ActorCrashed, CallboardError, LeaseLost, TopicNotFound
from callboard.log.offline.reader import LogReader
from callboard.simulations.clock import VirtualClock
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.rare_actor_turns import Odd, system_of
from callboard.simulations.scenarios.rare_disk_turns import segments_of
from callboard.simulations.scenarios.rare_lease_turns import FLOOD, LONG_S, STEPS, WAIT_S, cancel_after
from callboard.simulations.scenarios.rare_partition_turns import (
    ROOM,
    SEGMENT,
    fill,
    has_all_its_room,
    publish_or_not,
    room_of,
)

if TYPE_CHECKING:
    from callboard.log.seams.disk import Entry, Handle, Incarnation
    from callboard.publishing.schedules import Missed
    from callboard.simulations.scenarios.rare_moment_client import MomentClient

TRIES: Final = 12
"""So often a moment is tried that chance has to meet."""
EVERY_S: Final = 2.0
"""Between the due instants of a schedule."""


# -- waiting for messages


async def give_up_asking(at: MomentClient) -> None:
    """Who has given up as it asked a partition that had no room is notified when it waits again: consumers, readers."""
    topic = await at.new_topic(partitions=one_of(at.draws, (1, 2)))
    async with topic.subscribe(at.new_name(), visibility_timeout=LONG_S) as consumer:

        async def take(timeout: float | None) -> None:
            while (message := await consumer.get(timeout=timeout)) is not None:
                await message.ack(wait=False)

        for _ in range(TRIES):
            await topic.publish(b"before", partition=0)
            with at.small_mailbox(topic):
                async with trio.open_nursery() as nursery:
                    for _ in range(FLOOD):
                        nursery.start_soon(at.ask_often, topic, STEPS)
                    with trio.CancelScope() as scope:
                        nursery.start_soon(cancel_after, scope, between(at.draws, 1, 2 * STEPS))
                        await take(None)
                    nursery.cancel_scope.cancel()
            await take(0.0)
            found: list[Any] = []

            async def get(found: list[Any] = found) -> None:
                found.append(await consumer.get(timeout=WAIT_S))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(get)
                await trio.sleep(0.1)
                await topic.publish(b"after", partition=0)
            at.expect_undisturbed(
                found == [None], False, "whether a consumer that had given up was not notified"
            )


async def wait_beside_a_body(at: MomentClient) -> None:
    """While a task handles a message, another one that shares its consumer gets what took a partition long to lease."""
    topic, disk = await at.new_topic(partitions=2), at.machine.disk
    for partition in range(2):
        await topic.publish(b"%d" % partition, partition=partition)
    await at.runtime.restart(at.path_of(topic, 1))  # what is in memory is forgotten,
    disk.cold = True  # by the system too
    seen: list[int] = []
    slowness = disk.hang(segments_of(topic, 1))
    visible_s = one_of(at.draws, (0.6, 1.0, 2.0))
    try:
        async with topic.subscribe(at.new_name(), visibility_timeout=visible_s) as consumer:

            async def heal() -> None:
                await trio.sleep(one_of(at.draws, (0.05, 0.7, 1.5)))
                disk.unhang(slowness)

            async def handle() -> None:
                with suppress(LeaseLost):
                    async with consumer.receive(timeout=4 * WAIT_S) as message:
                        if message is not None:
                            seen.append(message.partition)
                            await trio.sleep(4 * WAIT_S if len(seen) == 1 else 0.0)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(heal)
                nursery.start_soon(handle)
                nursery.start_soon(handle)
                await trio.sleep(3 * WAIT_S)
                nursery.cancel_scope.cancel()
        at.expect_undisturbed(sorted(seen), [0, 1], "the partitions of what two tasks were given")
    finally:
        disk.cold = False
        disk.unhang(slowness)


async def leave_with_leases_and_crash(at: MomentClient) -> None:
    """What a consumer holds that leaves is free soon, in the same attempt, whenever its partition crashes.

    It holds many ranges: a partition that does little in a step gives them back in several.
    """
    count = 12
    topic, group = await at.filled(count), at.new_name()
    kept = range(0, count, 2)

    async def crash() -> None:
        for _ in range(between(at.draws, 1, 2 * STEPS)):
            await trio.lowlevel.checkpoint()
        at.crash(topic)

    async with trio.open_nursery() as nursery:
        async with topic.subscribe(group, visibility_timeout=LONG_S) as holder:
            held = [await holder.get(timeout=WAIT_S) for _ in range(count)]
            if None in held:
                return
            for message in held:
                if message.offset not in kept:
                    await at.accepted(message.ack)
            nursery.start_soon(crash)
    async with topic.subscribe(group) as other:
        found = [await other.get(timeout=WAIT_S) for _ in kept]
        told = [None if message is None else (message.offset, message.attempt) for message in found]
        at.expect_undisturbed(
            told,
            [(offset, 1) for offset in kept],
            "offsets and attempts of what a consumer held that has left",
        )


async def hand_over_what_is_shortened(at: MomentClient) -> None:
    """What is handed over after a lease was shortened has at least half of the visibility timeout left."""
    topic, visible_s = await at.filled(6), 4.0
    async with topic.subscribe(at.new_name(), visibility_timeout=visible_s) as consumer:
        for _ in range(between(at.draws, 1, 4)):  # a quick consumer is given more at a time
            message = await consumer.get(timeout=WAIT_S)
            if message is None:
                return
            await message.ack(wait=False)
        message = await consumer.get(timeout=WAIT_S)
        if message is None:
            return
        await at.accepted(message.extend, one_of(at.draws, (2.2, 3.0, 3.9)))
        await trio.sleep(one_of(at.draws, (0.5, 1.5, 1.9)))
        while (message := await consumer.get(timeout=0)) is not None:
            left_s = message.deadline - at.machine.clock.monotonic()
            at.expect_undisturbed(
                left_s > 0.49 * visible_s, True, f"{left_s:g} s left of {visible_s:g}: whether that is enough"
            )


# -- groups and retention


async def join_as_segments_go(at: MomentClient) -> None:
    """What is there when a group has joined is not dropped unread by a retention that began before."""
    disk, dropped = at.own_disk(), between(at.draws, 1, 3)
    async with at.own_runtime(disk) as runtime:
        topic = await runtime.create_topic("topic", segment_bytes=SEGMENT)
        await fill(topic, 7 * dropped + 10)
        stall = disk.hang(segments_of(topic))
        joined: list[int] = []

        async def join() -> None:
            began = trio.current_time()
            async with topic.subscribe("group", start="beginning") as consumer:
                took_s = trio.current_time() - began
                there = await topic.describe()
                message = await consumer.get(timeout=WAIT_S)
                if (
                    message is not None and took_s < 0.9 * JOIN_PATIENCE_S
                ):  # else not all partitions know the group
                    joined.extend([there[0].start_offset, message.offset])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_alter_retention, runtime)
            await trio.sleep(one_of(at.draws, (0.0, 0.05, 0.1)))
            for _ in range(between(at.draws, 0, 10)):
                await trio.lowlevel.checkpoint()
            nursery.start_soon(join)
            await trio.sleep(one_of(at.draws, (0.01, 0.1)))
            disk.unhang(stall)
        if joined:
            at.expect_undisturbed(
                joined[1], joined[0], "the first message of a group, which was there as it joined,"
            )


async def _alter_retention(runtime: Any) -> None:
    await runtime.alter_topic("topic", retention_bytes=SEGMENT)


async def age_in_quiet(at: MomentClient) -> None:
    """The first records of a partition go when they are old, although nothing else is ever published there."""
    topic = await at.new_topic(retention_age=2.0, segment_age=1.0)
    receipt = await topic.publish(b"quiet", acks=one_of(at.draws, ("all", "leader")))
    await trio.sleep(3.0 * WAIT_S)
    start = (await topic.describe())[0].start_offset
    at.expect_undisturbed(start, receipt.offset + 1, "where a partition begins whose only record is old,")


# -- publishers


async def give_up_what_nobody_awaits(at: MomentClient) -> None:
    """A publish that is not awaited, and that is cancelled as it waits for the mailbox, keeps no room."""
    if (room := room_of(at)) > ROOM:
        return
    topic = await at.new_topic()
    with at.full_mailbox(topic):
        for _ in range(TRIES):
            with trio.move_on_after(0.01):
                await publish_or_not(topic, room // 3, "none")
    await has_all_its_room(at, topic)


async def refuse_a_repetition(at: MomentClient) -> None:
    """A producer's message is there when it was stored, also when the one before it was stored and then refused.

    The one before could not be synced, and its partition crashes before it has put that aside, until it has failed.
    """
    topic, disk = await at.new_topic(), at.machine.disk
    told: list[bytes] = []

    async def publish(value: bytes) -> None:
        with suppress(CallboardError):
            await producer.publish(value)
            told.append(value)

    async with topic.producer("producer") as producer:
        await publish(b"0")
        unsynced = disk.fail_next("sync", "EIO", path_contains=segments_of(topic))
        unhealed = disk.fail_next("create", "EIO", path_contains=segments_of(topic), times=1_000)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish, b"1")
                await trio.sleep(max(0.01, 8 * disk.latency_s))
                await at.fail(topic)
        finally:
            disk.faults.withdraw(unsynced)
            disk.faults.withdraw(unhealed)
        await at.runtime.restart(at.path_of(topic))
        for value in (b"2", b"3"):
            await publish(value)
    found = [record.value async for record in topic.read()]
    wrong = [value for value in told if found.count(value) != 1]
    at.expect_undisturbed(wrong, [], "what a producer published, and is not there once,")


async def repeat_until_it_is_new(at: MomentClient) -> None:
    """A message whose id is repeated within its window again and again is new when the first is older than that."""
    window_s = 1.0
    topic = await at.new_topic(dedup_window=window_s)
    first = await topic.publish(b"1", dedup_id="id")
    began, times = trio.current_time(), between(at.draws, 2, 5)
    for _ in range(times):
        await trio.sleep(0.8 * window_s / times)
        again = await topic.publish(b"1", dedup_id="id")
        if trio.current_time() - began < window_s:
            at.expect_undisturbed(again.offset, first.offset, "the offset of a repetition within its window")
    await trio.sleep(max(0.0, began + window_s + 0.3 - trio.current_time()))
    again = await topic.publish(b"1", dedup_id="id")
    at.expect_undisturbed(again.duplicate, False, "whether what is repeated after its window is a duplicate")


async def delay_after_a_crash(at: MomentClient) -> None:
    """A message is delayed by no more than was said, also after what keeps those that wait has crashed."""
    topic = await at.new_topic()
    if at.draws.random() < 0.5:
        await topic.publish(b"far", delay=LONG_S)
    receipt = await topic.publish(b"near", delay=0.1)
    async with topic.subscribe(at.new_name(), visibility_timeout=LONG_S) as consumer:
        await consumer.get(timeout=WAIT_S)
        for number in range(3):
            await trio.sleep(one_of(at.draws, (0.0, 0.2)))
            at.crash_at(f"topics/{topic.name}/delayed-{receipt.partition}")
            await trio.sleep(one_of(at.draws, (0.0, 0.1, 0.5)))
            await topic.publish(b"%d" % number, delay=0.3)
            found = await consumer.get(timeout=WAIT_S)
            at.expect_undisturbed(
                found is None, False, "whether what was delayed after a crash does not come"
            )


async def set_a_clock_right(at: MomentClient) -> None:
    """A schedule goes on when a wall clock that was ahead is set right, if nothing was published by it meanwhile."""
    clock = VirtualClock(at.machine.clock.wall_us(), monotonic=at.machine.clock.monotonic)
    async with at.own_runtime(at.own_disk(), clock) as runtime:
        topic, ahead_s = await runtime.create_topic("topic"), one_of(at.draws, (90.0, 1_000.0, 3_000.0))
        policies: tuple[Missed, ...] = ("skip", "skip", "latest", "all")
        missed = one_of(at.draws, policies)
        await topic.schedule("schedule", every=EVERY_S, value=b"1", missed=missed)
        await trio.sleep(one_of(at.draws, (0.1, 0.9, 2.1)))
        clock.shift(ahead_s)
        before = await _count(topic)
        await trio.sleep(EVERY_S + 0.3)
        clock.shift(-ahead_s)
        if await _count(topic) == before:
            await trio.sleep(LOOK_S + 2 * EVERY_S)
            is_going_on = await _count(topic) > before
            at.expect_undisturbed(
                is_going_on, True, "whether a schedule goes on by a clock that was set right"
            )


async def _count(topic: Any) -> int:
    """How many records a topic of one partition has had."""
    (partition,) = await topic.describe()
    count: int = partition.next_offset
    return count


# -- readers of files


class StopsOnce:
    """The disk as a process uses it that stops once, between two of its steps, for as long as something takes."""

    def __init__(self, files: Incarnation, after: int, meanwhile: Any) -> None:
        self._files = files
        self._left = after
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            await self._meanwhile()

    async def list(self, path: str) -> list[Entry]:
        await self._step()
        return await self._files.list(path)

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        await self._step()
        return await self._files.read(handle, offset, length)


async def read_beside_a_failed_commit(at: MomentClient) -> None:
    """Another process reads nothing of a commit that failed, whenever the next one succeeds while it reads."""
    topic, disk = await at.new_topic(), at.machine.disk
    await fill(topic, between(at.draws, 1, 3))

    async def fail_and_succeed() -> None:
        fault = disk.fail_next("sync", "EIO", path_contains=segments_of(topic))
        try:
            await publish_or_not(topic, 10)
        finally:
            disk.faults.withdraw(fault)
        for number in range(3):
            with suppress(CallboardError):
                await topic.publish(b"%d" % number)

    files = cast(
        "Incarnation", StopsOnce(await disk.incarnate("reader"), between(at.draws, 1, 6), fail_and_succeed)
    )
    reader = await LogReader.open(files, partition_directory(topic.topic_id, 0))
    offset, found = reader.start_offset, dict[int, bytes | None]()
    for _ in range(4):
        reading = await reader.read(offset)
        for columns in reading.batches:
            found |= {columns.offset(index): columns.value(index) for index in range(columns.count)}
        offset = max(offset, reading.next_offset)
    there = {record.offset: record.value async for record in topic.read()}
    wrong = [place for place, value in found.items() if there.get(place) != value]
    at.expect_undisturbed(wrong, [], "what another process read, and is not there,")


# -- actors


class Flaky(Odd):
    """Fails the first times that it is given the same."""

    failed = 0

    async def receive(self, message: Any) -> Any:
        """An answer, in the end."""
        if type(self).failed < message:
            type(self).failed += 1
            raise ValueError("not yet")
        return message


async def try_in_hand_again(at: MomentClient) -> None:
    """Who asks an actor that crashes, and tries again what it had in hand, gets the answer."""
    tries = between(at.draws, 1, 3)
    kind = type("FlakyOnce", (Flaky,), {"failed": 0})
    spec = ChildSpec(name="flaky", start=kind, retry_in_hand=tries, backoff=Backoff(initial=0, maximum=0))
    async with system_of(at, spec, intensity=10) as system:
        try:
            found = await system.actor("flaky").ask(tries)
        except ActorCrashed as error:
            raise at.broken(f"a question that is tried again is failed: {error}") from error
        at.expect(found, tries, "asking an actor that tries again what it had in hand")


# -- patterns


async def match_letters(at: MomentClient) -> None:
    """A pattern matches what a regular expression of the same meaning matches."""
    prefix, letters = at.new_name(), "ab"
    names = [
        "".join(chosen) for length in range(1, 5) for chosen in itertools.product(letters, repeat=length)
    ]
    words = [one_of(at.draws, names) for _ in range(6)]
    pattern = "".join(
        one_of(at.draws, (*letters, *letters, "*", "*", "?")) for _ in range(between(at.draws, 2, 5))
    )
    wanted, known = set(), set(words)
    shape = re.compile("".join({"*": ".*", "?": "."}.get(each, each) for each in pattern))
    for word in sorted(known):
        topic = await at.runtime.create_topic(f"{prefix}.{word}")
        await topic.publish(word.encode())
        if shape.fullmatch(word):
            wanted.add(word)
    found = set[str]()
    async with at.runtime.subscribe(pattern=f"{prefix}.{pattern}", group=at.new_name()) as consumer:
        while found != wanted or not wanted:
            message = await consumer.get(timeout=WAIT_S if wanted - found else 0.1)
            if message is None:
                break
            found.add(message.value.decode())
            with suppress(LeaseLost, TopicNotFound):
                await message.ack(wait=False)
    at.expect_undisturbed(sorted(found), sorted(wanted), f"the topics that {pattern} matches")


WAIT_TURNS: Final = (
    give_up_asking,
    wait_beside_a_body,
    leave_with_leases_and_crash,
    hand_over_what_is_shortened,
    join_as_segments_go,
    age_in_quiet,
    give_up_what_nobody_awaits,
    refuse_a_repetition,
    repeat_until_it_is_new,
    delay_after_a_crash,
    set_a_clock_right,
    read_beside_a_failed_commit,
    try_in_hand_again,
    match_letters,
)
