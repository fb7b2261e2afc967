"""The kinds of faults, as data: what goes wrong, where, and when. `injector.py` makes them happen.

Vocabulary. A *path* of an actor is its whole path in the tree ("topics/orders/0"); a *path* on the disk is a part of
the paths that are meant ("" means all). Times are virtual seconds. A *draw* is any number: it chooses among
possibilities, the same on the same disk. A fault *hits* when it had an effect.

Each kind says in `happening` what it does, as the rest of a sentence that begins with its moment; `words` is the whole.
To add a kind: a class here, an entry in `actions.ACTIONS`, one in `swarm.DRAWS`, and one in
tests/simulations/faults/test_every_kind.py.
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from callboard.simulations.disk.disk_faults import OBSERVED
from callboard.simulations.disk.survival import Survival
from callboard.simulations.faults.shapes import (
    Number,
    OneOf,
    Remains,
    Text,
    WholeNumber,
    field,
    plan_error,
    problems_of,
    shown,
)
from callboard.simulations.faults.when import SECONDS_MAX, After, At, When

VERBS: Final = tuple(name for name in OBSERVED if name != "read")
"""What `FailVerb` may fail; reads have a kind of their own."""
ERRNOS: Final = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EMFILE", "ENOMEM")
JUMP_S_MAX: Final = 1_000_000_000.0
"""31 years, either way: wall time stays after 1970."""
BYTES_MAX: Final = 1 << 40
COUNT_MAX: Final = 1_000_000

ACTOR = Text(may_be_empty=False)
SPAN = Number(0.0, SECONDS_MAX)
COUNT = WholeNumber(1, COUNT_MAX)
DRAW = WholeNumber(0, 2**64 - 1)

KINDS: Final[dict[str, type[Fault]]] = {}
"""Every kind by its name, which is what plans are written with."""


@attrs.frozen
class Fault:
    """What all kinds have. Raises `PlanError` for values that no fault can have, when it is made."""

    beyond: ClassVar[bool] = False
    """Whether no log survives it, so that only a clear report is promised; see the disk's damage budget."""

    when: When

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls  # attrs makes each class once more, with slots: that one stays

    def __attrs_post_init__(self) -> None:
        problems = problems_of(self)
        if not isinstance(self.when, At | After):
            problems.append(f"{type(self).__name__}.when must be At or After, not {shown(self.when)}")
        if problems:
            raise plan_error(problems)

    @property
    def label(self) -> str:
        """The name under which its hits are counted."""
        return type(self).__name__

    def happening(self) -> str:
        """What happens, as the rest of a sentence."""
        return self.label

    def words(self) -> str:
        """Moment and happening as one English sentence without its full stop, beginning in lower case."""
        return f"{self.when.words()} {self.happening()}"


# -- actors -------------------------------------------------------------------------------------------------


@attrs.frozen
class CrashActor(Fault):
    """The actor's code raises an exception."""

    path: str = field(ACTOR)

    def happening(self) -> str:
        return f"the actor {self.path} crashes"


@attrs.frozen
class CrashInBatch(Fault):
    """The actor's code raises while it has messages in hand: some of a batch handled, some not."""

    path: str = field(ACTOR)

    def happening(self) -> str:
        return f"the actor {self.path} crashes with messages in hand"


@attrs.frozen
class CrashInRecovery(Fault):
    """The actor crashes, and crashes again at that disk verb of its next incarnation, before that has started."""

    path: str = field(ACTOR)
    verbs: int = field(COUNT, 1)

    def happening(self) -> str:
        return f"the actor {self.path} crashes, and again at disk verb {self.verbs:,} of its recovery"


@attrs.frozen
class CrashOnMessage(Fault):
    """The actor's code raises right after it has handled its `count`-th message of a class, "" for any message."""

    path: str = field(ACTOR)
    message: str = field(Text(), "")
    count: int = field(COUNT, 1)

    def happening(self) -> str:
        return f"the actor {self.path} crashes on message {self.count:,} {self.message or 'of any kind'}"


@attrs.frozen
class CrashUntilDown(Fault):
    """The actor crashes whenever it has started, until it is restarted no more."""

    path: str = field(ACTOR)

    def happening(self) -> str:
        return f"the actor {self.path} crashes again and again"


