"""What a manifest says of a partition's records, counted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs

from callboard.log.format.columns import NO_TIME, Columns


@attrs.define(eq=False)
class PartitionTally:
    """Takes a partition's batches in order. The fields have the names of `PartitionRow`'s."""

    payload_bytes: int = 0
    first_time_us: int | None = None
    last_time_us: int | None = None
    is_ordered: bool = True
    _latest_us: int = NO_TIME

    def add(self, columns: Columns) -> None:
        """Count a batch, which has records."""
        self.payload_bytes += columns.size_bytes
        times = times_of(columns)
        first, last = min(times), max(times)
        self.first_time_us = first if self.first_time_us is None else min(self.first_time_us, first)
        self.last_time_us = last if self.last_time_us is None else max(self.last_time_us, last)
        if self.is_ordered:
            self.is_ordered = times[0] >= self._latest_us and all(
                earlier <= later for earlier, later in pairwise(times)
            )
            self._latest_us = last

    def fields(self) -> dict[str, Any]:
        """By name, as `PartitionRow` takes them."""
        return {
            "payload_bytes": self.payload_bytes,
            "first_time_us": self.first_time_us,
            "last_time_us": self.last_time_us,
            "is_ordered": self.is_ordered,
        }


def times_of(columns: Columns) -> Sequence[int]:
    """Each record's time: its event time or, without one, its append time. Microseconds since 1970."""
    appended, events = columns.append_times, columns.event_times
    if events is None:
        return [columns.append_time_us] * columns.count if appended is None else appended
    if NO_TIME not in events:
        return events
    if appended is None:
        appended = [columns.append_time_us] * columns.count
    return [append if event == NO_TIME else event for event, append in zip(events, appended, strict=True)]
