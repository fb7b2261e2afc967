"""Topics of dead letters: browsing, redriving and purging what was forwarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

import callboard
from callboard.dead_letters import forwarded
from callboard.dead_letters.handled import HandledLetters
from callboard.log.limits import Limits


async def taken(topic: Any, group: str, **settings: Any) -> list[bytes]:
    """What a group's new consumer gets, until nothing comes."""
    found = []
    async with topic.subscribe(group, **settings) as consumer:
        while (message := await consumer.get(timeout=0.2)) is not None:
            found.append(message.value)
            await message.ack()
    return found


async def give_up(topic: Any, group: str = "billing") -> None:
    """A group that gives up on everything, for two reasons."""
    async with topic.subscribe(group, dead_letter_topic="dead") as consumer:
        while (message := await consumer.get(timeout=0.2)) is not None:
            await message.reject(reason="odd" if int(message.value) % 2 else "even")
    await trio.sleep(1)


@asynccontextmanager
async def shop(world: Any) -> AsyncIterator[Any]:
    """A runtime whose topic `dead` has the six messages of `orders` that `billing` gave up."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders", partitions=2)
        for number in range(6):
            await orders.publish(b"%d" % number, key=b"k", headers={"n": str(number)}, partition=number % 2)
        async with orders.subscribe("audit"):
            pass
        await give_up(orders)
        yield runtime


async def test_dead_letters_are_browsed_and_counted(autojump_clock: Any, world: Any) -> None:
    """In order, chosen by a function, at most so many; what is no dead letter is not told of."""
    async with shop(world) as runtime:
        await runtime.topic("dead").publish(b"something else")
        letters = runtime.dead_letters("dead")
        found = await letters.list()
        assert [(letter.partition, letter.offset, letter.record.value) for letter in found] == [
            (0, 0, b"0"),
            (0, 1, b"2"),
            (0, 2, b"4"),
            (1, 0, b"1"),
            (1, 1, b"3"),
            (1, 2, b"5"),
        ]
        assert {(letter.topic, letter.group, letter.attempts, letter.is_lost) for letter in found} == {
            ("orders", "billing", 1, False)
        }
        assert await letters.count() == {"even": 3, "odd": 3}
        chosen = await letters.list(lambda letter: letter.reason == "odd", limit=2)
        assert [letter.record.value for letter in chosen] == [b"1", b"3"]
        assert await letters.count(lambda letter: letter.offset > 0) == {"even": 2, "odd": 2}


async def test_a_redriven_message_comes_to_the_group_that_gave_it_up(autojump_clock: Any, world: Any) -> None:
    """As it was published, to its own partition; the others settle it unseen. A second redrive does nothing."""
    async with shop(world) as runtime:
        orders, letters = runtime.topic("orders"), runtime.dead_letters("dead")
        assert len(await taken(orders, "audit")) == 6
        done = await letters.redrive(lambda letter: letter.reason == "odd")
        assert done == callboard.hints.Redriven(messages=3, passed_over={})
        assert await letters.count() == {"even": 3}
        assert (await letters.redrive(lambda letter: letter.reason == "odd")).messages == 0
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            assert (message.value, message.partition, message.key) == (b"1", 1, b"k")
            assert {name for name in message.headers if name != "callboard-for-group"} == {"n"}
            await message.ack()
        assert await taken(orders, "billing") == [b"3", b"5"]
        assert await taken(orders, "audit") == []
        parts = await orders.describe()
        assert [group.pending for part in parts for group in part.groups] == [0, 0, 0, 0]
        assert sum(group.filtered_records for part in parts for group in part.groups) == 3
        assert (await letters.redrive()).messages == 3
        assert await letters.list() == ()


async def test_headers_of_a_redriven_message_may_be_passed_on(autojump_clock: Any, world: Any) -> None:
    """Whatever is published with them comes to every group."""
    async with shop(world) as runtime:
        orders, bills = runtime.topic("orders"), await runtime.create_topic("bills")
        await runtime.dead_letters("dead").redrive()
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            headers = message.headers
            assert "callboard-for-group" in headers
            await bills.publish(b"plain", headers=headers)
            await bills.publish_batch([b"in a batch"] * 2, headers=[headers] * 2)
            await message.publish(bills, b"with the ack", headers=headers)
            await message.ack()
        assert sorted(await taken(bills, "ledger")) == [
            b"in a batch",
            b"in a batch",
            b"plain",
            b"with the ack",
        ]


async def test_what_fails_again_is_a_dead_letter_again(autojump_clock: Any, world: Any) -> None:
    """And can be redriven again."""
    async with shop(world) as runtime:
        orders, letters = runtime.topic("orders"), runtime.dead_letters("dead")
        for _ in range(2):
            assert (await letters.redrive()).messages == 6
            assert await letters.list() == ()
            await give_up(orders)
            assert await letters.count() == {"even": 3, "odd": 3}
        found = await letters.list()
        assert not any("callboard-for-group" in letter.record.headers for letter in found)


async def test_dead_letters_are_redriven_elsewhere(autojump_clock: Any, world: Any) -> None:
    """For all groups of the topic; a dry run does nothing; a limit and a rate hold."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")
        other = await runtime.create_topic("other")
        assert (await letters.redrive(to="other", dry_run=True)).messages == 6
        assert len(await letters.list()) == 6
        began = trio.current_time()
        assert (await letters.redrive(to="other", limit=4, rate=0.5)).messages == 4
        assert 6 <= trio.current_time() - began < 7
        assert await taken(other, "any") == [b"0", b"2", b"4", b"1"]
        assert await taken(other, "all") == [b"0", b"2", b"4", b"1"]
        assert all(set(headers) == {"n"} for headers in [record.headers async for record in other.read()])
        assert len(await letters.list()) == 2


