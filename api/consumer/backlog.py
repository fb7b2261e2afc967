"""What `work` has fetched, and no handler has begun: the *backlog*.

A message of it is *ready* for a handler, or waits behind another of its key (`key_queues`). It grows as long as
handlers are quick. What they do not come to in time is given back for other consumers.

Invariants
----------
BL1  The backlog is at most `concurrency` messages; more, up to `AHEAD_MAX`, only as long as handlers are quick.
BL2  What has waited for `AHEAD_S`, or half of its lease, is given back, with those of its key behind it: other
     consumers may be idle, and no attempt is spent without a handler.
BL3  What was given back for want of a handler is for other consumers: from then on no more is fetched than handlers are
     free, until one has ended within `AHEAD_S` of the fetching of its message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from callboard.consumer.caller_pace import UNITS_MAX
from callboard.consumer.key_queues import KeyQueues

if TYPE_CHECKING:
    from callboard.consumer.fetcher import Fetcher
    from callboard.consumer.messages import ReceivedMessage

AHEAD_MAX: Final = 256
AHEAD_S: Final = 1.0
"""How long a message may wait for a handler before it is given back."""
QUICK_S: Final = 0.01
"""Handlers are quick that do half of what waits in this time."""


class Backlog:
    """That of one call of `work`. `wake` is called when a message is ready."""

    def __init__(self, consumer: Fetcher, concurrency: int, wake: Callable[[], object]) -> None:
        self._consumer = consumer
        self._concurrency = concurrency
        self._wake = wake
        self.ready: deque[ReceivedMessage] = deque()
        self._keys = KeyQueues(consumer)
        self._size_max = concurrency
        self._has_room = trio.Event()
        self._is_slow = False
        """Something was given back, and no handler has ended in time since (BL3)."""
        consumer.let_go = self.give_back_stale
        consumer.questions.keeps_s = AHEAD_S

    # -- growing

    def _size(self) -> int:
        return len(self.ready) + self._keys.behind_count

    def is_wanting(self) -> bool:
        """Whether another message may come, however many handlers are free."""
        return not self._is_slow and len(self.ready) + self._keys.behind_count < self._size_max

    async def wait_for_want(self, free_handlers: Callable[[], int]) -> None:
        """Return when another message may come."""
        if self._size() >= self._size_max:
            await self._wait_for_room()
        while self._is_slow:
            free = free_handlers() - len(self.ready)
            if free > 0:
                self._consumer.pace.units_max = free  # for as many as are free (BL3)
                return
            self._has_room = trio.Event()
            await self._has_room.wait()

    async def _wait_for_room(self) -> None:
        """Until half of the backlog is gone; then it may grow if that was quick (BL1)."""
        clock = self._consumer.session.clock
        begun = clock.monotonic()
        while self._size() > self._size_max // 2:
            self._has_room = trio.Event()
            await self._has_room.wait()
        is_quick = clock.monotonic() - begun < QUICK_S
        self._size_max = min(2 * self._size_max, AHEAD_MAX) if is_quick else self._concurrency
        self._size_max = max(self._size_max, self._concurrency)

    def add(self, message: ReceivedMessage) -> None:
        """A message was fetched."""
        if self._keys.admit(message):
            self.ready.append(message)
            self._wake()

    # -- shrinking

    def look_for_room(self) -> None:
        """A handler has taken a message, or is free: more may be wanted."""
        if self._is_slow or len(self.ready) + self._keys.behind_count <= self._size_max // 2:
            self._has_room.set()

    def end(self, message: ReceivedMessage) -> None:
        """A message is settled, or given up: the next one of its key is ready."""
        consumer = self._consumer
        if self._is_slow and consumer.is_fresh(message.lease):
            self._is_slow = False
            consumer.pace.units_max = UNITS_MAX
            self._has_room.set()
        following, was_slow = self._keys.end(message)
        if following is not None:
            self.ready.append(following)
            self._wake()
        if was_slow or (consumer.settings.ordering != "none" and not self.ready):
            # An ack that lingers holds back what comes after its message: of a slow key, or in a group with an order.
            consumer.lazy_acks.send()
        self.look_for_room()

    # -- giving back

    def give_back(self) -> None:
        """Give back all of it, and what was fetched and not handed over."""
        unbegun = list(self.ready)
        self.ready.clear()
        self.give_back_messages(unbegun)
        self._keys.give_back_behind()
        self._consumer.give_back_fetched()
        self._has_given_back(unbegun)

    def give_back_stale(self) -> None:
        """As `give_back`, what is not fresh of it (BL2)."""
        is_fresh = self._consumer.is_fresh
        stale = [message for message in self.ready if not is_fresh(message.lease)]
        for message in stale:
            self.ready.remove(message)
        self.give_back_messages(stale)
        self._keys.give_back_stale()
        self._consumer.give_back_stale()
        self._has_given_back(stale)

    def give_back_messages(self, messages: list[ReceivedMessage]) -> None:
        """Messages that were ready have waited too long; what waits for them comes after them again (BL2)."""
        self._consumer.leases.give_back_messages(self._keys.take_out(messages))

    def _has_given_back(self, messages: list[ReceivedMessage]) -> None:
        self._is_slow = self._is_slow or bool(messages)
        self._has_room.set()
