"""Callboard: a durable, partitioned message log and queue that lives inside a trio program.

Everything public is a name of this package; it is loaded when first used, so importing Callboard costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.actors.kernel import Actor as Actor
    from callboard.actors.kernel import ActorRef as ActorRef
    from callboard.actors.kernel import Context as Context
    from callboard.actors.kernel import MailboxSpec as MailboxSpec
    from callboard.actors.kernel import Question as Question
    from callboard.actors.kernel.durable import DurableActor as DurableActor
    from callboard.consumer import Consumer as Consumer
    from callboard.log.errors import *  # noqa: F403
    from callboard.message import Message as Message
    from callboard.message import Receipt as Receipt
    from callboard.message import Receipts as Receipts
    from callboard.message import Record as Record
    from callboard.message import RecordBatch as RecordBatch
    from callboard.received import ReceivedBatch as ReceivedBatch
    from callboard.received import ReceivedMessage as ReceivedMessage
    from callboard.runtime import ConsumerInfo as ConsumerInfo
    from callboard.runtime import GroupInfo as GroupInfo
    from callboard.runtime import Runtime as Runtime
    from callboard.runtime import RuntimeStatistics as RuntimeStatistics
    from callboard.runtime import open_runtime as open_runtime
    from callboard.supervision import Backoff as Backoff
    from callboard.supervision import ChildSpec as ChildSpec
    from callboard.supervision import SupervisorSpec as SupervisorSpec
    from callboard.supervision import TreeNode as TreeNode
    from callboard.topic import Topic as Topic

__version__ = "0.1.0"

_HOMES = {
    "actors.kernel": ("Actor", "ActorRef", "Context", "MailboxSpec", "Question"),
    "actors.kernel.durable": ("DurableActor",),
    "consumer": ("Consumer",),
    "message": ("Message", "Receipt", "Receipts", "Record", "RecordBatch"),
    "received": ("ReceivedBatch", "ReceivedMessage"),
    "runtime": ("ConsumerInfo", "GroupInfo", "Runtime", "RuntimeStatistics", "open_runtime"),
    "supervision": ("Backoff", "ChildSpec", "SupervisorSpec", "TreeNode"),
    "topic": ("Topic",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        errors = import_module("callboard.log.errors")
        if name not in errors.__all__:
            raise AttributeError(f"module 'callboard' has no attribute {name!r}")
        home = "log.errors"
    found = getattr(import_module(f"callboard.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *import_module("callboard.log.errors").__all__})