async def test_a_redrive_that_was_cut_off_goes_on(autojump_clock: Any, world: Any) -> None:
    """Nothing is published twice, wherever it was cancelled, also across processes."""
    async with shop(world):
        pass
    for seconds in (0.5, 1.5):
        async with world.open() as runtime:
            with trio.move_on_after(seconds):
                await runtime.dead_letters("dead").redrive(rate=1)
    async with world.open() as runtime:
        await runtime.dead_letters("dead").redrive()
        values = [record.value async for record in runtime.topic("orders").read()]
        assert sorted(values) == sorted([b"%d" % number for number in range(6)] * 2)


async def test_a_redrive_that_is_cut_off_ends_as_cancelled_when_nothing_can_be_settled(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever settling what was sent raises, it is not what comes out of a cancelled scope."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")

        async def refuse(*_: object) -> None:
            raise callboard.DiskFull("no space")

        monkeypatch.setattr(HandledLetters, "settle", refuse)
        with trio.move_on_after(1.5) as scope:
            await letters.redrive(rate=1)
        assert scope.cancelled_caught


async def test_what_has_no_place_any_more_is_passed_over(autojump_clock: Any, world: Any) -> None:
    """The report says why, and it stays listed."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")
        await runtime.group("billing").delete()
        done = await letters.redrive()
        assert done.messages == 0
        assert done.passed_over == {"there is no group 'billing' of topic 'orders' any more": 6}
        await runtime.delete_topic("orders")
        done = await letters.redrive()
        assert done.passed_over == {"there is no topic 'orders' any more": 6}
        assert len(await letters.list()) == 6


async def test_what_has_no_group_any_more_while_it_is_redriven_stays(autojump_clock: Any, world: Any) -> None:
    """What was published until the group was deleted is redriven; the rest goes to the one that is made anew."""
    async with shop(world) as runtime:
        orders, letters = runtime.topic("orders"), runtime.dead_letters("dead")
        done = []

        async def redrive() -> None:
            done.append(await letters.redrive(rate=1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(redrive)
            await trio.sleep(1.5)
            await runtime.group("billing").delete()
        why = "there is no group 'billing' of topic 'orders' any more"
        assert done == [callboard.hints.Redriven(messages=2, passed_over={why: 4})]
        assert len(await letters.list()) == 4
        async with orders.subscribe("billing", start="end"):
            assert (await letters.redrive()).messages == 4
        assert sorted(await taken(orders, "billing")) == [b"1", b"3", b"4", b"5"]


async def test_purged_dead_letters_are_gone(autojump_clock: Any, world: Any) -> None:
    """For browsing and redriving, also in the next process."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")
        assert await letters.purge(lambda letter: letter.reason == "even", limit=2) == 2
        assert await letters.count() == {"odd": 3, "even": 1}
    async with world.open() as runtime:
        letters = runtime.dead_letters("dead")
        assert await letters.purge() == 4
        assert (await letters.redrive()).messages == 0


