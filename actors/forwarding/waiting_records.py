"""The records of what waits: as many of the first as fit into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from callboard.actors.clients.calls import record_in
from callboard.actors.partition import commands as c
from callboard.log.limits import MIB, READ_BYTES_DEFAULT

if TYPE_CHECKING:
    from callboard.actors.clients.calls import PartitionCalls
    from callboard.actors.clients.port import PartitionPort
    from callboard.log.format.columns import Columns

AT_A_TIME: Final = 256
BYTES_AT_A_TIME: Final = 4 * MIB
"""Records in one batch, or fewer: the last one begins within these bytes."""


class Place(NamedTuple):
    """Where a record is: the columns that hold it, and its index in them."""

    columns: Columns
    at: int


class Waits(Protocol):
    """What waits: an entry of an outbox, a dead letter, a delayed record that is set aside."""

    @property
    def offset(self) -> int:
        """Where its record is."""


W = TypeVar("W", bound=Waits)


async def first_records(
    calls: PartitionCalls, port: PartitionPort, waiting: Sequence[W], *, read_ahead: bool = True
) -> list[tuple[W, Place | None]]:
    """The first of these with their records; None in place of a record that is not there, and never will be.

    With `read_ahead`, one read gives the records of all that are neighbours.
    """
    found: list[tuple[W, Place | None]] = []
    batches: Sequence[Columns] = ()
    left_bytes = BYTES_AT_A_TIME
    for at, each in enumerate(waiting[:AT_A_TIME]):
        place = record_in(batches, each.offset)
        if place is None:
            count = len(waiting) - at if read_ahead else 1
            batches = await calls.read(port, c.Read(each.offset, count, READ_BYTES_DEFAULT))
            place = record_in(batches, each.offset)
        found.append((each, None if place is None else Place(*place)))
        if place is not None:
            columns, index = place
            left_bytes -= columns.select(index, index + 1).size_bytes
        if left_bytes <= 0:
            break
    return found
