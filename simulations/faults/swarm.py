"""Swarm: fault plans drawn from a seed.

A search that always mixes everything a little meets some situations never: a queue only fills where nothing
empties it. So a seed first draws which kinds of faults exist at all in its run, then how often each comes, and only
then the faults (Groce et al., Swarm Testing, 2012). The space says what may be drawn; the seed decides all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs

from callboard.log.errors import join_problems
from callboard.log.seams.entropy import Entropy
from callboard.simulations.disk.survival import Survival
from callboard.simulations.faults import kinds
from callboard.simulations.faults.kinds import ERRNOS, KINDS, VERBS, Fault
from callboard.simulations.faults.plan import FAULTS_MAX, NO_FAULTS, Plan
from callboard.simulations.faults.shapes import Number, Shape, Text, WholeNumber, shapes_of, shown
from callboard.simulations.faults.when import AWAIT, PASSINGS_MAX, After, At, When

PROBES: Final[dict[str, int]] = {
    "disk.write": 200,
    "disk.sync": 100,
    "disk.sync_directory": 30,
    "disk.create": 30,
    "disk.rename": 10,
    "disk.open": 30,
    "disk.read": 50,
    "event.ActorStarted": 20,
    "publish": 200,
    "deliver": 200,
    "ack": 200,
}
"""Points that a run of the broker passes, each with the last passing that a fault may wait for."""

STEPS: Final[dict[str, int]] = {AWAIT: 200, "disk.write": 100, "disk.sync": 50}
"""Points that any program passes whose tasks wait for anything, and those of one that stores something."""

FAILING: Final = ("write", "sync", "sync_directory", "create", "open", "truncate", "rename", "unlink", "zero")
EXISTS: Final = 0.5
"""How probable it is that a kind exists in a run at all."""
QUIET: Final = 0.04
"""How probable it is that nothing goes wrong in a run: then every promise holds without an excuse."""

ACTOR_KINDS: Final = frozenset(
    name for name, kind in KINDS.items() if shapes_of(kind).get("path") == kinds.ACTOR
)

TASK_KINDS: Final = frozenset(name for name, kind in KINDS.items() if "task" in shapes_of(kind))

Span = tuple[float, float]


N = TypeVar("N", int, float)


def _pairs(value: Mapping[str, N] | tuple[tuple[str, N], ...]) -> tuple[tuple[str, N], ...]:
    return tuple(value.items()) if isinstance(value, Mapping) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(*default: Any) -> Any:
    return attrs.field(default=default, converter=_tuple)


@attrs.frozen(kw_only=True)
class FaultSpace:
    """What may go wrong in the runs of a scenario, and how often. Raises `ConfigurationError` with all problems.

    Maps may be given as such. Spans are pairs, low and high, in virtual seconds; small values come as often as large.
    """

    weights: tuple[tuple[str, float], ...] = attrs.field(
        default=tuple((name, 1.0) for name, kind in KINDS.items() if not kind.beyond), converter=_pairs
    )
    """Per kind how often it comes, compared to others: `{"PowerCut": 3, "Rot": 1}`. What is not named never comes."""
    always: tuple[str, ...] = _listed()
    """Kinds that exist in every run, for a scenario that is about them."""
    added: tuple[str, ...] = _listed()
    """Kinds that the scenario adds to a plan by itself; they are not drawn."""
    limits: tuple[tuple[str, int], ...] = attrs.field(default=(), converter=_pairs)
    """Per kind how many there are at most in a plan."""
    faults: tuple[int, int] = _listed(1, 6)
    """How many faults a plan holds."""
    horizon_s: float = 5.0
    """Faults at a moment come within so much virtual time from the beginning."""
    actors: tuple[str, ...] = _listed()
    """Paths of actors that may crash, stand still, be slow. Without any, no such fault is drawn."""
    consumers: tuple[str, ...] = _listed()
    """Names of observed consumers that may die. Without any, none does."""
    messages: tuple[str, ...] = _listed("")
    """Names of classes of messages on which actors may crash; "" is any message."""
    tasks: tuple[str, ...] = _listed()
    """Parts of the names of the program's tasks that may be cancelled, or stand still. Without any, none is."""
    paths: tuple[str, ...] = _listed("")
    """Parts of paths on the disk that disk faults may be about; "" is everything."""
    verbs: tuple[str, ...] = _listed(*FAILING)
    errnos: tuple[str, ...] = _listed("EIO", "EIO", "ENOSPC")
    """What failing verbs fail with; one that stands twice comes twice as often."""
    probes: tuple[tuple[str, int], ...] = attrs.field(default=_pairs(PROBES), converter=_pairs)
    """Points that faults may wait for, each with the last passing that is drawn. Without any, all come at moments."""
    down_s: Span = _listed(0.01, 5.0)
    for_s: Span = _listed(0.01, 5.0)
    delay_s: Span = _listed(0.001, 0.5)
    latency_s: Span = _listed(0.001, 1.0)
    busy_s: Span = _listed(0.0001, 0.05)
    jump_s: Span = _listed(1.0, 100_000.0)
    slack_bytes: tuple[int, int] = _listed(0, 65_536)
    times: tuple[int, int] = _listed(1, 5)

    def __attrs_post_init__(self) -> None:
        problems = _type_problems(self) or [
            *_value_problems(self),
            *_name_problems(self),
            *_span_problems(self),
        ]
        if problems:
            raise join_problems("FaultSpace", problems)

    def kinds(self) -> tuple[str, ...]:
        """The names of the kinds that plans from here may hold."""
        return tuple(
            name
            for name, weight in self.weights
            if weight > 0
            and dict(self.limits).get(name, 1) > 0
            and (self.actors or name not in ACTOR_KINDS)
            and (self.consumers or name != "CrashConsumer")
            and (self.tasks or name not in TASK_KINDS)
        )

    def labels(self) -> tuple[str, ...]:
        """The labels under which hits of plans from here are counted."""
        found: list[str] = []
        for name in dict.fromkeys([*self.kinds(), *self.added]):
            if name != "FailVerb":
                found.append(name)
                continue
            found += [
                f"FailVerb:{verb}:{errno}" for verb in self.verbs for errno in dict.fromkeys(self.errnos)
            ]
        return tuple(found)


