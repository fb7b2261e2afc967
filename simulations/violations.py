"""The error that ends a run in which a promise was broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.simulations.history.entry import HistoryEntry


class Violation(CallboardError):
    """A promise was broken. `promise` names it, `words` say how, `first` is the entry at which it showed, if any."""

    promise: str
    words: str
    first: HistoryEntry | None

    def __init__(self, promise: str, words: str, first: HistoryEntry | None = None) -> None:
        super().__init__(f"{promise}: {words}", promise=promise, words=words, first=first)

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str, HistoryEntry | None]]:
        """Fields are arguments too: violations travel between the processes of a sweep."""
        return Violation, (self.promise, self.words, self.first)
