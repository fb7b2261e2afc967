"""What a program of actors is, as plain data: teams of actors under supervisors, and what its clients do with them.

Names are such that folders made from them could meet. What a team allows itself (intensity, period, delays) is drawn so
that backoffs grow and begin anew, and limits are reached and missed, in runs of seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import attrs

from callboard.actors.kernel import WHEN_FULL, ActorStart, MailboxSpec
from callboard.log.limits import Limits
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    COUNT_MAX,
    NAMES_MAX,
    DrawnLimits,
    between,
    check_counts,
    draw_limits,
    limits_of,
    one_of,
)
from callboard.supervision import Backoff, ChildSpec, SupervisorSpec

STRATEGIES: Final = ("one_for_one", "one_for_all", "rest_for_one")
KINDS: Final = ("plain", "batch", "function", "durable", "durable")
NAMES: Final = ("first", "first ", "first%20", "zweiter", "zwëiter")
UNLIMITED: Final = -2
"""An intensity that is never exceeded."""
INHERITED: Final = -1
"""The intensity of the supervisor."""
LIMITS: Final = (
    "mailbox",
    "receive_batch",
    "journal_segment_bytes",
    "journal_reserve_bytes",
    "journal_unproven_bytes",
)
TEAM_BACKOFF_S: Final = 0.001
"""A team comes back later than it ended: in a history the two are distinct."""

Make = Callable[[str, "ActorPlan"], ActorStart]
"""What starts the actor at a path."""


@attrs.frozen(kw_only=True)
class ActorPlan:
    """One actor."""

    kind: str = "plain"
    restart: str = "permanent"
    capacity: int = 1000
    when_full: str = "wait"
    retry_in_hand: int = 0
    initial_s: float = 0.01
    maximum_s: float = 0.1
    factor: float = 2.0
    jitter: float = 0.0
    significant: bool = True
    intensity: int = INHERITED
    grace_s: float = 5.0
    awaited: bool = True
    starting_s: float = 0.0
    stopping_s: float = 0.0
    snapshot_every: int = 1000


@attrs.frozen(kw_only=True)
class TeamPlan:
    """A supervisor of actors."""

    strategy: str = "one_for_one"
    intensity: int = 5
    period_s: float = 10.0
    significant: bool = True
    actors: tuple[ActorPlan, ...] = (ActorPlan(),)


@attrs.frozen(kw_only=True)
class ProgramTraffic:
    """A workload: a tree of two levels, and its clients."""

    strategy: str = "one_for_one"
    intensity: int = 3
    period_s: float = 5.0
    teams: tuple[TeamPlan, ...] = (TeamPlan(),)
    clients: int = 3
    messages: int = 100
    pause_s: float = 0.02
    """Between two things that a client does."""
    handling_s: float = 0.0
    crash_every: int = 0
    """Every n-th message makes its actor crash; 0 for none."""
    stop_every: int = 0
    """Every n-th message makes its actor stop itself; 0 for none."""
    bad_start_every: int = 0
    """Every n-th life of an actor ends before it is ready; 0 for none."""
    calls_every: int = 0
    """Every n-th thing that a client does is no message, but a call to the supervisor or an actor's end."""
    quiet_every: int = 0
    """After every n-th thing a client rests for longer than any period; 0 for never."""
    burst: int = 0
    """How many questions a client asks at once, in each session, of one actor, to be answered later."""
    disk_s: float = 0.0
    """How long the disk takes for each plan."""
    sessions: int = 1
    """How often the tree is closed and opened again while clients work."""
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            "ProgramTraffic",
            {
                "teams": (len(self.teams), NAMES_MAX),
                "actors": (sum(len(team.actors) for team in self.teams), ACTORS_MAX),
                "clients": (self.clients, ACTORS_MAX),
                "messages": (self.messages, COUNT_MAX),
                "burst": (self.burst, COUNT_MAX),
                "intensity": (self.intensity, 1_000),
                "sessions": (self.sessions, 1_000),
            },
        )
        limits_of(self.limits)


def name_of(number: int) -> str:
    """The name of an actor in its team."""
    return NAMES[number] if number < len(NAMES) else f"actor-{number}"


def spec_of(traffic: ProgramTraffic, make: Make, limits: Limits) -> SupervisorSpec:
    """The tree as supervision knows it."""
    teams = []
    for number, team in enumerate(traffic.teams):
        children = tuple(
            child_spec(f"team-{number}/{name_of(index)}", actor, team, make, limits)
            for index, actor in enumerate(team.actors)
        )
        teams.append(
            SupervisorSpec(
                name=f"team-{number}",
                strategy=team.strategy,  # type: ignore[arg-type]
                intensity=max(0, team.intensity),
                period=max(0.1, team.period_s),
                significant=team.significant,
                backoff=Backoff(initial=TEAM_BACKOFF_S, maximum=0.05),
                children=children,
            )
        )
    return SupervisorSpec(
        name="program",
        strategy=traffic.strategy,  # type: ignore[arg-type]
        intensity=max(0, traffic.intensity),
        period=max(0.5, traffic.period_s),
        children=tuple(teams),
    )


