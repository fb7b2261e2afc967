"""An operator: opens a runtime again that ended for a failure, and restarts what stays down."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import trio

import callboard
from callboard.actors.kernel.events import ActorFailed
from callboard.log.errors import CallboardError
from callboard.simulations.violations import Violation

OPERATOR_S: Final = 1.0
"""How long an operator takes to open a runtime again."""


async def restart_failed(runtime: Any) -> None:
    """Restart failed partitions by hand, each after a while."""
    send, receive = trio.open_memory_channel[str](1000)

    def heard(event: Any) -> None:
        if isinstance(event, ActorFailed):
            send.send_nowait(event.path)

    unsubscribe = runtime.subscribe_events(heard)
    found = await runtime.stats()
    for partition in found.partitions:
        if partition.state == "failed":
            send.send_nowait(f"topics/{partition.topic}/{partition.partition}")
    for delayed in found.delayed:
        if delayed.state == "failed":
            send.send_nowait(f"topics/{delayed.topic}/delayed-{delayed.partition}")
    for outbox in found.outbox:
        if outbox.state == "failed":
            send.send_nowait(f"topics/{outbox.topic}/outbox-{outbox.partition}")
    try:
        async for path in receive:
            await trio.sleep(OPERATOR_S)
            with suppress(CallboardError):
                await runtime.restart(path)
    finally:
        unsubscribe()


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions of a group, and of those in it; of another exception that one."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def is_passing(error: BaseException) -> bool:
    """Whether an operator would open the runtime again: the disk failed, or an actor crashed too often.

    Never when a call of a client is refused as senseless: all that come here do.
    """
    broken = Violation | callboard.InternalError | callboard.InvalidArgument
    return all(isinstance(leaf, CallboardError) and not isinstance(leaf, broken) for leaf in leaves(error))
