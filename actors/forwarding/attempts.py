"""Work that is tried again until it succeeds; what holds it up is reported once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from callboard.actors.retry_pauses import RetryPauses
from callboard.log.errors import ActorStopped, CallboardError

A = TypeVar("A")


class Attempts:
    """Repeats work until it succeeds. `pause` sleeps between attempts; `hold` gets the first error of a row, and None
    when work succeeds again.
    """

    def __init__(
        self,
        pause: Callable[[float], Awaitable[object]],
        hold: Callable[[CallboardError | None], object],
    ) -> None:
        self._pause = pause
        self._hold = hold
        self._pauses = RetryPauses()

    async def until_done(self, work: Callable[[], Awaitable[A]]) -> A:
        """Do the work until it raises no error. Raises `ActorStopped`: what it is done for has ended."""
        while True:
            try:
                answer = await work()
            except ActorStopped:
                raise
            except CallboardError as error:
                if self._pauses.is_first:
                    self._hold(error)
                await self._pause(self._pauses.failed())
            else:
                self.succeeded()
                return answer

    def succeeded(self) -> None:
        """Nothing holds it up: work that does not end says so itself."""
        if not self._pauses.is_first:
            self._pauses.worked()
            self._hold(None)
