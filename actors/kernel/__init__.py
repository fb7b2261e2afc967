"""The actor kernel: actors, their mailboxes and references.

It imports neither supervision nor the broker's actors: those use it.
"""

from callboard.actors.kernel.actor import Actor, Context
from callboard.actors.kernel.cell import Terminated
from callboard.actors.kernel.durable import DurableActor
from callboard.actors.kernel.events import DeadLetters, EventLog, Logged
from callboard.actors.kernel.incarnation import (
    ActorIncarnation,
    ActorStart,
    Ending,
    EndingKind,
)
from callboard.actors.kernel.mailbox import WHEN_FULL, Batch, MailboxSpec
from callboard.actors.kernel.peer import Began, Failed, Gathering, Peer, notify, notify_all, watch_marks
from callboard.actors.kernel.ref import ActorRef, Envelope, Question, Reply
from callboard.actors.kernel.system import ActorSystem

__all__ = [
    "WHEN_FULL",
    "Actor",
    "ActorRef",
    "ActorStart",
    "ActorSystem",
    "Batch",
    "Began",
    "Context",
    "DeadLetters",
    "DurableActor",
    "Ending",
    "EndingKind",
    "Envelope",
    "EventLog",
    "Failed",
    "Gathering",
    "ActorIncarnation",
    "Logged",
    "MailboxSpec",
    "Peer",
    "Question",
    "Reply",
    "Terminated",
    "notify",
    "notify_all",
    "watch_marks",
]
