"""What a handler raises to decide what becomes of its message: `Retry` and `Reject`, its *verdicts*."""

from __future__ import annotations

from callboard.actors.kernel.failures import unwrap
from callboard.consumer.arguments import check_nack
from callboard.log.errors import remade


class Retry(Exception):
    """Raise it in a handler: the message is delivered again, `after` seconds or more later (None: the group's backoff).

    It counts as a failed attempt, and is not logged.
    """

    after: float | None = None
    reason: str | None = None

    def __init__(self, after: float | None = None, reason: str | None = None) -> None:
        after, reason = check_nack(after, reason, delay_name="after")
        super().__init__(reason or "to be tried again")
        self.after = after
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        """As of a `CallboardError`: a handler may raise it in a pool of processes."""
        return remade, (type(self), self.args, self.__dict__)


class Reject(Exception):
    """Raise it in a handler: the message is given up at once, and kept as a dead letter with this reason."""

    reason: str | None = None

    def __init__(self, reason: str | None = None) -> None:
        _, reason = check_nack(None, reason)
        super().__init__(reason or "rejected")
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        """As of a `CallboardError`: a handler may raise it in a pool of processes."""
        return remade, (type(self), self.args, self.__dict__)


def meant(failure: Exception) -> Exception:
    """What a handler has raised. A verdict alone in the group of its own nursery is what the handler means."""
    alone = unwrap(failure)
    return alone if isinstance(alone, (Retry, Reject)) else failure
