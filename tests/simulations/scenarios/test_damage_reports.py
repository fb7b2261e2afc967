"""What `damaged-middle` takes for a report of damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from callboard.log.errors import LogCorrupt
from callboard.simulations.history.surviving import PartitionLeft, Surviving
from callboard.simulations.scenarios.damage_runs import PROMISE, DamagedWorkload
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import World, run

LOG = "topics/f00d/0/00000000000000000000.log"
WHOLE = "quarantine/orders-0@00000000000000000000@0@0000000000000000.log"


def in_damaged(body: Callable[[DamagedWorkload], object]) -> BaseException | None:
    """How a run fails that does `body` in a shop whose first segment is damaged, and in quarantine."""

    async def main(world: World) -> None:
        damaged = DamagedWorkload(world, Traffic(messages=0))
        world.disk.plant_file(WHOLE, b"bytes")
        world.disk.damage_budget.note("rot", [LOG], 5, 6)
        body(damaged)

    return run(main, seed=1).failure


@pytest.mark.parametrize("path", [LOG, "topics/f00d/0"])
def test_a_report_names_what_was_damaged(path: str) -> None:
    """The very file, or the very directory that it lies in."""
    assert in_damaged(lambda damaged: damaged.report(LogCorrupt("damaged", path=path))) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "topics",
        "topics/f00d",
        "topics/f00d/1",
        "topics/f00d/0/00000000000000000009.log",
        "topics/f00d/0/delivery",
    ],
)
def test_a_report_of_something_else_is_none(path: str) -> None:
    """A file beside the damaged one, a directory above it, another partition, or nothing at all."""
    failure = in_damaged(lambda damaged: damaged.report(LogCorrupt("damaged", path=path)))
    assert isinstance(failure, Violation)
    assert failure.promise == PROMISE


def test_a_segment_that_was_set_aside_whole_is_reported() -> None:
    """What lay before the first segment that is left counts as lost by damage; of another partition nothing does."""
    found: list[Surviving] = []
    left = Surviving(tuple(PartitionLeft("orders", index, start=4, end=9) for index in range(2)))
    assert in_damaged(lambda damaged: found.append(damaged.with_set_aside(left))) is None
    first, second = found[0].partitions
    assert [first.reports(offset) is not None for offset in (0, 3, 4)] == [True, True, False]
    assert second.reports(0) is None
