"""How one partition's log is kept."""

from __future__ import annotations

import attrs

from callboard.log.errors import join_problems
from callboard.log.format.compression import NONE, Compression
from callboard.log.limits import SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN

__all__ = ["LogSettings"]

SEGMENTS_WITHIN_RETENTION = 4
"""A size limit is kept to about a quarter: only whole sealed segments can be dropped."""


@attrs.frozen(kw_only=True)
class LogSettings:
    """Sizes in bytes, ages in seconds; None: no limit. Raises `ConfigurationError` naming all problems."""

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    segment_age_s: float | None = None
    retention_age_s: float | None = None
    retention_bytes: int | None = None
    compression: Compression = NONE
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    """A segment is sealed at this size, whatever the others say: a limit of the run (`Limits.segment_bytes`)."""

    def __attrs_post_init__(self) -> None:
        problems = []
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            problems.append(
                f"segment_bytes {self.segment_bytes} is outside {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )
        for name in ("segment_age_s", "retention_age_s", "retention_bytes"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                problems.append(f"{name} {limit} is not above 0")
        if problems:
            raise join_problems("log settings", problems)

    @property
    def roll_bytes(self) -> int:
        """The size at which a segment is sealed."""
        roll_bytes = self.segment_bytes
        if self.retention_bytes is not None:
            quarter = self.retention_bytes // SEGMENTS_WITHIN_RETENTION
            roll_bytes = max(SEGMENT_BYTES_MIN, min(roll_bytes, quarter))
        return min(roll_bytes, self.segment_bytes_max)

    @property
    def roll_age_s(self) -> float | None:
        """The age at which a segment is sealed: records must be in a sealed segment to expire."""
        return self.retention_age_s if self.segment_age_s is None else self.segment_age_s
