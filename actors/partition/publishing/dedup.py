"""Deduplication ids: which ids a partition has taken within its topic's `dedup_window`. Pure.

A publish whose id the table holds is a duplicate: it is answered with the offset of the original, and nothing is
appended. An id is held from the time its record was appended until the window has passed, even when retention drops
the record meanwhile. The table is bounded: when it is full, the oldest id is forgotten before its time, and counted, so
that a full table never refuses a message.

Invariants
----------
DD1  At a time t an id is found exactly if it was appended at a time above t - window, and was not forgotten early. A
     time that is ahead of t counts as t, when it was first seen (`stamps`).
DD2  At most `limit` ids are held: those appended last.
DD3  What was forgotten because its window was over, or was altered, is not held again, also when the log is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import attrs

from callboard.log.format.stamps import Stamps

Placed = tuple[int, int]
"""(Offset, append time in microseconds since 1970)."""

SWEPT_AT_ONCE: Final = 4
"""Ids whose time is over are removed a few with each new one: no commit pays for all of them."""


@attrs.define(eq=False)
class DedupTable:
    """The deduplication ids of one partition. While `window_us` is None it looks at no ids and holds none."""

    limit: int
    window_us: int | None = None
    forgotten_early: int = 0
    """Ids that had to go although the window had not passed."""
    void_below: int = 0
    """Ids of records below this offset were forgotten, or never held (DD3)."""
    stamps: Stamps = attrs.Factory(Stamps)
    """What a clock that was ahead has left."""
    _ids: OrderedDict[bytes, Placed] = attrs.Factory(OrderedDict)
    """In the order in which they were appended. To find the first key, a plain dictionary passes the places of all that
    were removed before it."""

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[tuple[bytes, Placed]]:
        return iter(self._ids.items())

    def set_window(self, window_us: int | None, now_us: int, visible_end: int) -> None:
        """Another window from now on, `visible_end` being the log's. What was forgotten does not come back."""
        if window_us == self.window_us:
            return
        if window_us is None or self.window_us is None:
            self._ids.clear()
            self.void_below = visible_end
        else:
            self.forget_old(now_us, len(self._ids))
        self.window_us = window_us
        self.forget_old(now_us, len(self._ids))

    def is_current(self, placed: Placed, now_us: int) -> bool:
        """Whether the window that began with the record is not over (DD1)."""
        if self.window_us is None:
            return False
        return now_us - self.stamps.believed(placed[1], now_us) < self.window_us

    def find(self, dedup_id: bytes, now_us: int) -> int | None:
        """The offset of the original, None when the id is new."""
        placed = self._ids.get(dedup_id)
        return placed[0] if placed is not None and self.is_current(placed, now_us) else None

    def put(self, dedup_id: bytes, placed: Placed, now_us: int | None) -> None:
        """The log has taken a record with this id. None: no id is judged by its age yet."""
        if self.window_us is None or placed[0] < self.void_below:
            return
        ids = self._ids
        ids.pop(dedup_id, None)
        ids[dedup_id] = placed
        if now_us is not None:
            self.forget_old(now_us, SWEPT_AT_ONCE)
        while len(ids) > self.limit:
            oldest = next(iter(ids))
            gone = ids.pop(oldest)
            self.forgotten_early += now_us is None or self.is_current(gone, now_us)

    def forget_old(self, now_us: int, most: int) -> bool:
        """Forget up to `most` ids whose window is over; whether there may be more."""
        ids = self._ids
        for _ in range(most):
            if not ids:
                return False
            oldest = next(iter(ids))
            if self.is_current(ids[oldest], now_us):
                return False
            self.void_below = max(self.void_below, ids.pop(oldest)[0] + 1)
        return True
