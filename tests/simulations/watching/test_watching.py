"""A watched run: its history has what the program did, and it takes the same course as one that is not watched."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.simulations.faults import After, At, Plan, PowerCut
from callboard.simulations.history import HistoryEntry
from callboard.simulations.search.story import tell
from callboard.simulations.world import Run, Settings, World, run

WATCHED = Settings(watched=True)


def kinds(went: Run, *wanted: str) -> list[HistoryEntry]:
    """The entries of these kinds, in order."""
    return [entry for entry in went.history.entries if entry.kind in wanted]


class Shop:
    """A program: it publishes orders and ships them."""

    def __init__(self, orders: int = 2) -> None:
        self.todo = [b"order %d" % number for number in range(orders)]
        self.shipped: list[bytes | None] = []
        self.wanted = orders

    async def worker(self, topic: callboard.Topic) -> None:
        """Ship what comes."""
        async with topic.subscribe("shipping", visibility_timeout=1.0) as consumer:
            while len(set(self.shipped)) < self.wanted:
                async with consumer.receive() as message:
                    await trio.sleep(0.1)
                    self.shipped.append(message.value)

    async def boot(self, machine: Any) -> None:
        """A life of the shop."""
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.worker, topic)
                while self.todo:
                    await topic.publish(self.todo[0], key=b"k")
                    self.todo.pop(0)

    async def main(self, world: World) -> None:
        """Until everything is shipped."""
        await world.machine_until_done(self.boot)


def test_messages_are_followed_from_publisher_to_settlement() -> None:
    """Each message has one number from its publish to its ack, with the tasks, values and lines of the program."""
    went = run(Shop().main, seed=3, settings=WATCHED)
    assert went.failure is None
    published = kinds(went, "publish")
    assert [entry.who for entry in published] == ["Shop.boot", "Shop.boot"]
    assert "b'order 0', key b'k'" in published[0].words()
    stored, delivered = kinds(went, "published"), kinds(went, "delivered")
    assert (
        [entry.ids for entry in published]
        == [entry.ids for entry in stored]
        == [entry.ids for entry in delivered]
    )
    assert {entry.who for entry in delivered} == {"Shop.worker"}
    assert [entry.place for entry in kinds(went, "ack")] == [entry.place for entry in kinds(went, "acked")]
    assert [entry.kind for entry in kinds(went, "joined", "left")] == ["joined", "left"]
    assert all("test_watching.py:" in entry.where for entry in [*published, *delivered, *kinds(went, "ack")])


def test_a_message_that_comes_again_after_a_power_cut_is_the_same() -> None:
    """Known by its place on the disk, whoever was told of it: its second delivery has the number of its publish."""
    shop = Shop(1)
    went = run(shop.main, seed=3, plan=Plan((PowerCut(At(0.05)),)), settings=WATCHED)
    assert went.failure is None
    deliveries = kinds(went, "delivered")
    assert [entry.attempts for entry in deliveries] == [(1,), (1,)], "the first was not synced"
    assert len({entry.ids for entry in (*kinds(went, "publish"), *deliveries)}) == 1
    assert [entry.machine for entry in deliveries] == [1, 2]
    assert {entry.who for entry in deliveries} == {"Shop.worker"}, "names begin anew on each machine"
    (cut,) = kinds(went, "power cut")
    assert cut.words().endswith("the disk has lost topics/orders/0/delivery")


def test_a_power_cut_tells_what_the_disk_kept() -> None:
    """The files whose unsynced bytes are lost are named."""
    went = run(Shop(1).main, seed=3, plan=Plan((PowerCut(After("disk.sync", 4)),)), settings=WATCHED)
    words = " ".join(entry.words() for entry in kinds(went, "power cut"))
    assert "of what was not synced the disk has lost " in words


@pytest.mark.parametrize("seed", range(3))
def test_watching_changes_nothing(seed: int) -> None:
    """A watched run has the same ticks, virtual time and schedule as one that is not."""
    plan = Plan((PowerCut(After("disk.write", 5)),))
    runs = [
        run(Shop(4).main, seed=seed, plan=plan, settings=Settings(watched=watched, record_schedule=True))
        for watched in (False, True)
    ]
    plain, watched = runs
    assert (plain.ticks, plain.virtual_s, plain.boots, plain.tape) == (
        watched.ticks,
        watched.virtual_s,
        watched.boots,
        watched.tape,
    )
    assert len(watched.history) > len(plain.history)
    assert not any(entry.where for entry in plain.history.entries)


def test_the_same_seed_is_told_in_the_same_words() -> None:
    """Two watched runs of one seed have equal histories."""
    first, second = (run(Shop(4).main, seed=5, settings=WATCHED) for _ in range(2))
    assert first.history.entries == second.history.entries


def test_what_was_replaced_is_put_back() -> None:
    """After a watched run the public methods are the original ones."""
    before = callboard.Topic.publish, callboard.Consumer.get, callboard.DurableActor.persist
    run(Shop(1).main, seed=1, settings=WATCHED)
    assert before == (callboard.Topic.publish, callboard.Consumer.get, callboard.DurableActor.persist)


def test_steps_tell_the_schedule_of_plain_tasks() -> None:
    """Which task went on when, and to which line; what awaits a second time at one line is told again."""

    async def worker(rounds: int) -> None:
        for _ in range(rounds):
            await trio.sleep(1)

    async def main(_: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker, 2)
            nursery.start_soon(worker, 1)

    went = run(main, seed=1, settings=Settings(watched=True, scheduler="fifo"))
    told = [entry.words() for entry in went.history.entries if entry.kind != "healed"]
    assert told == [
        "main starts worker with rounds=2",
        "main starts worker #2 with rounds=1",
        "main waits for its child tasks worker and worker #2",
        "worker waits",
        "worker #2 waits",
        "worker waits",
        "worker #2 ends",
        "worker ends",
    ]


def test_the_calls_that_lead_to_a_line_are_told() -> None:
    """A task that waits in a function of a function: the innermost line, and those that called it."""

    async def load() -> None:
        await trio.sleep(1)

    async def get() -> None:
        await load()

    async def main(_: World) -> None:
        await get()

    went = run(main, seed=1, settings=WATCHED)
    (waits,) = kinds(went, "waits")
    line = int(waits.where.rpartition(":")[2])
    assert waits.words() == f"main waits (called at test_watching.py:{line + 3}, test_watching.py:{line + 6})"
    story = tell(went, "x", "shop").text()
    assert f"main waits at test_watching.py:{line} (called at" in story
    assert ": await trio.sleep(1)" in story


def test_what_only_the_operating_system_has_is_told_as_such() -> None:
    """A publish with acks="leader" is not told as stored, for a power cut may take it."""

    async def boot(machine: Any) -> None:
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders")
            await topic.publish(b"one", acks="leader")

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    story = tell(run(main, seed=1, settings=Settings(watched=True, scheduler="fifo")), "x", "shop").text()
    assert "(b'one', acks='leader')" in story
    assert "it is stored" not in story
    assert "orders/0@0" in story


def test_objects_are_told_apart_by_numbers() -> None:
    """An object without a `__repr__` has a number in a run, and no address."""

    class Account:
        """Nothing to show."""

    async def move(source: Account, target: Account) -> None:
        await trio.lowlevel.checkpoint()

    async def main(_: World) -> None:
        one, two = Account(), Account()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move, one, two)
            nursery.start_soon(move, two, one)

    went = run(main, seed=1, settings=WATCHED)
    assert [entry.detail for entry in kinds(went, "starts")] == [
        "move with source=Account #1, target=Account #2",
        "move #2 with source=Account #2, target=Account #1",
    ]


class Counter(callboard.DurableActor[int, int]):
    """Adds up."""

    def __init__(self) -> None:
        self.total = 0

    async def receive(self, message: int) -> object:
        """Add."""
        if message < 0:
            raise ValueError("negative")
        await self.persist(message)
        return self.total

    def apply(self, event: int) -> None:
        self.total += event

    def snapshot(self) -> int:
        return self.total

    def restore(self, state: int) -> None:
        self.total = state


def test_questions_events_and_crashes_of_actors_are_told() -> None:
    """From the question to what the mailbox gives out, the journal's events, the crash with its line, and recovery."""

    async def boot(machine: Any) -> None:
        async with machine.open_runtime() as runtime:
            counter = await runtime.spawn(Counter, name="counter")
            await counter.ask(7)
            await counter.tell(-1)
            await trio.sleep(1)
            assert await counter.ask(1) == 8

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    went = run(main, seed=1, settings=WATCHED)
    assert went.failure is None
    asked, told, again = kinds(went, "asks actor", "tells actor")
    taken = kinds(went, "takes")
    assert [entry.ids for entry in (asked, told, again)] == [entry.ids for entry in taken]
    assert [entry.detail for entry in kinds(went, "persisted")] == ["7", "1"]
    (failed,) = kinds(went, "failed")
    assert failed.words() == "user/counter fails: ValueError: negative"
    assert "test_watching.py:" in failed.where
    assert [entry.words() for entry in kinds(went, "recovered")] == [
        "actor user/counter found no events in its journal",
        "actor user/counter found 1 event in its journal: 7",
    ]
    assert [entry.detail for entry in kinds(went, "has the answer")] == ["7", "8"]


