"""Renewals: keeps the leases of messages whose handler is still running.

`async with consumer.receive()` holds a lease for as long as its body runs, however long that is. The holds stand in a
registry that consumers write to directly and one actor of the runtime reads: entering and leaving a body costs a
dictionary entry, and the actor wakes only when the earliest renewal is due. A hold whose lease is lost is told so
(its body is cancelled); a hold that cannot be renewed in time is lost too.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from callboard.actors import Actor
from callboard.actors.broker.commands import Settle
from callboard.actors.broker.port import PartitionPort
from callboard.log.errors import CallboardError

RENEW_AT: float = 1 / 3
"""The part of the visibility timeout after which a lease is renewed."""
RETRY_AT: float = 1 / 10


@attrs.define(eq=False)
class Hold:
    """One lease in use. `lost` is called, once, when it is the consumer's no more."""

    port: PartitionPort
    group_id: int
    lease_id: int
    offset: int
    visibility_timeout: float
    deadline: float
    due: float
    lost: Callable[[], None]


class Holds:
    """The registry: what is held now."""

    def __init__(self) -> None:
        self._holds: dict[Hold, None] = {}
        self._armed_until = float("inf")
        self._changed = trio.Event()

    def add(self, hold: Hold) -> None:
        """From now on `hold` is renewed when due."""
        self._holds[hold] = None
        if hold.due < self._armed_until:
            self._changed.set()

    def remove(self, hold: Hold) -> None:
        """The body ended."""
        self._holds.pop(hold, None)

    def __len__(self) -> int:
        return len(self._holds)

    async def due(self, now: Callable[[], float]) -> list[Hold]:
        """Sleep until something is due, then return it."""
        while True:
            ready = [hold for hold in self._holds if hold.due <= now()]
            if ready:
                return ready
            self._changed = trio.Event()
            self._armed_until = min((hold.due for hold in self._holds), default=float("inf"))
            with trio.move_on_at(self._armed_until):
                await self._changed.wait()


class Renewals(Actor[None]):
    """The actor that renews. It has no messages of its own."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds

    async def started(self) -> None:
        """Begin to renew."""
        self.context.start_task(self._renew, name="renewals")

    async def _renew(self) -> None:
        now = self.context.clock.monotonic
        while True:
            for hold in await self._holds.due(now):
                renewed = await self._extend(hold)
                if renewed:
                    hold.deadline = now() + hold.visibility_timeout
                    hold.due = now() + hold.visibility_timeout * RENEW_AT
                elif renewed is None and now() < hold.deadline:
                    hold.due = now() + hold.visibility_timeout * RETRY_AT
                else:
                    self._holds.remove(hold)
                    hold.lost()

    async def _extend(self, hold: Hold) -> bool | None:
        """True: renewed; False: the lease is gone; None: the partition does not answer now."""
        message = Settle(
            hold.group_id, "extend", hold.lease_id, ((hold.offset, hold.offset + 1),), hold.visibility_timeout
        )
        try:
            kept = await hold.port.ref.ask(message, timeout=hold.visibility_timeout * RETRY_AT)
        except CallboardError:
            return None
        return bool(kept)
