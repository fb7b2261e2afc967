"""The scenario of journals that count and are lost between two lives, while others remember what they had counted.

A consumer rejects some messages, publishes some with its acks, and some are delayed: each comes to another partition
under a number that a delivery journal counts. When all have come the directory is closed, and delivery journals are
lost, whole or in part, or an older copy of them takes their place. Then others are published, and each of them comes,
too, as often as that is repeated. What was there before may come again: it is not known any more that it was settled.

Another group began at the end, and has no consumer until all this is over. Then it gets all that was published since it
was made, although retention drops whatever no group needs, and the journals that knew the group were lost.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.partition.publishing.publishers import PUBLISHERS_NAME
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.journal.journal_records import Kind
from callboard.log.segments.segment_file import SEGMENT_SUFFIX
from callboard.message import Message
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.damaging import journal_frames
from callboard.simulations.scenarios.draws import COUNT_MAX, between, check_counts, one_of
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedMessage
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what a new journal counts is not taken for what a lost one has counted"
GROUP: Final = "billing"
AWAY: Final = "auditors"
"""The group that has no consumer until all is over."""
KEPT_S: Final = 1.0
TARGET: Final = "taken"
FATES: Final = ("reject", "publish", "delay")
LOSSES: Final = ("gone", "blank", "headless", "cut")
"""All files are gone; all bytes; the headers of segments; the ends of segments."""
PIERCED: Final = "pierced"
"""A byte of a record is wrong, behind which there are others: what is lost is known to be."""
OLDER: Final = "older"
"""The files are those that were there before the last life; behind the first life nothing is lost."""
JOURNALS: Final = ("/0/delivery", "/delayed-0/delivery", "/delivery")
"""Which are lost: those of the topic's folders that end so."""
LATEST: Final = 7
DELAY_S: Final = 0.5
SET_BACK_S: Final = (0.0, 0.0, 0.0, 5.0, 100_000.0)
LIVENESS_S: Final = 300.0
LOOK_S: Final = 0.5


