"""Situations that a good search meets now and then, found in the history. `weights.toml` names the rare ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.simulations.history.entry import Entry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving

if TYPE_CHECKING:
    from callboard.simulations.world import World

__all__ = ["mark"]


def mark(world: World, surviving: Surviving) -> None:
    """Count what happened in the run."""
    history = world.history
    again = _again(history)
    there, not_there = _indefinite(history, surviving)
    whys = [lost.why for left in surviving.partitions for lost in (*left.explained, *left.damaged)]
    kept = [path for path in world.disk.files() if path.startswith("quarantine/")]
    refusals = {entry.detail for entry in history.of("refused")}
    for name, condition in (
        ("a lease ran out and its message was delivered again", "ran out" in again),
        ("a message was delivered again after a boot", "booted" in again),
        ("a message was delivered again after a nack", "nacked" in again),
        ("a message came back from a consumer that left", "left" in again),
        ("an indefinite publish is in the log", there),
        ("an indefinite publish is not in the log", not_there),
        ("a message is in the log twice after a retry", _twice(surviving)),
        ("a publish was refused", bool(refusals)),
        ("a publish was refused for a full disk", "DiskFull" in refusals),
        ("a lease was lost", bool(history.of("lost"))),
        ("an ack is indefinite", any(entry.offsets for entry in history.of("unsure"))),
        ("a torn tail was cut", any(path.endswith(".torn") for path in kept)),
        ("unproven records were written anew", any(path.endswith(".log") for path in kept)),
        ("a gap is explained", any(why.startswith("gap") for why in whys)),
        ("a segment was rolled", _rolled(world)),
        ("a partition crashed and came back", bool(_of(history, "ActorRestarted", "topics/"))),
        ("an actor stays down until somebody restarts it", bool(history.of("ActorFailed"))),
        ("a supervisor gave up", bool(history.of("Escalated"))),
        ("a partition was stuck", bool(history.of("PartitionStuck"))),
        ("the machine booted twice after its first life", len(history.of("booted")) > 2),
    ):
        world.sometimes(name, condition)


def _of(history: History, kind: str, path: str) -> list[Entry]:
    return [entry for entry in history.of(kind) if entry.who.startswith(path)]


def _again(history: History) -> set[str]:
    """Why messages were delivered again: what happened to the delivery before."""
    why: set[str] = set()
    last: dict[tuple[str, int, int], Entry] = {}
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
        for path in world.disk.files()
        if path[-24:-4].isdigit()
    )