LISTS: Final[dict[str, Shape]] = {
    "always": Text(),
    "added": Text(),
    "actors": Text(may_be_empty=False),
    "consumers": Text(may_be_empty=False),
    "tasks": Text(may_be_empty=False),
    "paths": Text(),
    "verbs": Text(),
    "errnos": Text(),
}
MAPS: Final[dict[str, Shape]] = {
    "weights": Number(0.0, 1e9),
    "limits": WholeNumber(0, FAULTS_MAX),
    "probes": WholeNumber(1, PASSINGS_MAX),
}
PAIRS: Final[dict[str, Shape]] = {
    "faults": WholeNumber(0, FAULTS_MAX),
    **dict.fromkeys(("down_s", "for_s", "delay_s", "latency_s", "busy_s"), kinds.SPAN),
    "jump_s": Number(0.0, kinds.JUMP_S_MAX),
    "slack_bytes": WholeNumber(0, kinds.BYTES_MAX),
    "times": kinds.COUNT,
}


def _type_problems(space: FaultSpace) -> list[str]:
    """Fields of which nothing more can be said. A string is the likely mistake: each of its characters would be one."""
    problems = []
    for name in LISTS:
        found = getattr(space, name)
        if not isinstance(found, tuple) or not all(isinstance(item, str) for item in found):
            problems.append(f"{name} must be a tuple of strings, not {shown(found)}")
    for name in MAPS:
        found = getattr(space, name)
        if not isinstance(found, tuple) or not all(
            _is_pair(item) and isinstance(item[0], str) for item in found
        ):
            problems.append(f"{name} must be a map from names to numbers, not {shown(found)}")
    return problems + [
        f"{name} must be a pair, low and high, not {shown(getattr(space, name))}"
        for name in PAIRS
        if not _is_pair(getattr(space, name))
    ]


def _is_pair(found: object) -> bool:
    return isinstance(found, tuple) and len(found) == 2


def _value_problems(space: FaultSpace) -> list[str]:
    """Values from which a draw could not make a fault."""
    held: list[tuple[str, Shape, object]] = [("horizon_s", kinds.SPAN, space.horizon_s)]
    for name, shape in (*LISTS.items(), *PAIRS.items()):
        held += [(name, shape, item) for item in getattr(space, name)]
    for name, shape in MAPS.items():
        for key, value in getattr(space, name):
            held += [
                (f"a name in {name}", Text(may_be_empty=False), key),
                (f"{name}: {key[:40]!r}", shape, value),
            ]
    problems = ((name, shape.problem(shape.read(value))) for name, shape, value in held)
    return [f"{name} {problem}" for name, problem in problems if problem is not None]


