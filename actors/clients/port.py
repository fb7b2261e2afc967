"""The port: the address of a partition, for the publishers and consumers of its topic and for other actors.

It never changes. What its partition is doing is heard from it (`account`; in the catalog, `partition_view`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from callboard.actors.kernel.failures import describe
from callboard.actors.names import label_of
from callboard.log.errors import PartitionUnavailable
from callboard.log.limits import PENDING_BYTES_MAX

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.commands import PartitionCommand

REFUSING: Final = frozenset({"stuck", "failed"})
"""States in which a partition takes nothing, and will not soon."""
REMEDIES: Final = {
    "stuck": "The disk does not answer; the partition heals by itself when it does.",
    "failed": "It crashed more often than its supervisor allows; look at `callboard tree`, then restart it.",
}


def unavailable(
    topic: str, index: int, label: str, state: str, cause: BaseException | None
) -> PartitionUnavailable:
    """The error for an operation that the state of a partition refuses."""
    why = "" if cause is None else f" ({describe(cause)})"
    error = PartitionUnavailable(
        f"partition {label} is {state}{why}. Nothing was written. {REMEDIES.get(state, 'Try again.')}",
        topic=topic,
        partition=index,
        state=state,
    )
    error.__cause__ = cause
    return error


@attrs.frozen(eq=False)
class PartitionPort:
    """One partition as its topic's users reach it."""

    topic: str
    topic_id: str
    index: int
    ref: ActorRef[PartitionCommand]
    holds: str = ""
    """What is in it besides what was published; "" for a partition of the topic itself."""
    pending_bytes: int = PENDING_BYTES_MAX
    """The credit of each client."""

    @property
    def label(self) -> str:
        """How messages name the partition, for example `orders/2`."""
        return label_of(self.topic, self.index, self.holds)
