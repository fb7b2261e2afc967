"""The error that ends a run in which a promise was broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.simulations.history.entry import HistoryEntry

SENSIBLE: Final = "what makes sense is not refused"
"""What is broken when a client is told that its call makes none: what is settled once more after an error, say."""


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
