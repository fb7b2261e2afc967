"""What a topic and a level allow of messages beside their sizes: checked before anything is sent. Pure.

Each check takes the index of the message in its batch, which the error names; None for one that is published alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from callboard.actors.partition.commands import LEVELS, Level
from callboard.log.errors import InvalidArgument
from callboard.log.limits import OFFSET_MAX
from callboard.log.plain import shown, text, whole

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic
    from callboard.publishing.columns import Unpacked


def named(index: int | None) -> str:
    """A message, as an error begins with it."""
    return "the message" if index is None else f"message {index} of the batch"


def first_given(column: Sequence[Any] | None) -> int | None:
    """The index of the first item of a column that is not None."""
    return next((index for index, item in enumerate(column or ()) if item is not None), None)


def level_of(acks: str) -> Level:
    """The level that `acks` names. Raises `InvalidArgument`."""
    level = LEVELS.get(text(acks) or "")
    if level is None:
        raise InvalidArgument(
            f'acks is {shown(acks, 40)}, not "none", "leader" or "all". Nothing was written.'
        )
    return level


def check_level_reports(level: Level) -> None:
    """Raise `InvalidArgument` for a level at which a duplicate or a refusal is not reported."""
    if level is Level.NONE:
        raise InvalidArgument(
            "acks is 'none', and a duplicate or a refusal could not be reported to anybody. Nothing was written."
            " Use 'leader' or 'all' with dedup_id, expected_offset, delays and producers."
        )


def refuse_ids_and_offsets(
    batch: Unpacked, id_refused: str, offset_refused: str, waits: Sequence[bool] | None = None
) -> None:
    """Raise `InvalidArgument` for a message with a `dedup_id` or an `expected_offset`, of all or of those that wait.

    The two texts say why it cannot have one.
    """
    refused = dict.fromkeys(batch.expected, offset_refused)
    ids = batch.given.get("dedup_id") or ()
    refused |= {index: id_refused for index, item in enumerate(ids) if item is not None}
    index = min((index for index in refused if waits is None or waits[index]), default=None)
    if index is not None:
        raise InvalidArgument(
            f"message {index} of the batch: {refused[index]}. Nothing was written. Leave one of the two out.",
            index=index,
        )


def check_ids(live: MirroredTopic, index: int | None) -> None:
    """Raise `InvalidArgument` for a message with a `dedup_id` in a topic that remembers none."""
    if live.settings.dedup_window is None:
        raise InvalidArgument(
            f"{named(index)} has a dedup_id, and topic {live.name!r} has no dedup_window, so it remembers none. Nothing"
            f" was written. Set one: await runtime.alter_topic({live.name!r}, dedup_window=3600).",
            topic=live.name,
            index=index,
        )


def check_priority(live: MirroredTopic, index: int | None) -> None:
    """Raise `InvalidArgument` for a message with a priority in a topic that has none."""
    if not live.settings.priorities:
        raise InvalidArgument(
            f"{named(index)} has a priority, and topic {live.name!r} has none. Nothing was written. Create a topic with"
            " priorities=True, or leave the priority out.",
            topic=live.name,
            index=index,
        )


def check_expected_offset(
    live: MirroredTopic, expected: object, *, is_placed: bool, index: int | None
) -> int:
    """The expected offset as plain data. Raises `InvalidArgument` for what is none, or is that of no certain partition.

    `is_placed` says whether a key or a partition decides where the message goes.
    """
    found = whole(expected)
    if found is None or not 0 <= found <= OFFSET_MAX:
        raise InvalidArgument(
            f"{named(index)} has the expected_offset {shown(expected, 40)}, which is not an offset: a number from 0 on."
            " Nothing was written. Take the next offset from an OffsetMismatch, or from topic.describe().",
            index=index,
        )
    if not is_placed and len(live.ports) > 1:
        raise InvalidArgument(
            f"{named(index)} has an expected_offset without a key or a partition, and topic {live.name!r} has"
            f" {len(live.ports)} partitions. Nothing was written. Say which one is meant.",
            index=index,
        )
    return found


def check_batch_expects(live: MirroredTopic, batch: Unpacked, partition: int | None) -> Unpacked:
    """The same of all messages of a batch that expect an offset; `partition` is for those that choose none."""
    found = {}
    for index, expected in batch.expected.items():
        is_placed = partition is not None or batch.is_placed(index)
        found[index] = check_expected_offset(live, expected, is_placed=is_placed, index=index)
    return attrs.evolve(batch, expected=found)


def check_first_offsets(expected: Mapping[int, int], parts: Sequence[tuple[int, Sequence[int]]]) -> None:
    """Raise `InvalidArgument` for a message that expects an offset, behind others of its batch in its partition."""
    for place, indexes in parts:
        for index in indexes[1:]:
            if index in expected:
                raise InvalidArgument(
                    f"message {index} of the batch has an expected_offset, and message {indexes[0]} goes to partition"
                    f" {place} before it. Nothing was written. Only the first message of a batch for a partition can"
                    " have one, and stands for all that follow it there.",
                    index=index,
                )


def expecting(live: MirroredTopic, batch: Unpacked, partition: int | None, expected: int) -> Unpacked:
    """The batch, whose first message is expected at an offset, and the others behind it."""
    if batch.expected:
        index = next(iter(batch.expected))
        raise InvalidArgument(
            f"{named(index)} has an expected_offset, and publish_batch was given one too. Nothing was written. Give"
            " one.",
            index=index,
        )
    for index in range(len(batch.values)):
        is_placed = partition is not None or batch.is_placed(index)
        expected = check_expected_offset(live, expected, is_placed=is_placed, index=index)
    return attrs.evolve(batch, expected={0: expected})


def check_is_one(live: MirroredTopic, partitions: Sequence[int]) -> None:
    """Raise `InvalidArgument` when a batch with an `expected_offset` goes to several partitions."""
    several = sorted(set(partitions))
    if len(several) > 1:
        raise InvalidArgument(
            f"publish_batch was given an expected_offset, and the batch goes to the partitions"
            f" {', '.join(map(str, several[:5]))} of topic {live.name!r}. Nothing was written. Publish a batch for each"
            " partition, or give it to the first Message for each of them."
        )
