"""The actor kernel: actors, their mailboxes and references. It knows nothing of queues, nor of supervision."""

from callboard.actors.actor import Actor, Context
from callboard.actors.backlog import WHEN_FULL, MailboxSpec, WhenFull
from callboard.actors.batch import Batch
from callboard.actors.cell import Terminated
from callboard.actors.dead_letters import DeadLetter, DeadLetters
from callboard.actors.durable import DurableActor
from callboard.actors.events import EventLog, Logged
from callboard.actors.incarnation import ActorFunction, ActorStart, Ending, EndingKind, Incarnation
from callboard.actors.ref import ActorRef
from callboard.actors.reply import Envelope, Reply
from callboard.actors.statistics import ActorStatistics
from callboard.actors.system import ActorSystem

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
    "Incarnation",
    "Logged",
    "MailboxSpec",
    "Reply",
    "Terminated",
    "WhenFull",
]
