"""Operations: what the catalog carries out beside its loop, each as a task of its own.

Operations on one subject (a topic, a group) run one after the other, in the order in which they were asked for; those
on different subjects never wait for each other. What an operation returns or refuses goes to the asker.

An operation may leave something behind that no other has to wait for (`Afterwards`): its subject is free then, and
its asker is answered when that too is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from callboard.actors.kernel import Context, Reply
from callboard.log.errors import CallboardError, InternalError, MailboxFull
from callboard.log.limits import OPERATIONS_MAX

Operation = Callable[[], Awaitable[object]]


@attrs.frozen
class Afterwards:
    """Returned by an operation: answer with what `operation` returns; the next on the subject does not wait for it."""

    operation: Operation


class CatalogOperations:
    """The operations of one incarnation of an actor."""

    def __init__(self, context: Context[Any], failed: Callable[[str, CallboardError], None]) -> None:
        self._context = context
        self._failed = failed
        self._queues: dict[str, deque[tuple[Operation, Reply | None]]] = {}
        self.count = 0
        """Operations that wait or run."""

    def begin(self, subject: str, operation: Operation, reply: Reply | None = None) -> None:
        """Run `operation` when those on `subject` before it have ended.

        Raises `MailboxFull` when there are `OPERATIONS_MAX`. A refusal without anybody to tell goes to `failed`.
        """
        if self.count >= OPERATIONS_MAX:
            raise MailboxFull(
                f"{self._context.path} has {OPERATIONS_MAX} operations to carry out already. Nothing was done."
                " Try again later.",
                path=self._context.path,
                capacity=OPERATIONS_MAX,
            )
        self.count += 1
        queue = self._queues.get(subject)
        if queue is None:
            queue = self._queues[subject] = deque()
            self._context.start_task(self._run, subject, name=subject)
        queue.append((operation, reply))

    async def _run(self, subject: str) -> None:
        queue = self._queues[subject]
        while queue:
            operation, reply = queue.popleft()
            await self._settle(subject, operation, reply)
        del self._queues[subject]

    async def _settle(self, subject: str, operation: Operation, reply: Reply | None) -> None:
        """Run it and tell its outcome. A bug of Callboard crashes the actor."""
        try:
            answer = await operation()
        except InternalError:
            raise
        except CallboardError as error:
            if reply is None:
                self._failed(subject, error)
            else:
                reply.fail(error)
        else:
            if isinstance(answer, Afterwards):
                self._context.start_task(self._settle, subject, answer.operation, reply, name=subject)
                return
            if reply is not None:
                reply.answer(answer)
        self.count -= 1
