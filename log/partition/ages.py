"""How old the segments of a log are, by stamps that a clock may have made which was ahead (`stamps`). Pure."""

from __future__ import annotations

from typing import Final

import attrs

from callboard.log.format.stamps import TOLERANCE_US, Stamps, is_ahead
from callboard.log.partition.retention import MICROSECONDS

NEVER: Final = float("inf")


@attrs.define(eq=False)
class SegmentAges:
    """What is too old, and when the next is. All times are in microseconds."""

    stamps: Stamps
    _age_s: float | None = None
    """At this age the segment in use is sealed."""
    _begun_us: int = 0
    _roll_at_us: float = NEVER
    _roll_from_us: float = -NEVER
    """Before this the segment in use was begun by a clock that was ahead."""

    def opened(self, newest_us: int, now_us: int) -> None:
        """The log was opened; this is the newest stamp of the segment in use."""
        self.stamps.stamped_us = now_us
        self.stamps.notice(newest_us, now_us)

    def begun(self, created_us: int, age_s: float | None) -> None:
        """The segment in use was begun then, and is sealed at this age."""
        self._begun_us, self._age_s = created_us, age_s
        self._roll_at_us, self._roll_from_us = NEVER, -NEVER
        if age_s is not None:
            self._roll_at_us, self._roll_from_us = (
                created_us + age_s * MICROSECONDS,
                created_us - TOLERANCE_US,
            )

    def stamp(self, now_us: int) -> bool:
        """Records are stamped now; whether the segment in use is to be sealed before."""
        if now_us < self.stamps.stamped_us - TOLERANCE_US:
            self.stamps.notice(self.stamps.stamped_us, now_us)
        self.stamps.stamped_us = now_us
        return now_us >= self.roll_at_us(now_us)

    def roll_at_us(self, now_us: int) -> float:
        """When the segment in use is to be sealed."""
        if now_us < self._roll_from_us:
            self.begun(self.stamps.believed(self._begun_us, now_us), self._age_s)
        return self._roll_at_us

    def drop_at_us(self, successor_us: int, age_s: float, now_us: int) -> float:
        """When the oldest sealed segment, whose successor was begun then, is to be dropped at the latest."""
        return self.stamps.believed(successor_us, now_us) + age_s * MICROSECONDS

    def is_old(self, newest_us: int, successor_us: int, age_s: float, now_us: int) -> bool:
        """Whether a sealed segment is to be dropped: its newest record was appended before its successor was begun.

        Younger records may follow one that a clock stamped which was ahead: all count as appended at that moment then.
        """
        if is_ahead(newest_us, now_us):
            return now_us >= self.drop_at_us(successor_us, age_s, now_us)
        return now_us - newest_us >= age_s * MICROSECONDS
