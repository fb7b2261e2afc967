"""Every error that Callboard raises on purpose, named by what the reader should do next.

Each message has three parts: what happened, where, and what to do. The fields contain the same facts for programs.
An error marked *indefinite* means that the operation may or may not have happened: read the log to find out, or
repeat the operation if repeating it is harmless.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar, Final, Self

__all__ = [
    "ActorCrashed",
    "ActorStopped",
    "AskTimeout",
    "CallboardError",
    "ConfigurationError",
    "ConsumerDrained",
    "ConsumerFenced",
    "ControlError",
    "DeadLettersFull",
    "DeadLettersKept",
    "OutboxFull",
    "DirectoryLocked",
    "DiskFull",
    "FormatTooNew",
    "GroupExists",
    "GroupNotFound",
    "InternalError",
    "InvalidArgument",
    "JournalInvalid",
    "LeaseLost",
    "LogCorrupt",
    "MailboxFull",
    "MessageTooLarge",
    "OffsetMismatch",
    "OffsetOutOfRange",
    "PartialPublish",
    "PartitionUnavailable",
    "PlanFailed",
    "ProducerFenced",
    "PublishFailed",
    "RecordingInvalid",
    "RestartLimitReached",
    "RuntimeClosed",
    "ScheduleExists",
    "ScheduleNotFound",
    "SequenceOutOfOrder",
    "StaleIncarnation",
    "StorageError",
    "TopicExists",
    "TopicFull",
    "TopicNotFound",
    "TopicReadOnly",
    "UnsupportedPlatform",
    "WrongRun",
]


NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class CallboardError(Exception):
    """The base class of all errors. `indefinite` is True when the operation may have happened."""

    indefinite: bool = False
    kept_back: ClassVar[tuple[str, ...]] = ()
    """Fields that only the code that raises it uses: an actor that answers with the error does not send them."""

    def __init__(self, message: str, /, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as it is: its class may take other arguments than its message."""
        return remade, (type(self), self.args, self.__dict__)

    def again(self) -> Self:
        """A copy of the error, so that several tasks can raise it without sharing a traceback."""
        copy = type(self).__new__(type(self), *self.args)
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        copy.__cause__ = self.__cause__
        return copy


