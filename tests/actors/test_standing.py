"""What the catalog says to actors that work for all topics."""

from __future__ import annotations

import trio.testing

from callboard.actors.kernel import Actor
from callboard.actors.standing import StandingNotices
from callboard.log.host.clock import HostClock
from callboard.log.host.entropy import HostEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, open_system


class Listener(Actor[str]):
    """Keeps what it has heard."""

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    async def receive(self, message: str) -> None:
        if message == "crash":
            raise ValueError(message)
        self._heard.append(message)


async def test_each_incarnation_hears_what_stands() -> None:
    """What stood before the actor began comes first; after a crash all that stands comes again, and nothing else."""
    heard: list[str] = []
    notices = StandingNotices[str]()
    notices.stand(1, "one")
    notices.stand(2, "two")
    notices.say("too early")
    spec = SupervisorSpec(name="test", children=[ChildSpec(name="listener", start=lambda: Listener(heard))])
    async with open_system(spec, clock=HostClock(), entropy=HostEntropy()) as system:
        notices.begin(system.actor("listener"))
        await trio.testing.wait_all_tasks_blocked()
        assert heard == ["one", "two"]

        notices.say("once")
        notices.stand(2, "another two")
        notices.stand(3, "three")
        notices.withdraw(3)
        notices.withdraw(1)
        await trio.testing.wait_all_tasks_blocked()
        assert heard[2:] == ["once", "another two", "three"]

        heard.clear()
        notices.say("crash")
        while not heard:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert heard == ["another two"]