def test_a_nack_and_its_reason_are_told() -> None:
    """A handler that fails nacks its message, with what it raised."""

    async def boot(machine: Any) -> None:
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders")
            await topic.publish_batch([b"one", b"two"])
            async with topic.subscribe("g", backoff=0.1) as consumer:
                with pytest.raises(KeyError):
                    async with consumer.receive():
                        raise KeyError("price")
                batch = await anext(consumer.batches(max_records=2))
                await batch.release()

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    went = run(main, seed=1, settings=WATCHED)
    assert went.failure is None, went.failure
    (nack,) = kinds(went, "nack")
    assert "price" in nack.words()
    assert kinds(went, "publish")[0].messages == "2 messages 1..2"
    assert [entry.kind for entry in kinds(went, "release", "released")] == ["release", "released"]


def test_the_entry_at_which_a_task_failed_is_marked() -> None:
    """An exception is told where it was raised, once however far it goes, and is where the story points."""

    async def handler() -> None:
        await trio.sleep(1)
        raise KeyError("price")

    async def main(_: World) -> None:
        async with trio.open_nursery() as outer:
            async with trio.open_nursery() as inner:
                inner.start_soon(handler)
            outer.cancel_scope.cancel()

    went = run(main, seed=1, settings=WATCHED)
    (failed,) = kinds(went, "failed")
    assert went.first == failed
    assert (failed.who, failed.detail) == ("handler", "KeyError: 'price'")
    (mark,) = [line for line in tell(went, "x", "shop").text().splitlines() if line.startswith(">>")]
    assert "handler fails: KeyError: 'price'  [test_watching.py:" in mark


