"""The story of a failure, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from callboard.simulations.faults import At, Plan, PowerCut
from callboard.simulations.history import History
from callboard.simulations.search.story import LINES_MAX, tell
from callboard.simulations.violations import Violation
from callboard.simulations.world import Settings, World, run

COMMAND = "callboard simulate --repro x.failure"


def publish(history: History, count: int) -> None:
    """Publishes of messages 0 to `count` - 1, each stored."""
    history.booted(1)
    for number in range(count):
        history.message(b"%d" % number)
        history.record(1, "publish", "p0", number, "orders", 0, ids=(number,), detail="all")
        history.record(
            1, "published", "p0", number, "orders", 0, ids=(number,), offsets=(number,), detail="all"
        )


def test_a_short_history_is_told_whole(made: Callable[..., Any]) -> None:
    """Title, faults with their effects, every entry, and one command."""
    run = made(
        ValueError("no"), seed=9, plan=Plan((PowerCut(At(1.5)),)), hits={0: 1}, tell=lambda h: publish(h, 3)
    )
    text = tell(run, COMMAND, "shop").text()
    assert text.splitlines()[0] == "shop, seed 9: broken promise: raised: ValueError"
    assert "power" in text
    assert "(once)" in text
    assert "machine 1 booted" in text
    assert "message 2" in text
    assert text.endswith(COMMAND)
    assert "left out" not in text


def test_of_a_long_history_what_concerns_the_failure_is_told(made: Callable[..., Any]) -> None:
    """Entries about the same message, and machines; what is left out is counted; the divergence is marked."""

    def history_of(history: History) -> None:
        publish(history, 500)
        history.ended(1, "power cut")
        history.booted(2)
        history.record(
            2, "delivered", "c0", 900, "orders", 0, "billing", ids=(250,), offsets=(250,), attempts=(1,)
        )

    run = made(tell=history_of)
    first = run.history.entries[-1]
    run.failure = Violation("settled stays settled", "message 250 came again", first)
    story = tell(run, COMMAND, "shop")
    told = [line for line in story.lines if line.number >= 0]
    assert [line.words for line in told if "message" in line.words] == [
        line.words for line in told if "250" in line.words
    ]
    assert any("power of machine 1 was cut" in line.words and line.is_fault for line in told)
    assert [line.number for line in told if line.is_divergence] == [first.number]
    left_out = sum(int(line.words.split()[0]) for line in story.lines if line.number < 0)
    assert left_out + len(told) == len(run.history.entries)
    assert ">>" in story.text()


def test_a_story_has_an_end(made: Callable[..., Any]) -> None:
    """Of a thousand restarts the closest ones are told."""

    def history_of(history: History) -> None:
        for machine in range(1, 1_000):
            history.booted(machine)
            history.ended(machine, "power cut")

    story = tell(made(KeyError("x"), tell=history_of), COMMAND, "shop")
    assert len([line for line in story.lines if line.number >= 0]) == LINES_MAX
    assert story.lines[-1].number == 1_997


def test_a_promise_that_only_the_disk_tells_of_points_at_the_last_look(made: Callable[..., Any]) -> None:
    """The last power cut and what the disk then held are a part of the story, and the latter is marked."""

    def history_of(history: History) -> None:
        publish(history, 100)
        history.note("last power cut", "of what was not synced the disk has lost topics/orders/0")
        history.note("looked", "orders/0 holds offsets 0..98")

    text = tell(made(Violation("nothing lost", "offset 99 is gone"), tell=history_of), COMMAND, "shop").text()
    assert "the power was cut once more; of what was not synced the disk has lost topics/orders/0" in text
    (mark,) = [line for line in text.splitlines() if line.startswith(">>")]
    assert mark.endswith("the disk was looked at: orders/0 holds offsets 0..98")


def test_equal_times_are_told_apart_by_numbers_and_close_ones_by_digits(made: Callable[..., Any]) -> None:
    """Each line has its entry's number; times that differ by microseconds differ in the story."""

    def history_of(history: History) -> None:
        moments = iter((1.0, 1.0, 1.000001))
        history.now = lambda: next(moments)
        for words in ("one", "two", "three"):
            history.note("note", words)

    lines = tell(made(KeyError("x"), tell=history_of), COMMAND, "shop").lines
    assert [(line.number, line.time) for line in lines] == [(0, "1.000000"), (1, "1.000000"), (2, "1.000001")]


def test_of_a_long_program_what_the_failure_quotes_is_told(made: Callable[..., Any]) -> None:
    """Of a watched run: messages that the failure's words quote, what came before a power cut, and the end."""

    def history_of(history: History) -> None:
        history.now = lambda: len(history) // 2 / 8
        history.booted(1)
        history.note("note", "it opens")
        for number in range(100):
            about = {"topic": "orders", "ids": (number,), "where": "shop.py:7"}
            history.record(1, "publish", "seller", number + 1, detail=f"b'order {number}'", **about)
            history.record(1, "published", "seller", number + 1, partition=0, offsets=(number,), **about)
        history.ended(1, "power cut", "nothing was left to be synced")
        history.booted(2)
        for _ in range(100):
            history.record(2, "waits", "seller", where="shop.py:8")
            history.record(2, "ActorStarted", "catalog")

    story = tell(made(Violation("always", "never shipped: [b'order 17']"), tell=history_of), COMMAND, "shop")
    text = story.text()
    assert "message 17 to orders (b'order 17')  [shop.py:7]; it is stored at orders/0@17" in text
    assert "b'order 99'" in text, "just before the power cut"
    assert "b'order 50'" not in text
    assert "catalog" not in text
    assert text.count("seller waits at shop.py:8") <= 25


def test_polling_is_told_in_one_line() -> None:
    """What was published, delivered and acked long before the end stays, and the waits of who polls are one line."""

    async def main(world: World) -> None:
        async def life(machine: Any) -> None:
            async with machine.open_runtime() as runtime:
                topic = await runtime.create_topic("orders")
                await topic.publish(b"the order")
                async with topic.subscribe("shop") as consumer, consumer.receive():
                    pass
                for _ in range(400):
                    await trio.sleep(0.5)
                    world.probe("polled")

        await world.machine_until_done(life)
        world.always(False, "the order is shipped")

    found = run(main, seed=0, settings=Settings(watched=True))
    lines = tell(found, "command", "polling").text().splitlines()
    polls = [line for line in lines if "await trio.sleep(0.5)" in line]
    assert len(polls) == 1, lines
    assert "(400 times, until 199.500 s)" in polls[0]
    assert any("was handed orders/0@0" in line for line in lines)
    assert any("acks orders/0@0" in line for line in lines)