def _name_problems(space: FaultSpace) -> list[str]:
    problems = [
        f"{field} names {name!r}, which is no kind of fault"
        for field, pairs in (("weights", space.weights), ("limits", space.limits))
        for name, _ in pairs
        if name not in KINDS
    ]
    problems += [
        f"added names {name!r}, which is no kind of fault" for name in space.added if name not in KINDS
    ]
    problems += [
        f"always names {name!r}, which has no weight"
        for name in space.always
        if not dict(space.weights).get(name)
    ]
    problems += [
        f"verbs holds {verb!r}; there are {', '.join(VERBS)}" for verb in space.verbs if verb not in VERBS
    ]
    problems += [
        f"errnos holds {name!r}; there are {', '.join(ERRNOS)}" for name in space.errnos if name not in ERRNOS
    ]
    return problems + [
        f"{name} is empty" for name in ("paths", "verbs", "errnos") if not getattr(space, name)
    ]


def _span_problems(space: FaultSpace) -> list[str]:
    spans = {name: getattr(space, name) for name in PAIRS}
    return [
        f"{name} must be a pair from low to high, not {shown(span)}"
        for name, span in spans.items()
        if all(isinstance(end, int | float) for end in span) and not span[0] <= span[1]
    ]


# -- drawing ------------------------------------------------------------------------------------------------


class _Draws:
    """Draws of an entropy, within a space."""

    def __init__(self, entropy: Entropy, space: FaultSpace, horizon_s: float) -> None:
        self.space = space
        self.horizon_s = horizon_s
        self._entropy = entropy
        self._at_share = self.chance()

    def chance(self) -> float:
        return self._entropy.random()

    def bits(self, count: int) -> int:
        return self._entropy.integer(count)

    def whole(self, low: int, high: int) -> int:
        return low + int(self.chance() * (high - low + 1))

    def small(self, low: int, high: int) -> int:
        """A whole number; small ones are as likely as large ones."""
        width: float = float(high - low + 1) ** self.chance()
        return low + round(width) - 1

    def span(self, pair: Span) -> float:
        """A number with three digits; small ones are as likely as large ones."""
        low, high = max(pair[0], 1e-6), max(pair[1], 1e-6)
        return min(max(float(f"{low * (high / low) ** self.chance():.3g}"), pair[0]), pair[1])

    def one(self, choices: tuple[Any, ...]) -> Any:
        return choices[int(self.chance() * len(choices))]

    def share(self) -> float:
        """A probability: often none or all."""
        drawn = self.chance()
        return 0.0 if drawn < 0.3 else 1.0 if drawn > 0.85 else round(self.chance(), 2)

    def when(self) -> When:
        """At a moment, or at a passing: how often which, each run draws for itself."""
        if not self.space.probes or self.chance() < self._at_share:
            return At(float(f"{self.chance() * self.horizon_s:.4g}"))
        probe, last = self.one(self.space.probes)
        return After(probe, self.small(1, last))


def _survival(draws: _Draws) -> Survival:
    return Survival(
        seed=draws.bits(32),
        applied=draws.share(),
        torn=draws.share(),
        trashed=draws.share() if draws.chance() < 0.5 else 0.0,
        names=draws.share(),
        zeros=draws.chance() < 0.5,
    )


def _actor(draws: _Draws) -> str:
    return str(draws.one(draws.space.actors))


def _task(draws: _Draws) -> str:
    return str(draws.one(draws.space.tasks))


def _path(draws: _Draws) -> str:
    return str(draws.one(draws.space.paths))


def _times(draws: _Draws) -> int:
    return draws.small(*draws.space.times)


