"""Situations that a good search meets now and then, found in the history. `weights.toml` names the rare ones.

`POINTS` declares them, by scenario. A point is known to a run only once it is come by; one that stands in the code and
is passed in no run at all would not be missed. So a sweep expects what is declared, and a test compares that
with the calls of `sometimes` in the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving

if TYPE_CHECKING:
    from callboard.simulations.world import World

BROKER: Final = (
    "a lease ran out and its message was delivered again",
    "a message was delivered again after a boot",
    "a message was delivered again after a nack",
    "a message came back from a consumer that left",
    "everybody had gone, and nothing was left of them",
    "an indefinite publish is in the log",
    "an indefinite publish is not in the log",
    "a message is in the log twice after a retry",
    "a publish was refused",
    "a publish was refused for a full disk",
    "a lease was lost",
    "an ack is indefinite",
    "a torn tail was cut",
    "unproven records were written anew",
    "a gap is explained",
    "a segment was rolled",
    "a partition crashed and came back",
    "an actor stays down until it is restarted by hand",
    "a supervisor gave up",
    "a partition was stuck",
    "the machine booted twice after its first life",
    "the scheduler starved an actor",
    "the runtime was closed under way",
    "a moment of the run was looked at",
)
DAMAGE: Final = ("a damaged directory was refused with a report", "damage was found and named")
AT_REST: Final = (
    "records were lost to damage at rest",
    "more was damaged later, beside what was",
    "a damaged journal was reported, and consumed",
    "a record of damage was lost, and reported",
    "a file had nothing but the name of a segment",
    "a whole folder was gone",
)
STEPS: Final = ("a disk without space refused records", "times go back in a topic that is searched")
ANY_FILE: Final = ("a directory with any damage was opened",)
RETENTION: Final = (
    "retention overtook a reader",
    "retention dropped segments",
    "a reader read",
    "retention dropped what a group had not settled",
    "a publish was refused for a full topic",
)
ORDER: Final = ("a message waited for another of its key", "a record window was full")
ALTERED: Final = ("a topic that was full took more when it was altered to keep more",)
RECREATED: Final = ("a deleted topic was made again",)
RECORDED: Final = ("the recording is real",)
ACTORS: Final = (
    "an actor was restarted",
    "a team escalated",
    "the whole system gave up",
    "a question was left open by a crash",
    "a question came to an actor that had stopped",
    "a message in hand was tried again",
    "the scheduler starved an actor",
)
PROGRAMS: Final = (
    "a failed actor was revived",
    "a failed team was revived",
    "a team gave up",
    "a tree gave up",
    "several actors were restarted together",
    "an actor was killed when its grace was over",
    "a durable actor recovered what it had written",
    "a mailbox was full",
    "a question was given up in time",
    "a backoff began anew",
)
FAILING: Final = (
    "a message was rejected",
    "a lease ran out for the last time",
    "a message died with its process",
)
EXPIRING: Final = (
    "a message expired before it was handed over",
    "a message that is handed over may expire",
    "messages expired that were never consumed",
    "what expired was kept as a dead letter",
)
FORWARDED: Final = (
    "a dead letter was forwarded",
    "several dead letters were redriven at a rate",
    "the router crashed and came back",
    "dead letters were held",
    "a dead letter had expired",
    "chosen dead letters were purged or redriven",
    "dead letters went with their group",
)
DELAYED: Final = (
    "a delayed message was cancelled",
    "a cancellation came too late",
    "a delay ended in a later life than it began in",
    "the scheduler crashed and came back",
    "delayed messages were held",
    "a batch was stored in part, or waits in part",
)
RECURRING: Final = (
    "firings were missed and stay away",
    "a firing was held",
    "the actor of schedules crashed and came back",
    "a schedule lost its topic",
    "a schedule was paused",
    "a zone's clocks changed",
)
PUBLISHED: Final = (
    "the clock was set back between acks that publish",
    "an ack published",
    "a full outbox refused an ack",
    "a stale ack published nothing",
    "an ack that published was indefinite",
    "a payload was discarded",
    "what an ack published waited until it was due",
    "the forwarder crashed and came back",
    "what an ack published was held",
)
SOUGHT: Final = (
    "a receipt from before a seek was refused",
    "a partition crashed and came back while a group was sought",
)
PAUSED: Final = (
    "a publish was refused by a read-only topic",
    "a partition crashed and came back while a group was paused at times",
    "a consumer had fetched ahead when its group was paused",
)
FIRST: Final = (
    "a message that failed kept its place",
    "a message starved",
    "a partition was handled in order",
)
EXCLUSIVE: Final = (
    "a partition that stayed was served while others moved",
    "a partition was handed over while its old owner had leases",
    "a hand-over was forced",
    "a member owned nothing",
    "a member was stalled",
)
PATTERNS: Final = (
    "a topic was deleted under a group of a pattern",
    "a group of a pattern found a topic",
)
ONCE: Final = (
    "a publish was a duplicate",
    "retention dropped what was published once",
    "a zombie was refused",
    "an expected offset was not the next one",
    "a full table had forgotten an id",
)
MOMENTS: Final = ("a partition was stuck", "a message is in the log twice after a retry")
POINTS: Final[dict[str, tuple[str, ...]]] = {
    "publish-and-recover": BROKER,
    "publish-only": BROKER,
    "crash-storms": BROKER,
    "many-groups": BROKER,
    "order-per-key": BROKER + ORDER,
    "several-topics": BROKER,
    "deliveries": BROKER + ORDER,
    "handlers": BROKER + ORDER,
    "failing-messages": FAILING,
    "forwarded-letters": FORWARDED,
    "lost-counters": (
        "a group without a consumer outlives its journal",
        "a journal that counts is lost",
        "an older copy of a journal that counts is put back",
    ),
    "older-copies": (
        "the catalog had forgotten folders",
        "an older record of publishers ends before the log",
        "two partitions have exchanged their records of publishers",
        "a folder was copied to another topic",
        "no header was left of an actor's journal",
        "the folder of an actor's journal was gone",
        "two partitions have exchanged their folders",
        "two delivery journals have exchanged their folders",
        "two actors have exchanged the folders of their journals",
        "the only segment of a journal had another name",
    ),
    "wrong-clocks": ("the clock was a year ahead",),
    "delayed-messages": DELAYED,
    "recurring-publishes": RECURRING,
    "acked-and-published": PUBLISHED,
    "sought-groups": SOUGHT,
    "paused-groups": PAUSED,
    "drained-consumers": (
        "a consumer was drained while it had a message in hand",
        "a body had ended when its consumer was cancelled",
    ),
    "expiring-messages": EXPIRING,
    "what-comes-first": FIRST,
    "exclusive": EXCLUSIVE,
    "pattern-groups": PATTERNS,
    "published-once": ONCE,
    "every-feature": BROKER + ORDER + RECREATED + ALTERED,
    "every-call": BROKER + ORDER,
    "parts-of-batches": BROKER,
    "topics-and-groups": (),
    "one-topic-fails": (),
    "supervisor-trees": ACTORS,
    "plain-actors": ACTORS,
    "actor-programs": PROGRAMS,
    "retention-against-readers": BROKER + RETENTION,
    "disk-full-and-healed": BROKER,
    "damaged-middle": BROKER + DAMAGE,
    "damage-at-rest": AT_REST,
    "damaged-files": ANY_FILE,
    "step-by-step": STEPS,
    "rare-calls": (),
    "rare-moments": MOMENTS,
    "rare-disks": (),
    "rare-waits": (),
    "smuggled-frames": BROKER + DAMAGE,
    "stored-index": BROKER,
    "failing-syncs": BROKER,
    "failing-journals": BROKER,
    "lost-leases": BROKER,
    "unsynced-and-seen": BROKER,
    "recorded-traffic": BROKER + RECORDED,
    "recorded-day": BROKER + RECORDED,
}
"""By scenario: the points that its runs come by, each to be met in some run of some scenario."""


def mark(world: World, surviving: Surviving) -> None:
    """Count what happened in the run."""
    history, sometimes = world.history, world.sometimes
    again = _again(history)
    there, not_there = _indefinite(history, surviving)
    whys = [lost.why for left in surviving.partitions for lost in (*left.explained, *left.damaged)]
    kept = [path for path in world.disk.paths() if path.startswith("quarantine/")]
    refusals = {entry.detail for entry in history.of("refused")}
    sometimes("a lease ran out and its message was delivered again", "ran out" in again)
    sometimes("a message was delivered again after a boot", "booted" in again)
    sometimes("a message was delivered again after a nack", "nacked" in again)
    sometimes("a message came back from a consumer that left", "left" in again)
    sometimes("an indefinite publish is in the log", there)
    sometimes("an indefinite publish is not in the log", not_there)
    sometimes("a message is in the log twice after a retry", _twice(surviving))
    sometimes("a publish was refused", bool(refusals))
    sometimes("a publish was refused for a full disk", "DiskFull" in refusals)
    sometimes("a lease was lost", bool(history.of("lost")))
    sometimes("an ack is indefinite", any(entry.offsets for entry in history.of("unsure")))
    sometimes("a torn tail was cut", any(path.endswith(".torn") for path in kept))
    sometimes("unproven records were written anew", any(path.endswith(".log") for path in kept))
    sometimes("a gap is explained", any(why.startswith("gap") for why in whys))
    sometimes("a segment was rolled", _rolled(world))
    sometimes("a partition crashed and came back", bool(_of(history, "ActorRestarted", "topics/")))
    sometimes("an actor stays down until it is restarted by hand", bool(history.of("ActorFailed")))
    sometimes("a supervisor gave up", bool(history.of("Escalated")))
    sometimes("a partition was stuck", bool(history.of("PartitionStuck")))
    sometimes("the machine booted twice after its first life", len(history.of("booted")) > 2)
    sometimes("the scheduler starved an actor", world.scheduler.starves)


def _of(history: History, kind: str, path: str) -> list[HistoryEntry]:
    return [entry for entry in history.of(kind) if entry.who.startswith(path)]


def _again(history: History) -> set[str]:
    """Why messages were delivered again: what happened to the delivery before."""
    why: set[str] = set()
    last: dict[tuple[str, int, int], HistoryEntry] = {}
    gone: set[int] = set()
    for entry in history.of("delivered", "nack", "left"):
        if entry.kind == "left":
            gone.add(entry.operation)
            continue
        for offset in entry.offsets:
            place = (entry.group, entry.partition, offset)
            before = last.get(place)
            last[place] = entry
            if entry.kind != "delivered" or before is None:
                continue
            if before.machine != entry.machine:
                why.add("booted")
            elif before.kind == "nack":
                why.add("nacked")
            elif before.operation in gone:
                why.add("left")
            elif entry.attempts[0] > 1:
                why.add("ran out")
    return why


def _indefinite(history: History, surviving: Surviving) -> tuple[bool, bool]:
    stored = {number for left in surviving.partitions for number in left.records.values()}
    ended = {entry.operation for entry in history.of("published", "refused")}
    unsure = {
        number for entry in history.of("publish") if entry.operation not in ended for number in entry.ids
    }
    unsure -= history.stored
    return bool(unsure & stored), bool(unsure - stored)


def _twice(surviving: Surviving) -> bool:
    numbers = [number for left in surviving.partitions for number in left.records.values()]
    return len(numbers) > len(set(numbers))


def _rolled(world: World) -> bool:
    return any(
        path.startswith("topics/") and path.endswith(".log") and "/" in path and int(path[-24:-4] or 0) > 0
        for path in world.disk.paths()
        if path[-24:-4].isdigit()
    )
