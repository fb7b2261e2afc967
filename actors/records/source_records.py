"""What a source publishes of records that have waited: without the header under which they waited. Pure.

The header also keeps what must not take effect while a record waits: the event's own time, and its time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from callboard.actors.source_ids import SOURCE_EPOCH
from callboard.log.format.columns import Columns

NONE: Final = -(2**63)
"""In a header: no time, no time to live."""


class Deferred(Protocol):
    """What takes effect when the record is published."""

    @property
    def time_us(self) -> int | None:
        """The event's own time."""

    @property
    def ttl_us(self) -> int | None:
        """Its time to live, from its append on."""


def packable(*values: int | None) -> list[int]:
    """Values as a header holds them."""
    return [NONE if each is None else each for each in values]


def unpacked(*values: int) -> list[int | None]:
    """Values of a header."""
    return [None if each == NONE else each for each in values]


def source_records(
    source: int,
    found: Sequence[tuple[int, Columns, int]],
    header: str,
    deferred: Callable[[bytes | None], Deferred | None],
) -> Columns:
    """The batch that the producer `source` publishes, of (number, columns, index) in order of number."""
    headers = [columns.headers(index) for _, columns, index in found]
    heads = [deferred(each.pop(header, None)) for each in headers]
    ttls = [None if head is None else head.ttl_us for head in heads]
    return Columns.build(
        [columns.value(index) for _, columns, index in found],
        [columns.key(index) for _, columns, index in found],
        headers,
        [None if head is None else head.time_us for head in heads],
        priorities=[columns.priority(index) for _, columns, index in found],
        ttls=None if all(ttl is None for ttl in ttls) else ttls,
        producers=[(1, source, SOURCE_EPOCH, number) for number, _, _ in found],
    )
