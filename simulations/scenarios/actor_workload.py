"""Plain actors under supervisors, asked questions, some of which make them crash.

No broker and no disk: what is tested is the kernel and supervision. Teams of workers stand under supervisors of their
own, these under the root. A team that crashes too often escalates; when the root gives up, the whole system ends and is
opened again.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.kernel import Actor, MailboxSpec
from callboard.log.errors import CallboardError, RestartLimitReached
from callboard.simulations.checkers import Intensity, Terms, enforce
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.draws import (
    ACTOR_LIMITS,
    ACTORS_MAX,
    COUNT_MAX,
    DrawnLimits,
    between,
    check_counts,
    draw_limits,
    limits_of,
    one_of,
)
from callboard.supervision import Backoff, ChildSpec, SupervisorSpec, System, open_system

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.history import History
    from callboard.simulations.world import Machine, World

ASK_TIMEOUT_S: Final = 5.0
HEAL_AT_S: Final = 60.0


@attrs.frozen(kw_only=True)
class ActorTraffic:
    """A workload: the actors, and the questions."""

    teams: int = 1
    workers: int = 10
    """Per team."""
    messages: int = 200
    askers: int = 5
    pause_s: float = 0.0
    """Between two questions of an asker."""
    handling_s: float = 0.0
    crash_every: int = 0
    """Every n-th question makes its actor crash; 0 for none."""
    strategy: str = "one_for_one"
    restart: str = "permanent"
    intensity: int = 5
    period_s: float = 10.0
    retry_in_hand: int = 0
    limits: DrawnLimits = ()
    """Limits of the system that are not the usual ones."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            "ActorTraffic",
            {
                "teams": (self.teams, ACTORS_MAX),
                "workers": (self.workers, ACTORS_MAX),
                "workers of all teams": (max(1, self.teams) * max(1, self.workers), ACTORS_MAX),
                "messages": (self.messages, COUNT_MAX),
                "askers": (self.askers, ACTORS_MAX),
                "intensity": (self.intensity, COUNT_MAX),
                "retry_in_hand": (self.retry_in_hand, COUNT_MAX),
            },
        )
        limits_of(self.limits)


def draw_actor_traffic(entropy: SeededEntropy) -> ActorTraffic:
    """Teams with all strategies and kinds of restart, crashing often enough to escalate now and then."""
    return ActorTraffic(
        teams=between(entropy, 1, 4),
        workers=between(entropy, 1, 4),
        messages=between(entropy, 60, 150),
        askers=between(entropy, 1, 5),
        pause_s=one_of(entropy, (0.0, 0.01, 0.2)),
        handling_s=one_of(entropy, (0.0, 0.0, 0.005)),
        crash_every=one_of(entropy, (0, 40, 15, 5)),
        strategy=one_of(entropy, ("one_for_one", "one_for_all", "rest_for_one")),
        restart=one_of(entropy, ("permanent", "permanent", "transient", "temporary")),
        intensity=between(entropy, 1, 5),
        period_s=one_of(entropy, (2.0, 10.0)),
        retry_in_hand=one_of(entropy, (0, 0, 1)),
        limits=draw_limits(entropy.fork("limits"), ACTOR_LIMITS),
    )


class Poisoned(Exception):
    """What a worker raises when a question makes it crash."""


@attrs.frozen
class NumberedQuestion:
    """Sent to a worker."""

    number: int
    is_poison: bool


class Worker(Actor[NumberedQuestion]):
    """Answers questions with their number."""

    def __init__(self, history: History, machine: int, handling_s: float) -> None:
        self._history = history
        self._machine = machine
        self._handling_s = handling_s

    async def receive(self, message: NumberedQuestion) -> int:
        """Note it, take a moment, and answer or crash."""
        self._history.record(self._machine, "handled", self.context.path, ids=(message.number,))
        if self._handling_s > 0:
            await trio.sleep(self._handling_s)
        if message.is_poison:
            raise Poisoned(f"question {message.number}")
        return message.number


