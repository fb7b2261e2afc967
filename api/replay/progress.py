"""What a replay reports: how far it has come, how late it is, and what held it up. Pure."""

from __future__ import annotations

import attrs

from callboard.replay.lateness import Lateness, LatenessMeter
from callboard.replay.pacing import MAX_SPEED, Pace


@attrs.frozen(kw_only=True)
class ReplayProgress:
    """A replay under way."""

    records: int
    """Stored by this run so far."""
    elapsed_s: float
    rate: float
    """Records per second of this run."""
    behind_s: float
    """How late the record is that waits longest; 0 when none is due."""
    part: float | None
    """How much of the recording has gone by, from 0 to 1; None when that is unknown."""
    eta_s: float | None
    """Seconds until the end, if it goes on like this; None when that is unknown, or there is no end."""


@attrs.frozen(kw_only=True)
class ReplayReport:
    """How a replay went: one run of it, perhaps after others that were cut short."""

    topic: str
    recording: str
    """The recording's digest."""
    records: int
    """Stored by this run."""
    payload_bytes: int
    is_resumed: bool
    """Whether records of it were there already."""
    passed_over: int
    """Records that this run read and did not publish, because they were there."""
    elapsed_s: float
    rate: float
    lateness: Lateness
    held_s: float
    """How long the partition that was held up longest waited for its log while its next record was due already."""
    held_batches: int
    """How many batches were handed over late because of that, in all partitions."""
    is_raw: bool
    """Whether partitions were copied one to one; else keys decided."""


@attrs.define(eq=False)
class ReplayTally:
    """What a run counts on its way."""

    records: int = 0
    payload_bytes: int = 0
    lateness: LatenessMeter = attrs.Factory(LatenessMeter)
    held_s: list[float] = attrs.Factory(list)
    """By target partition."""
    held_batches: int = 0
    waiting: dict[int, float] = attrs.Factory(dict)
    """When the next record of a target partition is due, where one is known."""

    def progress(self, now: float, pace: Pace, *, total: int | None, end: float | None) -> ReplayProgress:
        """Where the run stands. `total` records are expected; the last one is due at `end`."""
        elapsed = max(now - pace.began, 1e-9)
        rate = self.records / elapsed
        is_paced = pace.speed != MAX_SPEED
        behind = max(0.0, now - min(self.waiting.values(), default=now)) if is_paced else 0.0
        part, eta = None, None
        if end is not None and end > pace.began:
            eta = max(0.0, end - now) + behind
            part = min(1.0, elapsed / (elapsed + eta))
        elif total:
            part = min(1.0, self.records / total)
            eta = (total - self.records) / rate if self.records else None
        return ReplayProgress(
            records=self.records, elapsed_s=elapsed, rate=rate, behind_s=behind, part=part, eta_s=eta
        )
