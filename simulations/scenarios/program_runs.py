"""A program of actors with all that its clients and its operator do to them, on a disk that fails.

Clients tell and ask, patiently and not; they stop and kill actors, add children and take them away. An operator revives
what has failed. The tree is closed and opened again while clients work; the power is cut, the process killed. Durable
actors find in each life what they answered in those before.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.kernel import Terminated
from callboard.actors.kernel.events import ActorFailed
from callboard.log.errors import CallboardError, RestartLimitReached
from callboard.simulations.checkers import Terms, enforce
from callboard.simulations.checkers.mailboxes import specs_of
from callboard.simulations.checkers.tree_order import SLOW
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.actor_plans import (
    NAMES,
    ProgramTraffic,
    child_spec,
    draw_program,
    name_of,
    spec_of,
)
from callboard.simulations.scenarios.actor_workload import Poisoned, RunningSystem
from callboard.simulations.scenarios.draws import between, limits_of, one_of
from callboard.simulations.scenarios.program_actors import (
    EVENTS_MAX,
    WORK,
    ActorSurroundings,
    Order,
    Refused,
    maker,
)
from callboard.supervision import Supervisor, System, open_system

if TYPE_CHECKING:
    from callboard.simulations.world import Machine, World

TIMEOUTS_S: Final = (5.0, 0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 20.0, math.inf, None)
WAYS: Final = (
    "ask",
    "ask",
    "tell",
    "tell",
    "tell at once",
    "ask at once",
    "ask and leave",
    "tell and leave",
    "flood",
)
CALLS: Final = ("stop", "kill", "restart child", "replace child", "crash")
FLOOD: Final = 8
BURST_S: Final = 20.0
"""The timeout of questions that are asked in a burst."""
OPERATOR_S: Final = 0.3
"""How long the operator takes to revive who failed, and the program to be opened again."""
SESSION_S: Final = 3.0
"""How long a session lasts that is ended while clients work."""
PATIENCE_S: Final = 60.0
"""How long clients wait in the end for what they have asked."""
TEAMS: Final = 3
ACTORS: Final = tuple(f"team-{team}/{name}" for team in range(TEAMS) for name in NAMES[:4])


class ActorPrograms:
    """Any tree of actors, with all that may be done to it."""

    name = "actor-programs"
    space = FaultSpace(
        weights={
            "CrashActor": 3,
            "KillProcess": 1,
            "PowerCut": 2,
            "FailVerb": 2,
            "FullDisk": 1,
            "ShortWrite": 1,
            "SlowDisk": 1,
            "Stall": 1,
        },
        actors=ACTORS,
        paths=("actors/", "", ".log"),
        verbs=("write", "sync", "create", "rename", "sync_directory"),
        faults=(0, 5),
        horizon_s=4.0,
        for_s=(0.01, 2.0),
        down_s=(0.01, 0.5),
        probes={"ask": 60, "event.ActorStarted": 15, "disk.sync": 60, "disk.write": 60},
    )

    def workload(self, entropy: SeededEntropy) -> ProgramTraffic:
        """Any program."""
        return draw_program(entropy)

    async def main(self, world: World, workload: ProgramTraffic) -> None:
        """Let the clients do their work."""
        await Program(world, workload).run()


class Program:
    """The program of one run: its clients outlive the machines on which its actors live."""

    def __init__(self, world: World, traffic: ProgramTraffic) -> None:
        self.world = world
        self.traffic = traffic
        self.limits = limits_of(traffic.limits)
        self.starts: Counter[str] = Counter()
        self.left = max(0, traffic.messages)
        self.numbers = 0
        self.sessions = 0
        self.system: System | None = None
        """The tree that is open, or closing."""
        self.machine = 0
        self.is_open = trio.Event()
        """Until a session ends, and another event is made."""
        self.is_done = False
        names = [f"client-{number}" for number in range(1, max(1, traffic.clients) + 1)]
        self._clients = {name: world.entropy.fork(name) for name in names}
        around = ActorSurroundings(world, 0, 0.0, 0, Counter())
        spec = spec_of(traffic, maker(around), self.limits)
        self.terms = Terms(
            retries_in_hand=max(
                (max(0, actor.retry_in_hand) for team in traffic.teams for actor in team.actors), default=0
            ),
            tree=spec,
        )
        self.paths = list(specs_of(spec))

    async def run(self) -> None:
        """The clients, in as many lives of machines as it takes; then one life more, to see what is left."""
        world = self.world
        if self.traffic.disk_s > 0:
            world.note(SLOW)
            world.disk.slow("", self.traffic.disk_s)
        if self.paths:
            await world.machine_until_done(self._life)
        self.is_done = True
        world.heal()
        world.disk.crash()
        await world.machine_until_done(self._session)
        self._mark()
        enforce(world.history, Surviving(()), self.terms)

    def _mark(self) -> None:
        history, sometimes = self.world.history, self.world.sometimes
        asked = {entry.who for entry in history.of("restart asked")}
        failed = {entry.who for entry in history.of("ActorFailed")}
        told = history.of("refused", "unsure")
        crashes = history.of("IncarnationCrashed")
        restarts = history.of("ActorRestarted")
        sometimes("a failed actor was revived", bool(asked & failed))
        sometimes("a failed team was revived", any("/" not in path for path in asked))
        sometimes("a team gave up", any(entry.who for entry in history.of("Escalated")))
        sometimes("a tree gave up", any(not entry.who for entry in history.of("Escalated")))
        sometimes("several actors were restarted together", len(history.of("begins")) > len(restarts) * 2 > 0)
        sometimes("an actor was killed when its grace was over", any(e.detail == "killed" for e in crashes))
        sometimes(
            "a durable actor recovered what it had written", any(e.ids for e in history.of("journal read"))
        )
        sometimes("a mailbox was full", any(entry.detail == "MailboxFull" for entry in told))
        sometimes("a question was given up in time", any(entry.detail == "AskTimeout" for entry in told))
        ends: dict[str, float] = {}
        anew = False
        for entry in restarts:
            anew |= entry.until < ends.get(entry.who, 0.0) / 2
            ends[entry.who] = entry.until
        sometimes("a backoff began anew", anew)

    # -- the program

    async def _life(self, machine: Machine) -> None:
        """Sessions, one after the other, until the clients have done their work."""
        self.system, self.is_open = None, trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work, name="clients")
            while not self.is_done:
                await self._session(machine)
                await trio.sleep(OPERATOR_S)

    async def _work(self) -> None:
        async with trio.open_nursery() as clients:
            for name, entropy in self._clients.items():
                clients.start_soon(self._client, name, entropy, name=name)
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        """Open the tree, let clients work on it, and close it."""
        world, traffic = self.world, self.traffic
        around = ActorSurroundings(
            world,
            machine.number,
            max(0.0, traffic.handling_s),
            0 if world.healed.is_set() else traffic.bad_start_every,
            self.starts,
        )
        spec = spec_of(traffic, maker(around), self.limits)
        system = open_system(
            spec, clock=machine.clock, entropy=machine.entropy, disk=machine.disk, limits=self.limits
        )
        failed: list[str] = []

        def heard(event: Any) -> None:
            if isinstance(event, ActorFailed):
                failed.append(event.path)
            world.heard(machine, event)

        system.events.subscribe(heard)
        machine.runtime = RunningSystem(system)  # type: ignore[assignment]
        self._tell(machine.number, "tree begins")
        try:
            async with system:
                self._watch(system, machine)
                self.system, self.machine = system, machine.number
                self.is_open.set()
                self.sessions += 1
                is_last = self.sessions >= traffic.sessions
                with trio.move_on_after(math.inf if is_last else SESSION_S):
                    while not self.is_done:
                        await trio.sleep(OPERATOR_S)
                        await self._revive(system, machine, failed)
                self._tell(machine.number, "closing")
        except RestartLimitReached:
            world.note("the root gave up")
        finally:
            machine.runtime = None
            if self.system is system:
                self.system, self.is_open = None, trio.Event()
        for letter in system.dead_letters.recent():
            number = getattr(letter.message, "number", -1)
            self._tell(machine.number, "dead letter", letter.path, ids=(number,), detail=letter.reason)
        self._tell(machine.number, "tree ended")

    def _watch(self, system: System, machine: Machine) -> None:
        def ended(notice: Terminated) -> None:
            self._tell(machine.number, "terminated", notice.path)

        for path in self.paths:
            with suppress(CallboardError):
                ref = system.actor(path)
                self._tell(machine.number, "watches", path)
                ref.watch(ended)

    async def _revive(self, system: System, machine: Machine, failed: list[str]) -> None:
        """Restart who has failed: a team that failed as a whole, or actors one by one."""
        paths, failed[:] = tuple(failed), []
        for path in paths:
            team, _, name = path.partition("/")
            with suppress(CallboardError):
                if next(node.state for node in system.tree().children if node.name == team) == "failed":
                    await self._restart(machine.number, system.root, team, team)
                else:
                    await self._restart(machine.number, system.root.supervisor(team), name, path)

    async def _restart(self, machine: int, supervisor: Supervisor, name: str, path: str) -> None:
        self._tell(machine, "restart asked", path)
        with trio.move_on_after(OPERATOR_S):
            await supervisor.restart_child(name)

    def _tell(self, machine: int, kind: str, who: str = "", operation: int = 0, **more: Any) -> None:
        self.world.history.record(machine, kind, who, operation, **more)

    # -- clients

    async def _client(self, name: str, entropy: SeededEntropy) -> None:
        """Do one thing after the other until all messages are sent, in whatever tree is open."""
        traffic, done, session = self.traffic, 0, 0
        async with trio.open_nursery() as nursery:
            while self.left > 0:
                await self.is_open.wait()
                system, machine = self.system, self.machine
                if system is None:
                    continue
                done += 1
                if session != self.sessions and traffic.burst > 0:
                    session = self.sessions
                    self._burst(nursery, system, machine, name, entropy)
                if traffic.calls_every > 0 and done % traffic.calls_every == 0:
                    nursery.start_soon(
                        self._call, system, machine, one_of(entropy, CALLS), entropy, name=name
                    )
                else:
                    await self._send(nursery, system, machine, name, entropy)
                if traffic.quiet_every > 0 and done % traffic.quiet_every == 0:
                    await trio.sleep(max((team.period_s for team in traffic.teams), default=0.0) * 1.2)
                await trio.sleep(max(0.0, traffic.pause_s))
            nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S

    async def _send(
        self, nursery: trio.Nursery, system: System, machine: int, name: str, entropy: SeededEntropy
    ) -> None:
        path, way = one_of(entropy, self.paths), one_of(entropy, WAYS)
        timeout = one_of(entropy, TIMEOUTS_S)
        for _ in range(FLOOD if way == "flood" else 1):
            order = self._order(entropy)
            way_of_one = one_of(entropy, WAYS[:-1]) if way == "flood" else way
            sending = _Sending(self, system, machine, name, path, way_of_one, timeout, order)
            if way == "flood" or entropy.random() < 0.5:
                nursery.start_soon(sending.send, name=name)
            else:
                with trio.move_on_after(SESSION_S):
                    await sending.send()

    def _burst(
        self, nursery: trio.Nursery, system: System, machine: int, name: str, entropy: SeededEntropy
    ) -> None:
        """Many questions to one actor: most with timeouts that lie far ahead, some that are not answered in time."""
        path, for_s = self.paths[self.sessions % len(self.paths)], one_of(entropy, (0.0, 0.7))
        for index in range(self.traffic.burst // len(self._clients) + 1):
            is_late = index % 10 == 1
            pause_s = BURST_S if is_late else for_s
            order = Order(self.numbers, "later" if pause_s else "answer", pause_s)
            self.numbers += 1
            timeout = BURST_S / 20 if is_late else BURST_S
            sending = _Sending(self, system, machine, name, path, "ask", timeout, order)
            nursery.start_soon(sending.send, name=name)

    def _order(self, entropy: SeededEntropy) -> Order:
        traffic, number = self.traffic, self.numbers
        self.numbers += 1
        self.left -= 1
        work, for_s = one_of(entropy, WORK), one_of(entropy, (0.01, 0.0, 0.1, 0.7))
        if traffic.crash_every > 0 and number % traffic.crash_every == traffic.crash_every - 1:
            work = one_of(entropy, ("crash", "crash late", "crash beside"))
        elif traffic.stop_every > 0 and number % traffic.stop_every == traffic.stop_every - 1:
            work = "stop"
        return Order(number, work, for_s, between(entropy, 1, EVENTS_MAX))

    async def _call(self, system: System, machine: int, call: str, entropy: SeededEntropy) -> None:
        """Something else than a message: to an actor, or its supervisor."""
        path = one_of(entropy, self.paths)
        team, name = path.split("/")
        number = int(team.removeprefix("team-"))
        plan = self.traffic.teams[number]
        with suppress(CallboardError), trio.move_on_after(SESSION_S):
            supervisor = system.root.supervisor(team)
            ref = system.actor(path)
            if call == "stop":
                self._tell(machine, "stop asked", path)
                ref.stop()
            elif call == "kill":
                self._tell(machine, "kill asked", path)
                ref.kill()
            elif call == "crash":
                ref.crash(Poisoned("a drill"))
            elif call == "restart child":
                self._tell(machine, "restart asked", path)
                await supervisor.restart_child(name)
            elif call == "replace child":
                self._tell(machine, "stop child asked", path)
                await supervisor.stop_child(name)
                self._tell(machine, "child stopped", path)
                index = next(index for index in range(len(plan.actors)) if name_of(index) == name)
                around = ActorSurroundings(
                    self.world, machine, max(0.0, self.traffic.handling_s), 0, self.starts
                )
                spec = child_spec(path, plan.actors[index], plan, maker(around), self.limits)
                if name not in supervisor:  # else it is there again: with its team, which has begun anew
                    self._tell(machine, "add child asked", path)
                    await supervisor.start_child(spec)


@attrs.define
class _Sending:
    """One message of a client, and what becomes of it."""

    program: Program
    system: System
    machine: int
    who: str
    path: str
    way: str
    timeout: float | None
    order: Order

    async def send(self) -> None:
        """Send it, and tell what the client was told."""
        world, way = self.program.world, self.way
        history = world.history
        operation = history.operation()
        is_question = way.startswith("ask")
        leaves = way.endswith("leave")
        until = math.inf
        if is_question and not leaves and self.timeout is not None:
            until = world.now + self.timeout

        def tell(kind: str, detail: str = "") -> None:
            ids = (self.order.number,)
            history.record(
                self.machine, kind, self.who, operation, self.path, ids=ids, until=until, detail=detail
            )

        try:
            ref = self.system.actor(self.path)
        except CallboardError:
            return
        tell("ask" if is_question else "tell", f"{way}: {self.order.work}")
        world.probe("ask", self.path)
        try:
            with trio.CancelScope() as scope:
                if leaves:
                    scope.deadline = world.now + (0.01 if self.timeout is None else self.timeout)
                answer = await self._sent(ref, way)
        except Refused:
            tell("answered" if self.order.work == "refuse" else "refused", "Refused")
        except CallboardError as error:
            tell("unsure" if error.indefinite else "refused", type(error).__name__)
        except trio.Cancelled:
            tell("unsure" if is_question else "refused", "cancelled")
            raise
        else:
            if scope.cancelled_caught:
                tell("unsure" if is_question else "refused", "cancelled")
            elif is_question:
                tell("answered" if answer == self.order.number else "refused", repr(answer)[:40])
            else:
                tell("told")

    async def _sent(self, ref: Any, way: str) -> Any:
        match way:
            case "ask":
                return await ref.ask(self.order, timeout=self.timeout)
            case "ask and leave":
                return await ref.ask(self.order)
            case "ask at once":
                return await ref.ask_nowait(self.order).wait(self.timeout)
            case "tell at once":
                ref.tell_nowait(self.order)
            case _:
                await ref.tell(self.order)
        return None