@attrs.frozen(kw_only=True)
class CountedTraffic:
    """A workload: how many messages in the first life and in each later one, and what is lost between two."""

    messages: int = 12
    later: int = 4
    losses: tuple[tuple[str, str], ...] = (("gone", "/delivery"),)
    """How, and of which journals."""
    set_back_s: float = 0.0
    """By how much the wall clock is set back with each loss, as on a machine that was restored."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__, {"messages": (self.messages, COUNT_MAX), "later": (self.later, COUNT_MAX)}
        )


class LostCounters:
    """Journals that count are lost, while actors crash and the process is killed."""

    name = "lost-counters"
    space = FaultSpace(
        weights={"KillProcess": 2, "PowerCut": 1, "CrashActor": 6, "CrashInBatch": 2, "FailVerb": 1},
        actors=("topics/orders/0", "topics/taken/0", "dead-letters", "scheduler", "outbox"),
        paths=("/delivery/", "/0/0000", "/publishers", ""),
        verbs=("write", "sync", "create"),
        probes={"taken": 6, "disk.sync": 60},
        faults=(0, 3),
        horizon_s=8.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def workload(self, entropy: SeededEntropy) -> CountedTraffic:
        """Some lives, the first with the most messages: it counts furthest. Where the clock is set back, whole journals
        are gone, or something within: then not even the time says where the next one is to begin.
        """
        losses = [(one_of(entropy, LOSSES), one_of(entropy, JOURNALS)) for _ in range(between(entropy, 1, 2))]
        set_back_s = one_of(entropy.fork("clock"), SET_BACK_S)
        if set_back_s > 0:
            how = entropy.fork("how")
            losses = [(one_of(how, ("gone", PIERCED)), whose) for _, whose in losses]
        if entropy.integer(3) == 0:
            losses, set_back_s = [(OLDER, one_of(entropy, JOURNALS))] * 2, 0.0
        return CountedTraffic(
            messages=between(entropy, 1, 12),
            later=between(entropy, 1, 6),
            losses=tuple(losses),
            set_back_s=set_back_s,
        )

    async def main(self, world: World, workload: CountedTraffic) -> None:
        """Run it in as many lives as it takes."""
        counting = _Counting(world, workload)
        world.spawn(counting.watch)
        await world.machine_until_done(counting.life)
        expect_no_bugs(world)


class _Counting:
    """Publisher and consumer, and what has come."""

    def __init__(self, world: World, workload: CountedTraffic) -> None:
        self._world = world
        self._losses = workload.losses
        self._set_back_s = workload.set_back_s
        counts = [max(0, workload.messages), *[max(0, workload.later)] * len(workload.losses)]
        fates = world.entropy.fork("fates")
        self._fates = [[one_of(fates, FATES) for _ in range(count)] for count in counts]
        """For each life, what becomes of its messages."""
        self._draws = world.entropy.fork("losses")
        self._older: dict[str, bytes] = {}
        """What was there before the last life."""
        self._life = 0
        self._folder = ""
        self._is_done = False
        self._published: set[bytes] = set()
        self._is_away = False
        """The group without a consumer is made."""
        self._audited: set[bytes] = set()

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self._world)
        await self._world.rest(LIVENESS_S)
        if not self._is_done:
            raise self._world.broken(
                Violation(
                    PROMISE,
                    f"in life {self._life} not all messages came to where they were to come, {LIVENESS_S:g} s after the"
                    f" last fault; {AWAY} lacks {len(self._published - self._audited)}",
                )
            )

    async def life(self, machine: Machine) -> None:
        """Lives one after the other, with a loss behind each."""
        while self._life < len(self._fates):
            await live_until_done(self._world, partial(self._session, machine))
            if self._life < len(self._losses):
                self._lose(*self._losses[self._life])
            self._life += 1
        self._is_done = True

    def _value(self, index: int) -> bytes:
        return b"%d/%d/%s" % (self._life, index, self._fates[self._life][index].encode())

    async def _session(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            taken = await runtime.create_topic(TARGET)
            orders = await runtime.create_topic("orders", segment_age=KEPT_S, retention_age=KEPT_S)
            self._folder = f"topics/{orders.topic_id}/"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                if not self._is_away:
                    async with orders.subscribe(AWAY, start="end"):
                        self._is_away = True
                await self._publish(orders)
                nursery.start_soon(self._consume, orders, name="consumer")
                expected = [self._value(index) for index in range(len(self._fates[self._life]))]
                while not await self._have_come(expected, orders, taken):
                    await self._world.rest(LOOK_S)
                if self._life == len(self._losses):
                    await self._audit(orders)
                self._world.probe("taken")
                nursery.cancel_scope.cancel()

    async def _publish(self, orders: Any) -> None:
        for index, fate in enumerate(self._fates[self._life]):
            value = self._value(index)
            if value not in self._published:
                await orders.publish_batch([Message(value, delay=DELAY_S if fate == "delay" else None)])
                self._published.add(value)

    async def _consume(self, orders: Any) -> None:
        async with orders.subscribe(GROUP, dead_letter_topic=TARGET, visibility_timeout=2.0) as consumer:
            while True:
                message = await consumer.get()
                await self._handle(message)

    async def _handle(self, message: ReceivedMessage) -> None:
        """What is of an earlier life, and comes again, is acked."""
        life, _, fate = bytes(message.value or b"").split(b"/")
        if int(life) < self._life or fate == b"delay":
            await message.ack()
        elif fate == b"reject":
            await message.reject()
        else:
            await message.publish(TARGET, message.value)
            await message.ack()

    async def _audit(self, orders: Any) -> None:
        """The other group comes, and gets all that was published since it was made."""
        async with orders.subscribe(AWAY, start="end") as consumer:
            while not self._published <= self._audited:
                message = await consumer.get()
                self._audited.add(bytes(message.value or b""))
                await message.ack()
        self._world.sometimes("a group without a consumer outlives its journal", True)

    async def _have_come(self, expected: list[bytes], orders: Any, taken: Any) -> bool:
        come = {record.value async for record in taken.read()}
        # Retention drops what was audited.
        here = self._audited | {record.value async for record in orders.read()}
        return all(value in (here if value.endswith(b"delay") else come) for value in expected)

    def _lose(self, how: str, whose: str) -> None:
        """What these journals say is lost, durably, while the directory is closed. What their partitions know of
        publishers lies beside them, and stays.
        """
        disk = self._world.disk
        if self._set_back_s > 0:
            self._world.clock.shift(-self._set_back_s)
        found = {path: content for path, content in sorted(disk.files().items()) if self._is_of(path, whose)}
        older, self._older = self._older, found
        if how == OLDER and not older:
            return
        for path, content in found.items():
            folder, _, name = path.rpartition("/")
            if how in ("gone", OLDER):
                disk.tree.unlink(path)
                disk.tree.directory(folder).sync()
            elif name.endswith(SEGMENT_SUFFIX) and how != PIERCED:
                disk.plant_file(path, self._damaged(content, how))
        if how == PIERCED:
            self._pierce(sorted({path.rpartition("/")[0] for path in found}))
        for path, content in older.items() if how == OLDER else ():
            disk.plant_file(path, content)
        self._world.sometimes("a journal that counts is lost", True)
        self._world.sometimes("an older copy of a journal that counts is put back", how == OLDER)

    def _pierce(self, folders: list[str]) -> None:
        """Garble some of the latest records of each journal, never the last one: that proves that there were others."""
        for folder in folders:
            events = [
                frame for frame in journal_frames(self._world.disk, folder) if frame.kind is Kind.EVENTS
            ]
            for _ in range(3 if len(events) > 1 else 0):
                frame = one_of(self._draws, events[-LATEST:-1])
                self._world.disk.flip(frame.path, between(self._draws, frame.start, frame.end - 1), 1)

    def _is_of(self, path: str, whose: str) -> bool:
        folder, _, name = path.rpartition("/")
        return path.startswith(self._folder) and folder.endswith(whose) and name != PUBLISHERS_NAME

    def _damaged(self, content: bytes, how: str) -> bytes:
        if how == "blank":
            return bytes(len(content))
        if how == "headless":
            return bytes(SEGMENT_HEADER_BYTES) + content[SEGMENT_HEADER_BYTES:]
        used = len(content.rstrip(b"\0"))
        return content[: between(self._draws, min(used, SEGMENT_HEADER_BYTES), used)]
