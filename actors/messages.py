"""What crosses between the broker's actors: commands, answers and notices by their types.

`broker_wire` makes the `Wire` of a runtime in wire mode: each of these messages is encoded, decoded and delivered as a
copy. Actors that users spawn are not covered: what they send each other need not be data.
"""

from __future__ import annotations

from typing import Final

from callboard.actors.catalog.commands import CatalogCommand, TopicDeleted
from callboard.actors.forwarding.commands import (
    CountsAtCrash,
    DelayedForwarderCommand,
    ForwarderCommand,
    OutboxUnserved,
    RouterCommand,
    SweepBegins,
)
from callboard.actors.groups import commands as groups
from callboard.actors.kernel.wire import Wire
from callboard.actors.partition import commands as c
from callboard.actors.recurring.commands import RecurringCommand, ScheduleStands
from callboard.actors.timers.commands import Due, WheelCommand
from callboard.supervision.system import USER

COMMANDS: Final = (
    *(c.PartitionCommand, CatalogCommand, groups.CoordinatorCommand),
    *(RouterCommand, ForwarderCommand, DelayedForwarderCommand, RecurringCommand, WheelCommand),
)
"""What partitions, the catalog, coordinators, the dead-letter router, the forwarder, the delayed forwarder,
the actor of recurring publishes and the timer wheel understand.
"""
ANSWERS: Final = (c.Offsets, c.LeasedRecords)
"""What commands are answered with that do not name the type of their answers as a `Question` does."""
NOTICES: Final = (
    *(c.Returned, c.StateChanged, c.LeasesEnded, c.FilesOpened, c.OpeningWaits),
    TopicDeleted,
    *groups.NOTICES,
    *(SweepBegins, OutboxUnserved, CountsAtCrash),
    *(ScheduleStands, Due),
)
"""What they say to their peers."""


def broker_wire() -> Wire:
    """The wire of a runtime."""
    return Wire((*COMMANDS, *ANSWERS, *NOTICES), _is_of_the_broker)


def _is_of_the_broker(path: str) -> bool:
    return not path.startswith(f"{USER}/")
