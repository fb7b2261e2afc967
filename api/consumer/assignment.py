"""How a consumer follows the assignment of an exclusive group: it reads its own partitions, and lets go of others'.

The coordinator changes what is assigned at any time (`Participation`). What the caller has in hand stays in its hands;
what was fetched and not taken, or is being fetched, goes back at once, so that a partition does not wait for a caller
that is busy. In a shared group a consumer reads every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from operator import is_
from typing import TYPE_CHECKING

from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    import trio

    from callboard.actors.groups.assignment import Place
    from callboard.actors.groups.participation import Participation
    from callboard.actors.kernel import Reply
    from callboard.actors.partition.commands import LeasedRecords
    from callboard.actors.partition.port import PartitionPort
    from callboard.consumer.leases import Asked, ConsumerLeases
    from callboard.consumer.notices import AwaitedPartitions
    from callboard.session import Session


class FollowsAssignment:
    """The part of a consumer that only exclusive groups need."""

    session: Session
    leases: ConsumerLeases
    let_go: Callable[[], object]
    _acts: int
    _participation: Participation
    _places: dict[PartitionPort, Place]
    _turn: trio.Lock
    _asked: Asked | None
    _late: dict[PartitionPort, Asked]
    _awaited: AwaitedPartitions[PartitionPort]

    def _activity(self) -> tuple[int, int] | None:
        """What shows whether it has stalled; None while a call, or a body that holds a lease, goes on."""
        if self._turn.locked() or self.session.renewed_leases.has_any(self.leases):
            return None
        return self._acts, self.leases.in_flight

    def _reads(self, port: PartitionPort) -> bool:
        """Whether this consumer may read the partition."""
        assigned, place = self._participation.assigned, self._places.get(port)
        return place is not None and (assigned is None or place in assigned)

    def _follow_assignment(self) -> None:
        """Let go of partitions that are another's from now on: give back what the caller has not taken."""
        if self._asked is not None and not self._reads(self._asked.port):
            self._give_up_asked()
        self._give_up_late([port for port in self._late if not self._reads(port)])
        self.let_go()
        for place in self._participation.take_ended():
            for port in [port for port, found in self._places.items() if found == place]:
                self.leases.forget_where(partial(is_, port))
                self.session.renewed_leases.lose(self.leases, port)

    def _give_up_asked(self) -> None:
        """The task that waits for the answer asks others."""
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.reply.expire()
            self._give_back_answer(asked)

    def _give_back_answer(self, asked: Asked) -> None:
        """The answer is not wanted any more."""
        asked.reply.abandon()
        leased = leased_by(asked.reply)
        lease = None if leased is None else self.leases.accept(asked.port, leased)
        if lease is not None:
            self.leases.give_back([lease.take(lease.untaken)])

    def _give_up_late(self, ports: Iterable[PartitionPort]) -> None:
        """What these partitions were asked, and did not answer in time, is for others; they are asked again.

        A task that waits for notices is woken for that: no other would come of a question that is gone.
        """
        for port in ports:
            self._give_back_answer(self._late.pop(port))
            self._awaited.noticed(port)


def leased_by(reply: Reply) -> LeasedRecords | None:
    """What a partition has answered; None for nothing, for no answer, and for an error."""
    if not reply.has_answer:
        return None
    with suppress(CallboardError):
        leased: LeasedRecords | None = reply.value()
        return leased
    return None