DRAWS: Final[dict[str, Callable[[_Draws, When], Fault]]] = {
    "CrashActor": lambda d, when: kinds.CrashActor(when, _actor(d)),
    "CrashInBatch": lambda d, when: kinds.CrashInBatch(when, _actor(d)),
    "CrashInRecovery": lambda d, when: kinds.CrashInRecovery(when, _actor(d), d.small(1, 30)),
    "CrashOnMessage": lambda d, when: kinds.CrashOnMessage(
        when, _actor(d), str(d.one(d.space.messages)), d.small(1, 10)
    ),
    "CrashUntilDown": lambda d, when: kinds.CrashUntilDown(when, _actor(d)),
    "PauseActor": lambda d, when: kinds.PauseActor(when, _actor(d), d.span(d.space.for_s)),
    "SlowActor": lambda d, when: kinds.SlowActor(
        when, _actor(d), d.span(d.space.delay_s), d.span(d.space.for_s)
    ),
    "DelayMailbox": lambda d, when: kinds.DelayMailbox(
        when, _actor(d), d.span(d.space.delay_s), d.span(d.space.for_s)
    ),
    "FillMailbox": lambda d, when: kinds.FillMailbox(when, _actor(d), d.span(d.space.for_s), d.small(1, 4)),
    "PowerCut": lambda d, when: kinds.PowerCut(when, _survival(d), d.span(d.space.down_s)),
    "KillProcess": lambda d, when: kinds.KillProcess(when, d.span(d.space.down_s)),
    "JumpClock": lambda d, when: kinds.JumpClock(when, d.span(d.space.jump_s) * d.one((1.0, -1.0))),
    "CrashConsumer": lambda d, when: kinds.CrashConsumer(when, str(d.one(d.space.consumers))),
    # From the start: what may have been stored is so rare that a drawn moment is nearly always after it.
    "RetryIndefinite": lambda d, when: kinds.RetryIndefinite(At(0.0), _times(d)),
    "CancelTask": lambda d, when: kinds.CancelTask(when, _task(d), d.bits(32)),
    "PauseTask": lambda d, when: kinds.PauseTask(when, _task(d), d.span(d.space.for_s)),
    "BusyLoop": lambda d, when: kinds.BusyLoop(when, d.span(d.space.busy_s)),
    "FailVerb": lambda d, when: kinds.FailVerb(
        when,
        verb=d.one(d.space.verbs),
        errno=d.one(d.space.errnos),
        path=_path(d),
        times=_times(d),
        pages=d.one(("kept", "reverted")),
        partial=d.one((0, 0, d.small(1, 4096))),
    ),
    "FailRead": lambda d, when: kinds.FailRead(when, _path(d), _times(d)),
    "ShortRead": lambda d, when: kinds.ShortRead(when, _path(d), _times(d)),
    "ShortWrite": lambda d, when: kinds.ShortWrite(when, _path(d), d.bits(32)),
    "FullDisk": lambda d, when: kinds.FullDisk(when, d.span(d.space.for_s), d.small(*d.space.slack_bytes)),
    "Rot": lambda d, when: kinds.Rot(when, _path(d), d.bits(32)),
    "Misdirect": lambda d, when: kinds.Misdirect(when, _path(d), d.bits(32)),
    "SlowDisk": lambda d, when: kinds.SlowDisk(
        when, _path(d), d.span(d.space.latency_s), d.span(d.space.for_s)
    ),
    "Stall": lambda d, when: kinds.Stall(when, _path(d), d.span(d.space.for_s)),
}
"""How each kind is drawn."""


def for_a_program(space: FaultSpace) -> FaultSpace:
    """The space for a program without observed clients: if it names no probes, faults wait for `STEPS`."""
    return attrs.evolve(space, probes=STEPS) if space.probes == _pairs(PROBES) else space


def draw_plan(entropy: Entropy, space: FaultSpace, horizon_s: float | None = None) -> Plan:
    """A plan out of `space`: the same for the same entropy. `horizon_s` takes the place of the space's own."""
    draws = _Draws(entropy, space, space.horizon_s if horizon_s is None else horizon_s)
    rates = _existing(draws)
    if not rates or (space.faults[0] <= 1 and draws.chance() < QUIET):
        return NO_FAULTS
    left = {name: dict(space.limits).get(name, FAULTS_MAX) for name in rates}
    faults: list[Fault] = []
    for _ in range(draws.whole(*space.faults)):
        rates = {name: rate for name, rate in rates.items() if left[name] > 0}
        if not rates:
            break
        name = _weighted(draws.chance(), rates)
        left[name] -= 1
        faults.append(DRAWS[name](draws, draws.when()))
    return Plan(tuple(sorted(faults, key=_moment)))


def _existing(draws: _Draws) -> dict[str, float]:
    """The kinds that exist in this run, and the rate of each."""
    weights = dict(draws.space.weights)
    names = draws.space.kinds()
    always = draws.space.always
    there = [name for name in names if name in always or draws.chance() < EXISTS] or (
        [draws.one(names)] if names else []
    )
    return {name: weights[name] * 4.0 ** (2.0 * draws.chance() - 1.0) for name in there}


def _weighted(chance: float, rates: dict[str, float]) -> str:
    point = chance * sum(rates.values())
    for name, rate in rates.items():
        point -= rate
        if point < 0:
            return name
    return name


def _moment(fault: Fault) -> tuple[int, float]:
    """Moments first, in order; then those that wait for a passing, in the order in which they were drawn."""
    return (0, fault.when.seconds) if isinstance(fault.when, At) else (1, 0.0)
