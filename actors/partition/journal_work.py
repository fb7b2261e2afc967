"""What a partition hands its committer for the delivery journal, and who wants to hear how it ends."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from callboard.log.errors import CallboardError

__all__ = ["Done", "JournalWork"]

Done = Callable[[CallboardError | None], None]


@attrs.define(eq=False)
class JournalWork:
    """Records, and whom to call with None when they are written, or with the error."""

    records: list[bytes]
    done: list[Done]
    sync: bool

    def finish(self, error: CallboardError | None) -> None:
        """Tell everybody. When that raises for one, those behind him are still in `done`, for `abandon` (C4)."""
        self.done.reverse()
        while self.done:
            self.done.pop()(error)
