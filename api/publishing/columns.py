"""What a batch is made of before it is sent: its columns, cut into frames of a size that readers can hold. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.log.limits import MIB
from callboard.message import Headers, Message, check_bytes

__all__ = ["FRAME_BYTES_TARGET", "chunked", "columns_of", "unpacked"]

FRAME_BYTES_TARGET = 8 * MIB
"""A batch larger than this goes into several frames, so that readers need not hold all of it at once."""


def unpacked(
    values: Sequence[bytes | Message],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
    timestamps: Sequence[datetime | None] | None,
) -> tuple[
    Sequence[bytes],
    Sequence[bytes | None] | None,
    Sequence[Headers | None] | None,
    Sequence[datetime | None] | None,
]:
    """Columns from a batch that may hold `Message`s."""
    kinds = set(map(type, values))
    if kinds == {bytes}:
        return values, keys, headers, timestamps  # type: ignore[return-value]
    if Message not in kinds:
        return [check_bytes("value", value) for value in values], keys, headers, timestamps
    if keys is not None or headers is not None or timestamps is not None:
        raise InvalidArgument(
            "a batch holds Message objects and separate keys, headers or timestamps. Nothing was written. Use one form."
        )
    messages = [value if isinstance(value, Message) else Message(value) for value in values]
    return (
        [check_bytes("value", message.value) for message in messages],
        [message.key for message in messages],
        [message.headers for message in messages] if any(m.headers is not None for m in messages) else None,
        [message.timestamp for message in messages]
        if any(m.timestamp is not None for m in messages)
        else None,
    )


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


def columns_of(
    indexes: Sequence[int],
    count: int,
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
    times: Sequence[int | None] | None,
) -> Columns:
    """The columns of the messages at `indexes`, of a batch of `count`."""
    if len(indexes) == count:
        return Columns.build(values, keys, headers, times)
    return Columns.build(
        [values[index] for index in indexes],
        None if keys is None else [keys[index] for index in indexes],
        None if headers is None else [headers[index] for index in indexes],
        None if times is None else [times[index] for index in indexes],
    )
