"""Which partition of a topic a message goes to: the one that it names, that of its key, or the one whose turn it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from callboard.log.errors import InvalidArgument
from callboard.log.plain import shown, whole
from callboard.publishing.columns import Unpacked, of_message
from callboard.publishing.partitioning import (
    Partitioner,
    StickyRoundRobin,
    check_partitioner,
    checked,
    consistent,
    is_same,
    split,
)

if TYPE_CHECKING:
    from callboard.actors.clients.account import Account
    from callboard.actors.mirror import MirroredTopic


class PartitionChoice:
    """The choice among the partitions of one topic, by the accounts with them."""

    def __init__(self, live: MirroredTopic, accounts: Sequence[Account]) -> None:
        self._live = live
        self._accounts = accounts
        self.partitioner: Partitioner = consistent
        self._is_bound = False
        """Whether the partitioner was named, or has chosen: it stays then."""
        self._sticky = StickyRoundRobin(len(accounts))

    def choose_by(self, partitioner: Partitioner) -> None:
        """Let `partitioner` choose from now on. Raises `InvalidArgument` when it cannot, or another does already."""
        check_partitioner(partitioner, self._live.name)
        if self._is_bound and not is_same(self.partitioner, partitioner):
            raise InvalidArgument(
                f"topic {self._live.name!r} has another partitioner in this process: with two of them one key would go"
                " to two partitions. Give the same function each time, before the first message with a key, or none.",
                topic=self._live.name,
            )
        self.partitioner = partitioner
        self._is_bound = True

    @property
    def is_none(self) -> bool:
        """Whether there is one partition, and no choice to make."""
        return len(self._accounts) == 1 and self.partitioner is consistent

    def named(self, partition: int) -> int:
        """`partition`, if the topic has it. Raises `InvalidArgument`."""
        count = len(self._accounts)
        index = whole(partition)
        if index is None or not 0 <= index < count:
            raise InvalidArgument(
                f"topic {self._live.name!r} has no partition {shown(partition, 40)}. Nothing was written."
                f" Its partitions are 0 to {count - 1}."
            )
        return index

    def of_one(self, key: bytes | None, size_bytes: int, partition: int | None) -> int:
        """The partition of one message."""
        if partition is not None:
            return self.named(partition)
        if key is None:
            self._pass_refusing()
            return self._sticky.choose(1, size_bytes)
        self._is_bound = True
        if self.partitioner is consistent:
            return consistent(key, len(self._accounts))
        return checked(self.partitioner, key, len(self._accounts))

    def of_batch(
        self, batch: Unpacked, size_bytes: int, partition: int | None
    ) -> list[tuple[int, Sequence[int]]]:
        """The indexes of the batch by partition: `partition` for messages that choose none, else by key or in turn."""
        chosen: dict[int, list[int]] = {}
        others: Sequence[int] = range(len(batch.values))
        if batch.partitions is not None:
            for index, place in enumerate(batch.partitions):
                if place is not None:
                    chosen.setdefault(of_message(index, self.named, place), []).append(index)
            others = [index for index, place in enumerate(batch.partitions) if place is None]
        if not others:
            return list(chosen.items())
        if partition is not None:
            found: Mapping[int, Sequence[int]] = {partition: others}
        else:
            keys = batch.given.get("key")
            self._pass_refusing()
            if keys is None:
                found = {self._sticky.choose(len(others), size_bytes): others}
            else:
                self._is_bound = True
                found = split(
                    keys if len(others) == len(keys) else [keys[index] for index in others],
                    len(self._accounts),
                    sticky=self._sticky,
                    size_bytes=size_bytes,
                    partitioner=self.partitioner,
                    indexes=others,
                )
                if len(others) < len(keys):
                    found = {place: [others[at] for at in indexes] for place, indexes in found.items()}
        if not chosen:
            return list(found.items())
        for place, indexes in found.items():
            chosen[place] = sorted([*chosen.get(place, ()), *indexes])
        return list(chosen.items())

    def _pass_refusing(self) -> None:
        """It is not the turn of partitions that take nothing now, unless all are such."""
        for _ in self._accounts:
            if not self._accounts[self._sticky.partition].refuses:
                return
            self._sticky.move_on()
