"""The bookkeeping of a sweep: who gets which seeds, and what is known after an interruption."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.simulations.search.sweep import Chunk, Result, Sweep, shares

SEEDS = {"shop": 100, "tree": 10}


def run(sweep: Sweep, chunk: Chunk) -> None:
    """All seeds of a chunk end well."""
    for seed in range(chunk.first, chunk.first + chunk.count):
        sweep.add(
            Result(scenario=chunk.scenario, seed=seed, faults={"PowerCut": 1}, probes={"sometimes: x": 0})
        )


@given(
    st.integers(1, 5000),
    st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0.01, 100), min_size=1, max_size=12),
)
def test_shares_add_up(seeds: int, weights: dict[str, float]) -> None:
    """Every scenario gets a seed, and all seeds are dealt out if there are enough."""
    dealt = shares(seeds, weights)
    assert set(dealt) == set(weights)
    assert min(dealt.values()) >= 1
    assert sum(dealt.values()) == max(seeds, len(weights))


def test_shares_follow_weights() -> None:
    """Twice the weight is twice the seeds; without weight there is none."""
    assert {"a": 201, "b": 101} == shares(302, {"a": 2.0, "b": 1.0, "c": 0.0})
    with pytest.raises(InvalidArgument):
        shares(10, {"a": 0.0})


def test_in_a_standard_sweep_each_has_its_least() -> None:
    """Also one that has no weight, because it takes long."""
    assert {"a": 290, "long": 10} == shares(300, {"a": 1.0, "long": 0.0}, {"a": 200, "long": 10})


def test_every_seed_is_handed_out_once() -> None:
    """Chunks cover all seeds of all scenarios, from the first seed on, none twice."""
    sweep = Sweep(SEEDS, 1_000, "code")
    handed = []
    while (chunk := sweep.next_chunk(7)) is not None:
        handed += [(chunk.scenario, seed) for seed in range(chunk.first, chunk.first + chunk.count)]
        run(sweep, chunk)
    assert sorted(handed) == sorted(
        (name, 1_000 + at) for name, count in SEEDS.items() for at in range(count)
    )
    assert sweep.is_complete
    assert sweep.faults["PowerCut"] == 110
    assert sweep.probes == {"sometimes: x": 0}


def test_scenarios_advance_together() -> None:
    """A sweep that is interrupted early has looked at every scenario."""
    sweep = Sweep({"large": 1_000, "small": 20}, 0, "code")
    first = [sweep.next_chunk(10) for _ in range(4)]
    assert {chunk.scenario for chunk in first if chunk} == {"large", "small"}


def test_an_interrupted_sweep_goes_on() -> None:
    """S1: seeds whose results were added are not handed out again; counts go on; those under way are."""
    sweep = Sweep(SEEDS, 0, "code")
    done = sweep.next_chunk(10)
    lost = sweep.next_chunk(10)
    assert done is not None
    assert lost is not None
    run(sweep, done)
    again = Sweep(SEEDS, 0, "code")
    assert again.resume(sweep.to_json().encode()) == ""
    assert again.done == sweep.done == done.count
    seen = set()
    while (chunk := again.next_chunk(10)) is not None:
        seen |= {(chunk.scenario, seed) for seed in range(chunk.first, chunk.first + chunk.count)}
        run(again, chunk)
    assert (done.scenario, done.first) not in seen
    assert (lost.scenario, lost.first) in seen
    assert again.is_complete
    assert again.faults["PowerCut"] == 110


def test_a_failed_seed_is_not_done() -> None:
    """A resumed sweep runs a seed again that failed."""
    sweep = Sweep({"shop": 3}, 0, "code")
    sweep.add(Result(scenario="shop", seed=1, promise="nothing lost"))
    again = Sweep({"shop": 3}, 0, "code")
    assert again.resume(sweep.to_json().encode()) == ""
    chunk = again.next_chunk()
    assert chunk is not None
    assert chunk.count == 3


def test_another_sweep_is_not_resumed() -> None:
    """Other seeds, other scenarios, other code, a complete sweep: each begins anew, and says why."""
    sweep = Sweep(SEEDS, 0, "code")
    stored = sweep.to_json().encode()
    for other in (Sweep(SEEDS, 1, "code"), Sweep({"shop": 100}, 0, "code"), Sweep(SEEDS, 0, "other")):
        assert other.resume(stored)
    while (chunk := sweep.next_chunk()) is not None:
        run(sweep, chunk)
    assert "complete" in Sweep(SEEDS, 0, "code").resume(sweep.to_json().encode())


def test_a_torn_state_is_tolerated() -> None:
    """Whatever part of the file is there: a reason in words, and the sweep begins anew."""
    sweep = Sweep(SEEDS, 0, "code")
    chunk = sweep.next_chunk()
    assert chunk is not None
    run(sweep, chunk)
    stored = sweep.to_json().encode()
    for end in range(len(stored) - 1):
        fresh = Sweep(SEEDS, 0, "code")
        assert fresh.resume(stored[:end])
        assert fresh.done == 0


@pytest.mark.parametrize(
    "damage",
    [
        {"scenarios": []},
        {"faults": {"PowerCut": -1}},
        {"faults": {"PowerCut": "many"}},
        {"probes": {str(number): 1 for number in range(3_000)}},
    ],
)
def test_a_state_of_another_shape_is_tolerated(damage: dict[str, object]) -> None:
    """Parts that make no sense are damage, not an error."""
    sweep = Sweep(SEEDS, 0, "code")
    data = json.loads(sweep.to_json()) | damage
    assert Sweep(SEEDS, 0, "code").resume(json.dumps(data).encode())


def test_seeds_that_are_none_of_the_sweeps_are_damage() -> None:
    """Ranges outside of the seeds, empty, or out of order, are not believed."""
    sweep = Sweep({"shop": 10}, 5, "code")
    for done in ([[0, 3]], [[5, 16]], [[9, 10], [5, 6]], [[5, 6], [6, 7]], [[7, 7]]):
        data = json.loads(sweep.to_json())
        data["scenarios"]["shop"]["done"] = done
        assert Sweep({"shop": 10}, 5, "code").resume(json.dumps(data).encode())


def test_what_is_stored_is_bounded() -> None:
    """S2: names beyond the limit are not kept."""
    sweep = Sweep({"shop": 10}, 0, "code")
    sweep.add(Result(scenario="shop", seed=0, probes={f"probe {number}": 1 for number in range(5_000)}))
    assert len(sweep.probes) == 2_000


def test_a_stopped_sweep_hands_out_nothing() -> None:
    """After `stopped`, whoever asks goes home."""
    sweep = Sweep(SEEDS, 0, "code")
    sweep.stopped = True
    assert sweep.next_chunk() is None


@pytest.mark.parametrize("time", [10**400, float("nan"), float("inf"), -1.0])
def test_a_time_that_cannot_be_is_damage(time: float) -> None:
    """No more than a count that is none: the sweep begins anew."""
    sweep = Sweep({"shop": 10}, 0, "code")
    data = json.loads(sweep.to_json())
    data["scenarios"]["shop"]["virtual_s"] = time
    assert "damaged" in Sweep({"shop": 10}, 0, "code").resume(json.dumps(data).encode())
