"""Sizes of workloads: most runs are small, and some are as large as ever."""

from __future__ import annotations

from statistics import mean, median

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.scenarios import SCENARIOS, draw
from callboard.simulations.scenarios.draws import few, sized


def test_few_is_smaller_than_sized_and_reaches_both_ends() -> None:
    """On average it is about half as much; the least is drawn, and nearly the most."""
    fews, sizes = SeededEntropy(1), SeededEntropy(2)
    drawn = [few(fews, 3, 120) for _ in range(20_000)]
    assert 0.4 < mean(drawn) / mean(sized(sizes, 3, 120) for _ in range(20_000)) < 0.6
    assert min(drawn) == 3
    assert 110 < max(drawn) <= 120


def test_most_workloads_are_small_and_some_are_large() -> None:
    """The usual run has ten messages, one partition and one group at most; a few of a hundred have many."""
    workloads = [draw(SCENARIOS["publish-and-recover"], seed)[0] for seed in range(1_000)]
    assert median(workload.messages for workload in workloads) <= 10
    assert median(workload.partitions for workload in workloads) == 1
    assert median(len(workload.styles) for workload in workloads) == 1
    assert sum(workload.messages > 80 for workload in workloads) >= 5
    assert sum(workload.partitions == 3 for workload in workloads) >= 10
    assert sum(len(workload.styles) == 3 for workload in workloads) >= 10
