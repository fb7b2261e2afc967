"""Which partition a message goes to: by its key, or in turn without one.

A keyed message goes to `crc32(key) % partitions`, the same choice as librdkafka's `consistent` partitioner, so a
program can move between the two and find its keys where they were. A message without a key goes where the last one
went, until a batch's worth is there, then to the next partition: batches stay large, the load still spreads evenly.

An empty key is a key; only None is no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MethodType
from typing import Final, Protocol
from zlib import crc32

from callboard.log.errors import InvalidArgument
from callboard.log.plain import is_plain_function, shown, whole
from callboard.publishing.columns import of_message

STICKY_RECORDS: Final = 100
"""Messages without a key that one partition gets in a row."""

STICKY_BYTES: Final = 64 * 1024
"""Bytes without a key that one partition gets in a row."""


class Partitioner(Protocol):
    """Chooses a partition for a key. Must be a pure function: equal keys go to equal partitions."""

    def __call__(self, key: bytes, partitions: int, /) -> int:
        """A number from 0 to `partitions - 1`."""


def check_partitioner(partitioner: object, topic: str) -> None:
    """Raise `InvalidArgument` for what cannot choose partitions."""
    if not is_plain_function(partitioner):
        raise InvalidArgument(
            f"the partitioner is {shown(partitioner, 40)}, not a plain function of a key and a number of partitions."
            " Nothing was done.",
            topic=topic,
        )


def is_same(one: Partitioner, other: Partitioner) -> bool:
    """Whether these are one function; each access makes a new bound method: compare with ==."""
    return one is other or (type(one) is type(other) is MethodType and one == other)


def consistent(key: bytes, partitions: int, /) -> int:
    """The default: CRC-32 of the key, modulo the number of partitions."""
    return crc32(key) % partitions


def checked(partitioner: Partitioner, key: bytes, partitions: int) -> int:
    """What a user's partitioner chooses. Raises InvalidArgument when that is no partition."""
    chosen = whole(partitioner(key, partitions))
    if chosen is None or not 0 <= chosen < partitions:
        raise InvalidArgument(
            f"The partitioner chose {shown(chosen, 40)} for key {shown(key, 40)} of {partitions} partitions. "
            f"Nothing was published. Return a whole number from 0 to {partitions - 1}.",
            key=key,
            chosen=chosen,
        )
    return chosen


class StickyRoundRobin:
    """Partitions in turn, each for `STICKY_RECORDS` messages or `STICKY_BYTES`, whichever comes first.

    Invariants: SK1 0 <= partition < partitions; SK2 what the current partition got is below both limits.
    """

    __slots__ = ("_bytes", "_records", "partition", "partitions")

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.partition = 0
        """Where the next message goes."""
        self._records = self._bytes = 0

    def choose(self, records: int, size_bytes: int) -> int:
        """The partition for a batch of `records` messages, all of which go there."""
        chosen = self.partition
        self._records += records
        self._bytes += size_bytes
        if self._records >= STICKY_RECORDS or self._bytes >= STICKY_BYTES:
            self.move_on()
        return chosen

    def move_on(self) -> None:
        """Turn to the next partition; also for a partition that does not take messages now."""
        self.partition = (self.partition + 1) % self.partitions
        self._records = self._bytes = 0


def split(
    keys: Sequence[bytes | None],
    partitions: int,
    *,
    sticky: StickyRoundRobin,
    size_bytes: int = 0,
    partitioner: Partitioner = consistent,
    indexes: Sequence[int] | None = None,
) -> dict[int, list[int]]:
    """The indexes of a batch's messages by partition, each list in order.

    All messages without a key go to one partition, so that they stay one batch; `size_bytes` is their payload.
    Raises InvalidArgument when the partitioner chooses no partition; then `sticky` has not moved. The error names the
    message by `indexes`, if the keys are not those of a whole batch.
    """
    keyless = [index for index, key in enumerate(keys) if key is None] if None in keys else []
    if len(keyless) == len(keys):
        return {sticky.choose(len(keyless), size_bytes): keyless} if keyless else {}
    if partitioner is consistent and not keyless:
        return _grouped(map(crc32, keys), len(keys), partitions)  # type: ignore[arg-type]
    chosen: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        if key is not None:
            named = index if indexes is None else indexes[index]
            place = of_message(named, checked, partitioner, key, partitions)
            chosen.setdefault(place, []).append(index)
    if keyless:
        partition = sticky.choose(len(keyless), size_bytes)
        chosen[partition] = sorted([*chosen.get(partition, ()), *keyless])
    return chosen


def _grouped(hashes: Iterable[int], count: int, partitions: int) -> dict[int, list[int]]:
    """The indexes of `hashes` by partition: the hot path, so one list per partition is made before the loop."""
    if partitions == 1:
        return {0: list(range(count))}
    groups: list[list[int]] = [[] for _ in range(partitions)]
    appends = [group.append for group in groups]
    for index, number in enumerate(hashes):
        appends[number % partitions](index)
    return {partition: group for partition, group in enumerate(groups) if group}
