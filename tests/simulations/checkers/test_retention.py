"""The checker of what retention drops, and of what is refused for a full topic."""

import attrs
import pytest

from callboard.log.partition.partition_log import PartitionLog
from callboard.log.segments.segments import SegmentList
from callboard.simulations.checkers import Terms, retention
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import NO_FAULTS
from callboard.simulations.scenarios import SCENARIOS, run_scenario

TERMS = Terms(retention_bytes=1_000, retention_age_s=2.0, groups=("billing",))


def drop(script, size_bytes, age_s):
    """Offsets 0 to 4 go, out of a partition of that size; the newest of them is so old."""
    wall_us = 100_000_000
    numbers = size_bytes, round(wall_us - age_s * 1e6), wall_us
    script.history.record(
        0, retention.DROPPED, "retention", 0, "orders", 0, offsets=tuple(range(5)), attempts=numbers
    )


def refuse(script, size_bytes):
    """A publish that begins now is refused, where offsets 0 and 1 are in the oldest segment."""
    script.history.record(
        0, retention.FULL, "p1", 7, "orders", 0, offsets=(0, 1), attempts=(len(script.history), size_bytes)
    )


def test_what_is_too_old_or_too_much_may_go(script, left):
    """A segment may be dropped for its age, or for the size of its partition."""
    drop(script, 1_001, 0.0)
    drop(script, 10, 2.1)
    assert retention.check(script.history, left(), TERMS) == []


def test_what_goes_before_its_time_is_found(script, left):
    """A young segment of a small partition may not be dropped."""
    drop(script, 900, 1.9)
    (found,) = retention.check(script.history, left(), TERMS)
    assert "1.9 s old" in found.words


def test_a_topic_is_full_only_when_it_is(script, left):
    """A partition that is too small, or whose oldest segment every group has settled, refuses nothing."""
    refuse(script, 1_000)
    assert retention.check(script.history, left(), TERMS) == []
    refuse(script, 500)
    script.settle(0).settle(1)
    assert (
        retention.check(script.history, left(), TERMS) == []
    )  # one operation: one of its partitions is enough
    script.history.record(
        0, retention.FULL, "p1", 8, "orders", 0, offsets=(0, 1), attempts=(len(script.history), 1_000)
    )
    (found,) = retention.check(script.history, left(), TERMS)
    assert "is full, and it was not" in found.words


@pytest.mark.parametrize("bug", ["counts on", "never drops"])
def test_retention_that_errs_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that counts what it dropped drops too much; one that keeps what is too old is found as well."""
    scenario = SCENARIOS["retention-against-readers"]
    traffic = attrs.evolve(
        scenario.workload(SeededEntropy(1)),
        messages=120,
        partitions=1,
        value_bytes=6_000,
        pause_s=0.02,
        kept_segments=2 if bug == "counts on" else 0,
        kept_s=0.0 if bug == "counts on" else 2.0,
        styles=("one by one",),
        handling_s=0.0,
        moments=0,
        closings=0,
        limits=(),
    )
    assert run_scenario(scenario, 1, plan=NO_FAULTS, workload=traffic).failure is None
    if bug == "counts on":

        def drop_first(self: SegmentList, count: int) -> None:
            del self._segments[:count], self._bases[:count]

        monkeypatch.setattr(SegmentList, "drop_first", drop_first)
    else:

        async def nothing(self: PartitionLog, **how: object) -> None:
            pass

        monkeypatch.setattr(PartitionLog, "retain", nothing)
    failure = run_scenario(scenario, 1, plan=NO_FAULTS, workload=traffic).failure
    assert getattr(failure, "promise", None) == retention.PROMISE
