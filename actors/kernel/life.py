"""ActorLife: what a cell, the references to it and a context know of an incarnation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import trio

from callboard.actors.kernel.reply import Envelope, Reply

M = TypeVar("M")


class ActorLife(Protocol[M]):
    """One life of an actor (`incarnation`)."""

    number: int
    """1 for the first incarnation, 2 after the first restart, ..."""
    is_final_stop: bool
    """Whether it was asked to stop for good, and no incarnation follows."""

    @property
    def is_running(self) -> bool:
        """Whether it has begun and is not about to end."""

    def request_stop(self, *, final: bool = False) -> None:
        """End after the current message; `final` when no incarnation follows."""

    def kill(self) -> None:
        """End now: cancel the loop and all tasks."""

    def start_task(
        self, async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...], name: object
    ) -> trio.CancelScope:
        """For `Context.start_task`."""

    def until_stop(self) -> trio.CancelScope:
        """For `Context.until_stop`."""

    def defer_reply(self) -> Reply:
        """For `Context.defer_reply`."""

    async def next_envelope(self) -> Envelope[M]:
        """For `Context.next`."""