def test_a_task_that_is_cancelled_is_told_with_its_line() -> None:
    """Where it waited, and where the cancellation met it; no failure, nor is a nursery that was cancelled whole."""

    async def handler() -> None:
        await trio.sleep(5)

    async def nurse() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handler)

    async def main(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nurse)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        world.always(False, "to have a story")

    went = run(main, seed=1, settings=Settings(watched=True, scheduler="fifo"))
    handled, nursed = kinds(went, "is cancelled")
    assert (handled.who, nursed.who) == ("handler", "nurse")
    waits = {entry.who: entry.where for entry in kinds(went, "waits")}
    assert handled.where == waits["handler"]
    story = tell(went, "x", "shop").text()
    place = handled.where.rpartition("/")[2]
    assert f"handler waits at {place}" in story
    assert f"handler is cancelled  [{place}]" in story
    assert "nurse is cancelled" in story
    assert not kinds(went, "failed")


def test_values_that_cannot_be_shown_do_no_harm() -> None:
    """A `__repr__` that raises is told as the type."""

    class Bad:
        """Cannot be shown."""

        def __repr__(self) -> str:
            raise RuntimeError("no")

    async def worker(bad: Bad) -> None:
        await trio.lowlevel.checkpoint()

    async def main(_: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker, Bad())

    went = run(main, seed=1, settings=WATCHED)
    assert went.failure is None
    assert kinds(went, "starts")[0].detail == "worker with bad=a Bad"
