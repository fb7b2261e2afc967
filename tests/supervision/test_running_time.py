"""Time goes on while a supervisor thinks."""

import pytest
import trio

from callboard.actors.kernel.events import ActorStarted
from callboard.simulations.clock import VirtualClock
from callboard.supervision import Backoff


class RunningClock(VirtualClock):
    """A clock that is later each time somebody looks."""

    def __init__(self, step_s):
        super().__init__()
        self.step_s = step_s
        self.looks = 0

    def monotonic(self):
        self.looks += 1
        return super().monotonic() + self.looks * self.step_s


@pytest.fixture(params=[0.001, 0.002, 0.003, 0.005, 0.006, 0.008])
def seams(seams, request):
    """Seams whose time goes on between two looks at the clock."""
    return {**seams, "clock": RunningClock(request.param)}


async def test_a_restart_that_falls_due_while_the_supervisor_looks_is_not_missed(autojump_clock, stage):
    """However the backoff's end falls between two looks at the clock, the child is started again."""
    started = 0

    async def child(context):
        nonlocal started
        started += 1
        if started < 60:
            raise RuntimeError("again")
        await context.next()

    spec = {"start": child, "backoff": Backoff(initial=0.01, maximum=0.01)}
    with trio.fail_after(60):
        async with stage(supervisor={"intensity": 100, "period": 10.0}, child=spec) as system:
            up = trio.Event()
            system.events.subscribe(
                lambda event: (
                    up.set() if isinstance(event, ActorStarted) and event.incarnation == 60 else None
                )
            )
            if started < 60:
                await up.wait()
    assert started == 60
