"""Statistics: what `Runtime.stats`, `Runtime.groups`, `Runtime.tree` and `Topic.describe` return."""

from callboard.actors.catalog.losses import CatalogStatistics as CatalogStatistics
from callboard.actors.kernel.cell import ActorStatistics as ActorStatistics
from callboard.actors.partition.commands import GroupStatistics as GroupStatistics
from callboard.actors.partition.commands import PartitionStatistics as PartitionStatistics
from callboard.actors.timers.timers import TimerStatistics as TimerStatistics
from callboard.figures import ConsumerInfo as ConsumerInfo
from callboard.figures import DelayedStatistics as DelayedStatistics
from callboard.figures import ForwardingStatistics as ForwardingStatistics
from callboard.figures import GroupDescription as GroupDescription
from callboard.figures import GroupInfo as GroupInfo
from callboard.figures import GroupPlace as GroupPlace
from callboard.figures import OutboxStatistics as OutboxStatistics
from callboard.figures import RuntimeStatistics as RuntimeStatistics
from callboard.figures import ScheduleStatistics as ScheduleStatistics
from callboard.supervision import TreeNode as TreeNode

__all__ = [name for name in dir() if name[0].isalpha()]
