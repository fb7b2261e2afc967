"""Renewals: leases of running handlers are kept, lost ones are told, and partitions do not wait for each other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import trio

from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import Actor, Batch, MailboxSpec, Reply
from callboard.actors.partition.commands import Extend
from callboard.actors.timers.timer_wheel import TimerCounts, TimerWheel
from callboard.actors.timing import Timers, WheelAddress
from callboard.log.errors import ActorCrashed, GroupNotFound
from callboard.renewals import RenewedLease, RenewedLeases
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, open_system


@attrs.define
class Answers:
    """What a partition says to renewals; None: it says nothing for now."""

    kept: bool | None = True
    error: Exception | None = None
    asked: list[tuple[int, float]] = attrs.Factory(list)
    open: list[Reply] = attrs.Factory(list)
    """What it has not answered."""

    def answer(self) -> None:
        """Answer all that is open: the leases were kept."""
        for reply in self.open:
            reply.answer(True)
        self.open.clear()


class Partition(Actor[Extend]):
    """Answers renewals as it is told."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def receive_batch(self, batch: Batch[Extend]) -> None:
        """Answer, refuse, or keep silent."""
        for message, reply in batch:
            self._answers.asked.append((message.lease_id, trio.current_time()))
            assert reply is not None
            if self._answers.error is not None:
                reply.fail(self._answers.error)
            elif self._answers.kept is None:
                self._answers.open.append(reply)
            else:
                reply.answer(self._answers.kept)


@attrs.define
class Lease:
    """Its time."""

    deadline: float


@attrs.define
class Bench:
    """Two partitions, the registry, and what holders were told."""

    leases: RenewedLeases
    answers: list[Answers]
    ports: list[PartitionPort]
    lost: list[tuple[int, float]] = attrs.Factory(list)
    renewed: list[tuple[int, float]] = attrs.Factory(list)

    def lease(
        self, partition: int, lease_id: int, timeout: float = 9.0, *, beside: RenewedLease | None = None
    ) -> RenewedLease:
        """A lease that begins now, or one more message of the one `beside`."""
        now = trio.current_time()
        lease = RenewedLease(
            port=self.ports[partition],
            group_id=1,
            lease_id=lease_id,
            offset=lease_id,
            visibility_timeout=timeout,
            lease=Lease(now + timeout) if beside is None else beside.lease,
            due=now + timeout / 3 if beside is None else now,
            lost=lambda: self.lost.append((lease_id, trio.current_time())),
            renewed=lambda deadline: self.renewed.append((lease_id, deadline)),
        )
        self.leases.add(lease)
        return lease


async def on_bench(test: Any) -> None:
    """Run `test` beside two partitions."""
    clock = VirtualClock()
    wheel = WheelAddress(clock)
    leases, answers = RenewedLeases(Timers(wheel), lambda _: True), [Answers(), Answers()]
    spec = SupervisorSpec(
        name="root",
        children=(
            ChildSpec(name="timer-wheel", start=lambda: TimerWheel(TimerCounts())),
            *(
                ChildSpec(name=f"p{n}", start=lambda n=n: Partition(answers[n]), mailbox=MailboxSpec(50))
                for n in range(2)
            ),
        ),
    )
    async with open_system(spec, clock=clock, entropy=SeededEntropy(1)) as system:
        wheel.ref = system.actor("timer-wheel")
        ports = [PartitionPort("orders", "t1", n, system.actor(f"p{n}")) for n in range(2)]
        await test(Bench(leases, answers, ports))


async def test_a_hold_is_renewed_at_a_third_of_its_time(autojump_clock: Any) -> None:
    """Again and again, and no more once it is removed."""

    async def test(bench: Bench) -> None:
        lease = bench.lease(0, 7)
        await trio.sleep(10.0)
        assert bench.answers[0].asked == [(7, 3.0), (7, 6.0), (7, 9.0)]
        assert bench.renewed == [(7, 12.0), (7, 15.0), (7, 18.0)]
        bench.leases.remove(lease)
        await trio.sleep(100.0)
        assert (len(bench.answers[0].asked), bench.lost, len(bench.leases)) == (3, [], 0)

    await on_bench(test)


async def test_holds_that_are_due_soon_are_renewed_together(autojump_clock: Any) -> None:
    """Many handlers cost few wake-ups."""

    async def test(bench: Bench) -> None:
        for number in range(100):
            bench.lease(0, number + 1, timeout=90.0)
            await trio.sleep(0.01)
        await trio.sleep(60.0)
        times = {time for _, time in bench.answers[0].asked}
        assert len(bench.answers[0].asked) >= 100
        assert len(times) <= 3

    await on_bench(test)


