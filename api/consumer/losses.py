"""Why a lease was lost, in words, and the errors that say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from callboard.log.errors import CallboardError, LeaseLost, RuntimeClosed, TopicNotFound

if TYPE_CHECKING:
    from callboard.actors.clients.account import Account
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.partition.commands import Ranges
    from callboard.session import Session

SOUGHT: Final = "the group was sent elsewhere by seek or reset after the message had been delivered"
"""Why a lease is lost that a seek has ended."""
DROPPED: Final = (
    "retention dropped the message unread, as drop_unread, or a group that is not durable, allows"
)
"""Why a lease is lost whose message is gone."""


class Leased(Protocol):
    """A lease, as far as its loss is concerned."""

    lease_id: int
    port: PartitionPort
    account: Account


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
    if lease.account.is_deleted:
        return "its topic was deleted"
    if (
        cause := causes_of(lease.account, group_id, lease.lease_id, ((offset, offset + 1),)).pop()
    ) is not None:
        return cause
    return "somebody else has, or had, the message, or its group is gone"


def cannot_settle(session: Session, port: PartitionPort) -> CallboardError:
    """The error for a settlement when the partition has ended for good."""
    if not session.mirror.is_live(port):
        return TopicNotFound(
            f"topic {port.topic!r} was deleted; its messages can no longer be settled.", topic=port.topic
        )
    return RuntimeClosed("the runtime is closed. Open it again.")
