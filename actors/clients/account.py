"""Account: what one client knows of one partition, and has of it: its credit, what became of what it did not await, and
which leases have ended before they ran out.

A *client* is what publishes: the handles of a runtime, or an actor that moves records to other topics. It has one
account for each partition to which it publishes, and writes it alone. The account is a peer of the partition's actor
(`callboard.actors.kernel.peer`), and its number names the client in each publish. What the partition says of itself
(`StateChanged`), of the client's publishes (`Returned`), and of the leases of groups (`LeasesEnded`), comes in notices.

*Credit* is back-pressure: how many bytes a client may have at a partition that no commit has stored or refused. The
client takes bytes of it with each publish, whatever its level of acknowledgement. The partition knows from the
publishes that it has taken how much each client has there, and returns it when the commit has ended, however it ended,
and whether or not a task still waits; an incarnation that crashes returns all that it has taken. A client takes back
only what it could not send. A client that ends closes its account: nothing is returned to it, and nothing of it is
kept.

Invariants
----------
AC1  What a client has taken is on its way to the partition, in its mailbox, or held by its actor, and returned once.
     When the partition fails for good, that returns what is awaited (`Failed`), since the mailbox refuses it. What is
     not awaited stays in the mailbox, and is returned by the commit that stores it after a restart by hand.
AC2  The records that a client did not await are each stored, or counted with those that failed, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from callboard.actors.clients.budget import Budget
from callboard.actors.clients.port import REFUSING, unavailable
from callboard.actors.kernel import Failed, Peer, Terminated
from callboard.actors.partition.commands import (
    ClientNews,
    LeasesEnded,
    OpenAccount,
    Returned,
    StateChanged,
    Wanted,
)

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.partition.commands import PartitionCommand
    from callboard.log.errors import CallboardError


OPENING: Final = frozenset({"starting", "recovering", "restarting", "full"})
"""States in which the partition may wait for its turn to open, or soon will."""


class RestartWaiter(Protocol):
    """A consumer that found a partition unavailable and waits until it is back."""

    def noticed(self, partition: PartitionPort, /) -> object:
        """It is worth another look."""
        ...


class Account:
    """One client's account with one partition: its credit there, and the fate of what it did not await."""

    __slots__ = (
        "_dropped_below",
        "_first_leases",
        "_peer",
        "_waiters",
        "credit",
        "ended_some",
        "failure",
        "failures",
        "is_deleted",
        "number",
        "port",
        "ref",
        "state",
        "unawaited_bytes",
        "unawaited_error",
        "unawaited_failures",
        "unawaited_waiting",
    )

    def __init__(self, port: PartitionPort) -> None:
        self.port = port
        self.ref = port.ref
        self.credit = Budget(port.pending_bytes)
        self.state = "starting"
        """As the partition has said last."""
        self.failure: BaseException | None = None
        """What it failed with for good."""
        self.failures = 0
        """How often it has failed for good: the credit of what was awaited before is free again."""
        self.is_deleted = False
        """The partition's topic was deleted."""
        self.unawaited_waiting = 0
        """Records published with `acks="none"` of which nothing is known yet."""
        self.unawaited_bytes = 0
        """The credit that they have taken."""
        self.unawaited_failures = 0
        self.unawaited_error: BaseException | None = None
        self.ended_some = False
        """Whether leases have ended before they ran out: those of some group, or all."""
        self._first_leases: dict[int, int] = {}
        """By group's id, of those that were sought elsewhere: the first lease since then."""
        self._dropped_below: dict[int, int] = {}
        """By group's id, of those of which retention has dropped unread records: the first offset that it has left."""
        self._waiters: WeakKeyDictionary[RestartWaiter, None] | None = None
        """Held weakly: a consumer that gave up leaves nothing behind."""
        self._peer: Peer[ClientNews, PartitionCommand] = Peer(port.ref, self)
        self.number = self._peer.number
        """What names the client in its publishes."""
        self._peer.open()
        self._peer.mark(ClientNews.JOINED)

    @property
    def index(self) -> int:
        """The partition's."""
        return self.port.index

    @property
    def refuses(self) -> bool:
        """Whether the partition takes nothing, and will not soon."""
        return self.state in REFUSING

    def close(self) -> None:
        """The client has ended."""
        self._peer.close()

    def want(self) -> None:
        """A task waits for this partition: while it waits for its turn to open, it comes before those that none
        needs.
        """
        if self.state in OPENING:
            self._peer.mark(ClientNews.WANTED)

    def wait_until_back(self, waiter: RestartWaiter) -> None:
        """Have `waiter` look again when the partition runs again, or is deleted."""
        if self._waiters is None:
            self._waiters = WeakKeyDictionary()
        self._waiters[waiter] = None

    def _wake_waiters(self) -> None:
        """The partition is back, or gone for good: notify all that still wait, and forget them."""
        waiters, self._waiters = self._waiters, None
        for waiter in list(waiters or ()):
            waiter.noticed(self.port)

    def topic_deleted(self) -> None:
        """The catalog has said so to the client."""
        self.is_deleted = self.ended_some = True
        self._wake_waiters()

    def unavailable(self) -> CallboardError:
        """The error for an operation that the partition's state refuses."""
        port, cause = self.port, self.failure if self.state == "failed" else None
        return unavailable(port.topic, port.index, port.label, self.state, cause)

    # -- leases that have ended before they ran out

    def was_sought(self, group_id: int, lease_id: int) -> bool:
        """Whether the group was sent elsewhere, by seek or reset, after that lease was given: it ended with that."""
        return lease_id < self._first_leases.get(group_id, 0)

    def dropped_below(self, group_id: int) -> int:
        """Below this offset retention has dropped what the group had not settled: its leases there ended with that."""
        return self._dropped_below.get(group_id, 0)

    def _leases_ended(self, group_id: int, first_lease: int, start_offset: int) -> None:
        for known, value in ((self._first_leases, first_lease), (self._dropped_below, start_offset)):
            known.pop(group_id, None)
            if value:
                known[group_id] = value
        self.ended_some = self.is_deleted or bool(self._first_leases or self._dropped_below)

    # -- records that are not awaited

    def unawaited_begun(self, records: int, size_bytes: int) -> None:
        """This many records that are not awaited, for which credit was taken, are on their way."""
        self.unawaited_waiting += records
        self.unawaited_bytes += size_bytes

    def unawaited_ended(self, records: int, size_bytes: int, error: BaseException | None = None) -> None:
        """This many records that are not awaited are stored, or failed with `error`."""
        self.unawaited_waiting -= records
        self.unawaited_bytes -= size_bytes
        if error is not None and records:
            self.unawaited_failures += records
            self.unawaited_error = self.unawaited_error or error

    def give_up_unawaited(self) -> None:
        """The partition has ended: what it never answered is not stored, or may not be."""
        self.unawaited_ended(self.unawaited_waiting, self.unawaited_bytes, self.unavailable())

    def take_unawaited(self) -> tuple[int, BaseException | None]:
        """The failures since the last call."""
        taken = self.unawaited_failures, self.unawaited_error
        self.unawaited_failures, self.unawaited_error = 0, None
        return taken

    # -- to the partition, and from it

    def compose(self, news: ClientNews) -> PartitionCommand:
        """What there is to say."""
        return Wanted() if news is ClientNews.WANTED else OpenAccount(self.number)

    def hear(self, message: object) -> None:
        """The partition says this."""
        match message:
            case Returned(size_bytes, records, unawaited_bytes, error):
                if records:
                    self.unawaited_ended(records, unawaited_bytes, error)
                self.credit.give_back(size_bytes)
            case StateChanged(state):
                self.state = state
                if state in REFUSING:
                    self.credit.interrupt()
                elif state == "recovering" and self.credit.waiting_bytes:
                    self._peer.mark(ClientNews.WANTED)
                elif state == "running":
                    self._wake_waiters()
            case LeasesEnded(group_id, first_lease, start_offset):
                self._leases_ended(group_id, first_lease, start_offset)
            case Failed(cause):
                self.state, self.failure = "failed", cause
                self.failures += 1
                self.credit.interrupt()
                self.credit.give_back(self.credit.waiting_bytes - self.unawaited_bytes)
            case Terminated():
                self.credit.interrupt()
                self.credit.clear()
