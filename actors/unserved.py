"""What is to be served by a task that comes and goes: each thing once, in the order in which it came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from callboard.actors.timing import Flag

T = TypeVar("T")


class Unserved(Generic[T]):
    """See the module. It outlives the incarnations of the serving actor; adding neither waits nor asks."""

    def __init__(self) -> None:
        self._things: dict[T, None] = {}
        self._flag = Flag()

    def add(self, thing: T) -> None:
        """Have it served."""
        self._things[thing] = None
        self._flag.set()

    def discard(self, thing: T) -> None:
        """It is gone, and is not to be served."""
        self._things.pop(thing, None)

    def begin(self, things: Iterable[T]) -> None:
        """Somebody new serves: all these are to be served."""
        self._things = dict.fromkeys(things)
        self._flag.set()

    def clear(self) -> None:
        """Nothing is to be served."""
        self._things.clear()

    async def take(self) -> list[T]:
        """Wait for what is to be served since the last call. A checkpoint only while there is nothing."""
        while not self._things:
            await self._flag.wait()
        things, self._things = self._things, {}
        return list(things)
