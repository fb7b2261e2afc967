"""Then and now: figures of a group's past, and a handler held against them, with what was counted while it ran."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.consumer.handler_calls import Handler
from callboard.log.errors import GroupNotFound, TopicNotFound
from callboard.log.host.clock import HostClock
from callboard.simulations.workload.analysis import Latency
from callboard.simulations.workload.figures import Figures, _Timeline, figures_of
from callboard.simulations.workload.rehearsing import Rehearsal, rehearse

MESSAGES = 60
SETTINGS: dict[str, Any] = {"max_deliveries": 3, "retry": 0.01}


class Counting:
    """A handler that fails on purpose, and counts what it was given."""

    def __init__(self, *, rejects: int = 0, fails: int = 0, stumbles: int = 0) -> None:
        self.rejects, self.fails, self.stumbles = rejects, fails, stumbles
        self.deliveries: Counter[int] = Counter()

    async def __call__(self, message: callboard.ReceivedMessage) -> None:
        number = int(message.value or b"0")
        self.deliveries[number] += 1
        if self.rejects and number % self.rejects == 0:
            raise callboard.Reject("never")
        if self.fails and number % self.fails == 1:
            raise callboard.Retry(reason="each time")
        if self.stumbles and number % self.stumbles == 2 and self.deliveries[number] == 1:
            raise callboard.Retry(reason="once")

    @property
    def redelivered(self) -> int:
        return sum(self.deliveries.values()) - len(self.deliveries)


async def fill(directory: Path, handler: Any, keys: int = 7) -> None:
    """A Tuesday: traffic, and a handler that takes it until all is settled."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish_batch(
            [b"%d" % n for n in range(MESSAGES)], keys=[b"%d" % (n % keys) for n in range(MESSAGES)]
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(topic.work, handler, "billing", **SETTINGS))
            while True:
                found = await topic.describe()
                if all(group.floor == part.visible_end for part in found for group in part.groups):
                    break
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def test_figures_are_what_the_handler_counted(tmp_path: Path) -> None:
    """Messages, redeliveries and dead letters, from the directory alone; latencies of each message."""
    handler = Counting(rejects=20, fails=30, stumbles=10)
    await fill(tmp_path / "data", handler)
    found = await figures_of(str(tmp_path / "data"), "orders", "billing")
    assert (found.messages, found.settled, found.dead_letters) == (MESSAGES, MESSAGES, 3 + 2)
    assert found.redelivered == handler.redelivered == 2 * 2 + 6
    assert found.counts["nacked"] == 2 * 2 + 6  # the last failure makes the dead letter
    assert found.delivery is not None
    assert found.settling is not None
    assert (found.delivery.count, found.settling.count) == (MESSAGES, MESSAGES)
    assert 0 < found.lag_max <= MESSAGES
    assert found.notes == ()


async def test_a_handler_is_held_against_what_happened_then(tmp_path: Path) -> None:
    """What got worse, and what better, in words and numbers; the directory is not touched."""
    await fill(tmp_path / "data", Counting(rejects=20, stumbles=10))
    handler = Counting(fails=10)
    found = await rehearsed(tmp_path, handler)
    assert found.is_finished
    assert (found.then.dead_letters, found.now.dead_letters) == (3, 6)
    assert (found.then.redelivered, found.now.redelivered) == (6, handler.redelivered)
    assert handler.redelivered == 2 * 6
    assert (found.now.messages, found.now.settled) == (MESSAGES, MESSAGES)
    verdict = found.verdict()
    assert (verdict["dead letters"], verdict["redelivered"]) == ("worse", "worse")
    assert "settled" not in verdict
    assert found.then == await figures_of(str(tmp_path / "data"), "orders", "billing")


async def test_a_handler_that_does_not_finish_is_told(tmp_path: Path) -> None:
    """After the patience it ends, and what is not settled is worse."""
    await fill(tmp_path / "data", Counting())
    found = await rehearsed(tmp_path, postpone, patience=0.5)
    assert not found.is_finished
    assert found.verdict()["settled"] == "worse"


async def test_what_is_settled_behind_a_slow_message_is_progress(tmp_path: Path) -> None:
    """The first message holds the floor in place for longer than the patience; the others are settled meanwhile."""
    await fill(tmp_path / "data", Counting(), keys=MESSAGES)
    found = await rehearsed(tmp_path, slow_first, concurrency=3, patience=1.5)
    assert found.is_finished
    assert found.now.settled == MESSAGES


@pytest.mark.parametrize("name", ["orders", "o" * 200, "rehearsal.dlq"])
async def test_a_handler_may_publish_to_the_other_topics(tmp_path: Path, name: str) -> None:
    """The topics of then are there, so a handler that publishes with its ack does as well as it did."""

    async def bill(message: callboard.ReceivedMessage) -> None:
        await message.publish("bills", b"a bill")

    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic(name)
        await runtime.create_topic("bills", partitions=3, compression="gzip")
        await topic.publish_batch([b"tea"] * 5)
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(topic.work, bill, "billing"))
            await settled(runtime)
            nursery.cancel_scope.cancel()
    found = await rehearsed(tmp_path, bill, topic=name, patience=5)
    assert found.is_finished
    assert (found.now.settled, found.now.redelivered) == (5, 0)
    async with callboard.open_runtime(tmp_path / "again" / "data") as runtime:
        assert runtime.topic("bills").settings.partitions == 3


