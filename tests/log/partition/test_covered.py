"""Retention against what is made of the records: nothing goes that some summary does not cover, and the rest goes."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import attrs
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from callboard.log.errors import StorageError
from callboard.log.limits import OFFSET_MAX
from callboard.log.partition.retention import cover_all
from callboard.log.segments.damage_record import DAMAGES_NAME, decode
from callboard.log.segments.segment_file import base_offset_of
from callboard.log.segments.segments import Damage

MAKE: dict[str, Any] = {}
Result = TypeVar("Result")
COUNT = 3


@pytest.fixture(autouse=True)
def _worlds(make_world: Any) -> None:
    """Hypothesis cannot take function-scoped fixtures: the maker of worlds is passed by name."""
    MAKE["world"] = make_world


@attrs.define
class Summary:
    """Something that is made of records, on a disk of its own. `world` has the log."""

    world: Any
    covered_end: int = 0
    refuses: bool = False
    asked: int = 0

    async def cover(self, end: int) -> None:
        """Cover all that is visible, or nothing."""
        self.asked += 1
        if self.refuses:
            raise StorageError("the disk refuses")
        assert end <= self.world.log.visible_end
        self.covered_end = self.world.log.visible_end


def run(awaitable: Awaitable[Result]) -> Result:
    """One step of the machine."""

    async def step() -> Result:
        return await awaitable

    return trio.run(step)


class Retention(RuleBasedStateMachine):
    """A log of which little is kept, and three summaries of it besides its record of damage."""

    @initialize()
    def open(self) -> None:
        """An empty log."""
        self.world = MAKE["world"](segment_bytes=65_536, retention_bytes=65_536)
        self.settled = 0
        self.damaged = -1
        self.summaries = [Summary(self.world) for _ in range(COUNT)]
        run(self.world.open())
        self.world.disk.observer = self.observe

    def observe(self, _: str, verb: str, path: str) -> None:
        """At the moment at which a segment is unlinked, everything made of it is durable past its end."""
        base = base_offset_of(path.rpartition("/")[2])
        if verb != "unlink" or base is None or not path.endswith(".log"):
            return
        segment = next(each for each in self.world.log._segments if each.base_offset == base)
        assert segment.end_offset <= self.settled
        assert all(segment.end_offset <= each.covered_end for each in self.summaries)
        if segment.base_offset <= self.damaged < segment.end_offset:
            stored = self.world.disk.durable_files()[f"topics/t/0/{DAMAGES_NAME}"]
            assert self.damaged in [entry.damage.first_offset for entry in decode(stored)]

    @rule(batches=st.integers(6, 12), durable=st.booleans())
    def publish(self, batches: int, durable: bool) -> None:
        """Some 20 KiB a batch."""
        assert run(self.world.append(batches, 1, size=20_000, durable=durable)) is None

    @rule(part=st.sampled_from([0.3, 0.9, 1.0]))
    def settle(self, part: float) -> None:
        """The groups go on."""
        self.settled += round(part * (self.world.log.visible_end - self.settled))

    @rule(number=st.integers(0, COUNT - 1), refuses=st.booleans())
    def refuse(self, number: int, refuses: bool) -> None:
        """The disk of a summary fails, or heals."""
        self.summaries[number].refuses = refuses

    @rule(number=st.integers(0, COUNT - 1))
    def write(self, number: int) -> None:
        """A summary is written in its own time, as at a clean close."""
        self.summaries[number].covered_end = self.world.log.visible_end

    @precondition(lambda self: self.world.log.segment_count > 1)
    @rule(is_told=st.booleans())
    def damage(self, is_told: bool) -> None:
        """The oldest segment is found damaged, which is written down or not."""
        log = self.world.log
        first = log.start_offset
        damage = Damage(f"topics/t/0/{first}", 64, 65, first, first)
        self.damaged = first
        if is_told:
            run(log.record.note([damage], 0))
        else:
            log.record.add([damage], 0)

    @rule(fails=st.booleans(), part=st.sampled_from([0.5, 1.0, 1.0]))
    def settle_and_retain(self, fails: bool, part: float) -> None:
        """What most often comes together."""
        self.settle(part)
        self.retain(fails)

    @rule(fails=st.booleans())
    def retain(self, fails: bool) -> None:
        """All goes that is too much, settled and covered, once those that lack some were asked to cover it."""
        log = self.world.log
        sealed, total = list(log._segments)[:-1], log.size_bytes
        start = log.start_offset
        wanted = start
        for segment in sealed:
            if total <= 65_536 or segment.end_offset > self.settled:
                break
            total -= segment.size_bytes
            wanted = segment.end_offset
        for each in self.summaries:
            each.asked = 0
        lacking = [each for each in self.summaries if each.covered_end < wanted]
        unmet = min((each.covered_end for each in lacking if each.refuses), default=OFFSET_MAX)
        is_unwritten = fails and wanted > start and not log.record.is_stored
        if fails:
            self.world.disk.fail_next("rename", "EIO", path_contains=DAMAGES_NAME)
            if is_unwritten and log.record.covered_end < wanted:
                unmet = min(unmet, log.record.covered_end)
        expected = max(
            (each.end_offset for each in sealed if each.end_offset <= min(wanted, unmet)), default=start
        )
        try:
            run(
                log.retain(now_us=0, unsettled_from=self.settled, drop_unread=False, summaries=self.summaries)
            )
        except StorageError:
            assert unmet < OFFSET_MAX
        else:
            assert unmet == OFFSET_MAX
        finally:
            self.world.disk.faults.clear()
        assert log.start_offset == expected
        is_held = log._segments[0].end_offset > min(self.settled, unmet)
        assert log.is_over_limit == (is_held and log.size_bytes >= 65_536)
        assert [each.asked for each in self.summaries] == [int(each in lacking) for each in self.summaries]


def test_nothing_goes_that_a_summary_lacks() -> None:
    """Whatever is published, settled, damaged and refused; and what holds retention up is written for it."""
    run_state_machine_as_test(Retention, settings=settings(max_examples=150, stateful_step_count=20))


async def test_all_are_asked_although_one_refuses() -> None:
    """What covers less holds up the rest, and the first obstacle is told."""

    class World:
        """Stands for the log."""

        class log:
            """Of ten records."""

            visible_end = 10

    one, other, third = Summary(World), Summary(World, 4, refuses=True), Summary(World, 12)
    covered, failure = await cover_all([one, other, third], 10)
    assert (covered, str(failure)) == (4, "the disk refuses")
    assert (one.covered_end, one.asked, other.asked, third.asked) == (10, 1, 1, 0)
    assert await cover_all([], 7) == (7, None)