def remade(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    """An exception from its parts, as pickle and copy make it: for exceptions whose class takes other arguments."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


# -- the caller's own mistakes: nothing was written ---------------------------------------------------------


class InvalidArgument(CallboardError, ValueError):
    """An argument is not acceptable. Nothing was written. Correct the call. `index` is the message, of a batch."""

    index: int | None = None


class ConfigurationError(InvalidArgument):
    """Settings are unknown, out of range or contradict each other; `problems` lists all of them."""

    problems: tuple[str, ...]


class NotInThisVersion(ConfigurationError):
    """The setting is known, but this version does not have its feature. Programs catch `ConfigurationError`.

    The catalog tells it apart from a setting that makes no sense.
    """


class MessageTooLarge(InvalidArgument):
    """A message or its headers exceed the topic's limit (`size_bytes`, `limit_bytes`). Nothing was written."""


class TopicNotFound(CallboardError, LookupError):
    """There is no topic of that name (`topic`). Create it first."""


class TopicExists(CallboardError):
    """The topic exists with other settings, or under a name that differs only in case (`topic`)."""


class GroupNotFound(CallboardError, LookupError):
    """There is no consumer group of that name (`group`)."""


class GroupExists(ConfigurationError):
    """The group exists with other settings than a new consumer names (`group`); `problems` lists them."""


class ScheduleNotFound(CallboardError, LookupError):
    """The topic has no schedule of that name (`topic`, `schedule`)."""


class ScheduleExists(CallboardError):
    """The topic has a schedule of that name with other settings (`topic`, `schedule`)."""


class OffsetOutOfRange(CallboardError, LookupError):
    """The offset lies outside the partition (`offset`, `start`, `end`)."""


class OffsetMismatch(CallboardError):
    """The partition's next offset is not the one that the publish expected (`expected_offset`, `next_offset`).

    Nothing was written. Read what was published meanwhile, decide again, and publish with the new offset.
    """

    expected_offset: int
    next_offset: int


class ProducerFenced(CallboardError):
    """Another producer has begun under the same name (`producer_id`, `epoch`, `latest`). Nothing was written.

    This one is out of date: stop it. Whatever it had published before stands.
    """

    producer_id: int
    epoch: int
    latest: int


class SequenceOutOfOrder(CallboardError):
    """A producer's sequence leaves a gap behind its last stored record (`producer_id`, `sequence`, `expected`).

    Nothing was written. Publish what comes next; a producer that the partition has forgotten begins again.
    """

    producer_id: int
    sequence: int
    expected: int


class UnsupportedPlatform(CallboardError):
    """This operating system is not supported."""


# -- the state of the runtime -------------------------------------------------------------------------------


class RuntimeClosed(CallboardError):
    """The runtime, topic or consumer is closed. Open it again.

    `indefinite` is set when a topic or group was to be changed and the runtime closed meanwhile.
    """


class WrongRun(CallboardError, RuntimeError):
    """The call came from another trio run, thread or process than the one that opened the runtime. Nothing was done."""


class DirectoryLocked(CallboardError):
    """Another process writes this directory (`directory`, `holder`). Stop it, or choose another directory."""


class ConsumerDrained(CallboardError):
    """The consumer is draining and takes no message (`Consumer.drain`); iterating ends in place of this (`group`).

    What is in hand can be settled as before.
    """


class ConsumerFenced(CallboardError):
    """A consumer asked for messages as a member that it no longer is (`consumer`, `generation`). Nothing was leased.

    It joins again; a `Consumer` sees to that itself.
    """


class LeaseLost(CallboardError):
    """The lease has ended: it expired and the message was leased again, the message was settled, or its group went on
    elsewhere (`Group.seek`, `Group.reset`).

    The call had no effect. If the lease expired, another consumer has, or had, the message.
    """


class DeadLettersFull(CallboardError):
    """A message was not rejected: as many dead letters of its group wait in the partition as may.

    Nothing was settled. Nack or release the message.
    """


class DeadLettersKept(CallboardError):
    """A group was not deleted: its partitions keep dead letters, which are nowhere else (`group`, `dead_letters`).

    Read or forget them, have them forwarded to a topic, or say that they go with the group: `drop_dead_letters=True`.
    """


class OutboxFull(CallboardError):
    """A partition keeps no more messages that acks have published: nothing was acked, and nothing will be published.

    Make room in the topics that they are for (`stats().outbox`), and ack again; the lease is still there. Acks that
    publish nothing are never refused (`topic`, `partition`).
    """


class TopicFull(CallboardError):
    """The topic has reached its limit, and retention may not drop what a durable group has not settled (`topic`)."""


class TopicReadOnly(CallboardError):
    """The topic was made read-only, and takes no message (`topic`). Nothing was written.

    Publish elsewhere, or have it take messages again: `runtime.alter_topic(name, read_only=False)`.
    """


class PartitionUnavailable(CallboardError):
    """The partition does not take this operation now (`topic`, `partition`, `state`).

    `state` is "failed" (restart intensity exceeded: repair, or restart it by hand), "stuck" (the disk does not
    answer), "full" (no space) or "damaged".
    """


class ControlError(CallboardError):
    """The control socket of a running runtime could not be reached, or refused the request.

    `is_listening` is True when the runtime refused; `kind` names its error, if there was one.
    """

    is_listening: bool = False
    kind: str | None = None


# -- actors -------------------------------------------------------------------------------------------------


class MailboxFull(CallboardError):
    """A mailbox is full and its policy does not let the sender wait (`path`, `capacity`). Slow down, then try again."""


class AskTimeout(CallboardError):
    """There was no answer in time (`path`, `timeout`). Indefinite: the actor may still act on the question."""

    indefinite = True


class ActorStopped(CallboardError):
    """The actor has stopped and will not come back (`path`). The message was not handled."""


class ActorCrashed(CallboardError):
    """The actor crashed before it answered the question (`path`). Indefinite: it may have acted on it."""

    indefinite = True


class RestartLimitReached(CallboardError):
    """A supervisor gave up: its children failed more often than its intensity allows (`path`, `restarts`).

    `children` says how many restarts each child needed within the period; `child` is the one that failed last.
    """


# -- storage ------------------------------------------------------------------------------------------------


class StorageError(CallboardError):
    """The disk failed or refused an operation. The message names the file and the operating system's error."""


class PlanFailed(StorageError):
    """A disk plan stopped at verb `index` (`verb`, `error`: the OSError). Earlier verbs took effect."""

    index: int
    verb: Any
    error: OSError
    kept_back = ("verb",)


class PublishFailed(StorageError):
    """The records may not be in the log (`topic`, `partition`); `indefinite` says whether they may be there."""


class DiskFull(PublishFailed):
    """No space is left; nothing was stored. Reads, leases and acknowledgements continue. Free some space: it heals."""


class PartialPublish(CallboardError):
    """A batch of several parts was stored in part: it went to several partitions, or some of it is delayed.

    `receipts` has a receipt or an error for each record, in the order given.
    """

    indefinite = True
    receipts: tuple[Any, ...]


class LogCorrupt(StorageError):
    """Bytes that were stored are damaged (`path`, `offsets`: first and last offset lost, where known)."""

    path: str | None = None
    offsets: tuple[int, int] | None = None


class JournalInvalid(StorageError):
    """A journal's bytes are whole, but what they say makes no sense (`path`, `group`: its id, or None).

    This is the symptom of a bug, not damage, so nothing is changed and nothing is repaired by itself.
    """

    path: str
    group: int | None = None


class RecordingInvalid(StorageError):
    """What is there is no whole recording (`path`): a file is missing, or does not say what the manifest says."""

    path: str


class FormatTooNew(StorageError):
    """The directory was written by a newer Callboard (`found`, `supported`). Upgrade Callboard to read it."""


class StaleIncarnation(StorageError):
    """A disk handle was used after its owner's restart. Only a bug or a fenced, ending actor gets this (`owner`)."""


class InternalError(CallboardError):
    """An invariant of Callboard does not hold (`invariant`)."""

    def __init__(self, message: str, /, *, invariant: str, **fields: Any) -> None:
        super().__init__(
            f"{message} (invariant {invariant}): this is a bug in Callboard, please report it",
            invariant=invariant,
            **fields,
        )


def join_problems(what: str, problems: list[str] | tuple[str, ...]) -> ConfigurationError:
    """One error for all `problems` found in `what`."""
    listed = "; ".join(problems)
    return ConfigurationError(f"{what}: {listed}. Nothing was changed.", problems=tuple(problems))


def lacks_space(error: BaseException | None) -> bool:
    """Whether a full disk is the cause of `error`."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            return True
        error = error.error if isinstance(error, PlanFailed) else error.__cause__
    return False