@attrs.frozen
class PauseActor(Fault):
    """Nothing of the actor runs for a while, as if its process stood still; then it continues normally."""

    path: str = field(ACTOR)
    for_s: float = field(SPAN)

    def happening(self) -> str:
        return f"the actor {self.path} stands still for {self.for_s:g} s"


@attrs.frozen
class SlowActor(Fault):
    """Every step of the actor's tasks comes later than it could."""

    path: str = field(ACTOR)
    delay_s: float = field(SPAN)
    for_s: float = field(SPAN)

    def happening(self) -> str:
        return f"every step of the actor {self.path} comes {self.delay_s:g} s late, for {self.for_s:g} s"


@attrs.frozen
class DelayMailbox(Fault):
    """The actor's loop looks into its mailbox later than it could; its other tasks continue."""

    path: str = field(ACTOR)
    delay_s: float = field(SPAN)
    for_s: float = field(SPAN)

    def happening(self) -> str:
        return f"messages to the actor {self.path} come {self.delay_s:g} s late, for {self.for_s:g} s"


@attrs.frozen
class FillMailbox(Fault):
    """The actor stands still for a while, with room for `capacity` messages only; it hits when its mailbox was full."""

    path: str = field(ACTOR)
    for_s: float = field(SPAN)
    capacity: int = field(COUNT, 1)

    def happening(self) -> str:
        room = f"room for {self.capacity:,} in its mailbox"
        return f"the actor {self.path} stands still for {self.for_s:g} s, with {room}"


# -- the machine, its clock, and clients ---------------------------------------------------------------------


@attrs.frozen
class PowerCut(Fault):
    """The power fails: no code runs on, and of what was not synced a part survives."""

    survival: Survival = field(Remains(), Survival())
    down_s: float = field(SPAN, 1.0)

    def happening(self) -> str:
        survival = self.survival
        if not survival.applied and not survival.names:
            return f"the power is cut for {self.down_s:g} s; nothing survives that was not synced"
        kept = f"each sector is there with {survival.applied:.0%}"
        if survival.torn:
            kept += f" (on its own with {survival.torn:.0%})"
        if survival.trashed:
            kept += f", as garbage with {survival.trashed:.0%}"
        kept += f", each name with {survival.names:.0%}"
        return f"the power is cut for {self.down_s:g} s; of what was not synced {kept}"


@attrs.frozen
class KillProcess(Fault):
    """The process is killed (SIGKILL, out of memory): no code runs on, but the system writes what it was given."""

    down_s: float = field(SPAN, 1.0)

    def happening(self) -> str:
        return f"the process is killed and comes back after {self.down_s:g} s"


@attrs.frozen
class JumpClock(Fault):
    """Wall time jumps, either way; monotonic time does not notice."""

    seconds: float = field(Number(-JUMP_S_MAX, JUMP_S_MAX))

    def happening(self) -> str:
        return f"wall time jumps {'back' if self.seconds < 0 else 'forward'} by {abs(self.seconds):g} s"


@attrs.frozen
class CrashConsumer(Fault):
    """A consumer dies with what it has in hand."""

    consumer: str = field(ACTOR)

    def happening(self) -> str:
        return f"the consumer {self.consumer} dies"


@attrs.frozen
class RetryIndefinite(Fault):
    """Publishers publish again, this many times in all, what may have been stored: duplicates are then expected."""

    times: int = field(COUNT, 1)

    def happening(self) -> str:
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"publishers begin to publish again, {times} in all, what may have been stored"


# -- tasks of the program ------------------------------------------------------------------------------------


@attrs.frozen
class CancelTask(Fault):
    """A task of the program is cancelled out of its next await, alone, as if it had a cancel scope of its own."""

    task: str = field(ACTOR)
    draw: int = field(DRAW, 0)

    def happening(self) -> str:
        return f"the task {self.task} is cancelled"


@attrs.frozen
class PauseTask(Fault):
    """A task of the program continues later than it could: deadlines pass and leases run out meanwhile."""

    task: str = field(ACTOR)
    for_s: float = field(SPAN)

    def happening(self) -> str:
        return f"the task {self.task} stands still for {self.for_s:g} s"


