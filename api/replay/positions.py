"""Where in the recording a replayed record comes from, as it is stored beside the record. Pure.

The producer columns of a replayed record are (source, pass, offset): as producer id a hash of the recording's digest,
the topic's id, the selection and the source partition; as epoch the pass; as sequence the offset in the source
partition. So the log itself says how far a replay has come, and records of another replay, or of none, are not
taken for its own.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Final, NamedTuple

import attrs

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.recordings.copying import AllFilters, KeyFilter, RecordFilter
from callboard.recordings.reader import EVER, Span
from callboard.recordings.sharing import Share, ShareFilter

PASSES_MAX: Final = 2**32 - 1
"""Epochs have 32 bits."""
ID_BYTES: Final = 8


class ReplayPosition(NamedTuple):
    """A record of a replay. Within one source partition, positions of a later pass or offset come later."""

    source: int
    number: int
    """Of the pass, from 0."""
    offset: int


@attrs.frozen(kw_only=True)
class Selection:
    """Which records of a recording are replayed: by a span of time, patterns of keys, and a share of keys."""

    span: Span = EVER
    keys: tuple[str, ...] = ()
    """Patterns, as `record --key` takes them; without any, every record is replayed."""
    fraction: Fraction | None = None
    """Of the keys, with all of their records (`callboard.recordings.sharing`); None: all."""

    @property
    def is_whole(self) -> bool:
        """Whether everything is replayed."""
        return self.span.is_open and not self.keys and self.fraction is None

    def record_filter(self) -> RecordFilter | None:
        """What picks the records, batch by batch as they were recorded; None when all are wanted."""
        filters: list[RecordFilter] = []
        if self.keys:
            filters.append(KeyFilter(self.keys))
        if self.fraction is not None:
            filters.append(ShareFilter(Share(self.fraction)))
        return AllFilters(filters) if filters else None


@attrs.frozen
class ReplayId:
    """Which replay a record belongs to: one recording, one topic, one selection. Speed and time are no part of it."""

    digest: str
    topic_id: str
    selection: Selection = Selection()

    def producer_id(self, source: int) -> int:
        """The producer id of the records that come from the source partition; never 0, which stands for none."""
        span, fraction = self.selection.span, self.selection.fraction
        parts: tuple[object, ...] = (
            self.digest,
            self.topic_id,
            span.from_us,
            span.to_us,
            sorted(set(self.selection.keys)),
            source,
        )
        if fraction is not None:
            parts += (str(fraction),)
        digest = hashlib.blake2b(
            repr(parts).encode("utf-8", "surrogateescape"), digest_size=ID_BYTES
        ).digest()
        return int.from_bytes(digest, "little") or 1

    def producer_ids(self, sources: int) -> list[int]:
        """The producer ids of all source partitions."""
        return [self.producer_id(source) for source in range(sources)]


def last_position(columns: Columns, source_of: dict[int, int]) -> ReplayPosition | None:
    """The last record of a replay in the batch; `source_of` maps producer ids to source partitions."""
    for count, producer_id, epoch, sequence in reversed(columns.producers or ()):
        source = source_of.get(producer_id)
        if source is not None:
            return ReplayPosition(source, epoch, sequence + count - 1)
    return None


def check_passes(passes: int | None) -> int | None:
    """`passes`, if it can be a number of passes (None: for ever). Raises `InvalidArgument`."""
    if passes is not None and (type(passes) is not int or not 1 <= passes <= PASSES_MAX):
        raise InvalidArgument(
            f"{passes!r:.40} passes. Nothing was written. Give a number from 1 to {PASSES_MAX}, or loop for ever."
        )
    return passes
