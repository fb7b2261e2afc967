"""Where tasks wait, and for what: read from the tasks of a run that got stuck."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

import callboard
from callboard.simulations.world import Run, Settings, SimulationStuck, World, run
from callboard.testing import eventually


def waits_of(main: Callable[[World], Awaitable[object]], *, watched: bool = False) -> dict[str, str]:
    """What each task of a run of `main` waits for when the run is stuck, by its name."""
    stuck = run(main, seed=1, settings=Settings(scheduler="fifo", watched=watched))
    assert isinstance(stuck.failure, SimulationStuck), stuck.failure
    return {each.name: each.wait.words.replace("{}", " and ".join(each.on)) for each in stuck.failure.waiting}


async def start(*functions: Callable[[], Awaitable[object]]) -> None:
    """Run all, each in a task of its own."""
    async with trio.open_nursery() as nursery:
        for function in functions:
            nursery.start_soon(function)


def test_a_deadlock_names_tasks_lines_locks_and_the_circle() -> None:
    """Two tasks that take two locks in turn: who holds what, at which line each waits, and that it is a circle."""
    first, second = trio.Lock(), trio.Lock()

    async def both(one: trio.Lock, other: trio.Lock) -> None:
        async with one:
            await trio.sleep(1)
            async with other:
                pass

    async def main(_: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both, first, second)
            nursery.start_soon(both, second, first)

    stuck = run(main, seed=1)
    failure = stuck.failure
    assert isinstance(failure, SimulationStuck)
    main_waits, one, two = failure.waiting
    assert main_waits.wait.is_for_end
    assert main_waits.on == ("both", "both #2")
    assert (one.name, one.on) == ("both", ("both #2",))
    assert (two.name, two.on) == ("both #2", ("both",))
    assert one.words() == two.words().replace("both holds", "both #2 holds").replace(
        "both #2 waits", "both waits"
    )
    assert one.words().endswith("for a lock that both #2 holds: async with other:")
    assert "test_waits.py:" in one.words()
    said = str(failure)
    assert "both waits at test_waits.py:" in said
    assert "They wait for each other in a circle: both -> both #2 -> both" in said


def test_trio_primitives_are_told_apart() -> None:
    """An event, a semaphore, a capacity limiter, a condition, both ends of channels: each in its words."""
    limiter = trio.CapacityLimiter(1)

    async def event() -> None:
        await trio.Event().wait()

    async def semaphore() -> None:
        await trio.Semaphore(0).acquire()

    async def borrower() -> None:
        await limiter.acquire()
        await trio.sleep_forever()

    async def limited() -> None:
        await trio.sleep(1)
        await limiter.acquire()

    async def receiver() -> None:
        send, receive = trio.open_memory_channel[int](0)
        await receive.receive()
        send.close()

    async def sender() -> None:
        send, receive = trio.open_memory_channel[int](1)
        await send.send(1)
        await send.send(2)
        receive.close()

    async def rendezvous() -> None:
        send, receive = trio.open_memory_channel[int](0)
        await send.send(1)
        receive.close()

    async def notified() -> None:
        lock = trio.Condition()
        async with lock:
            await lock.wait()

    async def main(_: World) -> None:
        await start(event, semaphore, borrower, limited, notified, receiver, sender, rendezvous)

    waits = waits_of(main)
    assert waits["event"] == "an event that nobody has set"
    assert waits["semaphore"] == "a semaphore that is taken"
    assert waits["limited"] == "a token of a capacity limiter, which borrower hold"
    assert waits["notified"] == "somebody to notify a condition"
    assert waits["receiver"] == "something from a memory channel with 1 open sender"
    assert waits["sender"] == "room in a memory channel (1 of 1 taken)"
    assert waits["rendezvous"] == "somebody to receive from a memory channel"


def test_a_wait_inside_an_async_generator_is_found() -> None:
    """The line is that of the generator's body, where the program really waits."""

    async def numbers() -> Any:
        yield 1
        await trio.Event().wait()

    async def main(_: World) -> None:
        async for _number in numbers():
            pass

    assert waits_of(main) == {"main": "an event that nobody has set"}


class Forward(callboard.Actor[int]):
    """Asks the other of two actors."""

    async def receive(self, message: int) -> object:
        """Pass the question on."""
        other = "user/b" if self.context.path == "user/a" else "user/a"
        return await self.context.actor(other).ask(message)


def test_actors_that_ask_each_other_are_a_circle() -> None:
    """Actors are named by their paths; who waits for an answer waits for the actor's task."""

    async def boot(machine: Any) -> None:
        async with machine.open_runtime() as runtime:
            first = await runtime.spawn(Forward, name="a")
            await runtime.spawn(Forward, name="b")
            await first.ask(1)

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    waits = waits_of(main)
    assert waits["boot"] == "the answer of actor user/a"
    assert waits["user/a"] == "the answer of actor user/b"
    assert waits["main"] == "machine 1 to be done"
    stuck = run(main, seed=1)
    assert "in a circle: user/a -> user/b -> user/a" in str(stuck.failure)


def test_consumers_and_idle_actors_are_told() -> None:
    """A consumer of a topic into which nothing is published, and an actor that nobody asks."""

    async def boot(machine: Any) -> None:
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders")
            await runtime.spawn(Forward, name="idle")
            async with topic.subscribe("billing", visibility_timeout=0.5) as consumer:
                await consumer.get()

    async def main(world: World) -> None:
        await world.machine_until_done(boot)

    late: Run = run(main, seed=1, settings=Settings(virtual_limit_s=5.0))
    waits = {each.name: each.wait.words for each in late.waiting}
    assert waits["boot"] == "a message of orders for group billing"
    assert waits["user/idle"] == "a message in its mailbox"
    assert not [name for name in waits if name.startswith(("topics/", "catalog", "groups/"))]


def test_a_failed_expectation_tells_who_waits() -> None:
    """What was expected and did not come is told with the task that should have done it, where the run is watched."""

    async def producer() -> None:
        await trio.Event().wait()

    async def main(_: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer)
            await eventually(lambda: False, within=1.0, words="it comes")

    watched = run(main, seed=1, settings=Settings(watched=True))
    assert [each.name for each in watched.waiting] == ["producer"]
    assert watched.first is not None
    assert watched.first.kind == "broken"
    assert run(main, seed=1).waiting == ()
