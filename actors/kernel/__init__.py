"""The actor kernel: actors, their mailboxes and references. It knows nothing of queues or supervision."""

from callboard.actors.kernel.actor import Actor, Context
from callboard.actors.kernel.cell import ActorStatistics, Terminated
from callboard.actors.kernel.durable import DurableActor
from callboard.actors.kernel.events import DeadLetter, DeadLetters, EventLog, Logged
from callboard.actors.kernel.incarnation import (
    ActorFunction,
    ActorIncarnation,
    ActorStart,
    Ending,
    EndingKind,
)
from callboard.actors.kernel.mailbox import WHEN_FULL, Batch, MailboxSpec, WhenFull
from callboard.actors.kernel.ref import ActorRef, Envelope, Question, Reply
from callboard.actors.kernel.system import ActorSystem

__all__ = [
    "WHEN_FULL",
    "Actor",
    "ActorFunction",
    "ActorRef",
    "ActorStart",
    "ActorStatistics",
    "ActorSystem",
    "Batch",
    "Context",
    "DeadLetter",
    "DeadLetters",
    "DurableActor",
    "Ending",
    "EndingKind",
    "Envelope",
    "EventLog",
    "ActorIncarnation",
    "Logged",
    "MailboxSpec",
    "Question",
    "Reply",
    "Terminated",
    "WhenFull",
]
