"""Workloads have bounds: what is stored in a file fills nobody's memory."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.faults import Plan
from callboard.simulations.scenarios import SCENARIOS, draw
from callboard.simulations.scenarios.actor_workload import ActorTraffic
from callboard.simulations.scenarios.catalog_workload import Changes
from callboard.simulations.scenarios.isolation_runs import Neighbours
from callboard.simulations.scenarios.recorded_runs import RecordedRuns
from callboard.simulations.scenarios.retention_runs import RetentionTraffic
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.search.replay import case_of
from callboard.simulations.search.stored_failure import StaleFailure, StoredFailure
from callboard.simulations.search.values import to_plain

TOO_MUCH = [
    (Traffic, {"messages": 10**12}),
    (Traffic, {"messages": 10**400}),
    (Traffic, {"partitions": 10**9}),
    (Traffic, {"publishers": 10**9}),
    (Traffic, {"consumers": 10**9}),
    (Traffic, {"consumers": 5_000, "styles": ("receive",) * 3}),
    (Traffic, {"styles": ("receive",) * 10_000, "consumers": 0}),
    (Traffic, {"messages": 1, "value_bytes": 2**31}),
    (Traffic, {"messages": 1_000_000, "value_bytes": 2_000}),
    (Traffic, {"segment_bytes": 2**40}),
    (RetentionTraffic, {"readers": 10**9}),
    (RetentionTraffic, {"messages": 10**12}),
    (Changes, {"visitors": 10**9}),
    (Neighbours, {"topics": 10**9}),
    (RecordedRuns, {"publishers": 10**9}),
    (ActorTraffic, {"messages": 10**12}),
    (ActorTraffic, {"askers": 10**9}),
    (ActorTraffic, {"teams": 10**9}),
    (ActorTraffic, {"teams": 200, "workers": 200}),
]


@pytest.mark.parametrize(("kind", "fields"), TOO_MUCH)
def test_too_much_is_refused_when_it_is_made(kind: Any, fields: dict[str, Any]) -> None:
    """Each count, and what counts multiply to, is held to its bound; the error names it."""
    with pytest.raises(InvalidArgument) as caught:
        kind(**fields)
    assert any(name in str(caught.value) for name in fields)
    assert len(str(caught.value)) < 300


def test_all_that_is_too_much_is_in_one_error() -> None:
    """Whoever edits a stored workload hears of everything at once."""
    with pytest.raises(InvalidArgument, match=r"messages: 1000001, .*publishers: 10001, "):
        Traffic(messages=1_000_001, publishers=10_001)


@pytest.mark.parametrize("kind", [Traffic, RetentionTraffic, RecordedRuns, ActorTraffic])
def test_nonsense_below_is_nobodys_harm(kind: type) -> None:
    """Zero and negative counts are allowed: a scenario reads them as the least."""
    for number in (0, -1, -(10**30)):
        fields: Any = {field.name: number for field in attrs.fields(kind) if type(field.default) is int}
        assert kind(**fields).messages == number


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_stored_workload_that_asks_for_too_much_is_stale(name: str) -> None:
    """It is refused before anything is made of it, in the words of the error for a workload that does not fit."""
    workload, _ = draw(SCENARIOS[name], 1)
    stored = to_plain(workload) | {"messages": 10**12}
    stored = StoredFailure(
        scenario=name,
        seed=1,
        scheduler="",
        workload=stored,
        plan=Plan(),
        tape=None,
        hits={},
        promise="nothing lost",
        words="",
        version="",
    )
    with pytest.raises(StaleFailure, match="messages: 1000000000000, where 1,000,000 is the most"):
        case_of(stored, type(workload))
