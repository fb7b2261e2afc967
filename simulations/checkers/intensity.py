"""Intensity: what a supervisor states of restarts, as the checker of supervision holds it to."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Intensity:
    """Restarts below `path`: at most `restarts` within `period_s`, for all children together or for each alone."""

    path: str
    """The supervisor's path; its children are those directly below. Ends with `/` or is empty for the root."""
    restarts: int
    period_s: float
    each: bool = False
    """Children are insignificant: each has a window of its own, and fails alone."""
    delay_s_max: float = 2.0
    """The longest backoff."""

    def covers(self, path: str) -> bool:
        """Whether an actor at `path` is a child of the supervisor."""
        return path.startswith(self.path) and "/" not in path[len(self.path) :]