async def rehearsed(tmp_path: Path, handler: Handler, *, topic: str = "orders", **given: Any) -> Rehearsal:
    """What comes of a rehearsal of what was filled, as fast as it goes."""
    again = tmp_path / "again"
    again.mkdir()
    return await rehearse(
        str(tmp_path / "data"), topic, "billing", handler, into=str(again), speed="max", **given
    )


async def slow_first(message: callboard.ReceivedMessage) -> None:
    """Takes long with the first message, and a moment with each other one."""
    await trio.sleep(4.0 if message.offset == 0 else 0.06)


async def settled(runtime: callboard.Runtime) -> None:
    """Wait until the group has settled everything."""
    while (await runtime.group("billing").describe()).lag:  # noqa: ASYNC110
        await trio.sleep(0.01)


async def postpone(message: callboard.ReceivedMessage) -> None:
    """Postpones everything for an hour."""
    raise callboard.Retry(3600)


async def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything is run."""
    await fill(tmp_path / "data", Counting())
    with pytest.raises(TopicNotFound):
        await figures_of(str(tmp_path / "data"), "order", "billing")
    with pytest.raises(GroupNotFound):
        await figures_of(str(tmp_path / "data"), "orders", "bill")


def test_lag_is_weighed_by_time() -> None:
    """Ten messages for nine seconds, then one for a second; a thousand years do not make more bins."""
    line = _Timeline()
    line.add(0, 10)
    line.add(9 << 20, -9)
    line.add(10 << 20, -1)
    assert line.quantiles() == (10, 10, 10)
    for second in range(10_000):
        line.add(second << 40, 1)
    assert len(line._bins) <= 4096


def _figures(us: int, dead: int = 0, lag: int = 0) -> Figures:
    latency = Latency(count=10, mean_us=us, most_us=us, bins=())
    return Figures(
        messages=10, settled=10, counts={}, dead_letters=dead, delivery=latency, settling=latency,
        lag_p50=lag, lag_p99=lag, lag_max=lag,
    )  # fmt: skip


def test_small_differences_are_no_verdict() -> None:
    """A machine is never twice the same; what is much longer is worse."""

    def held(then: Figures, now: Figures) -> dict[str, str]:
        return Rehearsal(topic="t", group="g", speed=1, then=then, now=now, is_finished=True).verdict()

    assert held(_figures(1_000, lag=3), _figures(5_000, lag=9)) == {}
    assert set(held(_figures(10_000), _figures(20_000)).values()) == {"worse"}
    assert held(_figures(0, dead=2), _figures(0, dead=1)) == {"dead letters": "better"}
    assert held(_figures(0, lag=10), _figures(0, lag=100))["lag, largest"] == "worse"


async def test_only_what_the_group_was_to_have_is_published_again(tmp_path: Path) -> None:
    """From where it began; and what was redriven for another group is left out."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        await runtime.create_topic("orders.dlq")
        await topic.publish_batch([b"0", b"1"])
        await reject_one(topic, "other")
        await reject_one(topic, "billing")
        letters = runtime.dead_letters("orders.dlq")
        while len(await letters.list()) < 2:
            await trio.lowlevel.checkpoint()
        assert (await letters.redrive()).messages == 2
        async with topic.subscribe("late", start="end") as consumer:
            await topic.publish(b"7")
            await (await consumer.get()).ack()
    for group, messages, taken in (("late", 1, ["7"]), ("billing", 5, ["0", "1", "0", "7"])):
        into = tmp_path / group
        into.mkdir()
        values: list[str] = []

        async def note(message: callboard.ReceivedMessage, values: list[str] = values) -> None:
            values.append((message.value or b"").decode())

        found = await rehearse(str(tmp_path / "data"), "orders", group, note, into=str(into), speed="max")
        assert found.then.messages == messages
        assert values == taken


async def reject_one(topic: callboard.Topic, group: str) -> None:
    """Give up the first message."""
    async with topic.subscribe(group, dead_letter_topic="orders.dlq") as consumer:
        await (await consumer.get()).reject(reason="not now")


class Settable:
    """The clock of the machine, with a wall clock that may be set wrong."""

    def __init__(self) -> None:
        self._clock = HostClock()
        self.ahead_us = 0

    def monotonic(self) -> float:
        """Seconds."""
        return self._clock.monotonic()

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return self._clock.wall_us() + self.ahead_us


async def test_a_rehearsal_does_not_wait_for_a_wrong_year(tmp_path: Path) -> None:
    """What was published while the clock was a year ahead comes with what was published before it."""
    clock = Settable()
    async with callboard.open_runtime(tmp_path / "data", clock=clock) as runtime:
        topic = await runtime.create_topic("orders")
        for number in range(5):
            clock.ahead_us = 365 * 86_400_000_000 if number in (0, 2) else 0
            await topic.publish(b"tea")
        clock.ahead_us = 0
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(topic.work, nothing, "billing"))
            await settled(runtime)
            nursery.cancel_scope.cancel()
    again = tmp_path / "again"
    again.mkdir()
    found = None
    with trio.move_on_after(60):
        found = await rehearse(str(tmp_path / "data"), "orders", "billing", nothing, into=str(again), speed=1)
    assert found is not None
    assert found.now.settled == 5
    assert found.is_finished


async def nothing(message: callboard.ReceivedMessage) -> None:
    """Take it."""
