"""The file in which a read names what it passed over. Needs no Spark."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

import attrs

from callboard.spark.files import make_folders, remove_file, storage_errors, write_text

NAME_SHOWN_MAX: Final = 100
Ranges = list[tuple[int, int]]
"""First and last offsets."""


@attrs.frozen(kw_only=True)
class LossReport:
    """What a read of one partition, from `start` on, passed over."""

    topic: str
    partition: int
    start: int
    path: str
    """Where the records were looked for."""
    damaged: Ranges = attrs.field(factory=list)
    removed: Ranges = attrs.field(factory=list)
    """What retention removed."""

    def add_damaged(self, first: int, last: int) -> None:
        """Name offsets that are damaged or missing."""
        self.damaged.append((first, last))

    def add_removed(self, first: int, last: int) -> None:
        """Name offsets that retention removed."""
        self.removed.append((first, last))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was passed over."""
        return not (self.damaged or self.removed)

    def write(self, folder: str) -> None:
        """Write it into a file of its own. An empty one removes the file of an earlier read."""
        path = f"{folder}/{self._name}"
        with storage_errors(f"naming what is damaged in {folder}"):
            if self.is_empty:
                remove_file(path)
                return
            make_folders(folder)
            found = {"topic": self.topic, "partition": self.partition, "path": self.path}
            write_text(path, json.dumps(found | {"lost": self.damaged, "removed": self.removed}) + "\n")

    @property
    def _name(self) -> str:
        # A recording's manifest names the topic, and nothing vouches for it.
        return f"{quote(self.topic, safe='')[:NAME_SHOWN_MAX]}-{self.partition}-{self.start}.json"
