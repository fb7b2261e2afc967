"""What a settlement is about, checked: which offsets, after which delay, for which reason; and acks not waited for.

`GatheredAcks` joins those of one lease; `SentAck` is their command on its way to the partition, until its outcome is
known.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from callboard.actors.kernel import Reply
from callboard.actors.partition.commands import Ack, Ranges
from callboard.actors.partition.port import PartitionPort
from callboard.log import plain
from callboard.log.errors import ActorCrashed, InvalidArgument, LeaseLost
from callboard.log.plain import shown

if TYPE_CHECKING:
    from callboard.actors.partition.account import Account

SOUGHT: Final = "the group was sent elsewhere by seek or reset after the message had been delivered"
"""Why a lease is lost that a seek has ended."""
DROPPED: Final = (
    "retention dropped the message unread, as drop_unread, or a group that is not durable, allows"
)
"""Why a lease is lost whose message is gone."""
SECONDS_MAX: Final = 1_000_000_000
BATCH_MAX: Final = 100_000
REASON_CHARACTERS: Final = 200
"""Of an exception, in the reason of a nack."""


class Leased(Protocol):
    """A lease, as far as acks of it are concerned."""

    lease_id: int
    port: PartitionPort
    account: Account

    def acks_cut_off(self, ranges: Sequence[tuple[int, int]]) -> None:
        """It is unknown whether the acks of these counted."""

    def were_cut_off(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether an ack of all of these was cut off, so that the next one may be the second."""


class GatheredAcks:
    """Acks of one lease that are not sent yet; `valid` as in `SentAck`."""

    __slots__ = ("lease", "ranges", "start", "stop", "valid")

    def __init__(self, lease: Leased, valid: bool, start: int, stop: int) -> None:
        self.lease = lease
        self.valid = valid
        self.ranges: list[tuple[int, int]] = []
        """Those before the last."""
        self.start = start
        self.stop = stop

    def command(self, group_id: int) -> Ack:
        """What is sent."""
        ranges = [*self.ranges, (self.start, self.stop)]
        again = self.valid and self.lease.were_cut_off(ranges)
        return Ack(group_id, self.lease.lease_id, ranges, lazy=True, again=again)


class SentAck(NamedTuple):
    """An ack that are not awaited. `valid`: the lease had not run out when it was made, and nothing was given back."""

    port: PartitionPort
    message: Ack
    valid: bool
    reply: Reply

    def outcome(self) -> Ranges | None:
        """What of it was lost, when its reply is done. Raises what the partition refused it with.

        None: it stays unknown. The partition crashed before it answered, or the task that waited was cancelled.
        """
        if not self.reply.has_answer:
            return None
        try:
            lost: Ranges = self.reply.value().lost
        except ActorCrashed:
            return None
        return lost

    def asked_again(self) -> SentAck:
        """The same ack on its way once more. Raises like `ActorRef.ask_nowait`."""
        message = self.message._replace(again=True) if self.valid else self.message
        return self._replace(message=message, reply=self.port.ref.ask_nowait(message))


def lease_lost(
    lost: Mapping[PartitionPort, Sequence[tuple[int, int]]],
    verb: str,
    group: str,
    known: Collection[str | None],
) -> LeaseLost:
    """The error for what a receipt no longer holds. `known` are the causes, as `causes_of` returns them."""
    named = [
        f"{port.label} offset {start}" + (f" to {stop - 1}" if stop > start + 1 else "")
        for port, ranges in lost.items()
        for start, stop in ranges
    ]
    causes = [cause for cause in (SOUGHT, DROPPED) if cause in known]
    advice = ""
    if not known or None in known:
        causes.insert(
            0, "it ran out and the message was leased again, or its consumer was left, or it was settled"
        )
        advice = " If leases run out, use a longer visibility_timeout, extend(), or receive()."
    return LeaseLost(
        f"the lease on {', '.join(named[:5])}{' and more' if len(named) > 5 else ''} is lost: {', or '.join(causes)}."
        f" This {verb} had no effect on it.{advice}",
        lost=tuple([span for ranges in lost.values() for span in ranges]),
        group=group,
    )


def causes_of(account: Account, group_id: int, lease_id: int, lost: Ranges) -> set[str | None]:
    """Why a receipt does not hold these ranges any more; None among them: it ran out, or has settled them."""
    if account.was_sought(group_id, lease_id):
        return {SOUGHT}
    below = account.dropped_below(group_id)
    causes: set[str | None] = {DROPPED} if any(start < below for start, _ in lost) else set()
    return causes | {None} if any(stop > below for _, stop in lost) else causes


def loss_of(lease: Leased, group_id: int, offset: int) -> str:
    """Why a lease was lost whose message is with its handler."""
    if lease.port.is_deleted:
        return "its topic was deleted"
    if (
        cause := causes_of(lease.account, group_id, lease.lease_id, ((offset, offset + 1),)).pop()
    ) is not None:
        return cause
    return "somebody else has, or had, the message, or its group is gone"


def without(ranges: list[tuple[int, int]], offsets: list[int]) -> list[tuple[int, int]]:
    """`ranges` without `offsets`; both are sorted."""
    left: list[tuple[int, int]] = []
    place = 0
    for start, stop in ranges:
        place = bisect_left(offsets, start, place)
        while place < len(offsets) and offsets[place] < stop:
            if start < offsets[place]:
                left.append((start, offsets[place]))
            start = offsets[place] + 1
            place += 1
        if start < stop:
            left.append((start, stop))
    return left


def check_nack(
    delay: object, reason: object, *, delay_name: str = "delay"
) -> tuple[float | None, str | None]:
    """A nack's delay and reason, as plain data. Raises `InvalidArgument`."""
    seconds = None if delay is None else check_seconds(delay_name, delay)
    if reason is not None and plain.text(reason) is None:
        raise InvalidArgument(
            f"reason is {type(reason).__name__}, not text. Nothing was changed. Give str(...) of it."
        )
    return seconds, plain.text(reason)


def check_seconds(what: str, seconds: object) -> float:
    """The seconds, as plain data. Raises `InvalidArgument` unless they are a number from 0 to `SECONDS_MAX`."""
    found = plain.number(seconds)
    if found is None or not 0 <= found <= SECONDS_MAX:
        raise InvalidArgument(
            f"{what} is {shown(seconds, 40)}, not a number of seconds from 0 to {SECONDS_MAX:,} (31 years). Nothing was"
            " changed."
        )
    return found


def patience_of(timeout: object) -> float | None:
    """How long to wait, as plain data; None, as infinity, for ever. Raises `InvalidArgument`."""
    if timeout is None or plain.number(timeout) == math.inf:
        return None
    return check_seconds("timeout", timeout)


def check_batch_size(max_records: object, max_wait: object) -> tuple[int, float]:
    """What a batch holds at most, and how long it is filled, as plain data. Raises `InvalidArgument`."""
    found = plain.whole(max_records)
    if found is None or not 1 <= found <= BATCH_MAX:
        raise InvalidArgument(
            f"max_records is {shown(max_records, 40)}, not a number from 1 to {BATCH_MAX:,}. Nothing was taken."
        )
    return found, check_seconds("max_wait", max_wait)
