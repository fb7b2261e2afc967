"""Callboard: a durable, partitioned message log and queue that lives inside a trio program.

Everything public is a name of this package; it is loaded when first used, so importing Callboard costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.actors.catalog.losses import CatalogStatistics as CatalogStatistics
    from callboard.actors.kernel import Actor as Actor
    from callboard.actors.kernel import ActorRef as ActorRef
    from callboard.actors.kernel import Batch as Batch
    from callboard.actors.kernel import Context as Context
    from callboard.actors.kernel import Envelope as Envelope
    from callboard.actors.kernel import Logged as Logged
    from callboard.actors.kernel import MailboxSpec as MailboxSpec
    from callboard.actors.kernel import Question as Question
    from callboard.actors.kernel import Reply as Reply
    from callboard.actors.kernel import Terminated as Terminated
    from callboard.actors.kernel.cell import ActorStatistics as ActorStatistics
    from callboard.actors.kernel.durable import DurableActor as DurableActor
    from callboard.actors.kernel.events import ActorEnded as ActorEnded
    from callboard.actors.kernel.events import ActorFailed as ActorFailed
    from callboard.actors.kernel.events import ActorRestarted as ActorRestarted
    from callboard.actors.kernel.events import ActorStarted as ActorStarted
    from callboard.actors.kernel.events import Escalated as Escalated
    from callboard.actors.kernel.events import HookFailed as HookFailed
    from callboard.actors.kernel.events import IncarnationCrashed as IncarnationCrashed
    from callboard.actors.kernel.events import MessageDropped as MessageDropped
    from callboard.actors.notices import CatalogDamaged as CatalogDamaged
    from callboard.actors.notices import CatalogHeld as CatalogHeld
    from callboard.actors.notices import CatalogUnmaintained as CatalogUnmaintained
    from callboard.actors.notices import ClockWasAhead as ClockWasAhead
    from callboard.actors.notices import DamageFound as DamageFound
    from callboard.actors.notices import DeadLettered as DeadLettered
    from callboard.actors.notices import DeadLettersDropped as DeadLettersDropped
    from callboard.actors.notices import DeadLettersHeld as DeadLettersHeld
    from callboard.actors.notices import DelayedHeld as DelayedHeld
    from callboard.actors.notices import DelayedLost as DelayedLost
    from callboard.actors.notices import GroupExpired as GroupExpired
    from callboard.actors.notices import GroupKept as GroupKept
    from callboard.actors.notices import HandlerFailed as HandlerFailed
    from callboard.actors.notices import HandOverForced as HandOverForced
    from callboard.actors.notices import JournalSalvaged as JournalSalvaged
    from callboard.actors.notices import LeaseReleaseFailed as LeaseReleaseFailed
    from callboard.actors.notices import MemberStalled as MemberStalled
    from callboard.actors.notices import OpeningLacksSpace as OpeningLacksSpace
    from callboard.actors.notices import OpeningOverdue as OpeningOverdue
    from callboard.actors.notices import OperationFailed as OperationFailed
    from callboard.actors.notices import OutboxDropped as OutboxDropped
    from callboard.actors.notices import OutboxHeld as OutboxHeld
    from callboard.actors.notices import OutboxLost as OutboxLost
    from callboard.actors.notices import PartitionFull as PartitionFull
    from callboard.actors.notices import PartitionLacksSpace as PartitionLacksSpace
    from callboard.actors.notices import PartitionStuck as PartitionStuck
    from callboard.actors.notices import ProducerForgotten as ProducerForgotten
    from callboard.actors.notices import PublishersLost as PublishersLost
    from callboard.actors.notices import RequestFailed as RequestFailed
    from callboard.actors.notices import ScheduleHeld as ScheduleHeld
    from callboard.actors.notices import ScheduleMissed as ScheduleMissed
    from callboard.actors.notices import SettingsDiffer as SettingsDiffer
    from callboard.actors.notices import TopicFound as TopicFound
    from callboard.actors.notices import TopicPassedOver as TopicPassedOver
    from callboard.actors.notices import UnreadDropped as UnreadDropped
    from callboard.actors.notices import WorkHindered as WorkHindered
    from callboard.actors.partition.commands import Acks as Acks
    from callboard.actors.partition.commands import GroupStatistics as GroupStatistics
    from callboard.actors.partition.commands import PartitionStatistics as PartitionStatistics
    from callboard.actors.settings import Codec as Codec
    from callboard.actors.settings import Distribution as Distribution
    from callboard.actors.settings import GroupChanges as GroupChanges
    from callboard.actors.settings import GroupMode as GroupMode
    from callboard.actors.settings import GroupOptions as GroupOptions
    from callboard.actors.settings import GroupSettings as GroupSettings
    from callboard.actors.settings import Ordering as Ordering
    from callboard.actors.settings import Start as Start
    from callboard.actors.settings import TopicChanges as TopicChanges
    from callboard.actors.settings import TopicOptions as TopicOptions
    from callboard.actors.settings import TopicSettings as TopicSettings
    from callboard.actors.timers.timers import TimerStatistics as TimerStatistics
    from callboard.consumer import Consumer as Consumer
    from callboard.dead_letter_topics import DeadLetterTopic as DeadLetterTopic
    from callboard.dead_letter_topics import ForwardedLetter as ForwardedLetter
    from callboard.dead_letter_topics import Redriven as Redriven
    from callboard.dead_letters import DeadLetter as DeadLetter
    from callboard.dead_letters import KeptLetters as KeptLetters
    from callboard.delayed import DelayedMessage as DelayedMessage
    from callboard.delayed import DelayedMessages as DelayedMessages
    from callboard.log.errors import *  # noqa: F403
    from callboard.log.limits import Limits as Limits
    from callboard.log.seams.clock import Clock as Clock
    from callboard.log.seams.disk import Disk as Disk
    from callboard.log.seams.entropy import Entropy as Entropy
    from callboard.message import Headers as Headers
    from callboard.message import Message as Message
    from callboard.message import Receipt as Receipt
    from callboard.message import Receipts as Receipts
    from callboard.message import Record as Record
    from callboard.message import RecordBatch as RecordBatch
    from callboard.message import ScheduledReceipt as ScheduledReceipt
    from callboard.mixed_batch import MixedBatch as MixedBatch
    from callboard.publishing.partitioning import Partitioner as Partitioner
    from callboard.publishing.producer import Producer as Producer
    from callboard.reading import BatchReader as BatchReader
    from callboard.reading import RecordReader as RecordReader
    from callboard.received import ReceivedBatch as ReceivedBatch
    from callboard.received import ReceivedMessage as ReceivedMessage
    from callboard.receiving import Batches as Batches
    from callboard.receiving import Receiving as Receiving
    from callboard.runtime import Runtime as Runtime
    from callboard.runtime import open_runtime as open_runtime
    from callboard.schedules import Schedule as Schedule
    from callboard.statistics import ConsumerInfo as ConsumerInfo
    from callboard.statistics import DelayedStatistics as DelayedStatistics
    from callboard.statistics import ForwardingStatistics as ForwardingStatistics
    from callboard.statistics import GroupDescription as GroupDescription
    from callboard.statistics import GroupInfo as GroupInfo
    from callboard.statistics import GroupPlace as GroupPlace
    from callboard.statistics import OutboxStatistics as OutboxStatistics
    from callboard.statistics import RuntimeStatistics as RuntimeStatistics
    from callboard.statistics import ScheduleStatistics as ScheduleStatistics
    from callboard.supervision import Backoff as Backoff
    from callboard.supervision import ChildSpec as ChildSpec
    from callboard.supervision import SupervisorSpec as SupervisorSpec
    from callboard.supervision import TreeNode as TreeNode
    from callboard.topic import Topic as Topic
    from callboard.working import Handler as Handler
    from callboard.working import Reject as Reject
    from callboard.working import Retry as Retry

__version__ = "0.1.0"

_HOMES = {
    "actors.kernel": (
        "Actor",
        "ActorRef",
        "Batch",
        "Context",
        "Envelope",
        "Logged",
        "MailboxSpec",
        "Question",
        "Reply",
        "Terminated",
    ),
    "actors.kernel.cell": ("ActorStatistics",),
    "actors.kernel.durable": ("DurableActor",),
    "actors.kernel.events": (
        "ActorEnded",
        "ActorFailed",
        "ActorRestarted",
        "ActorStarted",
        "Escalated",
        "HookFailed",
        "IncarnationCrashed",
        "MessageDropped",
    ),
    "actors.catalog.losses": ("CatalogStatistics",),
    "actors.notices": (
        "CatalogDamaged",
        "CatalogHeld",
        "CatalogUnmaintained",
        "DamageFound",
        "DeadLettered",
        "DeadLettersHeld",
        "DelayedHeld",
        "DelayedLost",
        "DeadLettersDropped",
        "GroupExpired",
        "GroupKept",
        "HandlerFailed",
        "JournalSalvaged",
        "HandOverForced",
        "LeaseReleaseFailed",
        "MemberStalled",
        "OpeningLacksSpace",
        "OpeningOverdue",
        "OperationFailed",
        "OutboxDropped",
        "OutboxHeld",
        "OutboxLost",
        "PartitionFull",
        "PartitionLacksSpace",
        "PartitionStuck",
        "ProducerForgotten",
        "ClockWasAhead",
        "PublishersLost",
        "RequestFailed",
        "ScheduleHeld",
        "ScheduleMissed",
        "SettingsDiffer",
        "TopicFound",
        "TopicPassedOver",
        "UnreadDropped",
        "WorkHindered",
    ),
    "actors.partition.commands": ("Acks", "GroupStatistics", "PartitionStatistics"),
    "actors.settings": (
        "Codec",
        "Distribution",
        "GroupChanges",
        "GroupMode",
        "GroupOptions",
        "GroupSettings",
        "Ordering",
        "Start",
        "TopicChanges",
        "TopicOptions",
        "TopicSettings",
    ),
    "actors.timers.timers": ("TimerStatistics",),
    "consumer": ("Consumer",),
    "delayed": ("DelayedMessage", "DelayedMessages"),
    "dead_letter_topics": ("DeadLetterTopic", "ForwardedLetter", "Redriven"),
    "dead_letters": ("DeadLetter", "KeptLetters"),
    "log.limits": ("Limits",),
    "log.seams.clock": ("Clock",),
    "log.seams.disk": ("Disk",),
    "log.seams.entropy": ("Entropy",),
    "message": ("Headers", "Message", "Receipt", "Receipts", "Record", "RecordBatch", "ScheduledReceipt"),
    "publishing.partitioning": ("Partitioner",),
    "publishing.producer": ("Producer",),
    "reading": ("BatchReader", "RecordReader"),
    "mixed_batch": ("MixedBatch",),
    "received": ("ReceivedBatch", "ReceivedMessage"),
    "receiving": ("Batches", "Receiving"),
    "runtime": ("Runtime", "open_runtime"),
    "schedules": ("Schedule",),
    "statistics": (
        "ConsumerInfo",
        "DelayedStatistics",
        "GroupDescription",
        "GroupInfo",
        "GroupPlace",
        "ForwardingStatistics",
        "OutboxStatistics",
        "RuntimeStatistics",
        "ScheduleStatistics",
    ),
    "supervision": ("Backoff", "ChildSpec", "SupervisorSpec", "TreeNode"),
    "topic": ("Topic",),
    "working": ("Handler", "Reject", "Retry"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a checker that saw this would take any misspelt name for an Any

    def __getattr__(name: str) -> object:
        from importlib import import_module

        errors = import_module("callboard.log.errors")
        if name == "__all__":
            found = sorted({*_HOME_OF, *errors.__all__})
        elif name in _HOME_OF:
            found = getattr(import_module(f"callboard.{_HOME_OF[name]}"), name)
        elif name in errors.__all__:
            found = getattr(errors, name)
        else:
            raise AttributeError(f"module 'callboard' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return [*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))]
