"""Checking whether journals with sound bytes make sense, and resetting those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from callboard.actors.catalog.folders import PartitionFolder, folders_of, unknown_folders
from callboard.actors.partition.delivery_reset import DeliveryReading, invalid_journal, reset_deliveries
from callboard.log.errors import GroupNotFound, JournalInvalid, PlanFailed
from callboard.log.format.segment import CATALOG
from callboard.log.host.clock import HostClock
from callboard.log.host.entropy import HostEntropy
from callboard.log.offline.inspected_log import LogKind, Problem, ProblemKind
from callboard.log.offline.verify import LogReport, VerifyReport, find_logs
from callboard.log.offline.wrong_kinds import lies_below, wrong_folders
from callboard.log.segments.small_files import holds_log
from callboard.offline import CatalogReplay, OfflineDirectory

EVERY_GROUP = "*"
NAMELESS = (
    "the catalog does not name the topic of these files: its name and settings are lost. Restore the folder `catalog`"
    " from a copy, or move the topic's folder away"
)
UNKNOWN: Final = (
    "the catalog does not know of this folder of a topic that it knows: it has lost that, or is an older copy. Opening"
    " the directory serves what is in the folder again"
)

RESTORED: Final = "Restore it from a copy before the directory is opened"
LOG_MISSING: Final = (
    "the folder was there, as the catalog says, and is gone with all that was in it. "
    f"{RESTORED}: else the partition begins anew, at offsets that it cannot have had"
)
JOURNAL_MISSING: Final = (
    "the folder was there, as the catalog says, and is gone with what groups have settled in the partition. "
    f"{RESTORED}: else all that the partition holds is delivered again"
)


@attrs.frozen
class PartitionReset:
    """What setting back a group in one partition came to: see `delivery_reset.GroupReset`."""

    label: str
    group: str
    forgotten_records: int
    floor: int
    settled_above: int
    quarantined: tuple[str, ...] = ()


async def with_contents(offline: OfflineDirectory, report: VerifyReport) -> VerifyReport:
    """The report, with what the catalog and the delivery journals say that makes no sense among the problems."""
    problems = await content_problems(offline)
    logs = [
        LogReport(
            each.path, LogKind.PARTITION, records=0, size_bytes=0, segments=0, start_offset=0, end_offset=0
        )
        for each in problems
        if each.kind is ProblemKind.MISSING and all(log.path != each.path for log in report.logs)
    ]
    found = sorted((*report.logs, *logs), key=lambda log: log.path)
    return attrs.evolve(
        report,
        logs=tuple(
            attrs.evolve(log, problems=(*log.problems, *(each for each in problems if each.path == log.path)))
            for log in found
        ),
    )


async def content_problems(offline: OfflineDirectory) -> list[Problem]:
    """What no repair of bytes mends. Raises `FormatTooNew`.

    Of kind "senseless" are journals whose bytes are sound and make no sense, of kind "nameless" the files of topics
    that the catalog does not name.
    """
    wrong = await wrong_folders(offline.files)
    if lies_below(CATALOG, wrong):
        return []
    replay = await offline.catalog()
    problems = [_senseless("catalog", words) for words in replay.senseless]
    problems += await _nameless(offline, replay, wrong)
    topics = [
        each for each in replay.state.topics.values() if not lies_below(f"topics/{each.topic_id}", wrong)
    ]
    unknown = await unknown_folders(offline.files, topics)
    problems += [Problem(each.directory, ProblemKind.NAMELESS, UNKNOWN) for each in unknown]
    for folder in folders_of(replay.state.topics.values()):
        path = folder.journal_directory
        if lies_below(path, wrong):
            continue
        if (missing := await _missing(offline, folder)) is not None:
            problems.append(missing)
            continue
        reading = DeliveryReading(offline.files, path)
        try:
            await reading.run()
        except PlanFailed as failed:
            if isinstance(failed.error, FileNotFoundError):
                continue  # its process replaces what we read
            raise
        for found in reading.broken.values():
            error = JournalInvalid(found.why, path=path, group=found.group_id)
            problems.append(_senseless(path, str(invalid_journal(folder.label, path, error))))
    return problems


async def _missing(offline: OfflineDirectory, folder: PartitionFolder) -> Problem | None:
    """Files of a partition that were there, as the catalog says, and are gone with their folder."""
    if folder.topic.deleting or folder.holds not in folder.topic.made:
        return None
    for path, words in ((folder.directory, LOG_MISSING), (folder.journal_directory, JOURNAL_MISSING)):
        if not holds_log(await offline.files.list(path)):
            return Problem(path, ProblemKind.MISSING, words)
    return None


async def _nameless(
    offline: OfflineDirectory, replay: CatalogReplay, wrong: Sequence[Problem]
) -> list[Problem]:
    """Topics whose files are there, and whose name and settings went with damaged parts of the catalog."""
    logs = await find_logs(offline.files, wrong)
    if CATALOG not in logs:
        return []  # which is reported for all of them together
    found = {
        path.split("/")[1]: path for path in logs if path.startswith("topics/") and "/delivery" not in path
    }
    return [
        Problem(path, ProblemKind.NAMELESS, NAMELESS)
        for topic_id, path in found.items()
        if topic_id not in replay.state.topics
    ]


async def reset_groups(
    offline: OfflineDirectory, groups: Sequence[str], *, dry_run: bool
) -> list[PartitionReset]:
    """Set back the groups (names, ids, or "*") in all partitions where what is said of them makes no sense.

    Raises `GroupNotFound`, `DirectoryLocked`, `JournalInvalid` when another group's state makes no sense either.
    """
    lock = None if dry_run else await offline.disk.lock({"program": "callboard repair"})
    try:
        replay = await offline.catalog()
        wanted = None if EVERY_GROUP in groups else {_group_id(replay, name) for name in groups}
        found: list[PartitionReset] = []
        for folder in folders_of(replay.state.topics.values()):
            resets, kept = await reset_deliveries(
                offline.files,
                folder.journal_directory,
                groups=wanted,
                joined=folder.joined(replay.state),
                clock=HostClock(),
                entropy=HostEntropy(),
                dry_run=dry_run,
            )
            for reset in resets:
                record = replay.state.groups.get(reset.group_id)
                group = str(reset.group_id) if record is None else record.name
                facts = reset.forgotten_records, reset.floor, reset.settled_above
                found.append(PartitionReset(folder.label, group, *facts, tuple(kept)))
                kept = []  # reported once for a partition
        return found
    finally:
        if lock is not None:
            lock.release()


def _group_id(replay: CatalogReplay, name: str) -> int:
    record = replay.state.group(name)
    if record is not None:
        return record.group_id
    if name.isdecimal() and len(name) < 20:
        return int(name)
    raise GroupNotFound(
        f"there is no group {name!r}. Nothing was reset. `callboard group list` shows which there are.",
        group=name,
    )


def _senseless(path: str, words: str) -> Problem:
    return Problem(path, ProblemKind.SENSELESS, words)
