"""What a batch is made of before it is sent: columns by attribute, checked, cut into frames of a size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.format.columns import Columns
from callboard.log.limits import BATCH_BYTES_MAX, MIB
from callboard.message import ATTRIBUTE_OF, ATTRIBUTES, Message, check_bytes

FRAME_BYTES_TARGET = 8 * MIB
"""A batch larger than this goes into several frames, so that readers need not hold all of it at once."""

Column = Sequence[Any]


def stored_attributes(given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """The attributes of one message as `Columns.build` takes them, and their bytes. Raises `InvalidArgument`."""
    stored: dict[str, Any] = {}
    size_bytes = 0
    for name, item in given.items():
        if item is not None:
            attribute = ATTRIBUTE_OF[name]
            if attribute.size is not None:
                size_bytes += attribute.size(item)
            stored[attribute.column] = item if attribute.stored is None else attribute.stored(item)
    return stored or None, size_bytes


@attrs.frozen
class Unpacked:
    """A batch as columns: its values, what else it carries by the names of `Message`, and who chose a partition."""

    values: Sequence[bytes]
    given: Mapping[str, Column]
    partitions: Sequence[int | None] | None

    def sizes(self, limit: int, too_large: Callable[[int, str], CallboardError]) -> int:
        """The batch's payload bytes; raises for the first message that is too large or of a wrong type."""
        columns = [list(map(len, self.values))]
        for name, column in self.given.items():
            size = ATTRIBUTE_OF[name].size
            if size is not None:
                columns.append(_sizes(column, size))
        if sum(map(max, columns)) > limit:
            for index, parts in enumerate(zip(*columns, strict=True)):
                if sum(parts) > limit:
                    raise too_large(sum(parts), f"message {index} of the batch")
        total = sum(map(sum, columns))
        if total > BATCH_BYTES_MAX:
            raise InvalidArgument(
                f"a batch of {total} bytes, and {BATCH_BYTES_MAX} are allowed. Nothing was written. Split it."
            )
        return total

    def stored(self) -> dict[str, Column]:
        """The columns as `Columns.build` takes them. Raises `InvalidArgument`."""
        found: dict[str, Column] = {}
        for name, column in self.given.items():
            attribute = ATTRIBUTE_OF[name]
            made = attribute.stored
            found[attribute.column] = (
                column if made is None else [None if item is None else made(item) for item in column]
            )
        return found


def _sizes(column: Column, size: Callable[[Any], int]) -> list[int]:
    """The bytes of each item; of plain bytes only the longest needs a check."""
    if set(map(type, column)) == {bytes}:
        size(max(column, key=len))
        return list(map(len, column))
    return [0 if item is None else size(item) for item in column]


def unpacked(values: Sequence[bytes | Message], given: Mapping[str, Column]) -> Unpacked:
    """Columns from a batch that may hold `Message`s. Raises `InvalidArgument`."""
    for name, column in given.items():
        plural = ATTRIBUTE_OF[name].plural
        if not isinstance(column, Sequence):
            raise InvalidArgument(
                f"{plural} are {type(column).__name__}, not a sequence. Nothing was written. Make it a list."
            )
        if len(column) != len(values):
            raise InvalidArgument(f"{len(values)} values but {len(column)} {plural}. Nothing was written.")
    kinds = set(map(type, values))
    if kinds == {bytes}:
        return Unpacked(values, given, None)  # type: ignore[arg-type]
    if Message not in kinds:
        return Unpacked([check_bytes("value", value) for value in values], given, None)
    if given:
        raise InvalidArgument(
            "a batch holds Message objects and separate columns of their attributes. Nothing was written. Use one form."
        )
    messages = [value if isinstance(value, Message) else Message(value) for value in values]
    found = {
        attribute.name: [getattr(message, attribute.name) for message in messages] for attribute in ATTRIBUTES
    }
    partitions = [message.partition for message in messages]
    return Unpacked(
        [check_bytes("value", message.value) for message in messages],
        {name: column for name, column in found.items() if not _is_empty(column)},
        None if _is_empty(partitions) else partitions,
    )


def _is_empty(column: Column) -> bool:
    return all(item is None for item in column)


def chunked(indexes: Sequence[int], values: Sequence[bytes], size: int) -> list[Sequence[int]]:
    """`indexes` cut where a frame would grow past its target."""
    if size <= FRAME_BYTES_TARGET:
        return [indexes]
    chunks: list[Sequence[int]] = []
    first = held = 0
    for position, index in enumerate(indexes):
        held += len(values[index])
        if held > FRAME_BYTES_TARGET and position > first:
            chunks.append(indexes[first:position])
            first, held = position, len(values[index])
    chunks.append(indexes[first:])
    return chunks


def columns_of(indexes: Sequence[int], values: Sequence[bytes], stored: Mapping[str, Column]) -> Columns:
    """The columns of the messages at `indexes` of a batch."""
    if len(indexes) == len(values):
        return Columns.build(values, **stored)
    return Columns.build(
        [values[index] for index in indexes],
        **{name: [column[index] for index in indexes] for name, column in stored.items()},
    )
