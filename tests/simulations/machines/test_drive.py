"""Driving the pure state machines: the same from the same seed, clean on this code, and telling when it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.offsets import OffsetStates
from callboard.actors.partition.queues import Sequencer
from callboard.simulations.checkers import (
    attempts,
    liveness,
    offsets,
    one_holder,
    settled_stays_settled,
    short_steps,
    supervision,
)
from callboard.simulations.faults.kinds import CrashActor, CrashConsumer, JumpClock, KillProcess, PowerCut
from callboard.simulations.faults.plan import NO_FAULTS, Plan
from callboard.simulations.faults.when import After, At
from callboard.simulations.machines import drive
from callboard.supervision.policies import RestartWindow
from callboard.supervision.roster import RosterMember

SEEDS = range(60)


def promises(events: int = 6_000) -> set[str]:
    """What a few seeds find broken."""
    return {
        run.violation.promise for seed in SEEDS if (run := drive(seed, events=events)).violation is not None
    }


def test_the_same_seed_gives_the_same() -> None:
    """Two drives of one seed have the same digest; another seed has another."""
    assert drive(7) == drive(7)
    assert drive(7).digest != drive(8).digest


@pytest.mark.parametrize("seed", range(0, 200, 8))
def test_seeds_are_clean(seed: int) -> None:
    """No rule is broken by the code as it stands, and everything is settled in the end."""
    for number in range(seed, seed + 8):
        driven = drive(number)
        assert driven.violation is None, (number, driven.violation, driven.tale)
        assert driven.settled


def test_a_plan_of_the_world_strikes_here_too() -> None:
    """Every kind that concerns the machines hits, by time and by probe."""
    plan = Plan(
        (
            CrashActor(After("disk.write", 20), "topics/orders/0"),
            PowerCut(After("ack", 300)),
            KillProcess(After("deliver", 900)),
            JumpClock(At(0.05), 3600.0),
            CrashConsumer(After("publish", 2_000), "worker-1"),
        )
    )
    hits = [drive(seed, events=20_000, plan=plan).hits for seed in range(8)]
    assert all(any(hit.get(index) for hit in hits) for index in range(len(plan.faults)))


def test_without_faults_nothing_strikes() -> None:
    """An empty plan is no plan that is drawn."""
    assert all(not drive(seed, plan=NO_FAULTS).hits for seed in range(5))


def never(*args: Any, **settings: Any) -> None:
    """Leave out what should be done."""


def forgets_acks(original: Callable[..., Any]) -> Callable[..., Any]:
    """A delivery that loses the event of each ack."""

    def ack(self: Delivery, *args: Any) -> Any:
        settlement = original(self, *args)
        self.events = [event for event in self.events if event[0] != "A"]
        return settlement

    return ack


def leases_again(original: Callable[..., Any]) -> Callable[..., Any]:
    """A delivery that hands out what is leased already."""

    def lease(self: Delivery, **arguments: Any) -> Any:
        grant = original(self, **arguments)
        if grant is None and self.offsets.lease_states:
            lease_id, held = next(iter(self.offsets.lease_states.items()))
            return held.to_lease(lease_id)
        return grant

    return lease


def does_not_count(original: Callable[..., Any]) -> Callable[..., Any]:
    """A delivery that hands out attempts as they were."""

    def make_ready(self: OffsetStates, rows: Any, tag: int) -> Any:
        return original(self, [(start, stop, 0) for start, stop, _ in rows], tag)

    return make_ready


def in_reverse(original: Callable[..., Any]) -> Callable[..., Any]:
    """A sequencer that tells publishers in another order than they came in."""

    def take(self: Sequencer, *args: Any) -> Any:
        commit = original(self, *args)
        if commit is not None:
            for part in commit.parts:
                if isinstance(part.tokens, list):
                    part.tokens.reverse()
        return commit

    return take


def all_at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """A delivery that ends all leases that have run out in one step, however many there are."""

    def expire(self: Delivery, now: float, most: int) -> Any:
        return original(self, now, 1 << 30 | most)

    return expire


def all_given_back_at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """A delivery that gives all back in one step that a consumer had, however much that is."""

    def release_some(self: Delivery, lease_ids: list[int], most: int) -> Any:
        return original(self, lease_ids, 1 << 30 | most)

    return release_some


@pytest.mark.parametrize(
    ("owner", "name", "change", "expected"),
    [
        (Delivery, "ack", forgets_acks, settled_stays_settled),
        (Delivery, "lease", leases_again, one_holder),
        (OffsetStates, "make_ready", does_not_count, attempts),
        (Sequencer, "take", in_reverse, offsets),
        (RestartWindow, "admit", lambda _: lambda *_: True, supervision),
        (OffsetStates, "promote", lambda _: never, liveness),
        (Delivery, "run_out", all_at_once, short_steps),
        (Delivery, "release_some", all_given_back_at_once, short_steps),
    ],
    ids=[
        "acks lost",
        "leased twice",
        "attempts not counted",
        "answers swapped",
        "no intensity",
        "delays for ever",
        "a long step",
        "a long release",
    ],
)
def test_a_machine_that_breaks_a_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, change: Any, expected: Any
) -> None:
    """Each rule is broken once, by a machine that is wrong in one place; some seed says which."""
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    assert expected.PROMISE in promises()


def test_a_crash_of_a_machine_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside a state machine is told like a broken rule, not raised."""
    monkeypatch.setattr(RosterMember, "goes", lambda self, event: 1 / 0)
    violation = drive(1).violation
    assert violation is not None
    assert "ZeroDivisionError" in violation.words