async def test_what_is_purged_while_it_is_redriven_is_not_published(autojump_clock: Any, world: Any) -> None:
    """Neither what was read already, nor what is still to be read; a limit counts what is redriven."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")
        done = []

        async def redrive() -> None:
            done.append(await letters.redrive(rate=1, limit=3))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(redrive)
            await trio.sleep(0.5)
            assert await letters.purge(lambda letter: letter.record.value in {b"2", b"4", b"3"}) == 3
        assert done == [callboard.hints.Redriven(messages=3, passed_over={})]
        assert await letters.list() == ()
        assert await taken(runtime.topic("orders"), "billing") == [b"0", b"1", b"5"]


async def test_wrong_arguments_do_nothing(autojump_clock: Any, world: Any) -> None:
    """Each is refused before anything is published."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")
        with pytest.raises(callboard.TopicNotFound):
            runtime.dead_letters("missing")
        with pytest.raises(callboard.TopicNotFound, match="'missing'"):
            await letters.redrive(to="missing")
        wrong: list[dict[str, Any]] = [
            {"rate": 0},
            {"rate": -1.0},
            {"rate": "1"},
            {"limit": 0},
            {"limit": True},
        ]
        for given in wrong:
            with pytest.raises(callboard.InvalidArgument):
                await letters.redrive(**given)
        assert len(await letters.list()) == 6


