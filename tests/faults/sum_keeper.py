"""A durable actor for tests of damaged directories."""

from __future__ import annotations

import callboard


class SumKeeper(callboard.DurableActor[int, int]):
    """An actor whose journal keeps a sum."""

    def __init__(self) -> None:
        self.sum = 0

    async def receive(self, message: int) -> int:
        await self.persist(message)
        return self.sum

    def apply(self, event: int) -> None:
        self.sum += event
