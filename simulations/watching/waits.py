"""What a task waits for, read from the frames below the program's line: a lock and its holder, a message, an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import attrs
import trio


@attrs.frozen
class Wait:
    """What is waited for, in words that may hold `{}` for the names of `tasks` or of the tasks of `actors`."""

    words: str
    tasks: tuple[trio.lowlevel.Task, ...] = ()
    actors: tuple[str, ...] = ()
    """Paths of actors."""
    is_for_end: bool = False
    """Whether it is the end of other tasks, or of a machine."""


def wait_of(task: trio.lowlevel.Task, frames: Sequence[FrameType]) -> Wait:
    """What `task` waits for; `frames` are those below the program's line, outermost first."""
    for frame in frames:
        code = frame.f_code
        told = KNOWN.get((str(frame.f_globals.get("__name__", "")), code.co_qualname))
        if told is None:
            told = KNOWN_ANYWHERE.get(code.co_qualname)
        if told is not None:
            return told(task, frame.f_locals)
    return Wait(f"{frames[0].f_code.co_qualname}()" if frames else "")


Tell = Callable[[trio.lowlevel.Task, dict[str, Any]], Wait]


def _lock(task: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    owner = getattr(names["self"].statistics(), "owner", None)
    if owner is task:
        return Wait("")  # it has just got it, and lets others run
    return Wait("a lock that {} holds", (owner,)) if owner is not None else Wait("a lock")


def _limiter(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    borrowers = [
        task for task in names["self"].statistics().borrowers if isinstance(task, trio.lowlevel.Task)
    ]
    return (
        Wait("a token of a capacity limiter, which {} hold", tuple(borrowers))
        if borrowers
        else Wait("a token")
    )


def _condition(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    return Wait("somebody to notify a condition")


def _event(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    return Wait("an event that nobody has set")


def _receive(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    senders = names["self"].statistics().open_send_channels
    return Wait(f"something from a memory channel with {senders} open sender{'s' * (senders != 1)}")


def _send(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    statistics = names["self"].statistics()
    used, size = statistics.current_buffer_used, statistics.max_buffer_size
    if not size:
        return Wait("somebody to receive from a memory channel")
    return Wait(f"room in a memory channel ({used} of {size:g} taken)")


def _children(task: trio.lowlevel.Task, _: dict[str, Any]) -> Wait:
    children = [child for nursery in task.child_nurseries[-1:] for child in nursery.child_tasks]
    if len(children) > 4:
        return Wait(f"its {len(children)} child tasks", is_for_end=True)
    if not children:
        return Wait("")
    return Wait(f"its child task{'s' * (len(children) != 1)} {{}}", tuple(children), is_for_end=True)


def _answer(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    path = names["self"].path if hasattr(names["self"], "path") else names["self"]._cell.path
    return Wait(f"the answer of actor {path}", actors=(path,))


def _consumer(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    consumer = names["self"]
    topics = " and ".join(live.name for live in consumer.topics.lives)
    return Wait(f"a message of {topics} for group {consumer.group}")


def _publish(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    return Wait(f"{names['self'].name} to store what it publishes")


def _machine(_: trio.lowlevel.Task, names: dict[str, Any]) -> Wait:
    machine = names.get("machine")
    if machine is None or machine.dead:
        return Wait("the machine to boot again")
    return Wait(f"machine {machine.number} to be done", is_for_end=True)


def _says(words: str) -> Tell:
    return lambda _task, _names: Wait(words)


KNOWN: Final[dict[tuple[str, str], Tell]] = {
    ("callboard.actors.kernel.ref", "ActorRef.ask"): _answer,
    ("callboard.actors.kernel.ref", "ActorRef._ask_in_scope"): _answer,
    ("callboard.actors.kernel.reply", "Reply.wait"): _answer,
    ("callboard.actors.kernel.ref", "ActorRef.tell"): _says("room in an actor's mailbox"),
    ("callboard.actors.kernel.reply", "Reply.settled"): _answer,
    ("callboard.actors.kernel.mailbox", "Mailbox.wait"): _says("a message in its mailbox"),
    ("callboard.actors.kernel.incarnation", "ActorIncarnation.next_envelope"): _says(
        "a message in its mailbox"
    ),
    ("callboard.actors.kernel.durable", "DurableActor.persist"): _says("the disk to store its events"),
    ("callboard.consumer.fetcher", "Fetcher.get"): _consumer,
    ("callboard.consumer.batches", "BatchTaker.get_batch"): _consumer,
    ("callboard.consumer.fetcher", "Fetcher.__aenter__"): _says("its group to take it in"),
    ("callboard.topic", "Topic.publish"): _publish,
    ("callboard.topic", "Topic.publish_batch"): _publish,
    ("callboard.topic", "Topic.flush"): _publish,
    ("callboard.topic", "Topic.describe"): _says("its partitions to tell of themselves"),
    ("callboard.consumer.reader", "RecordReader.__anext__"): _says("a record"),
    ("callboard.consumer.reader", "BatchReader.__anext__"): _says("records"),
    ("callboard.runtime", "Runtime.__aenter__"): _says("its runtime to open"),
    ("callboard.runtime", "Runtime.__aexit__"): _says("its runtime to close"),
    ("callboard.runtime", "Runtime.spawn"): _says("an actor to start"),
    ("callboard.session", "Session.ask_catalog"): _says("the catalog"),
    ("callboard.simulations.world.world", "World.machine_until_done"): _machine,
    ("callboard.simulations.world.world", "World.eventually"): _says("what it expects to come true"),
}
"""By module and function."""

KNOWN_ANYWHERE: Final[dict[str, Tell]] = {
    "Lock.acquire": _lock,
    "StrictFIFOLock.acquire": _lock,
    "_LockImpl.acquire": _lock,
    "Semaphore.acquire": _says("a semaphore that is taken"),
    "CapacityLimiter.acquire": _limiter,
    "CapacityLimiter.acquire_on_behalf_of": _limiter,
    "Condition.wait": _condition,
    "Event.wait": _event,
    "MemoryReceiveChannel.receive": _receive,
    "MemorySendChannel.send": _send,
    "NurseryManager.__aexit__": _children,
    "Nursery._nested_child_finished": _children,
    "checkpoint": _says(""),
    "cancel_shielded_checkpoint": _says(""),
    "sleep": _says(""),
    "sleep_until": _says(""),
    "sleep_forever": _says(""),
}
"""By function alone: they lie in other modules of trio with each release. What a line says itself is not said again."""