async def test_a_redrive_leaves_the_producers_of_the_target_alone(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many messages are sent back, those who publish there as producers go on."""
    monkeypatch.setattr(forwarded, "READ_RECORDS", 2)
    async with world.open(limits=Limits(producers=4)) as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"%d" % number for number in range(9)])
        await give_up(orders)
        async with orders.producer("import") as producer:
            await producer.publish(b"100")
            assert (await runtime.dead_letters("dead").redrive()).messages == 9
            await producer.publish(b"101")
        assert (await orders.describe())[0].producers == 1


async def test_redrives_at_once_send_each_message_once(autojump_clock: Any, world: Any) -> None:
    """They wait for each other."""
    async with shop(world) as runtime:
        done = []

        async def redrive() -> None:
            done.append((await runtime.dead_letters("dead").redrive(rate=100)).messages)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(redrive)
        assert sorted(done) == [0, 0, 6]
        assert sorted(await taken(runtime.topic("orders"), "billing")) == [b"%d" % n for n in range(6)]


async def test_a_redrive_keeps_to_its_rate_when_it_was_held_up(autojump_clock: Any, world: Any) -> None:
    """No message comes early; what a slow disk held up comes no faster than the rest."""
    async with shop(world) as runtime:
        orders, begun = runtime.topic("orders"), world.clock.wall_us()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(runtime.dead_letters("dead").redrive, rate=4))
            await trio.sleep(0.4)
            world.disk.hang(f"{orders.topic_id}/0")
            await trio.sleep(2.0)
            world.disk.unhang()
        redriven = [record async for record in orders.read() if "callboard-for-group" in record.headers]
        moments = [record.append_time.timestamp() - begun / 1e6 for record in redriven]
        assert moments == pytest.approx([0.0, 0.25, 0.5, 2.4, 2.649, 2.899], abs=0.0021)


async def test_a_redrive_returns_when_it_is_noted_what_was_redriven(autojump_clock: Any, world: Any) -> None:
    """However long the disk takes; only one that is cancelled gives up after five seconds."""
    async with shop(world) as runtime:
        orders, letters = runtime.topic("orders"), runtime.dead_letters("dead")
        await letters.redrive(limit=1)
        journal = f"{runtime.topic('dead').topic_id}/0/delivery"
        done = []

        async def redrive(limit: int | None = None) -> None:
            done.append((await letters.redrive(limit=limit)).messages)

        async with trio.open_nursery() as nursery:
            world.disk.hang(journal)
            nursery.start_soon(redrive, 3)
            await trio.sleep(30.0)
            before = list(done)
            world.disk.unhang()
        assert (before, done) == ([], [3])
        assert [part.producers for part in await orders.describe()] == [0, 0]
        async with trio.open_nursery() as nursery:
            world.disk.hang(journal)
            began = trio.current_time()
            nursery.start_soon(redrive)
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began == pytest.approx(6.0, abs=0.1)
        world.disk.unhang()
        await letters.redrive()
        assert await letters.list() == ()
        assert sorted(await taken(orders, "billing")) == [b"%d" % n for n in range(6)]


async def test_a_redrive_at_a_rate_ends_with_its_runtime(autojump_clock: Any, world: Any) -> None:
    """Also when it waits outside of the runtime's body: it is told that the runtime is closed."""
    async with trio.open_nursery() as nursery:
        told = trio.Event()

        async def redrive(letters: Any) -> None:
            with pytest.raises(callboard.RuntimeClosed):
                await letters.redrive(rate=0.001)
            told.set()

        async with shop(world) as runtime:
            nursery.start_soon(redrive, runtime.dead_letters("dead"))
            await trio.sleep(10.0)
        with trio.fail_after(10.0):
            await told.wait()
    async with world.open() as runtime:
        await runtime.dead_letters("dead").redrive()
        assert sorted(await taken(runtime.topic("orders"), "billing")) == [b"%d" % n for n in range(6)]


async def test_what_stays_in_partitions_is_redriven_by_way_of_a_topic(
    autojump_clock: Any, world: Any
) -> None:
    """A topic that is named later is forwarded it; a limit counts what is redriven, not what is passed over."""
    async with world.open() as runtime:
        dead = await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        gone = await runtime.create_topic("gone")
        await orders.publish_batch([b"a", b"b"], headers=[{"n": "1"}, {"n": "2"}])
        await gone.publish_batch([b"x", b"y"])
        async with gone.subscribe("other", dead_letter_topic="dead") as consumer:
            for _ in range(2):
                await (await consumer.get()).reject()
        await trio.sleep(1)
        await runtime.delete_topic("gone")
        async with orders.subscribe("billing") as consumer:
            for _ in range(2):
                await (await consumer.get()).reject(reason="no")
        assert len(await orders.dead_letters("billing").list()) == 2
        await runtime.group("billing").alter(dead_letter_topic="dead")
        await trio.sleep(1)
        assert (await dead.describe())[0].visible_end == 4
        first = await runtime.dead_letters("dead").redrive(limit=1)
        assert (first.messages, sum(first.passed_over.values())) == (1, 2)
        assert (await runtime.dead_letters("dead").redrive()).messages == 1
        assert await taken(orders, "billing") == [b"a", b"b"]
        (told,) = (await runtime.stats()).forwarding
        assert (told.topic, told.forwarded, told.kept, told.held) == ("dead", 4, 0, None)


async def test_what_partitions_keep_is_chosen_and_counted(autojump_clock: Any, world: Any) -> None:
    """As what was forwarded is: more of it than is listed at once, by a function, by reason."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        for number in range(250):
            await orders.publish(b"%d" % number, partition=number % 2)
        async with orders.subscribe("billing", name="worker-1") as consumer:
            for _ in range(250):
                message = await consumer.get()
                await message.reject(reason=f"order {message.value.decode()} is bad")
        kept = orders.dead_letters("billing")
        assert await kept.count() == {"order N is bad": 250}
        assert len(await kept.count(full=True)) == 250
        assert await kept.count(lambda letter: letter.record.value == b"7") == {"order 7 is bad": 1}
        found = await kept.list(lambda letter: letter.partition == 1, limit=120)
        assert [letter.record.value for letter in found] == [b"%d" % n for n in range(1, 240, 2)]
        assert len(await kept.list()) == 250
        assert {(letter.consumer_name, *letter.consumers) for letter in found} == {("worker-1", "worker-1")}


async def test_a_consumer_that_has_left_is_told_by_its_name(autojump_clock: Any, world: Any) -> None:
    """Also when its dead letter is forwarded in the next process; one without a name is told by its id."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"a", b"b"])
        for settings in ({"name": "worker-1"}, {}):
            async with orders.subscribe("billing", **settings) as consumer:
                await (await consumer.get()).reject(reason="no")
        named, unnamed = await orders.dead_letters("billing").list()
        assert (named.consumer_name, unnamed.consumer_name) == ("worker-1", None)
    async with world.open() as runtime:
        await runtime.group("billing").alter(dead_letter_topic="dead")
        await trio.sleep(1)
        first, second = await runtime.dead_letters("dead").list()
        assert (first.consumer_name, first.consumers) == ("worker-1", ("worker-1",))
        assert (second.consumer_name,) == second.consumers
        assert second.consumer_name == str(unnamed.consumer_id)


async def test_a_producer_may_pass_on_the_headers_too(autojump_clock: Any, world: Any) -> None:
    """Also with its very first message."""
    async with shop(world) as runtime:
        orders, bills = runtime.topic("orders"), await runtime.create_topic("bills")
        await runtime.dead_letters("dead").redrive()
        async with orders.subscribe("billing") as consumer, bills.producer("etl") as producer:
            message = await consumer.get()
            assert "callboard-for-group" in message.headers
            await producer.publish(b"first", headers=message.headers)
        assert await taken(bills, "ledger") == [b"first"]


async def test_what_would_choose_all_or_lose_letters_is_refused(autojump_clock: Any, world: Any) -> None:
    """A coroutine is always true, and in their own topic letters are none any more."""
    async with shop(world) as runtime:
        letters = runtime.dead_letters("dead")

        async def none(_: callboard.hints.ForwardedLetter) -> bool:
            return False

        for do in (letters.redrive, letters.purge, letters.list, letters.count):
            for choose in (none, "odd"):
                with pytest.raises(
                    callboard.InvalidArgument, match="not a plain function of one dead letter"
                ):
                    await do(choose)  # type: ignore[arg-type]
        with pytest.raises(callboard.InvalidArgument, match="the topic that the dead letters are in"):
            await letters.redrive(to="dead")
        assert await letters.count() == {"even": 3, "odd": 3}


async def test_a_limit_of_any_size_is_a_limit(autojump_clock: Any, world: Any) -> None:
    """Also one that is larger than any index."""
    async with world.open() as runtime:
        await runtime.create_topic("letters")
        orders = await runtime.create_topic("orders")
        await orders.publish(b"1")
        async with orders.subscribe("billing", dead_letter_topic="letters") as consumer:
            await (await consumer.get()).reject()
        await trio.sleep(1)
        letters = runtime.dead_letters("letters")
        assert len(await letters.list(limit=2**63)) == 1
        assert (await letters.redrive(limit=10**30)).messages == 1
