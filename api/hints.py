"""Types to name in annotations: what calls take by keyword, and what they return but programs do not construct."""

from callboard.actors.partition.commands import Acks as Acks
from callboard.actors.settings import Codec as Codec
from callboard.actors.settings import Distribution as Distribution
from callboard.actors.settings import GroupChanges as GroupChanges
from callboard.actors.settings import GroupMode as GroupMode
from callboard.actors.settings import GroupOptions as GroupOptions
from callboard.actors.settings import Ordering as Ordering
from callboard.actors.settings import Start as Start
from callboard.actors.settings import TopicChanges as TopicChanges
from callboard.actors.settings import TopicOptions as TopicOptions
from callboard.consumer.contexts import Batches as Batches
from callboard.consumer.contexts import Receiving as Receiving
from callboard.consumer.handler_calls import Handler as Handler
from callboard.consumer.mixed_batch import MixedBatch as MixedBatch
from callboard.consumer.reader import BatchReader as BatchReader
from callboard.consumer.reader import RecordReader as RecordReader
from callboard.dead_letters.forwarded import ForwardedLetter as ForwardedLetter
from callboard.dead_letters.kept import KeptLetters as KeptLetters
from callboard.dead_letters.redriving import Redriven as Redriven
from callboard.message import Headers as Headers
from callboard.message import Receipts as Receipts
from callboard.message import ScheduledReceipt as ScheduledReceipt
from callboard.publishing.delayed import DelayedMessage as DelayedMessage
from callboard.publishing.delayed import DelayedMessages as DelayedMessages
from callboard.publishing.partitioning import Partitioner as Partitioner

__all__ = [name for name in dir() if name[0].isalpha()]
