"""Sweep: which seeds of which scenarios are to be run, which have been, and what was counted. Pure; stored as JSON.

Vocabulary
----------
share    how many of the sweep's seeds a scenario gets, by its weight
chunk    a few seeds of one scenario, handed to one worker at a time
identity what the sweep is about: scenarios, seeds, version and code. Another identity is another sweep

Invariants
----------
S1  A seed counts as done once a result without a failure was added, and never twice, whichever process ran it. One that
    failed is run again when the sweep is resumed.
S2  What is stored is bounded: ranges of seeds, and counters with at most `NAMES_MAX` names.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import attrs

from callboard.actors.delivery.intervals import IntervalSet
from callboard.log.errors import InvalidArgument

FORMAT: Final = 1
NAMES_MAX: Final = 2_000
SEEDS_MAX: Final = 1 << 40
FAILURES_MAX: Final = 50
CHUNK_SEEDS_MAX: Final = 50


def shares(
    seeds: int, weights: Mapping[str, float], least: Mapping[str, int] | None = None
) -> dict[str, int]:
    """`seeds` dealt out by weight: to each scenario with a weight at least one, or at least as many as `least` says."""
    floors = {name: int(weight > 0) for name, weight in weights.items()} if least is None else least
    total = sum(weights.values())
    if not total > 0:
        raise InvalidArgument("no scenario has a weight above 0. Nothing was run. Name one.")
    rest = max(0, seeds - sum(floors.values()))
    exact = {name: rest * weight / total for name, weight in weights.items()}
    dealt = {name: math.floor(share) for name, share in exact.items()}
    left = rest - sum(dealt.values())
    for name in sorted(exact, key=lambda name: (dealt[name] - exact[name], name))[:left]:
        dealt[name] += 1
    return {name: floors.get(name, 0) + dealt[name] for name in weights if floors.get(name, 0) + dealt[name]}


@attrs.frozen
class Chunk:
    """Seeds `first` to before `first + count` of a scenario."""

    scenario: str
    first: int
    count: int


@attrs.frozen(kw_only=True)
class Result:
    """How the run of one seed went."""

    scenario: str
    seed: int
    promise: str = ""
    """The broken promise; empty when the run ended well."""
    words: str = ""
    stored_in: str = ""
    """Where the failure was stored."""
    faults: Mapping[str, int] = attrs.field(factory=dict)
    probes: Mapping[str, int] = attrs.field(factory=dict)
    virtual_s: float = 0.0
    ticks: int = 0
    boots: int = 0
    events: int = 0
    """Steps of state machines, on the fast path."""


@attrs.define
class ScenarioTally:
    """One scenario of a sweep."""

    seeds: int
    done: IntervalSet = attrs.field(factory=IntervalSet)
    virtual_s: float = 0.0
    ticks: int = 0
    boots: int = 0
    events: int = 0


class Sweep:
    """A sweep on its way. `first_seed` is the first of every scenario."""

    def __init__(self, seeds: Mapping[str, int], first_seed: int, code: str) -> None:
        if any(not 0 < count <= SEEDS_MAX for count in seeds.values()) or not 0 <= first_seed <= SEEDS_MAX:
            raise InvalidArgument(f"a sweep has 1 to {SEEDS_MAX} seeds, from 0 on. Nothing was run.")
        self.first_seed = first_seed
        self.code = code
        """Version and fingerprint of the code."""
        self.tallies = {name: ScenarioTally(count) for name, count in seeds.items()}
        self.faults: Counter[str] = Counter()
        self.probes: Counter[str] = Counter()
        self.failures: list[Result] = []
        self.stopped = False
        """Nothing more is handed out."""
        self._handed = dict.fromkeys(seeds, 0)

    # -- handing out and taking back

    def next_chunk(self, sizes: int | Mapping[str, int] = CHUNK_SEEDS_MAX) -> Chunk | None:
        """Seeds that nobody has, of the scenario that lags behind most; None when there are none, or it was stopped.

        `sizes`: how many at most, or how many of each scenario.
        """
        while not self.stopped:
            open_ones = [name for name, tally in self.tallies.items() if self._handed[name] < tally.seeds]
            if not open_ones:
                return None
            name = min(open_ones, key=lambda name: self._handed[name] / self.tallies[name].seeds)
            size = sizes if isinstance(sizes, int) else sizes.get(name, CHUNK_SEEDS_MAX)
            tally, at = self.tallies[name], self._handed[name]
            first = self.first_seed + at
            count = 0
            while at < tally.seeds and count < size and not tally.done.contains(self.first_seed + at):
                at, count = at + 1, count + 1
            while at < tally.seeds and tally.done.contains(self.first_seed + at):
                at += 1
            self._handed[name] = at
            if count:
                return Chunk(name, first, count)
        return None

    def add(self, result: Result) -> None:
        """A seed was run. A failed one is not done: a resumed sweep runs it again (S1)."""
        tally = self.tallies[result.scenario]
        if tally.done.contains(result.seed):
            return
        if result.promise:
            if len(self.failures) < FAILURES_MAX:
                self.failures.append(result)
        else:
            tally.done.add(result.seed, result.seed + 1)
        for name in ("virtual_s", "ticks", "boots", "events"):
            setattr(tally, name, getattr(tally, name) + getattr(result, name))
        _count(self.faults, result.faults)
        _count(self.probes, result.probes)

    # -- looking

    @property
    def seeds(self) -> int:
        """How many seeds it has."""
        return sum(tally.seeds for tally in self.tallies.values())

    @property
    def done(self) -> int:
        """How many seeds ended well."""
        return sum(tally.done.count for tally in self.tallies.values())

    @property
    def is_complete(self) -> bool:
        """Whether every seed ended well."""
        return self.done >= self.seeds

    # -- storing

    def to_json(self) -> str:
        """The sweep as text (S2)."""
        tallies = {
            name: attrs.asdict(tally, recurse=False) | {"done": list(tally.done)}
            for name, tally in self.tallies.items()
        }
        data = {
            "callboard-sweep": FORMAT,
            "code": self.code,
            "first_seed": self.first_seed,
            "scenarios": tallies,
            "faults": self.faults,
            "probes": self.probes,
        }
        return f"{json.dumps(data)}\n"

    def resume(self, stored: bytes) -> str:
        """Take over what was stored of this very sweep. Returns in words why nothing was, empty when it was."""
        try:
            data = json.loads(stored)
            if data["callboard-sweep"] != FORMAT:
                return "it was stored in another format"
            if data["code"] != self.code:
                return "the code has changed since"
            scenarios = data["scenarios"]
            asked = {name: tally.seeds for name, tally in self.tallies.items()}
            stored_seeds = {name: found["seeds"] for name, found in scenarios.items()}
            if data["first_seed"] != self.first_seed or stored_seeds != asked:
                return "it was about other seeds or scenarios"
            tallies = {name: self._tally(found) for name, found in scenarios.items()}
            faults, probes = _counter(data["faults"]), _counter(data["probes"])
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            return "its file is damaged"
        if sum(tally.done.count for tally in tallies.values()) >= self.seeds:
            return "it was complete"
        self.tallies, self.faults, self.probes = tallies, faults, probes
        return ""

    def _tally(self, found: Mapping[str, Any]) -> ScenarioTally:
        numbers = {name: _number(found[name]) for name in ("seeds", "ticks", "boots", "events")}
        done = IntervalSet()
        for first, end in found["done"]:
            if not self.first_seed <= _number(first) < _number(end) <= self.first_seed + numbers["seeds"]:
                raise ValueError("seeds that are none of the sweep's")
            if done and first <= done.last_stop:
                raise ValueError("seeds that are not in order")
            done.put(first, end)
        virtual_s = float(found["virtual_s"])
        if not (math.isfinite(virtual_s) and virtual_s >= 0):
            raise ValueError("no time")
        return ScenarioTally(**numbers, done=done, virtual_s=virtual_s)


def _number(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("no count")
    return found


def _counter(found: Any) -> Counter[str]:
    if len(found) > NAMES_MAX:
        raise ValueError("too many names")
    return Counter({str(name): _number(count) for name, count in found.items()})


def _count(counter: Counter[str], more: Mapping[str, int]) -> None:
    """Add counts, names with none too; new names only while there are not too many (S2)."""
    for name, count in more.items():
        if name in counter or len(counter) < NAMES_MAX:
            counter[name] += count
