"""Each mistake that a client makes in simulated runs is refused as its documentation says."""

from __future__ import annotations

from typing import Any

import pytest

import callboard
from callboard.simulations.faults import NO_FAULTS
from callboard.simulations.scenarios.mistakes import MISTAKES, PROMISE, Mistake, MistakenClient
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, Run, Settings, World, run


def _make(mistake: Mistake) -> Run:
    async def main(world: World) -> None:
        async def life(machine: Machine) -> None:
            async with machine.open_runtime() as runtime:
                topic = await runtime.create_topic("orders", partitions=2)
                await MistakenClient(world, 1).make(mistake, runtime, topic)

        await world.machine_until_done(life)

    return run(main, seed=1, plan=NO_FAULTS, settings=Settings(trace="off"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_mistake_is_refused(mistake: Mistake) -> None:
    """While nothing fails, with the very error."""
    made = _make(mistake)
    assert made.failure is None
    assert made.probes["mistake"] == 1


async def _nothing(runtime: Any, topic: Any) -> None:
    pass


async def _wrong_error(runtime: Any, topic: Any) -> None:
    raise callboard.TopicNotFound("there is none", topic="orders")


async def _mends(runtime: Any, topic: Any) -> None:
    await runtime.alter_topic("orders", drop_unread=True)
    raise callboard.InvalidArgument("too late")


async def _crashes(runtime: Any, topic: Any) -> None:
    raise TypeError("unhashable")


@pytest.mark.parametrize("call", [_nothing, _wrong_error, _mends, _crashes])
def test_a_mistake_that_is_not_refused_is_told(call: Any) -> None:
    """A call that returns, raises another error, or has changed something, breaks the promise."""
    failure = _make(Mistake("call it", callboard.InvalidArgument, call)).failure
    assert isinstance(failure, Violation)
    assert failure.promise == PROMISE
