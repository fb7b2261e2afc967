"""How an actor answers questions that it may refuse: a refusal is an answer, not a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from callboard.actors.kernel import Batch
from callboard.log.errors import CallboardError, InternalError


async def answer_each(batch: Batch[Any], handle: Callable[[Any], Awaitable[object]]) -> None:
    """Handle each message, and answer its asker with the result or with the `CallboardError` that `handle` raises.

    An `InternalError`, or the refusal of a message that was told, crashes the actor, so that it is reported.
    """
    for message, reply in batch:
        try:
            answer = await handle(message)
        except InternalError:
            raise
        except CallboardError as error:
            if reply is None:
                raise
            reply.fail(error)
        else:
            if reply is not None:
                reply.answer(answer)
