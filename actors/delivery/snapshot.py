"""The durable state of a delivery as one map in CBOR's types, and back.

Ranges are columns: the little-endian bytes of 64-bit numbers, so a million of them load without a Python object
each. Deadlines of leases are left out (see `events`); `not_before` is stored as wall time. What is restored is
not trusted: lengths, types and ranges are checked here, the invariants by the caller. Fields of a later version are
kept, and are in the next snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from callboard.actors.delivery.dead_letters import StoredLetter, since_unnoted
from callboard.actors.delivery.delivery import COUNTERS, NO_FIELDS, Delivery
from callboard.actors.delivery.events import REASON_CHARACTERS_MAX, DeliveryEventInvalid, load
from callboard.actors.delivery.failures import are_names
from callboard.actors.delivery.intervals import CHUNKS_PER_STEP, NUMBER_BYTES, IntervalMap, length_of
from callboard.actors.delivery.invariants import check_in_steps
from callboard.actors.delivery.offsets import UNANCHORED, OffsetStates
from callboard.actors.delivery.pieces import (
    ArrayInParts,
    BytesInParts,
    ValueInSteps,
    encode_in_pieces,
    weighed,
)
from callboard.actors.delivery.receipts import OFFSET_END, HistoryRow, LeaseState
from callboard.log.errors import InternalError
from callboard.log.format.fields import MUST, unknown_fields
from callboard.log.limits import STEP_ITEMS

HISTORY_MAX: Final = 2**62

_FIELDS: Final = ("floor", "next", "next_lease_id", "settled", "ready", "delayed", "leases", "counters")
_PASSED: Final = "passed"
"""A mandatory field, there when something is passed."""
_DEAD: Final = "dead"
"""A mandatory field, there when a record died: a map."""
_DEAD_EXPIRED: Final = "dead_expired"
"""A mandatory field, there when a record expired: the numbers of such dead letters, and how many each stands for."""
_DEAD_TOLD: Final = "dead_told"
"""A field that older versions keep and pass over: of dead letters, when and in whom they failed, if not only once."""
_DEAD_FIELDS: Final = (_DEAD, _DEAD_EXPIRED, _DEAD_TOLD)
_FAILURES: Final = "failures"
"""A field that older versions keep and pass over: when and in whom unsettled records have failed."""
_VERSION: Final = "version"
"""A field of the first form: 1."""


def take_snapshot(delivery: Delivery, wall_offset_s: float) -> dict[str, Any]:
    """The durable state, to be encoded in pieces (`pieces`): quick, however much it is. Later changes do not touch it.

    `wall_offset_s` is wall minus monotonic time.
    """
    offsets = delivery.offsets
    leases = [
        (lease_id, lease.consumer, lease.alone, lease.rows[:])
        for lease_id, lease in offsets.lease_states.items()
    ]
    optional: dict[str, Any] = {_PASSED: _columns(offsets.passed.copied())} if offsets.passed.rows else {}
    if delivery.dead.next:
        optional[_DEAD] = {
            "next": delivery.dead.next,
            "count": delivery.dead.total,
            "letters": [
                [*letter[:3], letter.failed_at + wall_offset_s, *letter[4:6]] for letter in delivery.dead.rows
            ],
        }
        if expired := [[letter.number, letter.expired] for letter in delivery.dead.rows if letter.expired]:
            optional[_DEAD_EXPIRED] = expired
    if optional:
        optional[MUST] = list(optional)
    if told := [
        [letter.number, None if since is None else since + wall_offset_s, list(letter.consumers)]
        for letter in delivery.dead.rows
        if (since := letter.first_failed_at, letter.consumers) != _unnoted(letter)
    ]:
        optional[_DEAD_TOLD] = told
    if (failures := offsets.stored_failures(wall_offset_s)) is not None:
        optional[_FAILURES] = failures
    return {
        "floor": offsets.floor,
        "next": offsets.next,
        "next_lease_id": offsets.next_lease_id,
        "settled": _columns(offsets.settled.copied()),
        "ready": _columns(offsets.ready.copied()),
        "delayed": ValueInSteps(_moved_columns(offsets.delayed.copied(), wall_offset_s)),
        "leases": ArrayInParts(
            len(leases), map(_stored_leases, weighed(leases, lambda lease: 1 + len(lease[3])))
        ),
        "counters": [getattr(delivery, name) for name in COUNTERS],
        **optional,
        **delivery.unknown_fields,
    }


def _columns(intervals: IntervalMap) -> list[BytesInParts]:
    size_bytes = NUMBER_BYTES * intervals.rows
    return [BytesInParts(size_bytes, parts) for parts in intervals.column_parts()]


def _moved_columns(delayed: IntervalMap, wall_offset_s: float) -> Generator[bytes, None, list[BytesInParts]]:
    moved = IntervalMap("qd")
    for _ in _move(delayed, moved, wall_offset_s):
        yield b""
    return _columns(moved)


def _stored_leases(leases: list[Any]) -> list[list[Any]]:
    return [[*lease[:3], list(chain.from_iterable(lease[3]))] for lease in leases]


def snapshot_of(delivery: Delivery, wall_offset_s: float = 0.0) -> dict[str, Any]:
    """The same, encoded and decoded."""
    decoded: dict[str, Any] = load(b"".join(encode_in_pieces(take_snapshot(delivery, wall_offset_s))))
    return decoded


def delivery_of(snapshot: Any, wall_offset_s: float = 0.0) -> Delivery:
    """The delivery that `snapshot` was taken of. Raises DeliveryEventInvalid for anything else."""
    delivery = Delivery(0)
    for _ in restore_in_steps(delivery, snapshot, wall_offset_s):
        pass
    return delivery


def restore_in_steps(delivery: Delivery, snapshot: Any, wall_offset_s: float) -> Iterator[None]:
    """The same for a delivery that is new, yielding now and then; until its end ask it nothing else."""
    try:
        yield from _fill(delivery, snapshot, wall_offset_s)
        yield from check_in_steps(delivery.offsets)
    except (ValueError, TypeError, OverflowError, InternalError) as error:
        raise DeliveryEventInvalid(
            f"A delivery snapshot is not valid: {error}. Replay the journal."
        ) from error


def _fill(delivery: Delivery, snapshot: Any, wall_offset_s: float) -> Iterator[None]:
    """Fill an empty delivery. Raises ValueError or TypeError when `snapshot` is malformed."""
    offsets = delivery.offsets
    known = *_FIELDS, _PASSED, *_DEAD_FIELDS, _FAILURES, _VERSION
    delivery.unknown_fields = unknown_fields(snapshot, known, "a delivery snapshot") or NO_FIELDS
    if snapshot.get(_VERSION, 1) != 1 or not all(name in snapshot for name in _FIELDS):
        raise ValueError("not the fields of a delivery snapshot")
    offsets.floor = number(snapshot["floor"])
    offsets.next = number(snapshot["next"])
    offsets.next_lease_id = number(snapshot["next_lease_id"])
    stored = IntervalMap("qd")
    for intervals, name in (
        (offsets.settled, "settled"),
        (offsets.passed, _PASSED),
        (offsets.ready, "ready"),
        (stored, "delayed"),
    ):
        columns = snapshot[name] if name in _FIELDS else snapshot.get(name, [b"", b""])
        if type(columns) is not list or any(type(column) is not bytes for column in columns):
            raise ValueError(f"{name} is not a list of columns")
        yield from intervals.load_in_steps(columns)
    for place, (_, _, tags, histories) in enumerate(offsets.ready.chunks()):
        if min(tags) < 0 or max(tags) >= offsets.next_lease_id:
            raise ValueError("a ready range names a lease that was never granted")
        _check_histories(histories)
        if not place % CHUNKS_PER_STEP:
            yield
    for _, _, histories, instants in stored.chunks():
        _check_histories(histories)
        if not all(map(math.isfinite, instants)):
            raise ValueError("a delayed range has no instant")
    yield from _move(stored, offsets.delayed, -wall_offset_s)
    yield from offsets.fill_due()
    yield from _restore_leases(offsets, snapshot["leases"])
    if _DEAD in snapshot:
        _restore_dead(delivery, snapshot, wall_offset_s)
    if _FAILURES in snapshot:
        yield from offsets.failures.restore_in_steps(snapshot[_FAILURES], wall_offset_s)
        # A version that keeps the field without knowing it has settled some of these.
        yield from offsets.failures.keep_unsettled(offsets.settled, offsets.floor, offsets.next)
    counters = snapshot["counters"]
    if type(counters) is not list:
        raise ValueError("counters are not a list")
    # An older or newer version has others at the end.
    for name, count in zip(COUNTERS, counters, strict=False):
        setattr(delivery, name, number(count))


def _restore_leases(offsets: OffsetStates, leases: Any) -> Iterator[None]:
    if type(leases) is not list:
        raise ValueError("leases are not a list")
    ranges = 0
    for stored in leases:
        if type(stored) is not list or len(stored) < 4:
            raise ValueError("a lease does not have four fields")
        lease_id, consumer, alone, flat = stored[:4]
        if type(alone) is not bool or type(flat) is not list or not flat or len(flat) % 3:
            raise ValueError("a lease has no ranges, or does not tell whether it held one record alone")
        if number(lease_id) in offsets.lease_states:
            raise ValueError("a lease is stored twice")
        rows: list[HistoryRow] = []
        for start, stop, history in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if number(start) >= number(stop) or (rows and rows[-1][1] > start):
                raise ValueError("ranges of a lease are empty, unsorted or overlap")
            rows.append((start, stop, _history(history)))
        offsets.lease_states[lease_id] = LeaseState(number(consumer), UNANCHORED, alone, rows)
        offsets.leased += length_of(rows)
        ranges += len(rows)
        if ranges >= STEP_ITEMS:
            ranges = 0
            yield
    offsets.rebuild_deadlines()


def _restore_dead(delivery: Delivery, snapshot: dict[str, Any], wall_offset_s: float) -> None:
    dead = snapshot[_DEAD]
    if type(dead) is not dict or type(dead.get("letters")) is not list:
        raise ValueError("dead letters are not a map with letters")
    delivery.dead.next, delivery.dead.total = number(dead.get("next")), number(dead.get("count"))
    counts = {row[0]: number(row[1]) for row in _rows(snapshot.get(_DEAD_EXPIRED, []), 2)}
    told = {row[0]: row[1:3] for row in _rows(snapshot.get(_DEAD_TOLD, []), 3)}
    below, rows = 0, []
    for stored in dead["letters"]:
        if type(stored) is not list or len(stored) < 6:
            raise ValueError("a dead letter does not have six fields")
        index, offset, attempts, failed_at, consumer, reason = stored[:6]
        if not below <= number(index) < delivery.dead.next:
            raise ValueError("dead letters are not in order")
        if type(failed_at) is not float or not math.isfinite(failed_at):
            raise ValueError("a dead letter has no instant")
        if reason is not None and (type(reason) is not str or len(reason) > REASON_CHARACTERS_MAX):
            raise ValueError("the reason of a dead letter is no text, or too long")
        who = None if consumer is None else number(consumer)
        place = index, number(offset), number(attempts), failed_at - wall_offset_s
        letter = StoredLetter(*place, who, reason, expired=counts.get(index, 0))
        first_failed_at, consumers = _unnoted(letter)
        if index in told:
            since, names = told[index]
            if not are_names(names) or (
                since is not None and (type(since) is not float or not math.isfinite(since))
            ):
                raise ValueError("a dead letter has no first failure, or failed in no consumer")
            first_failed_at = None if since is None else since - wall_offset_s
            consumers = tuple(names)
        rows.append(letter._replace(first_failed_at=first_failed_at, consumers=consumers))
        below = index + max(letter.expired, 1)
    if below > delivery.dead.next:
        raise ValueError("dead letters have numbers to come")
    delivery.dead.restore(rows)


def _rows(found: Any, width: int) -> list[list[Any]]:
    if type(found) is not list or any(type(row) is not list or len(row) < width for row in found):
        raise ValueError("what is told of dead letters is no list of rows")
    if any(type(row[0]) is not int for row in found):
        raise ValueError("what is told of dead letters names no number")
    return found


def _unnoted(letter: StoredLetter) -> tuple[float | None, tuple[str, ...]]:
    """First failure and consumers of a letter of which nothing else is stored."""
    who = letter.consumer
    return since_unnoted(letter.attempts, letter.failed_at, who), () if who is None else (str(who),)


def _move(delayed: IntervalMap, into: IntervalMap, seconds: float) -> Iterator[None]:
    """Put every row into an empty map, its `not_before` moved by `seconds`: rows that then agree are merged."""
    for place, (starts, stops, histories, instants) in enumerate(delayed.chunks()):
        if place:
            yield
        into.put_all(starts, stops, histories, [not_before + seconds for not_before in instants])


def number(found: Any) -> int:
    """`found`, when it is an offset or a number of such. Raises ValueError when it is not."""
    if type(found) is not int or not 0 <= found <= OFFSET_END:
        raise ValueError(f"{found!r:.40} is not a number from 0 to {OFFSET_END}")
    return found


def _check_histories(histories: Sequence[int]) -> None:
    for found in {*histories}:
        _history(found)


def _history(found: Any) -> int:
    if number(found) > HISTORY_MAX or found == 1:
        raise ValueError(f"{found} is no history")
    return int(found)
