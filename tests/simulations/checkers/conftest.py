"""Histories written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.simulations.history import History
from callboard.simulations.history.surviving import GroupLeft, PartitionLeft, Surviving


class Script:
    """Writes a history of one topic, `orders/0`, step by step. Time passes when `at` says so."""

    def __init__(self) -> None:
        self.time = 0.0
        self.machine = 1
        self.history = History(now=lambda: self.time)
        self.history.booted(1)

    def at(self, time: float) -> Script:
        """From here on it is that late."""
        self.time = time
        return self

    def cut(self) -> Script:
        """The power fails and the machine boots again."""
        self.history.ended(self.machine, "power cut")
        self.machine += 1
        self.history.booted(self.machine)
        return self

    def publish(
        self,
        number: int,
        offset: int | None,
        *,
        end: str = "published",
        acks: str = "all",
        key: bytes | None = None,
    ) -> Script:
        """A publish from its beginning to its end."""
        operation = self.begin(number, key=key, acks=acks)
        return self.end(operation, number, offset, end=end, acks=acks)

    def begin(self, number: int, *, key: bytes | None = None, acks: str = "all") -> int:
        """A publish begins."""
        while len(self.history.ids) <= number:
            self.history.message(b"%d" % len(self.history.ids))
        self.history.message(b"%d" % number, key)
        operation = self.history.operation()
        self.history.record(self.machine, "publish", "p1", operation, "orders", ids=(number,), detail=acks)
        return operation

    def end(
        self, operation: int, number: int, offset: int | None, *, end: str = "published", acks: str = "all"
    ) -> Script:
        """It ends."""
        offsets = () if offset is None else (offset,)
        self.history.record(
            self.machine,
            end,
            "p1",
            operation,
            "orders",
            0 if offsets else -1,
            ids=(number,),
            offsets=offsets,
            detail=acks,
        )
        return self

    def deliver(
        self,
        offset: int,
        number: int,
        *,
        attempt: int = 1,
        who: str = "w1",
        life: int = 900,
        until: float = 1e9,
        detail: str = "",
    ) -> Script:
        """A consumer of `billing` is handed a message."""
        self.history.record(
            self.machine,
            "delivered",
            who,
            life,
            "orders",
            0,
            "billing",
            (number,),
            (offset,),
            (attempt,),
            until,
            detail,
        )
        return self

    def settle(
        self,
        offset: int,
        verb: str = "ack",
        end: str | None = "acked",
        who: str = "w1",
        until: float = 0.0,
        detail: str = "",
        attempt: int | None = None,
    ) -> Script:
        """It settles the message; `end` None: nobody knows how that ended. With `attempt`, of that delivery."""
        operation = self.history.operation()
        place = operation, "orders", 0, "billing"
        more: dict[str, Any] = {"offsets": (offset,), "until": until, "detail": detail}
        tried = {} if attempt is None else {"attempts": (attempt,)}
        self.history.record(self.machine, verb, who, *place, **more, **tried)
        if end is not None:
            self.history.record(self.machine, end, who, *place, **more)
        return self

    def publish_batch(self, numbers: tuple[int, ...], offsets: tuple[int, ...]) -> Script:
        """A batch is published to one partition."""
        operation = self.history.operation()
        while len(self.history.ids) <= max(numbers):
            self.history.message(b"%d" % len(self.history.ids))
        self.history.record(self.machine, "publish", "p1", operation, "orders", ids=numbers, detail="all")
        self.history.record(
            self.machine,
            "published",
            "p1",
            operation,
            "orders",
            0,
            ids=numbers,
            offsets=offsets,
            detail="all",
        )
        return self

    def ask(self, life: int = 900, who: str = "w1", until: float = 0.0) -> Script:
        """A consumer waits for a message."""
        self.history.record(self.machine, "asks", who, life, "orders", group="billing", until=until)
        return self

    def give_up(self, since: float, timeout: str = "", who: str = "w1", life: int = 900) -> Script:
        """A consumer waits no more, because its timeout is over or for another reason."""
        self.history.record(
            self.machine, "gave up", who, life, "orders", group="billing", until=since, detail=timeout
        )
        return self

    def read(self, offset: int, number: int, life: int = 0) -> Script:
        """A reader met a message."""
        self.history.record(
            self.machine, "read", "reader-1", life, "orders", partition=0, ids=(number,), offsets=(offset,)
        )
        return self

    def fault(self, label: str) -> Script:
        """A fault struck."""
        self.history.note("fault", who=label)
        return self

    def member(self, kind: str, life: int, who: str = "w1") -> Script:
        """A consumer joined or left."""
        self.history.record(self.machine, kind, who, life, "orders", group="billing")
        return self

    def event(self, kind: str, path: str, *, delay: float = 0.0) -> Script:
        """Something happened to an actor."""
        self.history.record(self.machine, kind, path, until=delay)
        return self


@pytest.fixture
def script() -> Script:
    """An empty history."""
    return Script()


@pytest.fixture
def left():
    """Makes what is left of `orders/0`: records by offset, and more by name."""

    def make(records: dict[int, int] | None = None, *, group: dict | None = None, **more) -> Surviving:
        records = records or {}
        digests = more.pop("digests", ())
        problems = more.pop("problems", ())
        groups = () if group is None else (GroupLeft(**{"name": "billing", "ready": 0, "leased": 0} | group),)
        more = {"end": max(records, default=-1) + 1, "order": tuple(records)} | more
        partition = PartitionLeft("orders", 0, records=records, groups=groups, **more)
        return Surviving((partition,), problems, digests)

    return make
