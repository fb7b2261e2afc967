"""Every error that Callboard raises on purpose, named by what the reader should do next.

Each message has three parts: what happened, where, and what to do. The fields hold the same facts for programs.
An error marked *indefinite* means that the operation may or may not have happened: ask the log, or repeat the
operation if repeating it is harmless.
"""

from __future__ import annotations

from typing import Any, Self

__all__ = [
    "ActorCrashed",
    "ActorStopped",
    "AskTimeout",
    "CallboardError",
    "ConfigurationError",
    "ControlError",
    "DirectoryLocked",
    "DiskFull",
    "FormatTooNew",
    "GroupNotFound",
    "InternalError",
    "InvalidArgument",
    "JournalInvalid",
    "LeaseLost",
    "LogCorrupt",
    "MailboxFull",
    "MessageTooLarge",
    "NotInThisVersion",
    "OffsetOutOfRange",
    "PartialPublish",
    "PartitionUnavailable",
    "PlanFailed",
    "PublishFailed",
    "RestartLimitReached",
    "RuntimeClosed",
    "StaleIncarnation",
    "StorageError",
    "TopicExists",
    "TopicFull",
    "TopicNotFound",
    "UnsupportedPlatform",
    "WrongRun",
]


class CallboardError(Exception):
    """The root of the tree. `indefinite` is True when the operation may have happened all the same."""

    indefinite: bool = False

    def __init__(self, message: str, /, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def again(self) -> Self:
        """The same error as a new object, for each of several tasks to raise: tracebacks are not shared."""
        copy = type(self).__new__(type(self), *self.args)
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        copy.__cause__ = self.__cause__
        return copy


# -- the caller's own mistakes: nothing was written ---------------------------------------------------------


class InvalidArgument(CallboardError, ValueError):
    """An argument is not acceptable. Nothing was written. Correct the call."""


class ConfigurationError(InvalidArgument):
    """Settings are unknown, out of range or contradict each other; `problems` lists all of them."""

    problems: tuple[str, ...]


class NotInThisVersion(ConfigurationError):
    """The setting exists in the design but its feature is not built in this version."""


class MessageTooLarge(InvalidArgument):
    """A message or its headers exceed the topic's limit (`size_bytes`, `limit_bytes`). Nothing was written."""


class TopicNotFound(CallboardError, LookupError):
    """No topic of that name (`topic`). Create it first."""


class TopicExists(CallboardError):
    """The topic exists with other settings, or under a name that differs only in case (`topic`)."""


class GroupNotFound(CallboardError, LookupError):
    """No consumer group of that name (`group`)."""


class OffsetOutOfRange(CallboardError, LookupError):
    """The offset lies outside the partition (`offset`, `start`, `end`)."""


class UnsupportedPlatform(CallboardError):
    """This operating system is not supported."""


# -- the state of the runtime -------------------------------------------------------------------------------


class RuntimeClosed(CallboardError):
    """The runtime, topic or consumer is closed. Open it again."""


class WrongRun(CallboardError, RuntimeError):
    """The call came from another trio run, thread or process than the one that opened the runtime. Nothing was done."""


class DirectoryLocked(CallboardError):
    """Another process writes this directory (`directory`, `holder`). Stop it, or choose another directory."""


class LeaseLost(CallboardError):
    """The message is no longer this consumer's: its lease ran out and it was leased again, or it was settled.

    The settlement had no effect. Somebody else has, or had, the message.
    """


class TopicFull(CallboardError):
    """Retention may not drop what a durable group has not settled, and the limit is reached (`topic`)."""


class PartitionUnavailable(CallboardError):
    """The partition does not take this operation now (`topic`, `partition`, `state`).

    `state` is "failed" (restart intensity exceeded: repair, or restart it by hand), "stuck" (the disk does not
    answer), "full" (no space) or "damaged".
    """


class ControlError(CallboardError):
    """The control socket of a running runtime could not be reached, or refused the request.

    `is_listening` tells which; `kind` names the error by which the runtime refused, where there was one.
    """

    is_listening: bool = False
    kind: str | None = None


# -- actors -------------------------------------------------------------------------------------------------


class MailboxFull(CallboardError):
    """A bounded mailbox is full and its policy is to fail (`path`, `capacity`). Slow down, then try again."""


class AskTimeout(CallboardError):
    """No answer in time (`path`, `timeout`). Indefinite: the actor may still act on the question."""

    indefinite = True


class ActorStopped(CallboardError):
    """The actor has stopped and will not come back (`path`). The message was not handled."""


class ActorCrashed(CallboardError):
    """The actor crashed with the question in hand (`path`). Indefinite: it may have acted on it."""

    indefinite = True


class RestartLimitReached(CallboardError):
    """A supervisor gave up: its children failed more often than its intensity allows (`path`, `restarts`)."""


# -- storage ------------------------------------------------------------------------------------------------


class StorageError(CallboardError):
    """The disk refused or failed. The message names the file and the system's own words."""


class PlanFailed(StorageError):
    """A disk plan stopped at verb `index` (`verb`, `error`: the OSError). Earlier verbs took effect."""

    index: int
    verb: Any
    error: OSError


class PublishFailed(StorageError):
    """The records may not be in the log (`topic`, `partition`); `indefinite` tells whether they may be there."""


class DiskFull(PublishFailed):
    """No space is left; nothing was stored. Reads, leases and acknowledgements go on. Free space: it heals."""


class PartialPublish(CallboardError):
    """A batch over several partitions was stored in part.

    `receipts` holds, per record in the order given, a receipt or the error that befell it.
    """

    indefinite = True
    receipts: tuple[Any, ...]


class LogCorrupt(StorageError):
    """Bytes that were stored are damaged (`path`, `offsets`: first and last offset lost, where known)."""


class JournalInvalid(StorageError):
    """A journal's bytes are whole, but what they say makes no sense (`path`, `group`: its id, or None).

    This is the symptom of a bug, not damage, so nothing is changed and nothing is repaired by itself.
    """

    path: str
    group: int | None = None


class FormatTooNew(StorageError):
    """The directory was written by a newer Callboard (`found`, `supported`). Upgrade Callboard to read it."""


class StaleIncarnation(StorageError):
    """A disk handle outlived its owner's restart. Only a bug or a fenced, dying actor sees this (`owner`)."""


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