class RunningSystem:
    """What faults need of a runtime, and of its session: a way to crash its actors, and to find them."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._session = self

    @staticmethod
    def topics() -> tuple[Any, ...]:
        """None: a system of actors has no broker."""
        return ()

    def crash(self, path: str, error: BaseException) -> None:
        """Let the actor at `path` fail with `error`. Raises when no actor lives there."""
        self.system.actor(path).crash(error)


class ActorWorkload:
    """The actors of one run, and the tasks that ask them."""

    def __init__(self, world: World, traffic: ActorTraffic) -> None:
        self.world = world
        self.traffic = traffic
        self.paths = [
            f"team-{team}/worker-{worker}"
            for team in range(max(1, traffic.teams))
            for worker in range(max(1, traffic.workers))
        ]
        askers = max(1, traffic.askers)
        self.limits = limits_of(traffic.limits)
        self._waiting = [deque(range(index, traffic.messages, askers)) for index in range(askers)]
        intensity, period_s = max(0, traffic.intensity), max(1.0, traffic.period_s)
        self.terms = Terms(
            retries_in_hand=max(0, traffic.retry_in_hand),
            intensities=tuple(
                Intensity(path=f"team-{team}/", restarts=intensity, period_s=period_s, delay_s_max=0.1)
                for team in range(max(1, traffic.teams))
            ),
        )

    async def run(self) -> None:
        """Ask everything, in as many lives as it takes; then hold the history to the promises."""
        await self.world.machine_until_done(self.life)
        self.world.heal()
        self._mark()
        enforce(self.world.history, Surviving(()), self.terms)

    def _mark(self) -> None:
        history, sometimes = self.world.history, self.world.sometimes
        sometimes("an actor was restarted", bool(history.of("ActorRestarted")))
        sometimes("a team escalated", any(entry.who for entry in history.of("Escalated")))
        sometimes("the whole system gave up", any(not entry.who for entry in history.of("Escalated")))
        sometimes("a question was left open by a crash", bool(history.of("unsure")))
        sometimes("a question came to an actor that had stopped", bool(history.of("refused")))
        counts = Counter(entry.ids[0] for entry in history.of("handled"))
        sometimes("a message in hand was tried again", max(counts.values(), default=0) > 1)
        sometimes("the scheduler starved an actor", self.world.scheduler.starves)

    def spec(self, machine: int) -> SupervisorSpec:
        """The tree as data."""
        traffic = self.traffic
        backoff = Backoff(initial=0.01, maximum=0.1)
        teams: dict[str, list[ChildSpec]] = {}
        for path in self.paths:
            team, name = path.split("/")
            start = partial(Worker, self.world.history, machine, traffic.handling_s)
            teams.setdefault(team, []).append(
                ChildSpec(
                    name=name,
                    start=start,
                    restart=traffic.restart,  # type: ignore[arg-type]
                    backoff=backoff,
                    retry_in_hand=max(0, traffic.retry_in_hand),
                    mailbox=MailboxSpec(self.limits.mailbox),
                )
            )
        children = tuple(
            SupervisorSpec(
                name=name,
                strategy=traffic.strategy,  # type: ignore[arg-type]
                intensity=max(0, traffic.intensity),
                period=max(1.0, traffic.period_s),
                children=tuple(workers),
            )
            for name, workers in teams.items()
        )
        return SupervisorSpec(name="teams", intensity=2, period=10.0, children=children)

    async def life(self, machine: Machine) -> None:
        """Sessions until everything was asked."""
        while any(self._waiting):
            try:
                await self.session(machine)
            except RestartLimitReached:
                self.world.note("the root gave up, and everything is started anew")

    async def session(self, machine: Machine) -> None:
        """Run the tree from its start to its end."""
        world = self.world
        system = open_system(
            self.spec(machine.number), clock=machine.clock, entropy=machine.entropy, limits=self.limits
        )
        system.events.subscribe(lambda event: world.heard(machine, event))
        machine.runtime = RunningSystem(system)  # type: ignore[assignment]
        try:
            async with system:
                async with trio.open_nursery() as nursery:
                    for index in range(len(self._waiting)):
                        nursery.start_soon(self._asker, machine, system, index, name=f"asker-{index + 1}")
        finally:
            machine.runtime = None

    async def _asker(self, machine: Machine, system: System, index: int) -> None:
        waiting, traffic = self._waiting[index], self.traffic
        who = f"asker-{index + 1}"
        while waiting:
            number = waiting.popleft()
            path = self.paths[number % len(self.paths)]
            poison = traffic.crash_every > 0 and number % traffic.crash_every == traffic.crash_every - 1
            await self._ask(machine, system, who, path, NumberedQuestion(number, poison))
            if traffic.pause_s > 0:
                await trio.sleep(traffic.pause_s)

    async def _ask(
        self, machine: Machine, system: System, who: str, path: str, question: NumberedQuestion
    ) -> None:
        history = self.world.history
        operation = history.operation()

        def tell(kind: str, detail: str = "") -> None:
            history.record(machine.number, kind, who, operation, path, ids=(question.number,), detail=detail)

        tell("ask")
        self.world.probe("ask", path)
        try:
            answer: Any = await system.actor(path).ask(question, timeout=ASK_TIMEOUT_S)
        except CallboardError as error:
            tell("unsure" if error.indefinite else "refused", type(error).__name__)
        except trio.Cancelled:
            tell("unsure", "cancelled")
            raise
        else:
            tell("answered" if answer == question.number else "refused", repr(answer)[:40])
