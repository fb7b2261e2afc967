"""The actor kernel: actors, their mailboxes and references.

It imports neither supervision nor the broker's actors: those use it.
"""

from callboard.actors.kernel.actor import Actor, Context
from callboard.actors.kernel.batch import Batch
from callboard.actors.kernel.durable import DurableActor
from callboard.actors.kernel.events import DeadLetters, EventLog, Logged
from callboard.actors.kernel.incarnation import (
    ActorIncarnation,
    ActorStart,
    Ending,
    EndingKind,
)
from callboard.actors.kernel.mailbox_spec import WHEN_FULL, MailboxSpec
from callboard.actors.kernel.party import Began, Failed, Terminated
from callboard.actors.kernel.peer import Gathering, Peer, notify, notify_all, watch_marks
from callboard.actors.kernel.ref import ActorRef
from callboard.actors.kernel.reply import Envelope, Question, Reply
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
