"""The demo's account: computed from what is in the log and what workers and publishers wrote down. Pure.

They write a line per fact, tag and numbers, in the order of facts:

    S n n ...                  these events are about to be published
    P partition o n o n ...    acknowledged: at offset o event n is stored, and so on
    W n us                     acknowledged: event n waits, and is due at that time
    E n n ...                  the publish ended in an error that leaves open whether they are stored; they are repeated
    D partition o o ...        delivered to a worker, the messages at these offsets
    X partition o              the delivered message is not what its own checksum says
    B partition o o ...        the handler hangs, with these in its hands
    F partition o ...          failed: to be delivered again, or given up when it has failed too often
    G partition o ...          given back unhandled
    J partition o ...          to be rejected
    N partition o ...          the rejection was awaited, and returned
    H partition o o ...        handled: the work is done, its acknowledgement comes next
    K partition o o ...        the acknowledgement was awaited, and returned
    C number                   the partition (or -1, the delayed forwarder, or -2, the router) was made to crash
    R number                   it was restarted by its supervisor
    O partition o              the partition ended there when the directory was opened again
    Z count                    so many delayed messages waited then
    L us us ...                time from publishing to handled, of events published by this process
    Q us                       time from publishing to acknowledged, one for each call

A line is written before what it announces and after what it reports, so that a kill at any moment leaves a record that
errs on the safe side: what was in flight counts as in doubt.

Rules it holds the run to
-------------------------
DA1  Every event is acknowledged to its publisher, and stored exactly where its receipt says.
DA2  What is stored is, byte for byte (by digest), an event of the input.
DA3  Within a key, the first appearances of events rise in the log, of those that were not delayed. A repeated publish
     may store an event twice; later appearances are counted and not judged.
DA4  Every stored message is handled by a worker at least once or is a dead letter, and settled in the end.
DA5  A message whose acknowledgement or rejection was awaited and recorded is never delivered again.
DA6  A delayed event reaches the log when it is due, not before, and no more often than it was published.
DA7  A dead letter is, byte for byte, a stored message that was not acknowledged. Each is forwarded once.
DA8  Each dead letter is redriven once, and nothing else is.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import attrs

Fact = tuple[str, list[int]]
_NUMBERS_AT_LEAST = {"P": 3} | dict.fromkeys("DXHKOWBFGJN", 2) | dict.fromkeys("SECRLQZ", 1)
_DELIVERED, _HANDLED, _ACKNOWLEDGED, _REJECTED, _REJECTED_SURELY, _DEAD = 1, 2, 4, 8, 16, 32
_MARK_OF = {
    "D": _DELIVERED,
    "H": _HANDLED,
    "K": _ACKNOWLEDGED,
    "J": _REJECTED,
    "N": _REJECTED | _REJECTED_SURELY,
}
_FLAGS: Final = 63
_LAST_AT, _PROCESS_AT = 6, 14
"""Above the flags of a mark: the last fact (its letter), and the number of the process in which it was delivered."""
_EARLY_US: Final = 20_000
"""So much a clock may be corrected while a delayed event waits."""
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
        elif line.startswith("W "):
            yield parse_line(line)[1][0]


@attrs.define(kw_only=True)
class DemoAccount:
    """The sums. It balances when `problems` is empty."""

    events: int
    acknowledged_publishes: int = 0
    stored: int = 0
    stored_twice: int = 0
    publish_errors: int = 0
    published_before_kill: int = 0
    in_doubt_at_kill: int = 0
    in_doubt_stored: int = 0
    delayed: int = 0
    delayed_at_kill: int = 0
    delayed_early: int = 0
    delivered: int = 0
    redelivered: int = 0
    redelivered_after_failure: int = 0
    redelivered_after_release: int = 0
    redelivered_after_hang: int = 0
    redelivered_after_kill: int = 0
    redelivered_otherwise: int = 0
    handled: int = 0
    acknowledged: int = 0
    acknowledged_in_doubt: int = 0
    dead_lettered: int = 0
    dead_rejected: int = 0
    dead_failed: int = 0
    redriven: int = 0
    lost: int = 0
    altered: int = 0
    out_of_order: int = 0
    delivered_after_acknowledgement: int = 0
    unsettled: int = 0
    still_delayed: int = 0
    still_dead: int = 0
    crashes: int = 0
    restarts: int = 0
    publish_ms_p50: float | None = None
    publish_ms_p99: float | None = None
    handled_ms_p50: float | None = None
    handled_ms_p99: float | None = None
    late_ms_p50: float | None = None
    late_ms_p99: float | None = None
    problems: list[str] = attrs.Factory(list)

    @property
    def balanced(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@attrs.frozen
class Left:
    """What is not done at the end of the demo."""

    unsettled: int = 0
    """Messages that the group has not settled."""
    delayed: int = 0
    """Messages that wait."""
    dead: int = 0
    """Dead letters that are not redriven."""


_NOTHING: Final = Left()


class DemoHistory:
    """Adds up what is stored and what was recorded: every record of the log first, then the dead letters, then the
    facts of each process.
    """

    def __init__(self, digests: Sequence[int], delayed: Collection[int] = ()) -> None:
        """`digests` of all input events, in the order of the input; the numbers of those that were to be `delayed`."""
        self._sums = DemoAccount(events=len(digests))
        self._digests = digests
        self._stored: dict[tuple[int, int], int | None] = {}
        """By partition and offset, the event; None is no event of the input."""
        self._marks: dict[tuple[int, int], int] = {}
        self._process = 0
        self._delayed = delayed
        self._sent_delayed: Counter[int] = Counter()
        self._stored_delayed: Counter[int] = Counter()
        self._appended_us: dict[int, int] = {}
        """When each delayed event came to the log first."""
        self._due_us: dict[int, int] = {}
        self._dead: Counter[int] = Counter()
        self._redriven: Counter[int] = Counter()
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
        self,
        partition: int,
        offset: int,
        event: int | None,
        digest: int,
        key: int | None,
        *,
        appended_us: int = 0,
        redriven: bool = False,
    ) -> None:
        """The log holds this at (partition, offset): `event` as its header names it, `digest` of key and value,
        `key` a fingerprint of the key, when it was appended, and whether a redrive did it. Partitions in any order,
        offsets rising within each.
        """
        sums, where = self._sums, f"{partition}@{offset}"
        sums.stored += 1
        if event is None or not 0 <= event < len(self._digests):
            self._stored[partition, offset] = None
            self._blame("altered", f"DA2: {where} is no event of the input")
            return
        self._stored[partition, offset] = event
        if digest != self._digests[event]:
            self._blame("altered", f"DA2: {where} is not what event {event} was")
        if redriven:
            sums.redriven += 1
            self._redriven[event] += 1
            return
        if event in self._delayed:
            self._stored_delayed[event] += 1
            self._appended_us.setdefault(event, appended_us)
        if event in self._seen:
            sums.stored_twice += 1
            return
        self._seen.add(event)
        if key is not None and event not in self._delayed:
            last = self._last_of_key.get(key, event)
            if last > event:
                self._blame("out_of_order", f"DA3: {where} holds event {event} after a later one of its key")
            self._last_of_key[key] = max(event, last)

    def add_dead(self, partition: int, offset: int, digest: int) -> None:
        """The topic of dead letters holds what was at (partition, offset), with this digest."""
        self._sums.dead_lettered += 1
        place, where = (partition, offset), f"{partition}@{offset}"
        event = self._stored.get(place)
        if event is None:
            self._problem(f"DA7: the dead letter of {where} is of no event")
            return
        mark = self._marks.get(place, 0)
        self._marks[place] = mark | _DEAD
        self._dead[event] += 1
        if mark & _DEAD:
            self._problem(f"DA7: the dead letter of {where} was forwarded twice")
        if digest != self._digests[event]:
            self._blame("altered", f"DA7: the dead letter of {where} is not what event {event} was")

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
        self._process += 1

    def _add_fact(self, fact: Fact) -> None:
        sums = self._sums
        match fact:
            case ("D" | "X" | "H" | "K" | "B" | "F" | "G" | "J" | "N") as tag, [partition, *offsets]:
                for offset in offsets:
                    self._add_message(tag, (partition, offset), f"{partition}@{offset}")
            case "P", [partition, *places]:
                for offset, event in zip(places[::2], places[1::2], strict=False):
                    self._open.discard(event)
                    if not 0 <= event < len(self._digests):
                        self._problem(f"DA1: event {event} was acknowledged and never was in the input")
                        continue
                    self._receipts.add(event)
                    if self._stored.get((partition, offset)) != event:
                        where = f"{partition}@{offset}"
                        self._blame("lost", f"DA1: event {event} was acknowledged at {where}, is not there")
            case "W", [event, due_us, *_]:
                self._open.discard(event)
                if event not in self._delayed:
                    self._problem(f"DA6: event {event} was delayed and was not to be")
                    return
                self._receipts.add(event)
                self._due_us[event] = due_us
            case "S", events:
                self._open.update(events)
                self._sent_delayed.update(event for event in events if event in self._delayed)
            case "Z", [count, *_]:
                sums.delayed_at_kill += count
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
            self._blame("lost", f"DA4: {where} was with a worker and is not in the log")
            return
        if tag == "X":
            self._blame("altered", f"DA2: {where} was altered when it reached a worker")
            return
        flags = mark & _FLAGS | _MARK_OF.get(tag, 0)
        process = mark >> _PROCESS_AT
        if tag == "D":
            self._sums.delivered += 1
            if mark & _DELIVERED:
                self._add_redelivery(chr(mark >> _LAST_AT & 255), is_later=process != self._process)
            if mark & (_ACKNOWLEDGED | _REJECTED_SURELY):
                words = f"DA5: {where} was delivered after it was settled"
                self._blame("delivered_after_acknowledgement", words)
            process = self._process
        if tag not in "KN":
            self._marks[place] = flags | ord(tag) << _LAST_AT | process << _PROCESS_AT
        else:
            self._marks[place] = mark | flags

    def _add_redelivery(self, last: str, *, is_later: bool) -> None:
        """A message came again: why, by the last report of its delivery before."""
        sums = self._sums
        sums.redelivered += 1
        if last == "F":
            sums.redelivered_after_failure += 1
        elif last == "G":
            sums.redelivered_after_release += 1
        elif is_later:
            sums.redelivered_after_kill += 1
        elif last == "B":
            sums.redelivered_after_hang += 1
        else:
            sums.redelivered_otherwise += 1

    def account(self, left: Left = _NOTHING) -> DemoAccount:
        """Add everything up, where so much is `left` undone. Call it once, at the end."""
        sums = self._sums
        in_doubt_stored = set()
        for (partition, offset), event in self._stored.items():
            if event is None:
                continue
            mark = self._marks.get((partition, offset), 0)
            if mark & _DEAD:
                sums.dead_rejected += bool(mark & _REJECTED)
                sums.dead_failed += not mark & _REJECTED
                if mark & _ACKNOWLEDGED:
                    self._problem(f"DA7: {partition}@{offset} is a dead letter and was acknowledged")
            elif mark & (_HANDLED | _ACKNOWLEDGED):
                sums.handled += 1
                sums.acknowledged += bool(mark & _ACKNOWLEDGED)
            else:
                self._blame("lost", f"DA4: {partition}@{offset} was never handled")
            if event in self._in_doubt and offset < self._reopened_at.get(partition, 0):
                in_doubt_stored.add(event)
        sums.unsettled, sums.still_delayed, sums.still_dead = left.unsettled, left.delayed, left.dead
        sums.acknowledged_in_doubt = sums.handled - sums.acknowledged
        sums.acknowledged_publishes = len(self._receipts)
        sums.in_doubt_at_kill = len(self._in_doubt)
        sums.in_doubt_stored = len(in_doubt_stored)
        sums.publish_ms_p50, sums.publish_ms_p99 = percentiles(self._publish_us)
        sums.handled_ms_p50, sums.handled_ms_p99 = percentiles(self._handled_us)
        self._judge_delays()
        self._judge_redrives()
        if unpublished := sums.events - sums.acknowledged_publishes:
            self._problem(f"DA1: {unpublished:,} events were never acknowledged to their publisher")
        if missing := sums.events - len(self._seen):
            sums.lost += missing
            self._problem(f"DA1: {missing:,} events are not in the log")
        if left.unsettled:
            self._problem(f"DA4: {left.unsettled:,} messages are not settled")
        if left.delayed:
            self._problem(f"DA6: {left.delayed:,} delayed messages still wait")
        if left.dead:
            self._problem(f"DA8: {left.dead:,} dead letters are not redriven")
        if sums.crashes and not sums.restarts:
            self._problem(f"{sums.crashes} actors were made to crash and none was restarted")
        if self._problem_count > len(sums.problems):
            sums.problems.append(f"and {self._problem_count - len(sums.problems):,} problems more")
        return sums

    def _judge_delays(self) -> None:
        sums, late_us = self._sums, []
        sums.delayed = len(self._due_us)
        for event, count in self._stored_delayed.items():
            if count > self._sent_delayed[event]:
                self._problem(f"DA6: event {event} was delayed and stored {count} times")
        for event, due_us in self._due_us.items():
            if event not in self._appended_us or self._sent_delayed[event] > 1:
                continue  # it is not there, which is reported, or it is unknown which copy was due then
            late_us.append(max(0, self._appended_us[event] - due_us))
            if self._appended_us[event] < due_us - _EARLY_US:
                early_ms = (due_us - self._appended_us[event]) / 1000
                self._blame("delayed_early", f"DA6: event {event} came {early_ms:,.0f} ms too early")
        sums.late_ms_p50, sums.late_ms_p99 = percentiles(late_us)

    def _judge_redrives(self) -> None:
        for event in sorted(self._dead.keys() | self._redriven.keys()):
            dead, redriven = self._dead[event], self._redriven[event]
            if dead != redriven:
                self._problem(
                    f"DA8: event {event} became a dead letter {dead} times, was redriven {redriven} times"
                )

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
