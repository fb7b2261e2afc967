"""The names of `callboard`. `__init__.py` reads them from here, so that each is written once."""

from callboard import events as events
from callboard import hints as hints
from callboard import statistics as statistics
from callboard.actors.kernel import Actor as Actor
from callboard.actors.kernel import ActorRef as ActorRef
from callboard.actors.kernel import Batch as Batch
from callboard.actors.kernel import Context as Context
from callboard.actors.kernel import Envelope as Envelope
from callboard.actors.kernel import MailboxSpec as MailboxSpec
from callboard.actors.kernel import Question as Question
from callboard.actors.kernel import Reply as Reply
from callboard.actors.kernel import Terminated as Terminated
from callboard.actors.kernel.durable import DurableActor as DurableActor
from callboard.actors.settings import GroupSettings as GroupSettings
from callboard.actors.settings import TopicSettings as TopicSettings
from callboard.consumer.consumer import Consumer as Consumer
from callboard.consumer.messages import ReceivedBatch as ReceivedBatch
from callboard.consumer.messages import ReceivedMessage as ReceivedMessage
from callboard.consumer.verdicts import Reject as Reject
from callboard.consumer.verdicts import Retry as Retry
from callboard.dead_letters.kept import DeadLetter as DeadLetter
from callboard.dead_letters.topics import DeadLetterTopic as DeadLetterTopic
from callboard.group import Group as Group
from callboard.log.errors import *  # noqa: F403
from callboard.log.limits import Limits as Limits
from callboard.log.seams.clock import Clock as Clock
from callboard.log.seams.disk import Disk as Disk
from callboard.log.seams.entropy import Entropy as Entropy
from callboard.message import Message as Message
from callboard.message import Receipt as Receipt
from callboard.message import Record as Record
from callboard.message import RecordBatch as RecordBatch
from callboard.publishing.producer import Producer as Producer
from callboard.publishing.schedules import Schedule as Schedule
from callboard.runtime import Runtime as Runtime
from callboard.runtime import open_runtime as open_runtime
from callboard.supervision import Backoff as Backoff
from callboard.supervision import ChildSpec as ChildSpec
from callboard.supervision import SupervisorSpec as SupervisorSpec
from callboard.topic import Topic as Topic

__version__: str
