"""What joins the events of a recording, and whether two recordings are alike in it. Pure; `sequence` measures.

The distances of `distances` say how many events have which rate, size or key. A *row* here says how events hang
together: bursts, order, how keys come and go. A *queue* says what that does to the servers of the events.

    dispersion            variance by mean of the events in 10 ms
    autocorrelation       of the events in one second, and in the next
    same_instant          part of the events that come at the instant of the one before
    same_key              part of the events that have the key of the one before
    drift                 how far the shares of keys in a twentieth of the time are from those of the whole: the total
                          variation distance, in the mean of all events
    short_lives           of the keys with at least 10 events, the part whose events lie within a tenth of the time
    lru_hits              part of the events that find their key in a cache of a tenth of the keys, which drops the key
                          that was not used for longest
    size_by_key           part of the variance of sizes that keys explain (eta squared)
    size_autocorrelation  of the size of one event, and of the next
    compression           how many times smaller zlib makes the values, in blocks of 1,024 neighbours of a partition

Events are in the order of time, those of one instant in that of partitions and offsets. A row is None where it has no
meaning: for a clock with steps that are too coarse, without keys, or where all sizes are equal.

Each queue of `queues` is simulated at two *loads*, the part of the time in which its servers are busy: one load gives
the service time, in proportion to the recording's own rate. Where one recording has N times the rate of the other, its
queues have N times the servers, so the service times, and what a key of its own rate meets, are about the same. Where N
times the servers take from one queue, N times as many events wait for as long: depths are divided by N.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs

from callboard.simulations.workload.verdicts import RATIO_MAX, Verdict, is_near, number_text

Pairs = tuple[tuple[int, int], ...]

TOLERANCE: Final = Fraction(1, 5)
"""Rows that differ by no more of the larger one are alike."""
COMPRESSION_TOLERANCE: Final = Fraction(1, 4)
FLOOR: Final = Fraction(1, 50)
"""Parts and correlations that differ by no more are alike, however small they are."""
EVENTS_MIN: Final = 1_000
"""Recordings of fewer events are not judged here: chance alone makes such differences."""
LOADS: Final = (50, 80)
"""In percent."""
SERVERS: Final = 8
"""Of `workers`, and partitions: at the lower of two rates."""

ROWS: Final[dict[str, str]] = {
    "dispersion": "dispersion of counts in 10 ms",
    "autocorrelation": "autocorrelation of seconds, lag 1",
    "same_instant": "next event at the same instant",
    "same_key": "next event has the same key",
    "drift": "drift of key shares over 20 windows",
    "short_lives": "keys that live less than 10 % of the time",
    "lru_hits": "LRU of 10 % of the keys, hits",
    "size_by_key": "size given key, eta squared",
    "size_autocorrelation": "size, autocorrelation lag 1",
    "compression": "zlib ratio of values",
}
"""By name: what it is called."""
KINDS: Final[dict[str, str]] = {
    "consumer": "a consumer",
    "workers": f"{SERVERS} workers, order per key",
    "partitions": f"{SERVERS} partitions",
}
QUEUES: Final[dict[str, tuple[str, int]]] = {
    f"{kind}_{load}": (kind, load) for kind in KINDS for load in LOADS
}
"""By name: its kind and load."""
_NEIGHBOURS: Final = frozenset({"same_instant", "same_key", "size_autocorrelation"})
_UNBOUNDED: Final = frozenset({"dispersion", "compression"})


@attrs.frozen
class QueueFacts:
    """How the events of a recording waited in a queue: histograms of numbers as `queues.number_classes` keeps them."""

    service: int
    """Ticks that a server takes for an event."""
    waits: Pairs
    """Ticks from arrival to start."""
    depths: Pairs
    """Events that wait already when one arrives."""
    is_overloaded: bool
    times: int = 1
    """How many times the usual servers take what waits here: this many more may wait, for as long."""

    def wait(self, percent: int) -> Fraction:
        """The wait that this many percent of the events do not exceed, in service times."""
        return Fraction(quantile(self.waits, percent), self.service)

    def depth(self, percent: int) -> Fraction:
        """The depth that this many percent of the events do not exceed, for the usual number of servers."""
        return Fraction(quantile(self.depths, percent), self.times)


def quantile(pairs: Pairs, percent: int) -> int:
    """The least value that this many percent of a histogram do not exceed; 0 without any."""
    rank = sum(many for _, many in pairs) * percent
    so_far = 0
    for what, many in pairs:
        so_far += many * 100
        if so_far >= rank:
            return what
    return 0


@attrs.frozen
class Behaviour:
    """What `sequence` found in one recording. Queues are empty where all events come at one instant."""

    events: int
    rate: Fraction
    """Events per second."""
    rows: Mapping[str, Fraction | None]
    queues: Mapping[str, QueueFacts]

    def to_plain(self) -> dict[str, Any]:
        """Integers, lists and texts, for a task to hand over as JSON."""
        return {
            "events": self.events,
            "rate": self.rate.as_integer_ratio(),
            "rows": {
                name: None if value is None else value.as_integer_ratio() for name, value in self.rows.items()
            },
            "queues": {
                name: [facts.service, facts.waits, facts.depths, facts.is_overloaded, facts.times]
                for name, facts in self.queues.items()
            },
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Behaviour:
        """The same from what `to_plain` gave."""
        return cls(
            events=plain["events"],
            rate=Fraction(*plain["rate"]),
            rows={name: None if value is None else Fraction(*value) for name, value in plain["rows"].items()},
            queues={
                name: QueueFacts(service, _pairs(waits), _pairs(depths), is_overloaded, times)
                for name, (service, waits, depths, is_overloaded, times) in plain["queues"].items()
            },
        )


def _pairs(pairs: Sequence[Sequence[int]]) -> Pairs:
    return tuple((what, many) for what, many in pairs)


@attrs.frozen
class BehaviourRow:
    """One row of two recordings, judged. A value is None where it has no meaning."""

    name: str
    title: str
    values: tuple[Fraction | None, Fraction | None]
    verdict: Verdict
    note: str = ""


@attrs.frozen
class QueueRow:
    """One queue of two recordings, judged."""

    name: str
    title: str
    facts: tuple[QueueFacts, QueueFacts] | None
    verdict: Verdict
    note: str = ""
    factor: Fraction | None = None
    """The largest of the four ratios, at least 1; of waits with the service time, and of depths with one event more."""


def judge(
    first: Behaviour, second: Behaviour, unjudged: Mapping[str, str]
) -> tuple[tuple[BehaviourRow, ...], tuple[QueueRow, ...]]:
    """All rows and queues. `unjudged` names those not to judge, and why."""
    sides = first, second
    return (
        tuple(_row(name, sides, unjudged) for name in ROWS),
        tuple(_queue(name, sides, unjudged) for name in QUEUES),
    )


Sides = tuple[Behaviour, Behaviour]


def _row(name: str, sides: Sides, unjudged: Mapping[str, str]) -> BehaviourRow:
    one, two = (side.rows[name] for side in sides)
    verdict, note = _judged_row(name, one, two, sides)
    if name in unjudged:
        verdict, note = Verdict.NOT_JUDGED, unjudged[name]
    return BehaviourRow(name, ROWS[name], (one, two), verdict, note)


def _judged_row(name: str, one: Fraction | None, two: Fraction | None, sides: Sides) -> tuple[Verdict, str]:
    if one is None and two is None:
        return Verdict.NOT_JUDGED, "it has no meaning for these recordings"
    if one is None or two is None:
        which = "first" if two is None else "second"
        return Verdict.NOT_JUDGED, f"it has a meaning for the {which} recording only"
    apart, larger = abs(one - two), max(abs(one), abs(two))
    tolerance = COMPRESSION_TOLERANCE if name == "compression" else TOLERANCE
    if apart <= tolerance * larger or (name not in _UNBOUNDED and apart <= FLOOR):
        return Verdict.ALIKE, ""
    if reason := _too_few(sides):
        return Verdict.TOO_FEW, reason
    if name in _NEIGHBOURS and not is_near(*(side.rate for side in sides)):
        return Verdict.NOT_JUDGED, "at another rate, other events are neighbours"
    return Verdict.DIFFERENT, f"apart by {float(apart / larger):.0%} of the larger one"


def _too_few(sides: Sides) -> str | None:
    fewest = min(side.events for side in sides)
    return f"one has {fewest:,} events, and {EVENTS_MIN:,} are needed" if fewest < EVENTS_MIN else None


def _queue(name: str, sides: Sides, unjudged: Mapping[str, str]) -> QueueRow:
    kind, load = QUEUES[name]
    title = f"{KINDS[kind]}, {load} % load"
    if any(name not in side.queues for side in sides):
        note = "all events of a recording come at one instant"
        return QueueRow(name, title, None, Verdict.NOT_JUDGED, unjudged.get(name, note))
    facts = sides[0].queues[name], sides[1].queues[name]
    factor = None if any(each.is_overloaded for each in facts) else _factor(*facts)
    verdict, note = _judged_queue(facts, factor, sides)
    if name in unjudged:
        verdict, note = Verdict.NOT_JUDGED, unjudged[name]
    return QueueRow(name, title, facts, verdict, note, factor)


def _judged_queue(
    facts: tuple[QueueFacts, QueueFacts], factor: Fraction | None, sides: Sides
) -> tuple[Verdict, str]:
    if factor is None:
        if all(each.is_overloaded for each in facts):
            return Verdict.ALIKE, "both are overloaded"
        verdict, note = Verdict.DIFFERENT, "only one is overloaded"
    elif factor <= RATIO_MAX:
        return Verdict.ALIKE, ""
    else:
        verdict, note = Verdict.DIFFERENT, f"{number_text(factor)} times apart"
    if reason := _too_few(sides):
        return Verdict.TOO_FEW, reason
    return verdict, note


def _factor(one: QueueFacts, two: QueueFacts) -> Fraction:
    """How many times apart they are: a wait with the service time is the time that an event takes in all."""
    pairs = [(one.wait(percent), two.wait(percent)) for percent in (50, 99)]
    pairs += [(one.depth(percent), two.depth(percent)) for percent in (50, 99)]
    return max((max(pair) + 1) / (min(pair) + 1) for pair in pairs)
