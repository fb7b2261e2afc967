"""Events: what `open_runtime(on_event=)`, `Runtime.subscribe_events` and `Runtime.events` report.

Those of actors and supervisors first, then those of the broker.
"""

from callboard.actors.kernel.events import ActorEnded as ActorEnded
from callboard.actors.kernel.events import ActorFailed as ActorFailed
from callboard.actors.kernel.events import ActorRestarted as ActorRestarted
from callboard.actors.kernel.events import ActorStarted as ActorStarted
from callboard.actors.kernel.events import Escalated as Escalated
from callboard.actors.kernel.events import HookFailed as HookFailed
from callboard.actors.kernel.events import IncarnationCrashed as IncarnationCrashed
from callboard.actors.kernel.events import Logged as Logged
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
from callboard.actors.notices import GroupPaused as GroupPaused
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
from callboard.actors.notices import TopicFound as TopicFound
from callboard.actors.notices import TopicPassedOver as TopicPassedOver
from callboard.actors.notices import TopicWritable as TopicWritable
from callboard.actors.notices import UnreadDropped as UnreadDropped
from callboard.actors.notices import WorkHindered as WorkHindered

__all__ = [name for name in dir() if name[0].isalpha()]
