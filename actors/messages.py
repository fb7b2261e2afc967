"""What crosses between the broker's actors: commands, answers and notices by their types.

`EXCHANGES` says which notices go from whom to whom; the table in docs/principles/actors.md is made from it.
`broker_wire` makes the `Wire` of a runtime in wire mode: each of these messages is encoded, decoded and delivered as a
copy. Actors that users spawn are not covered: what they send each other need not be data.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, get_args

from callboard.actors.catalog import commands as catalog
from callboard.actors.forwarding import commands as forwarding
from callboard.actors.groups import commands as groups
from callboard.actors.kernel import Question
from callboard.actors.kernel.wire import Wire
from callboard.actors.partition import commands as c
from callboard.actors.recurring import commands as recurring
from callboard.actors.timers import commands as timers
from callboard.supervision.system import USER

PARTITION: Final = "a partition"
COORDINATOR: Final = "a coordinator"
CATALOG: Final = "the catalog"
ROUTER: Final = "the dead-letter router"
FORWARDER: Final = "the forwarder of what acks publish"
DELAYED_FORWARDER: Final = "the delayed forwarder"
RECURRING: Final = "recurring publishes"
WHEEL: Final = "the timer wheel"
DIRECTORY: Final = "the directory of live topics"
"""The peers that the catalog has of other actors: it hears what they say."""
MIRRORS: Final = "the mirrors of a client's handles, and of actors that work for all topics"
TURN_GIVER: Final = "the giver of turns and memory"

COMMANDS: Final[dict[str, Any]] = {
    PARTITION: c.PartitionCommand,
    CATALOG: catalog.CatalogCommand,
    COORDINATOR: groups.CoordinatorCommand,
    ROUTER: forwarding.RouterCommand,
    FORWARDER: forwarding.ForwarderCommand,
    DELAYED_FORWARDER: forwarding.DelayedForwarderCommand,
    RECURRING: recurring.RecurringCommand,
    WHEEL: timers.WheelCommand,
    TURN_GIVER: c.GiverCommand,
}
"""What each actor understands: questions, and the notices that `EXCHANGES` has for it."""
ASKED: Final = frozenset({c.PublishOne, c.PublishMany, c.Fetch, c.WaitForReady, c.WaitForVisible})
"""Questions that do not name the type of their answers as a `Question` does. Publishes may be told, too."""
ANSWERS: Final = (c.Offsets, c.LeasedRecords)
"""What those are answered with."""


class Exchange(NamedTuple):
    """Notices that one party says to another. `mark` says of what there is at most one on its way, and whether it is
    said anew to each incarnation.
    """

    sender: str
    receiver: str
    notices: tuple[type, ...]
    mark: str = ""


EXCHANGES: Final = (
    Exchange(
        "an owner of timers: a partition, a coordinator, the catalog, the delayed forwarder, the router, the forwarder,"
        " recurring publishes, the handles of a client",
        WHEEL,
        (timers.Arm, timers.Cancel),
        "each of the owner's timers; what is armed, anew",
    ),
    Exchange(WHEEL, "the owner of the timer", (timers.Due,)),
    Exchange(
        "a client: the handles of a runtime, an actor that stores records of others",
        PARTITION,
        (c.OpenAccount, c.Wanted),
        "its account; that a task waits, while the partition waits for its turn to open",
    ),
    Exchange(
        "a consumer",
        PARTITION,
        (c.SettleUnawaited,),
        "what it gives back, and settles for a cancelled task; taken before what waits in the mailbox, and before a"
        " lease runs out",
    ),
    Exchange("a producer", PARTITION, (c.ProducerChanges,), "that it was entered, or left"),
    Exchange(COORDINATOR, PARTITION, (c.RemainingMembers,), "a partition that had failed when a member left"),
    Exchange(
        CATALOG,
        PARTITION,
        (c.Alter, c.AlterDelivery),
        "the topic's settings, and those of each group, that were altered; anew",
    ),
    Exchange(PARTITION, "its clients", (c.Returned,), "those of a commit"),
    Exchange(
        PARTITION,
        f"its clients, and {DIRECTORY}",
        (c.StateChanged, c.LeasesEnded),
        "all of them",
    ),
    Exchange(PARTITION, DIRECTORY, (c.FilesOpened, c.OpeningWaits), "as it is opened"),
    Exchange(PARTITION, TURN_GIVER, (c.OpeningStands,), "how far it is, while it opens; anew"),
    Exchange(TURN_GIVER, "the partition that opens", (c.TurnBegins, c.MemoryHeld)),
    Exchange(
        PARTITION,
        TURN_GIVER,
        (c.WindowStands,),
        "the memory that its record windows have, and need; anew",
    ),
    Exchange(TURN_GIVER, "the partition with record windows", (c.WindowGranted, c.WindowNeeded)),
    Exchange(
        PARTITION,
        ROUTER,
        (c.DeadLettersWait,),
        "each group with dead letters, once until it asks (`ListDead`)",
    ),
    Exchange(PARTITION, FORWARDER, (c.PublishesWait,), "its outbox: the newest count"),
    Exchange(
        "a consumer",
        COORDINATOR,
        (groups.Departed, groups.Acted),
        "that it has gone without waiting, anew; what it has done, when it was asked",
    ),
    Exchange(CATALOG, COORDINATOR, (groups.GroupDecided,), "its group; anew"),
    Exchange(COORDINATOR, "the consumers of its group", groups.NOTICES),
    Exchange(CATALOG, ROUTER, (catalog.RouteGroup,), "each group that names a topic for dead letters; anew"),
    Exchange(CATALOG, f"{ROUTER}, and {FORWARDER}", (catalog.SourcesEnded,)),
    Exchange(CATALOG, FORWARDER, (catalog.OutboxOpened,), "each outbox; anew"),
    Exchange(CATALOG, DELAYED_FORWARDER, (catalog.WaitingOpened,), "each waiting partition; anew"),
    Exchange(CATALOG, RECURRING, (recurring.TopicSchedules,), "each topic with schedules; anew"),
    Exchange(MIRRORS, CATALOG, (catalog.FollowCatalog,), "one that opens while the catalog runs"),
    Exchange(
        CATALOG,
        MIRRORS,
        (
            *(
                catalog.TopicStands,
                catalog.TopicDeleted,
                catalog.PartitionStands,
                catalog.GroupStands,
                catalog.GroupEnded,
            ),
            *(recurring.TopicSchedules, recurring.ScheduleStands, catalog.CatalogStands),
        ),
        "before what it answers; all that there is, anew",
    ),
    Exchange(
        f"{ROUTER}, {FORWARDER}, {DELAYED_FORWARDER}",
        "the runtime that reports",
        (forwarding.CountsAtCrash,),
        "what an incarnation had counted that has crashed",
    ),
    Exchange(FORWARDER, "its clients", (forwarding.SweepBegins, forwarding.OutboxUnserved)),
    Exchange("a client whose acks publish", FORWARDER, (forwarding.OpenAcks,), "an outbox"),
    Exchange(
        RECURRING,
        DIRECTORY,
        (recurring.ScheduleStands,),
        "when one is further, or waits",
    ),
)
"""Who says what to whom."""


def notices_to(actor: str) -> set[type]:
    """The notices that an actor understands."""
    commands = get_args(COMMANDS[actor]) or (COMMANDS[actor],)
    said = {kind for each in EXCHANGES for kind in each.notices}
    return {kind for kind in commands if kind in said or not issubclass(kind, Question)} - ASKED


def broker_wire() -> Wire:
    """The wire of a runtime."""
    notices = [kind for each in EXCHANGES for kind in each.notices]
    return Wire((*COMMANDS.values(), *ANSWERS, *notices), _is_of_the_broker)


def _is_of_the_broker(path: str) -> bool:
    return not path.startswith(f"{USER}/")
