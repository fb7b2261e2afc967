"""Plans drawn from a seed: the same each time, within their space, and together all of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from callboard.log.errors import ConfigurationError
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import KINDS, NO_FAULTS, After, At, FaultSpace, Plan, draw_plan

WIDE = FaultSpace(
    weights=dict.fromkeys(KINDS, 1.0),
    actors=("catalog", "topics/orders/0"),
    consumers=("ann",),
    tasks=("debit",),
    paths=("", "orders"),
)


def plans(space: FaultSpace, seeds: int = 2_000) -> list[Plan]:
    """One per seed."""
    return [draw_plan(SeededEntropy(seed), space) for seed in range(seeds)]


def test_a_seed_draws_the_same_plan_each_time() -> None:
    """Nothing but the seed and the space decides."""
    assert plans(WIDE, 200) == plans(WIDE, 200)
    assert len({plan.to_cbor() for plan in plans(WIDE, 200)}) > 180


def test_every_kind_and_label_is_drawn_some_day() -> None:
    """A thousand seeds together draw every kind, and every label that the space promises and no other."""
    labels = Counter(fault.label for plan in plans(WIDE, 4_000) for fault in plan.faults)
    assert set(WIDE.kinds()) == set(KINDS)
    assert set(labels) == set(WIDE.labels())


def test_a_seed_leaves_many_kinds_out() -> None:
    """Swarm: even with many faults, a run holds only some of the kinds."""
    crowded = FaultSpace(
        weights=dict.fromkeys(KINDS, 1.0), actors=("a",), consumers=("c",), faults=(100, 100)
    )
    counts = [len({type(fault) for fault in plan.faults}) for plan in plans(crowded, 200)]
    assert max(counts) < len(KINDS)
    assert min(counts) < len(KINDS) / 3


def test_some_kinds_may_exist_in_every_run() -> None:
    """What a scenario is about exists always, and comes in nearly every plan; the others are left out as before."""
    space = FaultSpace(weights={"Rot": 4.0, "Stall": 1.0}, always=("Rot",), faults=(2, 6))
    drawn = [{fault.label for fault in plan.faults} for plan in plans(space)]
    assert sum("Rot" not in labels for labels in drawn) < 0.02 * len(drawn)
    assert 0.3 < sum("Stall" not in labels for labels in drawn) / len(drawn) < 0.9


def test_moments_and_passings_are_both_drawn() -> None:
    """Some plans hold moments only, some passings only, some both; moments stay within the horizon."""
    drawn = [{type(fault.when) for fault in plan.faults} for plan in plans(WIDE) if len(plan.faults) > 2]
    assert {At} in drawn
    assert {After} in drawn
    assert {At, After} in drawn
    times = [
        fault.when.seconds for plan in plans(WIDE) for fault in plan.faults if isinstance(fault.when, At)
    ]
    assert 0 <= min(times) < 0.1
    assert 4.9 < max(times) <= WIDE.horizon_s
    late = draw_plan(
        SeededEntropy(3), FaultSpace(weights={"KillProcess": 1}, probes={}, faults=(5, 5)), 1_000.0
    )
    assert all(isinstance(fault.when, At) for fault in late.faults)
    assert late.faults[-1].when.seconds > 100


def test_passings_stay_within_what_the_space_says() -> None:
    """A fault waits for a known probe, and no later passing than the last."""
    space = FaultSpace(probes={"publish": 7, "mine": 3})
    passings = {fault.when for plan in plans(space) for fault in plan.faults if isinstance(fault.when, After)}
    assert {(when.probe, when.count) for when in passings} == {
        *(("publish", count) for count in range(1, 8)),
        *(("mine", count) for count in range(1, 4)),
    }


def test_nothing_is_drawn_for_those_who_are_not_there() -> None:
    """Without actors and consumers, no fault concerns them; damage beyond the promise comes only when asked for."""
    names = {type(fault).__name__ for plan in plans(FaultSpace()) for fault in plan.faults}
    assert names == set(FaultSpace().kinds())
    assert names.isdisjoint({"CrashActor", "FillMailbox", "CrashConsumer", "Misdirect"})


def test_limits_and_numbers_hold() -> None:
    """No plan has more faults than said, nor more of a kind than its limit; some seeds are quiet."""
    space = FaultSpace(weights={"PowerCut": 5, "Rot": 1}, limits={"PowerCut": 2}, faults=(1, 4))
    counts = [Counter(type(fault).__name__ for fault in plan.faults) for plan in plans(space)]
    assert max(count["PowerCut"] for count in counts) == 2
    assert {count.total() for count in counts} == {0, 1, 2, 3, 4}
    assert draw_plan(SeededEntropy(1), FaultSpace(weights={})) == NO_FAULTS


def test_spans_are_kept() -> None:
    """Durations come from their span, short ones as often as long ones."""
    space = FaultSpace(weights={"KillProcess": 1}, down_s=(0.01, 100.0))
    downs: list[Any] = [fault for plan in plans(space) for fault in plan.faults]
    assert all(0.01 <= fault.down_s <= 100.0 for fault in downs)
    assert 0.3 < sum(fault.down_s < 1.0 for fault in downs) / len(downs) < 0.7


def test_a_space_names_all_its_problems() -> None:
    """Unknown kinds, verbs and numbers, and spans upside down, are told at once."""
    with pytest.raises(ConfigurationError) as caught:
        FaultSpace(
            weights={"Meteor": 1, "Rot": -1},
            always=("Stall",),
            verbs=("fly",),
            for_s=(2.0, 1.0),
            paths=(),
            times=(0, 1),
        )
    assert len(caught.value.problems) == 7


@pytest.mark.parametrize(
    "mistake",
    [
        {"actors": "user/till"},
        {"actors": ("",)},
        {"paths": ".log"},
        {"paths": ("a\x00b",)},
        {"weights": "PowerCut"},
        {"weights": {"PowerCut": "1"}},
        {"weights": {"PowerCut": float("nan")}},
        {"limits": {"PowerCut": 0.5}},
        {"faults": 3},
        {"faults": (0.0, 1.0)},
        {"for_s": (0, 1_000_000_000)},
        {"slack_bytes": (0.0, 0.0)},
        {"probes": {"disk.sync": 1_000_000_000}},
        {"probes": {"": 1}},
        {"horizon_s": None},
    ],
)
def test_what_could_make_no_fault_is_refused_at_once(mistake: dict[str, Any]) -> None:
    """Not by the seed that draws it; and a string is no tuple of its characters, which would name nobody."""
    (field,) = mistake
    with pytest.raises(ConfigurationError, match=field):
        FaultSpace(**mistake)
