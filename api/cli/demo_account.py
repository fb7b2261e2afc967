"""The demo's account: computed from what is in the log and what workers and publishers recorded. Pure.

A `History` is fed with every record of the log first, then with the recorded facts, one process after the other.

Rules it holds the run to
-------------------------
A1  Every event is acknowledged to its publisher, and stored exactly where its receipt says.
A2  What is stored is, byte for byte (by digest), an event of the input.
A3  Within a key, the first appearances of events rise in the log. A repeated publish may store an event twice; later
    appearances are counted and not judged.
A4  Every stored message is handled by a worker at least once, and settled in the end.
A5  A message whose acknowledgement was awaited and recorded is never delivered again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import attrs

from callboard.cli.demo_record import Fact

__all__ = ["Account", "History", "percentile"]

_NONE = -1
_ONCE, _HANDLED, _ACKNOWLEDGED = 1, 2, 4
_PROBLEMS_NAMED_MAX = 20


@attrs.frozen(kw_only=True)
class Account:
    """The sums. It balances when `problems` is empty."""

    events: int
    acknowledged_publishes: int
    stored: int
    stored_twice: int
    publish_errors: int
    published_before_kill: int
    in_doubt_at_kill: int
    in_doubt_stored: int
    delivered: int
    redelivered: int
    handled: int
    acknowledged: int
    acknowledged_in_doubt: int
    lost: int
    altered: int
    out_of_order: int
    delivered_after_acknowledgement: int
    unsettled: int
    crashes: int
    restarts: int
    publish_ms_p50: float | None
    publish_ms_p99: float | None
    handled_ms_p50: float | None
    handled_ms_p99: float | None
    problems: tuple[str, ...]

    @property
    def balanced(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class History:
    """Adds up what is stored and what was recorded. Memory: some 20 bytes per event, and per key its last event."""

    def __init__(self, digests: Sequence[int]) -> None:
        """`digests` of all input events, in the order of the input."""
        self._digests = digests
        self._seen = bytearray(len(digests))
        self._receipts = bytearray(len(digests))
        self._stored: list[array[int]] = []
        self._marks: list[bytearray] = []
        self._last_of_key: dict[int, int] = {}
        self._open: set[int] = set()
        self._in_doubt: set[int] = set()
        self._reopened_at: dict[int, int] = {}
        self._publish_us = array("Q")
        self._handled_us = array("Q")
        self._problems: list[str] = []
        self._problem_count = 0
        self._unsettled = 0
        self._count = dict.fromkeys(
            [
                "stored",
                "twice",
                "errors",
                "before_kill",
                "delivered",
                "redelivered",
                "lost",
                "altered",
                "disorder",
                "again",
                "C",
                "R",
            ],
            0,
        )

    # -- what is in the log

    def add_stored(
        self, partition: int, offset: int, event: int | None, digest: int, key: int | None
    ) -> None:
        """The log holds this at (partition, offset): `event` as its header names it, `digest` of key and value,
        `key` a fingerprint of the key. Partitions in any order, offsets rising within each.
        """
        while len(self._stored) <= partition:
            self._stored.append(array("q"))
            self._marks.append(bytearray())
        stored = self._stored[partition]
        stored.extend([_NONE] * (offset - len(stored)))
        self._count["stored"] += 1
        where = f"{partition}@{offset}"
        if event is None or not 0 <= event < len(self._digests):
            stored.append(_NONE)
            self._blame("altered", f"A2: {where} is no event of the input")
            return
        stored.append(event)
        if digest != self._digests[event]:
            self._blame("altered", f"A2: {where} is not what event {event} was")
        if self._seen[event]:
            self._count["twice"] += 1
            return
        self._seen[event] = 1
        if key is not None:
            if self._last_of_key.get(key, _NONE) > event:
                self._blame("disorder", f"A3: {where} holds event {event} after a later one of its key")
            self._last_of_key[key] = max(event, self._last_of_key.get(key, _NONE))

    # -- what was recorded

    def add_fact(self, fact: Fact) -> None:
        """One recorded fact, in the order in which they were recorded."""
        tag = fact.tag
        if tag in "DHKX":
            for offset in fact.numbers:
                self._message(tag, fact.partition, offset)
        elif tag == "P":
            self._receipt(fact.partition, fact.numbers[0], fact.numbers[1:])
        elif tag == "S":
            self._open.update(fact.numbers)
        elif tag == "E":
            self._count["errors"] += len(fact.numbers)
        elif tag == "O":
            self._reopened_at[fact.partition] = fact.numbers[0]
        elif tag in "CR":
            self._count[tag] += 1
        else:
            (self._handled_us if tag == "L" else self._publish_us).extend(fact.numbers)

    def add_unreadable(self, line: str) -> None:
        """Count a recorded line that is not a fact."""
        self._blame(None, f"a record cannot be read: {line[:60]!r}")

    def end_process(self, *, killed: bool) -> None:
        """The facts of one process are complete. What a killed one had under way is in doubt."""
        if killed:
            self._in_doubt |= self._open
            self._count["before_kill"] += sum(self._receipts)
        self._open.clear()

    def add_unsettled(self, messages: int) -> None:
        """Note how many messages the group has not settled at the end."""
        self._unsettled += messages

    def _receipt(self, partition: int, offset: int, events: Sequence[int]) -> None:
        for place, event in enumerate(events, start=offset):
            self._open.discard(event)
            if not 0 <= event < len(self._digests):
                self._blame(None, f"A1: event {event} was acknowledged and never was in the input")
                continue
            self._receipts[event] = 1
            if self._event_at(partition, place) != event:
                self._blame(
                    "lost", f"A1: event {event} was acknowledged at {partition}@{place}, is not there"
                )

    def _message(self, tag: str, partition: int, offset: int) -> None:
        if self._event_at(partition, offset) is None:
            self._blame("lost", f"A4: {partition}@{offset} was with a worker and is not in the log")
            return
        marks = self._marks[partition]
        if len(marks) < len(self._stored[partition]):
            marks.extend(bytes(len(self._stored[partition]) - len(marks)))
        mark = marks[offset]
        if tag == "D":
            self._count["delivered"] += 1
            self._count["redelivered"] += mark & _ONCE
            if mark & _ACKNOWLEDGED:
                self._blame("again", f"A5: {partition}@{offset} was delivered after its acknowledgement")
            marks[offset] = mark | _ONCE
        elif tag == "X":
            self._blame("altered", f"A2: {partition}@{offset} was altered when it reached a worker")
        else:
            marks[offset] = mark | (_HANDLED if tag == "H" else _ACKNOWLEDGED)

    def _event_at(self, partition: int, offset: int) -> int | None:
        """The event at that offset, `_NONE` for a gap or an unknown record, None beyond the log."""
        if not 0 <= partition < len(self._stored) or not 0 <= offset < len(self._stored[partition]):
            return None
        return self._stored[partition][offset]

    # -- the sums

    def account(self) -> Account:
        """The account. Call it once, at the end."""
        handled, acknowledged = self._settlements()
        unpublished = len(self._digests) - sum(self._receipts)
        if unpublished:
            self._problem(f"A1: {unpublished:,} events were never acknowledged to their publisher")
        missing = self._seen.count(0)
        if missing:
            self._count["lost"] += missing
            self._problem(f"A1: {missing:,} events are not in the log")
        if self._unsettled:
            self._problem(f"A4: {self._unsettled:,} messages are not settled")
        if self._count["C"] and not self._count["R"]:
            self._problem(f"{self._count['C']} actors were made to crash and none was restarted")
        if self._problem_count > len(self._problems):
            self._problems.append(f"and {self._problem_count - len(self._problems):,} problems more")
        count = self._count
        return Account(
            events=len(self._digests),
            acknowledged_publishes=sum(self._receipts),
            stored=count["stored"],
            stored_twice=count["twice"],
            publish_errors=count["errors"],
            published_before_kill=count["before_kill"],
            in_doubt_at_kill=len(self._in_doubt),
            in_doubt_stored=self._in_doubt_stored(),
            delivered=count["delivered"],
            redelivered=count["redelivered"],
            handled=handled,
            acknowledged=acknowledged,
            acknowledged_in_doubt=handled - acknowledged,
            lost=count["lost"],
            altered=count["altered"],
            out_of_order=count["disorder"],
            delivered_after_acknowledgement=count["again"],
            unsettled=self._unsettled,
            crashes=count["C"],
            restarts=count["R"],
            publish_ms_p50=percentile(self._publish_us, 0.50),
            publish_ms_p99=percentile(self._publish_us, 0.99),
            handled_ms_p50=percentile(self._handled_us, 0.50),
            handled_ms_p99=percentile(self._handled_us, 0.99),
            problems=tuple(self._problems),
        )

    def _settlements(self) -> tuple[int, int]:
        """Stored messages that were handled, and that were acknowledged for sure; blames those never handled."""
        handled = acknowledged = 0
        for partition, offset in self._places():
            mark = self._marks[partition][offset] if offset < len(self._marks[partition]) else 0
            acknowledged += mark & _ACKNOWLEDGED == _ACKNOWLEDGED
            if mark & (_HANDLED | _ACKNOWLEDGED):
                handled += 1
            else:
                self._blame("lost", f"A4: {partition}@{offset} was never handled")
        return handled, acknowledged

    def _places(self) -> Iterator[tuple[int, int]]:
        for partition, stored in enumerate(self._stored):
            for offset, event in enumerate(stored):
                if event != _NONE:
                    yield partition, offset

    def _in_doubt_stored(self) -> int:
        found: set[int] = set()
        if self._in_doubt:
            for partition, end in self._reopened_at.items():
                if partition < len(self._stored):
                    found.update(self._in_doubt.intersection(self._stored[partition][:end]))
        return len(found)

    def _blame(self, counter: str | None, problem: str) -> None:
        if counter is not None:
            self._count[counter] += 1
        self._problem(problem)

    def _problem(self, problem: str) -> None:
        self._problem_count += 1
        if len(self._problems) < _PROBLEMS_NAMED_MAX:
            self._problems.append(problem)


def percentile(values_us: Sequence[int], share: float) -> float | None:
    """The value below which `share` of the values lie, in milliseconds; None of none."""
    if not values_us:
        return None
    ordered = sorted(values_us)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] / 1000