@attrs.frozen
class BusyLoop(Fault):
    """The loop of the process is busy, or wakes up late: deadlines that pass meanwhile expire together."""

    for_s: float = field(SPAN)

    def happening(self) -> str:
        return f"the loop is busy for {self.for_s:g} s"


# -- the disk -----------------------------------------------------------------------------------------------


def _on(path: str) -> str:
    return f" on {path}" if path else ""


def _next(noun: str, path: str, times: int, verb: str) -> str:
    if times == 1:
        return f"the next {noun}{_on(path)} {verb}s"
    return f"the next {times:,} calls of {noun}{_on(path)} {verb}"


@attrs.frozen
class FailVerb(Fault):
    """Verbs of one sort fail. A write puts down `partial` bytes first; a failed sync loses what it should have saved.

    After a failed sync, `pages` that are "kept" still show what was written, "reverted" ones what is on the disk.
    """

    verb: str = field(OneOf(VERBS))
    errno: str = field(OneOf(ERRNOS), "EIO")
    path: str = field(Text(), "")
    times: int = field(COUNT, 1)
    pages: str = field(OneOf(("kept", "reverted")), "kept")
    partial: int = field(WholeNumber(0, BYTES_MAX), 0)

    @property
    def label(self) -> str:
        return f"FailVerb:{self.verb}:{self.errno}"

    def happening(self) -> str:
        after = f" after {self.partial:,} bytes" if self.partial else ""
        failing = _next(self.verb.replace("_", " "), self.path, self.times, "fail")
        return f"{failing} with {self.errno}{after}"


@attrs.frozen
class FailRead(Fault):
    """Reads fail with EIO."""

    path: str = field(Text(), "")
    times: int = field(COUNT, 1)

    def happening(self) -> str:
        return f"{_next('read', self.path, self.times, 'fail')} with EIO"


@attrs.frozen
class ShortRead(Fault):
    """Reads come back short and have to be continued."""

    path: str = field(Text(), "")
    times: int = field(COUNT, 1)

    def happening(self) -> str:
        return f"{_next('read', self.path, self.times, 'come')} back short"


@attrs.frozen
class ShortWrite(Fault):
    """A write puts down some of its bytes, but not all, and fails."""

    path: str = field(Text(), "")
    draw: int = field(DRAW, 0)

    def happening(self) -> str:
        return f"the next write{_on(self.path)} puts down a part of its bytes and fails"


@attrs.frozen
class FullDisk(Fault):
    """The disk has space for `slack_bytes` more and no more, for a while."""

    for_s: float = field(SPAN)
    slack_bytes: int = field(WholeNumber(0, BYTES_MAX), 0)

    def happening(self) -> str:
        return f"the disk has space for {self.slack_bytes:,} bytes more, for {self.for_s:g} s"


@attrs.frozen
class Rot(Fault):
    """One bit of a durable byte flips."""

    path: str = field(Text(), "")
    draw: int = field(DRAW, 0)

    def happening(self) -> str:
        return f"one bit{_on(self.path)} flips on the disk"


@attrs.frozen
class Misdirect(Fault):
    """A write lands elsewhere in its file: instead of where it belongs, or, with an odd `draw`, as well."""

    beyond: ClassVar[bool] = True

    path: str = field(Text(), "")
    draw: int = field(DRAW, 0)

    def happening(self) -> str:
        return f"the next write{_on(self.path)} lands elsewhere{' as well' if self.draw % 2 else ''}"


@attrs.frozen
class SlowDisk(Fault):
    """Plans and reads take longer."""

    path: str = field(Text(), "")
    latency_s: float = field(SPAN, 0.1)
    for_s: float = field(SPAN, 1.0)

    def happening(self) -> str:
        return f"everything{_on(self.path or 'the disk')} takes {self.latency_s:g} s longer, for {self.for_s:g} s"


@attrs.frozen
class Stall(Fault):
    """Plans and reads wait, and no cancellation ends that."""

    path: str = field(Text(), "")
    for_s: float = field(SPAN, 1.0)

    def happening(self) -> str:
        return f"the disk does not answer{_on(self.path)} for {self.for_s:g} s"