async def test_a_lease_that_is_gone_is_told_at_once(autojump_clock: Any) -> None:
    """When the partition says so, or no longer knows the group."""

    async def test(bench: Bench) -> None:
        bench.lease(0, 1)
        bench.lease(1, 2)
        bench.answers[0].kept = False
        bench.answers[1].error = GroupNotFound("no such group", group=1)
        await trio.sleep(3.5)
        assert sorted(bench.lost) == [(1, 3.0), (2, 3.0)]
        assert len(bench.leases) == 0

    await on_bench(test)


async def test_what_renews_a_lease_for_one_message_renews_it_for_all(autojump_clock: Any) -> None:
    """Bodies of one lease do not lose it at a time that was put off for another one of them."""

    async def test(bench: Bench) -> None:
        bench.answers[0].kept = None
        first = bench.lease(0, 7)
        await trio.sleep(7.6)  # it was asked for at 3.0 s
        bench.answers[0].kept = True
        second = bench.lease(0, 7, beside=first)
        await trio.sleep(0.05)
        bench.answers[0].kept = None
        await trio.sleep(7.0)
        assert (bench.lost, first.deadline, second.deadline) == ([], 16.6, 16.6)
        await trio.sleep(5.0)
        assert [lease_id for lease_id, _ in bench.lost] == [7, 7]

    await on_bench(test)


async def test_a_partition_may_be_silent_until_the_lease_ends(autojump_clock: Any) -> None:
    """It is lost at its deadline, not before; an answer in between saves it. The question waits, and is asked once."""

    async def test(bench: Bench) -> None:
        bench.answers[0].kept = bench.answers[1].kept = None
        bench.lease(0, 1)
        bench.lease(1, 2)
        await trio.sleep(8.0)
        assert bench.lost == []
        bench.answers[1].answer()
        await trio.sleep(2.0)
        assert bench.lost == [(1, 9.0)]
        assert bench.renewed == [(2, 12.0)]
        assert bench.answers[0].asked == [(1, 3.0)]

    await on_bench(test)


async def test_a_silent_partition_delays_no_other(autojump_clock: Any) -> None:
    """Twenty holds on a partition that says nothing do not keep one on another from its renewal in time."""

    async def test(bench: Bench) -> None:
        bench.answers[0].kept = None
        for number in range(20):
            bench.lease(0, number + 1)
        bench.lease(1, 99)
        await trio.sleep(60.0)
        assert {lease for lease, _ in bench.lost} == set(range(1, 21))
        times = [time for _, time in bench.answers[1].asked]
        assert max(later - earlier for earlier, later in pairwise(times)) < 6.0

    await on_bench(test)


async def test_a_body_that_ends_while_it_is_renewed_hears_nothing_more(autojump_clock: Any) -> None:
    """The answer to a renewal that is under way finds no hold, and calls nobody."""

    async def test(bench: Bench) -> None:
        bench.answers[0].kept = None
        lease = bench.lease(0, 1)
        await trio.sleep(3.1)
        bench.leases.remove(lease)
        await trio.sleep(30.0)
        assert (bench.lost, bench.renewed) == ([], [])

    await on_bench(test)


async def test_leases_for_which_a_mailbox_has_no_room_are_asked_for_when_others_are_answered(
    autojump_clock: Any,
) -> None:
    """What ends first is asked for first; nothing is lost, and no pause passes in between."""

    async def test(bench: Bench) -> None:
        for number in range(200):
            bench.lease(0, number + 1, timeout=9.0 + number / 1000)
        await trio.sleep(3.2)
        assert len({lease_id for lease_id, _ in bench.answers[0].asked}) == 200
        assert [lease_id for lease_id, _ in bench.answers[0].asked[:50]] == list(range(1, 51))
        assert bench.lost == []

    await on_bench(test)


async def test_a_partition_that_refuses_is_asked_again(autojump_clock: Any) -> None:
    """After a pause, until it answers; what it had in hand as it crashed is no loss."""

    async def test(bench: Bench) -> None:
        bench.answers[0].error = ActorCrashed("it crashed")
        bench.lease(0, 1)
        await trio.sleep(4.0)
        bench.answers[0].error = None
        await trio.sleep(1.0)
        assert bench.answers[0].asked == [(1, 3.0), (1, 3.9), (1, 4.8)]
        assert (bench.lost, bench.renewed) == ([], [(1, 13.8)])

    await on_bench(test)


async def test_an_end_that_its_body_has_moved_is_not_put_off(autojump_clock: Any) -> None:
    """The answer to a renewal that was asked for before says nothing any more."""

    async def test(bench: Bench) -> None:
        bench.answers[0].kept = None
        lease = bench.lease(0, 1)
        await trio.sleep(3.5)
        bench.leases.move(None, lease.port, 1, trio.current_time(), 2.0)
        bench.answers[0].answer()
        assert (lease.deadline, bench.renewed) == (5.5, [])
        await trio.sleep(5.0)
        assert bench.lost == [(1, 5.5)]

    await on_bench(test)
