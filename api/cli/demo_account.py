"""The demo's account: computed from what is in the log and what workers and publishers wrote down. Pure.

They write a line per fact, tag and numbers, in the order of facts:

    S n n ...                  these events are about to be published
    P partition o n o n ...    acknowledged: at offset o event n is stored, and so on
    E n n ...                  the publish ended in an error that leaves open whether they are stored; they are repeated
    D partition o o ...        delivered to a worker, the messages at these offsets
    X partition o              the delivered message is not what its own checksum says
    H partition o o ...        handled: the work is done, its acknowledgement comes next
    K partition o o ...        the acknowledgement was awaited, and returned
    C partition                the partition was made to crash
    R partition                the partition was restarted by its supervisor
    O partition o              the partition ended there when the directory was opened again
    L us us ...                time from publishing to handled, of events published by this process
    Q us                       time from publishing to acknowledged, one for each call

A line is written before what it announces and after what it reports, so that a kill at any moment leaves a record that
errs on the safe side: what was in flight counts as in doubt.

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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
from rich.console import RenderableType

from callboard.cli.output import table

Fact = tuple[str, list[int]]
_NUMBERS_AT_LEAST = {"P": 3} | dict.fromkeys("DXHKO", 2) | dict.fromkeys("SECRLQ", 1)
_DELIVERED, _HANDLED, _ACKNOWLEDGED = 1, 2, 4
_PROBLEMS_NAMED_MAX = 20


def parse_line(line: str) -> Fact:
    """The fact on a line. Raises ValueError for a line that is none."""
    tag, *numbers = line.split(" ")
    if len(numbers) < _NUMBERS_AT_LEAST.get(tag, len(line) + 1):
        raise ValueError("no such fact")
    return tag, list(map(int, numbers))


def acknowledged_events(lines: Iterable[str]) -> Iterator[int]:
    """The events that these lines say were acknowledged to their publisher."""
    for line in lines:
        if line.startswith("P "):
            yield from parse_line(line)[1][2::2]


@attrs.define(kw_only=True)
class Account:
    """The sums. It balances when `problems` is empty."""

    events: int
    acknowledged_publishes: int = 0
    stored: int = 0
    stored_twice: int = 0
    publish_errors: int = 0
    published_before_kill: int = 0
    in_doubt_at_kill: int = 0
    in_doubt_stored: int = 0
    delivered: int = 0
    redelivered: int = 0
    handled: int = 0
    acknowledged: int = 0
    acknowledged_in_doubt: int = 0
    lost: int = 0
    altered: int = 0
    out_of_order: int = 0
    delivered_after_acknowledgement: int = 0
    unsettled: int = 0
    crashes: int = 0
    restarts: int = 0
    publish_ms_p50: float | None = None
    publish_ms_p99: float | None = None
    handled_ms_p50: float | None = None
    handled_ms_p99: float | None = None
    problems: list[str] = attrs.Factory(list)

    @property
    def balanced(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class DemoHistory:
    """Adds up what is stored and what was recorded: every record of the log first, then the facts of each process."""

    def __init__(self, digests: Sequence[int]) -> None:
        """`digests` of all input events, in the order of the input."""
        self._sums = Account(events=len(digests))
        self._digests = digests
        self._stored: dict[tuple[int, int], int | None] = {}
        """By partition and offset, the event; None is no event of the input."""
        self._marks: dict[tuple[int, int], int] = {}
        self._seen: set[int] = set()
        self._receipts: set[int] = set()
        self._last_of_key: dict[int, int] = {}
        self._open: set[int] = set()
        self._in_doubt: set[int] = set()
        self._reopened_at: dict[int, int] = {}
        self._publish_us = array("Q")
        self._handled_us = array("Q")
        self._problem_count = 0

    def add_stored(
        self, partition: int, offset: int, event: int | None, digest: int, key: int | None
    ) -> None:
        """The log holds this at (partition, offset): `event` as its header names it, `digest` of key and value,
        `key` a fingerprint of the key. Partitions in any order, offsets rising within each.
        """
        sums, where = self._sums, f"{partition}@{offset}"
        sums.stored += 1
        if event is None or not 0 <= event < len(self._digests):
            self._stored[partition, offset] = None
            self._blame("altered", f"A2: {where} is no event of the input")
            return
        self._stored[partition, offset] = event
        if digest != self._digests[event]:
            self._blame("altered", f"A2: {where} is not what event {event} was")
        if event in self._seen:
            sums.stored_twice += 1
            return
        self._seen.add(event)
        if key is not None:
            last = self._last_of_key.get(key, event)
            if last > event:
                self._blame("out_of_order", f"A3: {where} holds event {event} after a later one of its key")
            self._last_of_key[key] = max(event, last)

    def add_process(self, lines: Iterable[str], *, killed: bool) -> None:
        """All that one process recorded. What a killed one had under way is in doubt."""
        for line in lines:
            try:
                self._add_fact(parse_line(line))
            except ValueError:
                self._problem(f"a record cannot be read: {line[:60]!r}")
        if killed:
            self._in_doubt |= self._open
            self._sums.published_before_kill += len(self._receipts)
        self._open.clear()

    def _add_fact(self, fact: Fact) -> None:
        sums = self._sums
        match fact:
            case ("D" | "X" | "H" | "K") as tag, [partition, *offsets]:
                for offset in offsets:
                    self._add_message(tag, (partition, offset), f"{partition}@{offset}")
            case "P", [partition, *places]:
                for offset, event in zip(places[::2], places[1::2], strict=False):
                    self._open.discard(event)
                    if not 0 <= event < len(self._digests):
                        self._problem(f"A1: event {event} was acknowledged and never was in the input")
                        continue
                    self._receipts.add(event)
                    if self._stored.get((partition, offset)) != event:
                        where = f"{partition}@{offset}"
                        self._blame("lost", f"A1: event {event} was acknowledged at {where}, is not there")
            case "S", events:
                self._open.update(events)
            case "E", events:
                sums.publish_errors += len(events)
            case "O", [partition, end, *_]:
                self._reopened_at[partition] = end
            case "C", _:
                sums.crashes += 1
            case "R", _:
                sums.restarts += 1
            case tag, times_us:
                (self._handled_us if tag == "L" else self._publish_us).extend(times_us)

    def _add_message(self, tag: str, place: tuple[int, int], where: str) -> None:
        mark = self._marks.get(place, 0)
        if place not in self._stored:
            self._blame("lost", f"A4: {where} was with a worker and is not in the log")
        elif tag == "D":
            self._sums.delivered += 1
            self._sums.redelivered += mark & _DELIVERED
            if mark & _ACKNOWLEDGED:
                words = f"A5: {where} was delivered after its acknowledgement"
                self._blame("delivered_after_acknowledgement", words)
            self._marks[place] = mark | _DELIVERED
        elif tag == "X":
            self._blame("altered", f"A2: {where} was altered when it reached a worker")
        else:
            self._marks[place] = mark | (_HANDLED if tag == "H" else _ACKNOWLEDGED)

    def account(self, unsettled: int) -> Account:
        """Add everything up, where `unsettled` messages are not settled by the group. Call it once, at the end."""
        sums = self._sums
        in_doubt_stored = set()
        for (partition, offset), event in self._stored.items():
            if event is None:
                continue
            mark = self._marks.get((partition, offset), 0)
            if mark & (_HANDLED | _ACKNOWLEDGED):
                sums.handled += 1
                sums.acknowledged += bool(mark & _ACKNOWLEDGED)
            else:
                self._blame("lost", f"A4: {partition}@{offset} was never handled")
            if event in self._in_doubt and offset < self._reopened_at.get(partition, 0):
                in_doubt_stored.add(event)
        sums.unsettled = unsettled
        sums.acknowledged_in_doubt = sums.handled - sums.acknowledged
        sums.acknowledged_publishes = len(self._receipts)
        sums.in_doubt_at_kill = len(self._in_doubt)
        sums.in_doubt_stored = len(in_doubt_stored)
        sums.publish_ms_p50, sums.publish_ms_p99 = percentiles(self._publish_us)
        sums.handled_ms_p50, sums.handled_ms_p99 = percentiles(self._handled_us)
        if unpublished := sums.events - sums.acknowledged_publishes:
            self._problem(f"A1: {unpublished:,} events were never acknowledged to their publisher")
        if missing := sums.events - len(self._seen):
            sums.lost += missing
            self._problem(f"A1: {missing:,} events are not in the log")
        if unsettled:
            self._problem(f"A4: {unsettled:,} messages are not settled")
        if sums.crashes and not sums.restarts:
            self._problem(f"{sums.crashes} partitions were made to crash and none was restarted")
        if self._problem_count > len(sums.problems):
            sums.problems.append(f"and {self._problem_count - len(sums.problems):,} problems more")
        return sums

    def _blame(self, counter: str, problem: str) -> None:
        setattr(self._sums, counter, getattr(self._sums, counter) + 1)
        self._problem(problem)

    def _problem(self, problem: str) -> None:
        self._problem_count += 1
        if len(self._sums.problems) < _PROBLEMS_NAMED_MAX:
            self._sums.problems.append(problem)


def percentiles(values_us: Sequence[int]) -> tuple[float | None, float | None]:
    """The values below which half, and 99 of 100, of the values lie, in milliseconds; None of none."""
    if not values_us:
        return None, None
    ordered = sorted(values_us)
    return ordered[len(ordered) // 2] / 1000, ordered[len(ordered) * 99 // 100] / 1000


def account_table(
    title: str, account: Account, bad_lines: int, timings: Sequence[dict[str, Any]]
) -> RenderableType:
    """The account for people."""
    counts = (
        ("events in the input", account.events, f"{bad_lines:,} bad lines left out"),
        ("published and acknowledged", account.acknowledged_publishes, "have a receipt"),
        ("publishes in doubt", account.publish_errors, "indefinite errors, repeated"),
        ("in doubt at the kill", account.in_doubt_at_kill, f"of these stored: {account.in_doubt_stored:,}"),
        ("stored", account.stored, f"of these repeated publishes: {account.stored_twice:,}"),
        ("delivered", account.delivered, "to a worker's hands"),
        ("redelivered", account.redelivered, "delivered once more"),
        ("handled", account.handled, "the work was done"),
        ("acknowledged by workers", account.acknowledged, f"in doubt: {account.acknowledged_in_doubt:,}"),
        ("lost", account.lost, ""),
        ("altered", account.altered, ""),
        ("out of order within a key", account.out_of_order, "by first appearance in the log"),
        ("delivered after its ack", account.delivered_after_acknowledgement, ""),
        ("not settled at the end", account.unsettled, ""),
        ("restarts", account.restarts, f"after {account.crashes:,} crashes of partitions"),
    )
    rows = [(name, f"{number:,}", note) for name, number, note in counts]
    for timing in timings:
        rates = f"{timing['published_per_s']:,.0f}/s published, {timing['acknowledged_per_s']:,.0f}/s acknowledged"
        rows.append((timing["act"], f"{timing['seconds']:.2f} s", rates))
    for name, middle, high in (
        ("publish to acknowledged", account.publish_ms_p50, account.publish_ms_p99),
        ("publish to handled", account.handled_ms_p50, account.handled_ms_p99),
    ):
        rows.append((name, _ms(middle), f"p99 {_ms(high)}"))
    return table(("what", "how many", "note"), rows, words=("what", "note"), title=title)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} ms"