def child_spec(path: str, actor: ActorPlan, team: TeamPlan, make: Make, limits: Limits) -> ChildSpec:
    """One actor as supervision knows it."""
    initial_s = max(0.001, actor.initial_s)
    intensity: float | None = None
    if not actor.significant and actor.intensity != INHERITED:
        intensity = math.inf if actor.intensity == UNLIMITED else max(0, actor.intensity)
    return ChildSpec(
        name=path.rpartition("/")[2],
        start=make(path, actor),
        restart=actor.restart,  # type: ignore[arg-type]
        shutdown_grace=max(0.0, actor.grace_s),
        mailbox=MailboxSpec(
            capacity=max(1, min(actor.capacity, limits.mailbox)),
            when_full=actor.when_full,  # type: ignore[arg-type]
        ),
        significant=actor.significant,
        intensity=intensity,
        awaited=actor.awaited or team.strategy != "one_for_one",
        retry_in_hand=max(0, actor.retry_in_hand),
        backoff=Backoff(
            initial=initial_s,
            maximum=max(initial_s, actor.maximum_s),
            factor=max(1.0, actor.factor),
            jitter=min(1.0, max(0.0, actor.jitter)),
        ),
    )


def draw_actor(entropy: SeededEntropy, team: dict[str, Any]) -> ActorPlan:
    """Any actor that fits into the team."""
    intensity = one_of(entropy, (INHERITED, UNLIMITED, 0, 2))
    # A backoff with which an intensity can never be exceeded is refused.
    longest_s = team["period_s"] / (2 * max(1, team["intensity"], intensity))
    initial_s = min(one_of(entropy, (0.01, 0.001, 0.03)), longest_s)
    maximum_s = min(max(initial_s, one_of(entropy, (0.1, 0.02, 0.04))), longest_s)
    return ActorPlan(
        kind=one_of(entropy, KINDS),
        restart=one_of(entropy, ("permanent", "permanent", "permanent", "transient", "temporary")),
        capacity=one_of(entropy, (1000, 1, 2, 5)),
        when_full=one_of(entropy, ("wait", "wait", *WHEN_FULL)),
        retry_in_hand=one_of(entropy, (0, 0, 1, 2)),
        initial_s=initial_s,
        maximum_s=maximum_s,
        factor=one_of(entropy, (2.0, 1.0, 3.0)),
        jitter=one_of(entropy, (0.0, 0.1, 0.5)),
        significant=one_of(entropy, (True, False)),
        intensity=intensity,
        grace_s=one_of(entropy, (5.0, 0.05, 0.0)),
        awaited=one_of(entropy, (True, True, False)),
        starting_s=one_of(entropy, (0.0, 0.001, 0.005)),
        stopping_s=one_of(entropy, (0.0, 0.001, 0.1)),
        snapshot_every=one_of(entropy, (1000, 1, 3, 7)),
    )


def draw_program(entropy: SeededEntropy) -> ProgramTraffic:
    """Any program."""
    teams = []
    for _ in range(between(entropy, 1, 3)):
        team: dict[str, Any] = {
            "strategy": one_of(entropy, STRATEGIES),
            "intensity": between(entropy, 0, 4),
            "period_s": one_of(entropy, (0.3, 1.0, 3.0)),
            "significant": one_of(entropy, (True, True, False)),
        }
        actors = tuple(draw_actor(entropy, team) for _ in range(between(entropy, 1, 4)))
        teams.append(TeamPlan(**team, actors=actors))
    return ProgramTraffic(
        strategy=one_of(entropy, ("one_for_one", "one_for_one", *STRATEGIES)),
        intensity=between(entropy, 1, 4),
        period_s=one_of(entropy, (5.0, 1.0)),
        teams=tuple(teams),
        clients=between(entropy, 1, 5),
        messages=between(entropy, 40, 160),
        pause_s=one_of(entropy, (0.0, 0.005, 0.05)),
        handling_s=one_of(entropy, (0.0, 0.001, 0.03)),
        crash_every=one_of(entropy, (0, 30, 10, 4)),
        stop_every=one_of(entropy, (0, 0, 23)),
        bad_start_every=one_of(entropy, (0, 0, 3)),
        calls_every=one_of(entropy, (0, 17, 7)),
        quiet_every=one_of(entropy, (0, 11)),
        burst=one_of(entropy, (0, 0, 0, 0, 0, 90)),
        disk_s=one_of(entropy, (0.0, 0.0, 0.002, 0.03)),
        sessions=between(entropy, 1, 3),
        limits=draw_limits(entropy.fork("limits"), LIMITS),
    )
