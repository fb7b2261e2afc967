"""Deadlines that race with steps: the loop of a simulated run is busy now and then."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from callboard.simulations.violations import Violation
from callboard.testing import always, simulate


class Pool:
    """A pool with a bug: a connection that is handed over in the moment of the timeout is lost."""

    def __init__(self) -> None:
        self.idle = ["connection"]
        self.waiters: list[list[Any]] = []

    async def acquire(self) -> str:
        if self.idle:
            return self.idle.pop()
        waiter: list[Any] = [trio.Event(), None]
        self.waiters.append(waiter)
        try:
            await waiter[0].wait()
        except trio.Cancelled:
            if waiter in self.waiters:
                self.waiters.remove(waiter)
            raise
        return str(waiter[1])

    def release(self, connection: str) -> None:
        if self.waiters:
            waiter = self.waiters.pop(0)
            waiter[1] = connection
            waiter[0].set()
        else:
            self.idle.append(connection)


async def hand_over(world: Any) -> None:
    """A connection is released about when the wait for it times out."""
    pool = Pool()

    async def first() -> None:
        connection = await pool.acquire()
        await trio.sleep(0.05)
        pool.release(connection)

    async def second() -> None:
        await trio.sleep(0.001)
        with trio.move_on_after(0.02 + world.entropy.random() * 0.06):
            pool.release(await pool.acquire())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
    always(len(pool.idle) == 1, f"idle: {pool.idle}")


def test_a_timeout_and_a_hand_over_may_come_in_one_pass_of_the_loop() -> None:
    """So a connection that is lost between the two is found by the usual seeds, and the story says so."""
    with pytest.raises(Violation, match="idle") as caught:
        simulate(hand_over)()
    assert "the loop is busy" in "".join(caught.value.__notes__)


def test_without_faults_time_passes_only_while_no_task_can_run() -> None:
    """Each wait ends exactly in time, and no deadline races with a step."""
    simulate(hand_over, faults=None)()

    async def exact(world: Any) -> None:
        started = trio.current_time()
        await trio.sleep(0.25)
        always(trio.current_time() - started == 0.25, "late")

    simulate(exact, faults=None)()
    with pytest.raises(Violation, match="late"):
        simulate(exact)()
