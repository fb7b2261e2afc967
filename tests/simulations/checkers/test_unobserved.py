"""What clients do that are not observed is not judged, and nothing else is judged otherwise, told or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.simulations.checkers import enforce
from callboard.simulations.faults import FaultSpace
from callboard.simulations.history.clients import ObservedTopic
from callboard.simulations.history.surviving import collect
from callboard.simulations.scenarios import run_scenario
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run, Settings, World

Life = Callable[[World, Any, Any], Awaitable[None]]


@attrs.frozen
class Nothing:
    pass


@attrs.frozen
class Program:
    """A scenario as the guide has it."""

    life: Life
    name = "program"
    space = FaultSpace(weights={"PowerCut": 1}, faults=(0, 0))

    def workload(self, entropy: Any) -> Nothing:
        return Nothing()

    async def main(self, world: World, workload: Nothing) -> None:
        async def boot(machine: Any) -> None:
            async with machine.open_runtime() as runtime:
                await self.life(world, machine, runtime)

        await world.machine_until_done(boot)
        world.heal()
        world.disk.crash()

        def again() -> callboard.Runtime:
            return callboard.open_runtime(disk=world.disk, clock=world.clock, entropy=world.entropy)

        enforce(world.history, await collect(world.history, world.disk, again))


def verdicts(life: Life, seeds: int = 3) -> list[BaseException | None]:
    """How the runs end, each untold and told."""
    runs: list[Run] = [
        run_scenario(Program(life), seed, settings=Settings(watched=watched, trace="off"))
        for seed in range(seeds)
        for watched in (False, True)
    ]
    return [run.failure for run in runs]


async def consumed(topic: callboard.Topic, count: int) -> None:
    async with topic.subscribe("readers") as consumer:
        for _ in range(count):
            async with consumer.receive():
                pass


async def plain(world: World, machine: Any, runtime: callboard.Runtime) -> None:
    topic = await runtime.create_topic("o")
    await topic.publish(b"hello")
    await topic.publish_batch([b"hello", b"again"])
    await consumed(topic, 3)


async def read_by_others(world: World, machine: Any, runtime: callboard.Runtime) -> None:
    topic = await runtime.create_topic("o")
    clerk = ObservedTopic(world, machine.number, topic, "clerk")
    for number in range(3):
        await clerk.publish(b"letter %d" % number)
    await consumed(topic, 3)


async def worked(world: World, machine: Any, runtime: callboard.Runtime) -> None:
    topic = await runtime.create_topic("o", partitions=2)
    clerk = ObservedTopic(world, machine.number, topic, "clerk")
    for number in range(3):
        await clerk.publish(b"letter %d" % number, key=b"%d" % number)
    answers = await runtime.create_topic("answers")
    async with trio.open_nursery() as tasks:
        done: list[bytes] = []

        async def handle(message: callboard.ReceivedMessage) -> None:
            await message.publish("answers", b"re: " + message.value)
            done.append(message.value)
            if len(done) == 3:
                tasks.cancel_scope.cancel()

        tasks.start_soon(topic.work, handle, "workers")
    assert answers.partitions == 1


async def mixed(world: World, machine: Any, runtime: callboard.Runtime) -> None:
    topic = await runtime.create_topic("o")
    await topic.publish(b"a stranger's")
    await ObservedTopic(world, machine.number, topic, "clerk").publish(b"a letter")
    async with topic.producer("p") as producer:
        await producer.publish(b"of a producer")
    await consumed(topic, 3)


@pytest.mark.parametrize("life", [plain, read_by_others, worked, mixed])
def test_what_is_not_observed_breaks_no_promise(life: Life) -> None:
    """Plain topics, consumers, handlers and producers, alone and beside observed clients."""
    assert verdicts(life) == [None] * 6


def test_what_is_observed_is_judged_beside() -> None:
    """A promise that is broken to an observed client is found, in the same words told and untold."""

    async def life(world: World, machine: Any, runtime: callboard.Runtime) -> None:
        await plain(world, machine, runtime)
        topic = await runtime.create_topic("letters")
        clerk = ObservedTopic(world, machine.number, topic, "clerk")
        await clerk.publish(b"a letter")
        lie = {"topic": "letters", "partition": 0, "ids": (world.history.message(b"a lie"),)}
        operation = world.history.operation()
        world.history.record(machine.number, "publish", "clerk", operation, **lie)
        world.history.record(
            machine.number, "published", "clerk", operation, **lie, offsets=(7,), detail="all"
        )
        await consumed(topic, 1)

    found = verdicts(life)
    for failure in found:
        assert isinstance(failure, Violation)
        assert failure.promise == "nothing acknowledged is lost"
        assert failure.first is not None
        assert failure.first.kind == "published"
        assert failure.first.offsets == (7,)
    assert len({str(failure) for failure in found}) == 1


def test_a_topic_that_others_fill_is_not_judged() -> None:
    """Nobody is accused for what nobody was seen to do."""

    async def life(world: World, machine: Any, runtime: callboard.Runtime) -> None:
        await mixed(world, machine, runtime)
        await runtime.delete_topic("o")

    assert verdicts(life, 1) == [None, None]


def test_after_the_run_the_public_methods_are_as_before() -> None:
    """The calls are replaced for the length of a run alone."""
    before = dict(vars(callboard.Topic))
    verdicts(plain, 1)
    assert dict(vars(callboard.Topic)) == before
