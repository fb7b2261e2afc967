"""Publishing once: nothing is stored twice, nothing is lost, and every answer that a publisher got holds in the end.

A pure function of what publishers were answered, and of every record that is left. Values say which published them:

- an *id* value is `id <id>`, its deduplication id `<id>`;
- a value of a *stream* is `stream <name> <sequence> <life>`: the name of the producer, which of the stream's items it
  is, and which life of the producer published it;
- a *set* value is one of a kind, published at an expected offset.

What was answered at level `leader` may vanish with the power, and is not held against the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final

import attrs

from callboard.simulations.violations import Violation

PROMISE: Final = "what is published once is stored once, at the offset that its publisher was given"

STORED: Final = ("id", "stream", "set")


@attrs.frozen
class CallOutcome:
    """What a publisher was answered when a call ended. Times are of the wall clock, in microseconds."""

    kind: str
    """`id`, `stream` or `set`: stored at `offset`. `mismatch`: the next offset is `offset`. `fenced`: refused for good.
    `begun`: the next sequence of the stream is `offset`."""
    who: str
    partition: int
    value: bytes
    offset: int
    begun_us: int
    begun: int
    """How many calls had ended when this one began."""
    is_durable: bool = True
    expected: int = -1
    life: int = 0


@attrs.frozen
class RemainingRecord:
    """A record that is left."""

    partition: int
    offset: int
    value: bytes
    time_us: int
    dedup_id: bytes | None
    producer: tuple[int, int, int] | None


def check(
    told: Sequence[CallOutcome],
    stored: Sequence[RemainingRecord],
    ends: dict[int, int],
    window_us: int,
    table_ids: int,
) -> list[Violation]:
    """Everything that is stored twice, missing, or not as it was answered.

    `ends` are the partitions' next offsets, and `table_ids` how many ids a partition keeps.
    """
    words = [
        *_twice(stored, window_us, table_ids),
        *_streams(stored),
        *_receipts(told, {(row.partition, row.offset): row for row in stored}, window_us),
        *_mismatches(told, ends, {row.value for row in stored}),
        *_fenced(told, stored),
    ]
    return [Violation(PROMISE, each) for each in words]


def repeated(
    stored: Iterable[RemainingRecord], window_us: int
) -> Iterable[tuple[RemainingRecord, RemainingRecord, int]]:
    """Records of one id within its window, one after the other, and how many other ids came between the two."""
    latest: dict[tuple[int, bytes], tuple[RemainingRecord, int]] = {}
    order: dict[int, list[bytes]] = {}
    for row in stored:
        if row.dedup_id is None:
            continue
        ids = order.setdefault(row.partition, [])
        before = latest.get((row.partition, row.dedup_id))
        if before is not None and row.time_us - before[0].time_us < window_us:
            yield before[0], row, len(set(ids[before[1] + 1 :]))
        latest[row.partition, row.dedup_id] = row, len(ids)
        ids.append(row.dedup_id)


def _twice(stored: Iterable[RemainingRecord], window_us: int, table_ids: int) -> Iterable[str]:
    """No id has two records within the window, unless a full table had forgotten it."""
    for before, row, between in repeated(stored, window_us):
        if between < table_ids:
            yield (
                f"id {row.dedup_id!r} is at {row.partition}@{before.offset} and at {row.partition}@{row.offset},"
                f" {row.time_us - before.time_us} us and {between} ids later"
            )


def _streams(stored: Iterable[RemainingRecord]) -> Iterable[str]:
    """A producer's sequences rise by one from 0, its epochs never fall, and each has the item of its number."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for row in stored:
        if row.producer is None:
            continue
        producer_id, epoch, sequence = row.producer
        place = row.partition, producer_id
        before_epoch, before = last.get(place, (0, -1))
        if sequence != before + 1:
            yield f"{row.partition}@{row.offset}: sequence {sequence} follows {before}"
        if epoch < before_epoch:
            yield f"{row.partition}@{row.offset}: epoch {epoch} follows {before_epoch}"
        if int(row.value.split()[2]) != sequence:
            yield f"{row.partition}@{row.offset}: sequence {sequence} holds {row.value!r}"
        last[place] = epoch, sequence


def _receipts(
    told: Iterable[CallOutcome], at: dict[tuple[int, int], RemainingRecord], window_us: int
) -> Iterable[str]:
    """Every receipt names the message; that of a duplicate one that was still within its window."""
    for each in told:
        if each.kind not in STORED:
            continue
        if each.kind == "set" and each.offset != each.expected:
            yield f"{each.who} expected {each.expected} and was stored at {each.offset}"
        row = at.get((each.partition, each.offset))
        if row is None or not _is_same(row, each):
            if each.is_durable:
                found = "nothing" if row is None else repr(row.value)
                yield f"{each.who} was told {each.partition}@{each.offset} for {each.value!r}: {found} is there"
        elif each.kind == "id" and row.time_us + window_us <= each.begun_us:
            yield f"{each.who}: {each.value!r} was taken for the record at {each.offset}, whose window was over"


def _is_same(row: RemainingRecord, each: CallOutcome) -> bool:
    if each.kind == "stream":  # whichever life has published the item
        return row.value.split()[:3] == each.value.split()[:3]
    return row.value == each.value


def _mismatches(told: Sequence[CallOutcome], ends: dict[int, int], values: Set[bytes]) -> Iterable[str]:
    """What was refused is not stored, and its publisher had seen what was there: at least all that was answered before,
    and nothing that is not.
    """
    for each in told:
        if each.kind != "mismatch":
            continue
        if each.value in values:
            yield f"{each.value!r} is stored, and {each.who} was told that it is not, at {each.expected}"
        if each.offset == each.expected:
            yield f"{each.who} was refused at {each.offset}, which it had expected"
        if each.is_durable and each.offset > ends.get(each.partition, 0):
            yield f"{each.who} was told that {each.offset} is next, and the log ends before"
        seen = [
            other.offset
            for other in told[: each.begun]
            if other.kind in STORED and other.is_durable and other.partition == each.partition
        ]
        if seen and each.offset <= max(seen):
            yield f"{each.who} was told that {each.offset} is next, after {max(seen)} had been told"


def _fenced(told: Iterable[CallOutcome], stored: Sequence[RemainingRecord]) -> Iterable[str]:
    """From where a life begins no earlier one has stored anything; and what was refused for good is not there."""
    begun: dict[tuple[str, int], list[tuple[int, int]]] = {}
    refused = {}
    for each in told:
        if each.kind == "begun":
            begun.setdefault((each.who, each.partition), []).append((each.offset, each.life))
        elif each.kind == "fenced":
            refused[each.value] = each
    for row in stored:
        if row.producer is None:
            continue
        _, name, sequence, life = row.value.split()
        for first, by in begun.get((name.decode(), row.partition), ()):
            if int(sequence) >= first and int(life) < by:
                yield f"{row.value!r} is stored, and life {by} had begun at sequence {first}"
        if row.value in refused:
            yield f"{row.value!r} is stored, and {refused[row.value].who} was told that it is fenced"
