"""What an analysis reads: the partitions and journals of a runtime's directory, as they are when it is planned."""

from __future__ import annotations

import attrs

from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import GroupNotFound
from callboard.log.journal.journal_disk import segment_bases
from callboard.log.offline.reader import LogReader
from callboard.offline import CatalogReplay, OfflineDirectory
from callboard.simulations.workload.journal_walk import JournalHistory, JournalPlace


@attrs.frozen(kw_only=True)
class AnalysedPartition:
    """One partition."""

    index: int
    """Its place in the plan."""
    topic: str
    partition: int
    journal: JournalPlace
    log_start: int
    log_end: int
    """Records from here on became visible after the analysis was planned."""
    groups: frozenset[int] | None
    """The groups that are wanted; None takes all."""
    implied: dict[int, int] = attrs.Factory(dict)
    """When the groups were made that read it from its beginning, by id: the journal has them from their first
    lease on."""

    def note_implied(self, walk: JournalHistory) -> None:
        """Add those of which the journal, read to its end, does not tell yet."""
        for group_id, since_us in self.implied.items() if not walk.lost else ():
            walk.history.implied(group_id, self.log_start, since_us)


@attrs.frozen(kw_only=True)
class AnalysisPlan:
    """What is read. The partitions of a topic follow each other, from 0."""

    directory: str
    places: tuple[AnalysedPartition, ...]
    group_names: dict[int, str]
    groups: frozenset[int] | None
    notes: tuple[str, ...] = ()
    """What of the catalog cannot be read: topics may be missing."""

    @property
    def topics(self) -> list[str]:
        """The names of the topics, in order."""
        return list(dict.fromkeys(place.topic for place in self.places))

    def takes(self, group_id: int) -> bool:
        """Whether that group is wanted."""
        return self.groups is None or group_id in self.groups

    def name_of(self, group_id: int) -> str:
        """The name of a group, or its number once it is deleted."""
        return self.group_names.get(group_id, f"{group_id} (deleted)")


async def plan_analysis(directory: str, topic: str | None, group: str | None) -> AnalysisPlan:
    """Look what is there. Raises `StorageError`, `TopicNotFound`, `GroupNotFound`, `LogCorrupt`, `FormatTooNew`."""
    async with OfflineDirectory(directory) as offline:
        records = [await offline.topic(topic)] if topic is not None else (await offline.catalog()).topics()
        replay = await offline.catalog()
        groups = None if group is None else frozenset({_group_id(replay, group)})
        places: list[AnalysedPartition] = []
        for record in records:
            implied = {
                each.group_id: each.birth
                for each in replay.state.groups.values()
                if record.topic_id in each.topic_ids and each.start_in(record.topic_id) == "beginning"
            }
            for partition in range(record.settings.partitions):
                below = partition_directory(record.topic_id, partition)
                label = f"{record.name}/{partition}"
                reader = await LogReader.open(offline.files, below)
                start, end = reader.start_offset, reader.visible_end
                await reader.close()
                places.append(
                    AnalysedPartition(
                        index=len(places),
                        topic=record.name,
                        partition=partition,
                        journal=await _journal(offline, directory, f"{below}/delivery", label),
                        log_start=start,
                        log_end=end,
                        groups=groups,
                        implied=implied,
                    )
                )
    names = {record.group_id: record.name for record in replay.state.groups.values()}
    return AnalysisPlan(
        directory=directory,
        places=tuple(places),
        group_names=names,
        groups=groups,
        notes=tuple(replay.faults),
    )


async def _journal(offline: OfflineDirectory, root: str, directory: str, label: str) -> JournalPlace:
    # What a journal has proven is in a file like that of a log.
    reader = await LogReader.open(offline.files, directory)
    await reader.close()
    bases = await segment_bases(offline.files, directory)
    return JournalPlace(
        label=label, root=root, directory=directory, bases=tuple(bases), end=reader.visible_end or None
    )


def _group_id(replay: CatalogReplay, name: str) -> int:
    record = replay.state.group(name)
    if record is not None:
        return record.group_id
    known = sorted(each.name for each in replay.state.groups.values())
    there = f"There are {', '.join(known)[:200]}." if known else "There is none."
    raise GroupNotFound(f"there is no group {name!r}. {there}", group=name)
