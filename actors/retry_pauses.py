"""How long to wait before something that failed is tried again: twice as long each time, up to a limit."""

from __future__ import annotations

from typing import Final

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0


class RetryPauses:
    """Computes the pause before the next attempt: twice the one before, up to a limit. It does not wait itself."""

    def __init__(self, first_s: float = PAUSE_S, longest_s: float = PAUSE_MAX_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    @property
    def is_first(self) -> bool:
        """Whether nothing has failed since it last worked."""
        return self._next_s == self._first_s

    def failed(self) -> float:
        """It failed once more; returns how many seconds to wait."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def worked(self) -> None:
        """The next pause is the first again."""
        self._next_s = self._first_s
