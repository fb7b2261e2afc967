"""What one incarnation of a partition's actor hands on to the next.

It is made with the partition's specification. Only the partition writes it.
"""

from __future__ import annotations

import attrs

from callboard.actors.notices import PartitionLacksSpace
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.publishing.producers import Begun
from callboard.actors.settings import TopicSettings
from callboard.log.journal.journal import ProvenEnd


@attrs.define(eq=False)
class HandOver:
    """What one incarnation of a partition leaves to the next. Only the partition writes it."""

    carried: Carried = attrs.field(factory=Carried)
    """What its core hands on."""
    producers_begun: Begun = attrs.field(factory=Begun)
    """The lives of producers that began in this process."""
    has_run: bool = False
    """An incarnation has recovered, and run."""
    journal_end: ProvenEnd = attrs.field(factory=ProvenEnd)
    """How far the delivery journal was proven, whatever the disk says of it after a restart."""
    has_files: bool = False
    """An incarnation has found or made its folders, and their names are durable."""
    altered: TopicSettings | None = None
    """Settings that it was altered to last."""
    is_full: bool = False
    """Whether `retention_bytes` was reached when that was looked at last."""
    has_reported_lack: bool = False
    """Whether it was reported last that the disk is too full for its records: a crash does not end that."""
    ids_void_below: int = 0
    """Deduplication ids of records below this offset are forgotten, although the disk may not say so yet."""

    def note_lack(self, lack: Exception | None, path: str) -> PartitionLacksSpace:
        """The notice that the disk is too full for the partition's records, or no longer is."""
        self.has_reported_lack = lack is not None
        return PartitionLacksSpace(path, "" if lack is None else str(lack), self.has_reported_lack)
