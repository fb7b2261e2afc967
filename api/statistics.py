"""Statistics: what `Runtime.stats`, `Runtime.groups`, `Runtime.tree` and `Topic.describe` return."""

from callboard.actors.catalog.commands import CatalogStatistics as CatalogStatistics
from callboard.actors.kernel.cell import ActorStatistics as ActorStatistics
from callboard.actors.partition.commands import GroupStatistics as GroupStatistics
from callboard.actors.partition.commands import PartitionStatistics as PartitionStatistics
from callboard.actors.timers.commands import TimerStatistics as TimerStatistics
from callboard.reports.figures import ConsumerInfo as ConsumerInfo
from callboard.reports.figures import DelayedStatistics as DelayedStatistics
from callboard.reports.figures import ForwardingStatistics as ForwardingStatistics
from callboard.reports.figures import GroupDescription as GroupDescription
from callboard.reports.figures import GroupInfo as GroupInfo
from callboard.reports.figures import GroupPlace as GroupPlace
from callboard.reports.figures import OutboxStatistics as OutboxStatistics
from callboard.reports.figures import RuntimeStatistics as RuntimeStatistics
from callboard.reports.figures import ScheduleStatistics as ScheduleStatistics
from callboard.supervision import TreeNode as TreeNode

__all__ = [name for name in dir() if name[0].isalpha()]
