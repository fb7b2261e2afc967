"""Everything that can be wrong with a recording, found before a record of it is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Final

from callboard.log.errors import InvalidArgument, MessageTooLarge
from callboard.log.format.columns import Columns, Ends
from callboard.log.limits import HEADERS_BYTES_MAX, HEADERS_COUNT_MAX, KEY_BYTES_MAX
from callboard.recordings.reader import Recording
from callboard.replay.positions import Selection

REMEDY: Final = (
    "Nothing was written. Leave such records out with --key, --from and --to, or record without them."
)


async def check_recording(recording: Recording, selection: Selection, *, max_message_bytes: int) -> int:
    """Compare every byte with the manifest, and every selected record with the limits; how many there are.

    Raises `RecordingInvalid` for the first segment that differs, `InvalidArgument` and `MessageTooLarge` naming the
    first record that no topic, or not one with this limit, can hold.
    """
    faults = await recording.byte_faults()
    if faults:
        faults[0].add_note(f"{len(faults)} segments differ from the manifest.")
        raise faults[0]
    selected = 0
    chosen = selection.record_filter()
    for index in range(len(recording.manifest.partitions)):
        async with aclosing(await recording.read(index, span=selection.span)) as batches:
            async for batch in batches:
                runs = [(0, batch.count)] if chosen is None else chosen.parts(batch)
                for start, stop in runs:
                    selected += stop - start
                    _check_batch(recording.directory, index, batch.select(start, stop), max_message_bytes)
    return selected


def _check_batch(directory: str, partition: int, columns: Columns, max_message_bytes: int) -> None:
    """Check the limits. What is small in all has no record that is too large, and is not looked at."""

    def where(index: int) -> str:
        return f"offset {columns.offset(index)} of partition {partition} of recording {directory}"

    if columns.key_ends is not None:
        for index, size in _beyond(columns.key_ends, KEY_BYTES_MAX):
            raise InvalidArgument(
                f"the key at {where(index)} has {size} bytes, and {KEY_BYTES_MAX} are allowed. {REMEDY}"
            )
    if columns.header_ends is not None:
        _check_headers(columns, where)
    if columns.size_bytes > max_message_bytes:
        for index, size in enumerate(_sizes(columns)):
            if size > max_message_bytes:
                raise MessageTooLarge(
                    f"the message at {where(index)} has {size} bytes with its key and headers, and the topic allows"
                    f" {max_message_bytes}. Nothing was written. Raise the topic's max_message_bytes.",
                    size_bytes=size,
                    limit_bytes=max_message_bytes,
                )


def _check_headers(columns: Columns, where: Callable[[int], str]) -> None:
    for index, count in _beyond(columns.header_ends or (), HEADERS_COUNT_MAX):
        raise InvalidArgument(
            f"the record at {where(index)} has {count} headers, and {HEADERS_COUNT_MAX} are allowed. {REMEDY}"
        )
    (names, _), (values, _) = columns.header_columns()
    if len(names) + len(values) > HEADERS_BYTES_MAX:
        for index, size in enumerate(_header_sizes(columns)):
            if size > HEADERS_BYTES_MAX:
                raise InvalidArgument(
                    f"the headers at {where(index)} have {size} bytes, and {HEADERS_BYTES_MAX} are allowed. {REMEDY}"
                )


def _beyond(ends: Ends, limit: int) -> Iterator[tuple[int, int]]:
    """The items, by index, that are larger than the limit."""
    if ends and ends[-1] - ends[0] > limit:
        for index, (start, stop) in enumerate(pairwise(ends)):
            if stop - start > limit:
                yield index, stop - start


def _lengths(ends: Sequence[int]) -> list[int]:
    return [stop - start for start, stop in pairwise(ends)]


def _header_sizes(columns: Columns) -> list[int]:
    if columns.header_ends is None:
        return [0] * columns.count
    (_, name_ends), (_, value_ends) = columns.header_columns()
    return [
        name_ends[stop] - name_ends[start] + value_ends[stop] - value_ends[start]
        for start, stop in pairwise(columns.header_ends)
    ]


def _sizes(columns: Columns) -> list[int]:
    """Each record's bytes: value, key and headers."""
    keys = [0] * columns.count if columns.key_ends is None else _lengths(columns.key_ends)
    return list(map(sum, zip(_lengths(columns.value_ends), keys, _header_sizes(columns), strict=True)))
