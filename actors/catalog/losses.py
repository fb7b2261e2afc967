"""What the catalog has lost, remembered until a person acknowledges it: as of partitions, in `catalog/damages`.

A repair notes what it gives up there. What an older Callboard's repair gave up is noted when the journal tells of the
gap. Events after a gap that are about topics and groups which the gap has taken cannot be applied: those are missing.

A record that the disk refuses is written with the next decision, or at closing, and before a snapshot of the
catalog: from then on the catalog knows the folders, and only the record says that it had not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import trio

from callboard.actors.catalog.commands import CatalogStatistics, TopicRecord
from callboard.actors.catalog.folders import PartitionFolder, unknown_folders
from callboard.actors.catalog.state import (
    TOPIC_DELAYS,
    TOPIC_ID,
    TOPIC_OUTBOX,
    CatalogState,
)
from callboard.actors.kernel import Context
from callboard.actors.notices import CatalogDamaged
from callboard.log.errors import PlanFailed, StorageError
from callboard.log.journal.journal_disk import error_of
from callboard.log.limits import FOLDERS_LOOK_S, FOLDERS_LOOKERS, LOSSES_NAMED
from callboard.log.offline.repair import GIVEN_UP
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.damage_record import DamageRecord
from callboard.log.segments.segments import Damage

SERVES: Final = {"delayed": TOPIC_DELAYS, "outbox": TOPIC_OUTBOX}
"""The event by which a topic has the partitions of that kind."""
NOT_KNOWN: Final = "the catalog did not know of the folder; what is in it is served again"


async def store_losses(record: DamageRecord) -> None:
    """Have the file name what the catalog has lost. Raises `StorageError`, `DiskFull` when it lacks space."""
    if not record.is_stored:
        try:
            await record.store()
        except PlanFailed as error:
            raise error_of("catalog", "recording damage", error) from error


async def tell_losses(
    context: Context[Any],
    files: Incarnation,
    state: CatalogState,
    record: DamageRecord,
    wrong: Iterable[str] = (),
) -> CatalogStatistics:
    """Say what is known to be lost, now that `state` was replayed, and which files were `wrong` in the folder.

    Raises `FormatTooNew`, `StorageError`.
    """
    lost = [Damage("catalog", 0, 0, first, last, GIVEN_UP) for first, last in state.lost_records]
    lost += [Damage("catalog", 0, 0, 0, -1, words) for words in wrong]
    for folder in await _unknown_folders(context, files, state.topics.values()):
        # It is found again at each start, until a snapshot of the catalog has it.
        state.apply((SERVES[folder.holds], folder.topic.topic_id))
        lost.append(Damage(folder.directory, 0, 0, 0, -1, NOT_KNOWN))
    await record.note(lost, context.clock.wall_us())
    if not record.unaccepted:
        return CatalogStatistics()
    missing = state.still_missing()
    for entry in await files.list("topics"):
        if TOPIC_ID.fullmatch(entry.name) and entry.name not in state.topics:
            missing.append(f"topic {entry.name}")
    damages, missing = tuple(map(str, record.unaccepted)), list(dict.fromkeys(missing))
    losses = CatalogStatistics(damages, record.lost_records, tuple(missing[:LOSSES_NAMED]))
    context.emit(CatalogDamaged(context.path, "; ".join(damages), losses.missing))
    return losses


async def _unknown_folders(
    context: Context[Any], files: Incarnation, topics: Iterable[TopicRecord]
) -> list[PartitionFolder]:
    """Those of all topics whose folders answer in time: opening waits for no topic whose disk hangs or fails.

    A hung disk holds up a task beside the catalog; the next opening looks there again.
    """
    left, found = deque(topics), list[PartitionFolder]()
    if not left:
        return found
    looking, looked = min(len(left), FOLDERS_LOOKERS), trio.Event()

    async def look() -> None:
        nonlocal looking
        while left:
            try:
                found.extend(await unknown_folders(files, [left.popleft()]))
            except StorageError:
                continue  # the topic's own partitions report what is wrong there
        looking -= 1
        if not looking:
            looked.set()

    tasks = [context.start_task(look, name="look for folders") for _ in range(looking)]
    last = -1
    while not looked.is_set() and len(left) != last:
        last = len(left)
        with trio.move_on_after(FOLDERS_LOOK_S):
            await looked.wait()
    for task in tasks:
        task.cancel()
    return sorted(found, key=lambda folder: folder.directory)
