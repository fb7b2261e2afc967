"""Parts: what of a publish goes to one partition in one piece, and what came of all of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from callboard.actors.partition.commands import Guard, Level, Offsets, PublishMany
from callboard.log.errors import CallboardError, PartialPublish
from callboard.message import Receipt, Receipts, StoredRange, WaitingRange, stored_ranges

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.records.delayed_records import DueTime
    from callboard.log.format.columns import Columns

Outcome = Sequence[StoredRange] | CallboardError
"""What came of a part."""


class Part(NamedTuple):
    """What of a batch goes to a partition in one piece."""

    port: PartitionPort
    """Of the partition, or of the one beside it in which delayed messages wait."""
    indexes: Sequence[int]
    """Of its messages in the batch."""
    columns: Columns
    size_bytes: int
    guard: Guard | None = None
    dues: Sequence[DueTime] | None = None
    """When its messages are due, if they wait."""

    def command(self, level: Level, client: int = 0) -> PublishMany:
        """What publishes it."""
        return PublishMany(self.columns, level, self.size_bytes, self.guard, client)

    def ranges(self, answer: int | Offsets | None) -> Sequence[StoredRange]:
        """Where it is stored, or waits, by what the partition has answered."""
        port = self.port
        if self.dues is None:
            return stored_ranges(port.index, answer, self.indexes)
        first_id = answer if isinstance(answer, int) else 0
        dues_us = [due.due_us for due in self.dues]
        return (
            WaitingRange(
                port.index, None, self.indexes, first_id=first_id, dues_us=dues_us, topic_id=port.topic_id
            ),
        )

    def receipt(self, topic: str, answer: int | Offsets | None) -> Receipt:
        """The same of its only message."""
        return next(self.ranges(answer)[0].receipts(topic))[1]


def summed_up(topic: str, parts: Sequence[Part], outcomes: Sequence[Outcome], count: int) -> Receipts:
    """The receipts of a batch of `count` from what came of its parts, or the error that says which are stored."""
    stored: list[StoredRange] = []
    errors: list[CallboardError] = []
    for outcome in outcomes:
        if isinstance(outcome, CallboardError):
            errors.append(outcome)
        else:
            stored += outcome
    if not errors:
        return Receipts(topic, count, stored)
    if len(errors) == len(outcomes) and not any(error.indefinite for error in errors):
        raise errors[0]
    fates: dict[int, Receipt | CallboardError] = {}
    for outcome, part in zip(outcomes, parts, strict=True):
        if isinstance(outcome, CallboardError):
            fates.update(dict.fromkeys(part.indexes, outcome))
        else:
            fates.update(pair for each in outcome for pair in each.receipts(topic))
    failed = sum(isinstance(fate, CallboardError) for fate in fates.values())
    raise PartialPublish(
        f"{failed} of {count} messages for topic {topic!r} are not, or not certainly, stored:"
        f" {errors[0]} `receipts` holds the fate of each; publish those that failed again.",
        receipts=tuple(fates[index] for index in range(count)),
        topic=topic,
    )
