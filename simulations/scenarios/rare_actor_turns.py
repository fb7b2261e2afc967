"""Seldom calls of actors, their supervisors, the runtime and the system around them."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

import callboard
from callboard import Actor, Backoff, ChildSpec, Context, DurableActor, MailboxSpec, SupervisorSpec
from callboard.actors.kernel import Batch, Reply, Terminated
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    AskTimeout,
    CallboardError,
    ConfigurationError,
    InvalidArgument,
    MailboxFull,
    RestartLimitReached,
    RuntimeClosed,
)
from callboard.log.limits import Limits
from callboard.simulations.scenarios.draws import one_of
from callboard.supervision import System, open_system

if TYPE_CHECKING:
    from callboard.simulations.scenarios.rare_client import RareClient

ASK_S: Final = 2.0


class OddFailed(Exception):
    """An actor's own failure."""


class Odd(Actor[Any]):
    """Does what its message says."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def receive(self, message: Any) -> Any:
        """An answer, a failure, or a wait."""
        self.heard.append(message)
        if message == "fail":
            raise OddFailed
        if message == "heard":
            return list(self.heard)
        if isinstance(message, float):
            await trio.sleep(message)
        if message == "later":
            self.context.defer_reply()
        if message == "next":
            await self.context.next()
        return message


class Unwilling(Actor[Any]):
    """Takes no message of its batches."""

    async def receive_batch(self, batch: Batch[Any]) -> None:
        """Nothing."""


class Early(Actor[Any]):
    """Defers a reply before there is a question."""

    async def started(self) -> None:
        """A mistake."""
        self.context.defer_reply()


class Undefined(Actor[Any]):
    """Has no `receive`."""


class Unkept(DurableActor[int, int]):
    """Has a journal, and nothing that is kept in it."""

    async def receive(self, message: int) -> None:
        """Store it."""
        await self.persist(message)


async def odd(context: Context[Any]) -> None:
    """An actor that is a function."""
    while True:
        message, reply = await context.next()
        context.emit(f"heard {message!r:.20}")
        if reply is not None:
            reply.answer(message)


async def hoard(context: Context[Any]) -> None:
    """An actor that is a function, and answers hardly anything."""
    kept: list[Any] = []
    while True:
        message, reply = await context.next()
        kept.append(reply)
        if message == 0 and reply is not None:
            reply.answer(len(kept))


WRONG_CHILDREN: Final[tuple[dict[str, Any], ...]] = (
    {"name": ""},
    {"name": "a/b"},
    {"name": 5},
    {"name": "x" * 400},
    {"start": 5},
    {"restart": "sometimes"},
    {"shutdown_grace": -1},
    {"mailbox": 5},
    {"backoff": 5},
    {"retry_in_hand": -1},
    {"on_failed": 5},
    {"intensity": 5},
    {"significant": False, "intensity": -1},
    {"significant": False, "intensity": math.inf, "backoff": Backoff(initial=0)},
)
WRONG_SUPERVISORS: Final[tuple[dict[str, Any], ...]] = (
    {"name": ".."},
    {"strategy": "some_for_some"},
    {"intensity": -1},
    {"intensity": math.inf},
    {"period": 0},
    {"backoff": None},
    {"children": (5,)},
)
WRONG_BACKOFFS: Final[tuple[dict[str, Any], ...]] = (
    {"initial": "1"},
    {"initial": -1},
    {"factor": 0.5},
    {"maximum": 0.001},
    {"jitter": 2},
    {"maximum": 10**9},
)


class Nobody:
    """Makes no actor."""

    __name__ = "nobody"

    def __call__(self) -> Any:
        """Something else."""
        return 5

    def __repr__(self) -> str:
        return "nobody"


nobody: Final[Any] = Nobody()


# -- the runtime


async def open_wrongly(at: RareClient) -> None:
    """Runtimes that cannot be opened, or not twice; and the names of the package."""
    disk = at.machine.disk
    await at.refused(InvalidArgument, callboard.open_runtime)
    await at.refused(InvalidArgument, callboard.open_runtime, "somewhere", disk=disk)
    await at.refused(InvalidArgument, callboard.open_runtime, "")
    await at.refused(InvalidArgument, callboard.open_runtime, 5)
    await at.refused(InvalidArgument, callboard.open_runtime, disk=disk, limits=5)
    await at.refused(ConfigurationError, Limits, segment_bytes=-1)
    await at.refused(InvalidArgument, _enter, at.runtime)
    other = callboard.open_runtime(disk=disk, clock=at.machine.clock, entropy=at.draws.fork("other"))
    await at.refused(RuntimeClosed, other.topics)
    at.expect(await other.__aexit__(None, None, None), False, "leaving a runtime that is not open")
    await at.refused(AttributeError, getattr, callboard, "nothing_of_that_name")
    repr(at.runtime)


async def look_at_everything(at: RareClient) -> None:
    """The tree in words and node by node, events, statistics, who hears of events, and restarts by hand."""
    topic = await at.filled(2)
    tree = at.runtime.tree()
    lines, nodes = tree.draw().splitlines(), list(tree.walk())
    at.expect(len(lines), len(nodes), "the lines of a tree")
    heard: list[Any] = []
    unsubscribe = at.runtime.subscribe_events(heard.append)
    path = f"topics/{topic.name}/0"
    with suppress(InvalidArgument):  # the runtime is closing
        at.runtime.crash(path, OddFailed("a drill"))
        await at.runtime.restart(path)
    await topic.publish(b"1")
    at.runtime.tree().draw()
    unsubscribe()
    unsubscribe()
    at.runtime.events()
    await at.runtime.stats()
    await at.runtime.groups()


# -- actors of a runtime


async def spawn_anything(at: RareClient) -> None:
    """Actors that are classes, functions and specifications, asked with timeouts of every kind, and watched."""
    runtime = at.runtime
    name = at.new_name()
    ref = await runtime.spawn(Odd, name=name)
    repr(ref)
    other = await runtime.spawn(ChildSpec(name=at.new_name(), start=odd, significant=False))
    await at.refused(ConfigurationError, runtime.spawn, Odd, name=name)
    await at.refused(ConfigurationError, runtime.spawn, Odd, name="a/b")
    timeouts: tuple[Any, ...] = (Fraction(2), 2, ASK_S, math.inf, None)
    for timeout in timeouts:
        at.expect(await other.ask(1, timeout=timeout), 1, f"a question with the timeout {timeout}")
    wrong: tuple[Any, ...] = (-1, "1", math.nan, 1j)
    for timeout in wrong:
        await at.refused(InvalidArgument, other.ask, 1, timeout=timeout)
    await at.refused(AskTimeout, ref.ask, 0.3, timeout=0.05)
    await at.refused(AskTimeout, ref.ask, 0.3, timeout=0)
    reply = other.ask_nowait(2)
    await at.refused(InvalidArgument, reply.value)
    at.expect(await reply.wait(ASK_S), 2, "a reply that was waited for")
    at.expect(reply.value(), 2, "the value of a reply")
    late = ref.ask_nowait(0.2)
    with trio.move_on_after(0.05):
        await late.wait()
    await at.refused(InvalidArgument, late.wait)
    ref.watch(other)
    ended: list[Terminated] = []
    unwatch = ref.watch(ended.append)
    with suppress(InvalidArgument):  # the runtime is closing
        await runtime.restart(f"user/{name}")
    ref.statistics()
    at.expect(ref.stopped, False, "an actor that was restarted")
    unwatch()


async def spawn_wrongly(at: RareClient) -> None:
    """Actors that are none, take nothing, defer too early, have no `receive` or no state: they fail, or never run."""
    for start in (nobody, Unwilling, Early, Undefined, Unkept):
        spec = ChildSpec(
            name=at.new_name(),
            start=start,
            significant=False,
            intensity=1,
            on_failed=_failure if at.draws.random() < 0.5 else None,
        )
        with trio.move_on_after(ASK_S):
            if start in (nobody, Early):
                await at.refused((ActorStopped, RuntimeClosed), at.runtime.spawn, spec)
                continue
            ref = await at.runtime.spawn(spec)
            await at.refused(CallboardError, ref.ask, 1, timeout=ASK_S / 2)


def _failure(path: str, cause: BaseException) -> CallboardError:
    return ActorStopped(f"{path} has failed: {cause}", path=path)


async def fill_mailboxes(at: RareClient) -> None:
    """Mailboxes of all policies, full, with notices of actors that have ended among the messages."""
    for policy in ("wait", "drop_oldest", "drop_newest", "fail"):
        spec = ChildSpec(name=at.new_name(), start=Odd, significant=False, mailbox=MailboxSpec(2, policy))
        ref = await at.runtime.spawn(spec)
        supervisor = at.runtime._session.system.root.supervisor("user")  # `spawn` has no counterpart
        mortals = [await at.runtime.spawn(Odd, name=at.new_name()) for _ in range(3)]
        for mortal in mortals:
            mortal.watch(ref)
        ref.tell_nowait(0.05)
        await trio.sleep(0.01)
        for number in range(4):
            try:
                ref.tell_nowait(number)
            except MailboxFull:
                break
        for mortal in mortals:
            with suppress(InvalidArgument):  # the runtime is closing
                await supervisor.stop_child(mortal.path.rpartition("/")[2])
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(_told_or_not, ref, number)
        await trio.sleep(0.1)
        heard = await ref.ask("heard", timeout=ASK_S)
        notices = [message for message in heard if isinstance(message, Terminated)]
        is_whole = ref.statistics().received >= len(heard) and at.runtime.tree() is not None
        if is_whole and not at.world.fault_counts:
            at.expect(len(notices), len(mortals), "notices of those who have ended")


async def _told_or_not(ref: Any, number: int) -> None:
    try:
        await ref.tell(number)
    except MailboxFull:
        return


# -- systems without a disk


def system_of(at: RareClient, *children: ChildSpec | SupervisorSpec, **settings: Any) -> System:
    """A system of its own, beside the runtime."""
    spec = SupervisorSpec(name="odd", children=children, **settings)
    return open_system(spec, clock=at.machine.clock, entropy=at.draws.fork(at.new_name()))


async def specify_wrongly(at: RareClient) -> None:
    """Specifications of children, supervisors, backoffs and mailboxes that make no sense."""
    child = partial(ChildSpec, name="child", start=Odd)
    for wrong in WRONG_CHILDREN:
        await at.refused(ConfigurationError, child, **wrong)
    late = ChildSpec(name="late", start=Odd, awaited=False)
    slow = ChildSpec(name="slow", start=Odd, backoff=Backoff(initial=5.0, maximum=60.0))
    supervisor = partial(SupervisorSpec, name="supervisor")
    await at.refused(ConfigurationError, supervisor, children=(child(), child()))
    await at.refused(ConfigurationError, supervisor, children=(late,), strategy="one_for_all")
    await at.refused(ConfigurationError, supervisor, children=(slow,), intensity=50)
    for wrong in WRONG_SUPERVISORS:
        await at.refused(ConfigurationError, supervisor, **wrong)
    for wrong in WRONG_BACKOFFS:
        await at.refused(ConfigurationError, Backoff, **wrong)
    for mailbox in ((0,), (True,), (1.5,), (5, "explode")):
        await at.refused(ConfigurationError, MailboxSpec, *mailbox)
    once = ChildSpec(name="once", start=Odd, restart="temporary", backoff=Backoff(initial=5.0, maximum=60.0))
    supervisor(children=(once,), intensity=50)


async def grow_and_shrink(at: RareClient) -> None:
    """Children that are added, stopped, restarted and asked for under wrong names, while the tree runs and after it."""
    first = ChildSpec(name="first", start=Odd)
    team = SupervisorSpec(
        name="team", strategy=one_of(at.draws, ("one_for_one", "one_for_all", "rest_for_one"))
    )
    system = system_of(at, first, team)
    await at.refused(InvalidArgument, system.actor, "first/nobody")
    async with system:
        await at.refused(InvalidArgument, _enter, system)
        root = system.root
        repr(root)
        await at.refused(ConfigurationError, root.add_child, first)
        await at.refused(InvalidArgument, root.child, "team")
        await at.refused(InvalidArgument, root.supervisor, "first")
        await at.refused(InvalidArgument, root.child, "nobody")
        await at.refused(InvalidArgument, root.stop_child, "nobody")
        inner = root.supervisor("team")
        names = [f"member-{number}" for number in range(4)]
        async with trio.open_nursery() as nursery:
            for name in names:
                inner.add_child(ChildSpec(name=name, start=Odd))
                nursery.start_soon(_until_gone, inner.restart_child, name)
                if at.draws.random() < 0.5:
                    nursery.start_soon(_until_gone, inner.stop_child, name)
        await _until_gone(root.restart_child, "team")
        at.expect(len(list(system.tree().walk())), len(system.tree().draw().splitlines()), "a tree in lines")
        ref = root.child("first")
        ended: list[Terminated] = []
        ref.watch(ended.append)
        await root.stop_child("first")
        at.expect([notice.path for notice in ended], ["first"], "the notice of one who has ended")
        ref.watch(ended.append)
        at.expect(len(ended), 2, "notices of one who has ended, watched later")
        ref.stop()
        ref.kill()
        await at.refused(ActorStopped, ref.ask, 1)
        await at.refused(ActorStopped, ref.tell_nowait, 1)
        if at.draws.random() < 0.5:
            await root.stop_child("team")
            await at.refused(ActorStopped, inner.start_child, first)
    await at.refused(ActorStopped, root.start_child, first)
    await at.refused(ActorStopped, root.restart_child, "team")
    await at.refused(ActorStopped, system.spawn, Odd)
    at.expect(await system.__aexit__(None, None, None), False, "leaving a system twice")


async def _until_gone(call: Any, name: str) -> None:
    try:
        await call(name)
    except (ActorStopped, InvalidArgument):
        return


async def fail_together(at: RareClient) -> None:
    """Teams that fail, with their actors, and are revived; and what ends a system passes through its body."""
    member = partial(ChildSpec, start=Odd, backoff=Backoff(initial=0, maximum=0))
    teams = [
        SupervisorSpec(
            name=f"team-{number}",
            intensity=0,
            significant=False,
            children=(member(name="one"), SupervisorSpec(name="inner", children=(member(name="two"),))),
        )
        for number in range(2)
    ]
    system = system_of(at, *teams, intensity=0)
    async with system:
        ref = system.actor("team-0/one")
        await at.refused((ActorCrashed, ActorStopped, CallboardError), ref.ask, "fail", timeout=ASK_S)
        await trio.sleep(0.01)
        inner = system.actor("team-0/inner/two")
        await at.refused(CallboardError, inner.ask, 1, timeout=ASK_S)
        system.tree().draw()
        await _until_gone(system.root.restart_child, "team-0")
        at.expect(await inner.ask(1, timeout=ASK_S), 1, "an actor of a team that was revived")
    doomed = system_of(at, ChildSpec(name="doomed", start=Odd), intensity=0)
    await at.refused(RestartLimitReached, _end_by, doomed, "doomed")
    broken = system_of(at, ChildSpec(name="broken", start=nobody), intensity=0)
    await at.refused(RestartLimitReached, _enter, broken)
    unkept = system_of(at, ChildSpec(name="unkept", start=Unkept), intensity=0)
    await at.refused(RestartLimitReached, _enter, unkept)
    group = system_of(at, ChildSpec(name="fine", start=Odd))
    await at.refused(BaseExceptionGroup, _raise_group, group)


async def _enter(context: Any) -> None:
    async with context:
        pass


async def _end_by(system: System, name: str) -> None:
    async with system:
        system.actor(name).tell_nowait("fail")
        await trio.sleep_forever()


async def _raise_group(system: System) -> None:
    async with system, trio.open_nursery() as nursery:
        nursery.start_soon(_fail)
        nursery.start_soon(_fail)


async def _fail() -> None:
    await trio.lowlevel.checkpoint()
    raise OddFailed


async def watch_badly(at: RareClient) -> None:
    """Watchers and listeners that fail, replies that are kept too long, questions that are left."""
    system = system_of(at, ChildSpec(name="one", start=Odd), ChildSpec(name="two", start=Odd))
    async with system:
        one, two = system.actor("one"), system.actor("two")
        one.watch(_complain)
        system.events.subscribe(_complain)
        one.watch(two)
        hoarder = await system.root.start_child(ChildSpec(name="hoarder", start=hoard))
        hoarded = [hoarder.ask_nowait(number % 50) for number in range(120)]
        at.expect(await hoarder.ask(0, timeout=ASK_S), 121, "the replies that an actor has kept")
        hoarded[0].abandon()
        replies: list[Reply] = [two.ask_nowait("later") for _ in range(one_of(at.draws, (3, 90)))]
        await trio.sleep(0.01)
        with trio.move_on_after(0.01):
            await replies[0].wait()
        await system.root.stop_child("one")
        await system.root.restart_child("two")
        for reply in replies[1:]:
            await at.refused(CallboardError, reply.wait, ASK_S)
        await at.refused(CallboardError, two.ask, "next", timeout=ASK_S)


def _complain(event: object) -> None:
    raise OddFailed(event)


async def ask_without_disk(at: RareClient) -> None:
    """A question that several tasks wait for, cancelled and timed out, of an actor that is slow."""
    system = system_of(at, ChildSpec(name="slow", start=Odd, mailbox=MailboxSpec(1)))
    async with system:
        slow = system.actor("slow")
        async with trio.open_nursery() as nursery:
            for timeout in (0.0, 0.01, 0.1, math.inf, None):
                nursery.start_soon(_asked_or_not, slow, timeout)
            await trio.sleep(0.05)
            slow.kill()
    await at.refused(ActorStopped, slow.ask, 1, timeout=1.0)


async def _asked_or_not(ref: Any, timeout: float | None) -> None:
    with trio.move_on_after(0.3):
        try:
            await ref.ask(0.02, timeout=timeout)
        except (AskTimeout, ActorCrashed, ActorStopped):
            return


ACTOR_TURNS: Final[tuple[Any, ...]] = (
    open_wrongly,
    look_at_everything,
    spawn_anything,
    spawn_wrongly,
    fill_mailboxes,
    specify_wrongly,
    grow_and_shrink,
    fail_together,
    watch_badly,
    ask_without_disk,
)
