"""Records that are for one group only: those that were redriven to the group they failed in. Pure.

Such a record has a header that names the group's id, and comes from a producer as redriving makes one for each letter.
Every other group settles it, as filtered, when it is read for one of its consumers. The header alone says nothing: a
handler may pass on the headers of what it was delivered. Looking costs a search in the names of a batch's headers, and
nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callboard.actors.delivery.receipts import OffsetRange
from callboard.actors.partition.choice.expiry import without
from callboard.actors.source_ids import FOR_GROUP, REDRIVE_EPOCH
from callboard.log.format.columns import Columns

NAME: Final = FOR_GROUP.encode()


def may_be_addressed(batches: Sequence[Columns]) -> bool:
    """Whether a record of these may be for one group only."""
    return any(
        batch.producers is not None and batch.header_names is not None and NAME in bytes(batch.header_names)
        for batch in batches
    )


def addressed_to(batches: Sequence[Columns], group_id: int) -> tuple[list[Columns], list[OffsetRange]]:
    """What of `batches` this group is delivered, and the offsets of the rest, sorted."""

    def for_others(columns: Columns) -> list[int]:
        if not may_be_addressed((columns,)):
            return []
        told = [headers.get(FOR_GROUP) for headers in columns.header_list()]
        others = [index for index, found in enumerate(told) if found not in (None, b"%d" % group_id)]
        return [index for index in others if _is_redriven(columns, index)]

    return without(batches, for_others)


def _is_redriven(columns: Columns, index: int) -> bool:
    producer = columns.producer(index)
    return producer is not None and producer[1] == REDRIVE_EPOCH
