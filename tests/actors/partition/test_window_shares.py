"""How partitions share the memory for record windows, pure and with the actor that grants it."""

from __future__ import annotations

from typing import Any

import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from trio.testing import wait_all_tasks_blocked

from callboard.actors.kernel import Began, Failed
from callboard.actors.partition.choice.record_window import GRANT_BYTES, RecordRange
from callboard.actors.partition.commands import WindowGranted, WindowNeeded, WindowStands
from callboard.actors.partition.openings import TurnGiver
from callboard.actors.partition.window_share import WindowShare
from callboard.actors.partition.window_shares import WindowShares
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, open_system

BYTES_MAX = 1000


def test_memory_is_granted_while_there_is_some_and_then_taken_from_those_that_asked_longest_ago() -> None:
    """They are asked one after the other; what they cannot give back is not granted."""
    shares = WindowShares(BYTES_MAX)
    for partition, wanted in ((1, 300), (2, 600)):
        shares.stands(WindowStands(partition, 0, wanted))
        assert shares.next_notice() == (partition, WindowGranted(wanted))
    shares.stands(WindowStands(3, 0, 500))
    assert shares.next_notice() == (1, WindowNeeded(400))
    assert shares.next_notice() is None
    shares.stands(WindowStands(1, 100, 0))
    assert shares.next_notice() == (2, WindowNeeded(200))
    shares.stands(WindowStands(2, 550, 0))
    assert shares.next_notice() == (3, WindowGranted(350))
    assert (shares.next_notice(), shares.granted_bytes) == (None, BYTES_MAX)
    shares.gone(2)
    shares.stands(WindowStands(3, 350, 2000))
    assert shares.next_notice() == (1, WindowNeeded(1100))
    shares.gone(1)
    assert shares.next_notice() == (3, WindowGranted(BYTES_MAX))


class SharesMachine(RuleBasedStateMachine):
    """Partitions that hold, want, give back and end, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = WindowShares(BYTES_MAX)
        self.held: dict[int, int] = {}
        self.unanswered: set[int] = set()
        self.asked: int | None = None

    @rule(partition=st.integers(0, 4), more=st.integers(1, 700))
    def want(self, partition: int, more: int) -> None:
        """A partition wants more."""
        if partition != self.asked:
            held = self.held.setdefault(partition, 0)
            self.shares.stands(WindowStands(partition, held, held + more))
            self.unanswered.add(partition)

    @rule(given=st.integers(0, 700))
    def give_back(self, given: int) -> None:
        """The partition that was asked answers, and may want some for itself."""
        if self.asked is not None:
            held = self.held[self.asked] = max(0, self.held[self.asked] - given)
            wanted = held + 1 if self.asked in self.unanswered else 0
            self.shares.stands(WindowStands(self.asked, held, wanted))
            self.asked = None

    @rule(partition=st.integers(0, 4))
    def end(self, partition: int) -> None:
        """A partition ends."""
        self.held.pop(partition, None)
        self.unanswered.discard(partition)
        self.shares.gone(partition)
        if partition == self.asked:
            self.asked = None

    @rule()
    def restart(self) -> None:
        """Another incarnation of the giver hears what all have and want."""
        self.shares, self.asked = WindowShares(BYTES_MAX), None
        for partition, held in self.held.items():
            self.shares.stands(WindowStands(partition, held, held + 1 if partition in self.unanswered else 0))

    @rule()
    def serve(self) -> None:
        """What is said is heard at once."""
        while (notice := self.shares.next_notice()) is not None:
            assert self.asked is None
            partition, message = notice
            if isinstance(message, WindowGranted):
                assert message.allowance_bytes >= self.held[partition]
                self.held[partition] = message.allowance_bytes
                self.unanswered.remove(partition)
            else:
                assert partition in self.held
                self.asked = partition
        assert self.asked is not None or not self.unanswered  # WS2

    @invariant()
    def is_within_the_budget(self) -> None:
        """Together they hold what there is (WS1)."""
        assert sum(self.held.values()) == self.shares.granted_bytes <= BYTES_MAX


TestShares = SharesMachine.TestCase


async def test_allowances_outlive_a_crash_of_their_giver(autojump_clock: Any) -> None:
    """The next incarnation hears what all have before it grants more. A partition that ends gives back everything."""
    giver = ChildSpec(name="openings", start=lambda: TurnGiver(2, 100, 3 * GRANT_BYTES))
    spec = SupervisorSpec(name="root", children=[giver])
    async with open_system(spec, clock=VirtualClock(), entropy=SeededEntropy(1)) as system:
        ref = system.actor("openings")
        shares = [WindowShare(ref) for _ in range(3)]
        ranges = [RecordRange(share.allowance, 100_000, ("key_hash",)) for share in shares]

        async def want(number: int, count: int) -> int:
            assert ranges[number].lacks_room(count)
            ranges[number].want_room(count)
            await shares[number].answered()
            return shares[number].allowance.bytes_max

        assert await want(0, 1) == GRANT_BYTES
        assert await want(1, GRANT_BYTES * 2 // 17) == GRANT_BYTES * 2 // 17 * 17
        ref.crash(ValueError("a drill"))
        assert await want(2, GRANT_BYTES // 17 + 1) == (GRANT_BYTES // 17 + 1) * 17
        await wait_all_tasks_blocked()
        actor: Any = ref._cell.incarnation._actor  # type: ignore[union-attr]
        assert actor.windows.granted_bytes == sum(share.allowance.bytes_max for share in shares)
        assert actor.windows.granted_bytes <= 3 * GRANT_BYTES
        for share in shares:
            share.end()
        await trio.sleep(1)
        assert (actor.windows.granted_bytes, actor.windows._allowances) == (0, {})


async def test_a_partition_makes_do_with_its_allowance_while_the_giver_has_failed(
    autojump_clock: Any,
) -> None:
    """Nothing waits for an answer that does not come, and nothing asks, until the giver is restarted."""
    giver = ChildSpec(name="openings", start=lambda: TurnGiver(2, 100, GRANT_BYTES))
    async with open_system(
        SupervisorSpec(name="root", children=[giver]), clock=VirtualClock(), entropy=SeededEntropy(1)
    ) as system:
        share = WindowShare(system.actor("openings"))
        records = RecordRange(share.allowance, 1000, ("key_hash",))
        records.want_room(5)
        share.hear(Failed(ValueError("crashed too often")))
        await share.answered()
        assert (records.lacks_room(5), records.room(100)) == (False, 16)
        share.hear(Began())
        assert records.lacks_room(100)
        records.want_room(100)
        await share.answered()
        assert (records.lacks_room(5), records.room(100)) == (False, 100)
        share.end()
