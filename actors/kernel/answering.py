"""Answering questions that may be refused: a refusal is an answer, not a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from callboard.actors.kernel import Batch
from callboard.log.errors import CallboardError, InternalError


async def answer_each(batch: Batch[Any], handle: Callable[[Any], Awaitable[object]]) -> None:
    """Handle each message; what it returns or refuses (any `CallboardError` but a bug) goes to its asker.

    A refusal that nobody asked for is a crash: somebody must hear of it.
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
