"""CBOR in pieces, and the large snapshots that are made of them and read from them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import DeliveryEventInvalid
from callboard.actors.delivery.pieces import (
    FEW,
    ArrayInParts,
    BytesInParts,
    ValueInSteps,
    decode_in_pieces,
    encode_in_pieces,
    gathered,
    weighed,
)
from callboard.actors.delivery.snapshot import delivery_of, snapshot_of
from callboard.actors.partition.group_states import GroupStates
from callboard.log.limits import FAILURE_RANGES_MAX

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    PLAIN,
    lambda items: st.lists(items, max_size=FEW + 4) | st.dictionaries(st.text() | st.integers(), items),
    max_leaves=40,
)
MANY_RANGES = 50_000


def steps_of(making: Generator[None, None, Any]) -> tuple[int, Any]:
    """How many steps there are, and what they give."""
    steps = 1
    while True:
        try:
            next(making)
        except StopIteration as ended:
            return steps, ended.value
        steps += 1


@given(VALUES)
def test_pieces_are_what_one_call_makes(value: Any) -> None:
    """Encoding in pieces gives the bytes of `cbor2.dumps`, and decoding in pieces gives the value."""
    encoded = cbor2.dumps(value)
    assert b"".join(encode_in_pieces(value)) == encoded
    assert steps_of(decode_in_pieces(encoded, 0))[1] == value


def test_what_is_made_later_is_encoded_like_what_is_there() -> None:
    """Arrays and byte strings whose parts are made while they are encoded have the bytes of finished ones."""

    def making() -> Generator[bytes, None, list[int]]:
        yield b""
        return [1, 2]

    rows = [[number, "x" * (number % 7)] for number in range(3000)]
    value = {
        "rows": ArrayInParts(len(rows), weighed(rows, len)),
        "long": BytesInParts(6, iter((b"abc", b"def"))),
        "later": ValueInSteps(making()),
    }
    finished = {"rows": rows, "long": b"abcdef", "later": [1, 2]}
    assert b"".join(gathered(encode_in_pieces(value), 100)) == cbor2.dumps(finished)


@given(
    st.binary(max_size=80) | VALUES.map(cbor2.dumps).flatmap(lambda whole: st.just(whole[: len(whole) // 2]))
)
def test_bytes_that_are_no_cbor_are_refused(stored: bytes) -> None:
    """What `cbor2.loads` refuses is refused in pieces too, with ValueError."""
    try:
        whole = repr(cbor2.loads(stored))
    except Exception:  # noqa: BLE001 - whatever it says
        with pytest.raises(ValueError, match="does not decode"):
            steps_of(decode_in_pieces(stored, 0))
        return
    try:
        assert repr(steps_of(decode_in_pieces(stored, 0))[1]) == whole
    except ValueError as error:  # a map whose keys are lists or maps, which no snapshot has
        assert "unhashable" in str(error)


def with_many_ranges(*, fails: bool = False) -> GroupStates:
    """A group that has acked every second of its records; the others are leased, or have failed."""
    states = GroupStates()
    group, _ = states.open(1, durable=True, start=0)
    delivery, end = group.delivery, 2 * MANY_RANGES
    for start in range(0, end, 1000):
        lease = delivery.lease(now=0.0, deadline=30.0, consumer=1, max_records=1000, visible_end=end)
        assert lease is not None
        delivery.ack(
            lease.lease_id, [(offset, offset + 1) for offset in range(start + 1, start + 1000, 2)], 1.0
        )
    if fails:
        delivery.void_all_leases(2.0)
    return states


@pytest.mark.parametrize("fails", [False, True])
def test_a_snapshot_of_many_ranges_is_made_and_read_in_many_steps(fails: bool) -> None:
    """Fifty thousand ranges are written in pieces and restored in steps, each of which has a small part of them."""
    states = with_many_ranges(fails=fails)
    pieces = list(states.snapshot_in_pieces(0.0))
    whole = b"".join(pieces)
    assert max(map(len, pieces)) < 64_000
    restored = GroupStates()
    steps, _ = steps_of(iter_to_generator(restored.restore_in_steps(whole)))
    assert steps > 3 * MANY_RANGES // 8192
    assert restored.snapshot(0.0) == whole


def iter_to_generator(steps: Any) -> Generator[None, None, None]:
    """The same steps."""
    yield from steps


def test_a_snapshot_is_of_the_moment_at_which_it_was_begun() -> None:
    """Acks, failures and leases between two pieces of a snapshot are not in it."""
    states = with_many_ranges(fails=True)
    delivery = states.groups[1].delivery
    before, pieces = states.snapshot(0.0), states.snapshot_in_pieces(0.0)
    made = [next(pieces)]
    for piece in pieces:
        lease = delivery.lease(
            now=3.0, deadline=30.0, consumer=2, max_records=50, visible_end=2 * MANY_RANGES
        )
        if lease is not None:
            delivery.ack(lease.lease_id, lease_ranges(lease.ranges), 3.0)
        made.append(piece)
    assert b"".join(made) == before
    assert states.snapshot(0.0) != before


def lease_ranges(ranges: Any) -> list[tuple[int, int]]:
    """Without their attempts."""
    return [(start, stop) for start, stop, _ in ranges]


def test_ending_all_leases_is_replayed_in_steps() -> None:
    """The record that all leases ended is replayed in many steps when they hold many ranges; the state is the same."""
    states = with_many_ranges()
    twin = GroupStates()
    twin.restore(states.snapshot(0.0))
    record = cbor2.dumps([0, 1, [["V"]]])
    states.apply(record)
    replay = twin.apply_in_steps(record)
    assert replay is not None
    steps, _ = steps_of(iter_to_generator(replay))
    assert steps > MANY_RANGES // 8192
    assert twin.snapshot(0.0) == states.snapshot(0.0)


def test_failures_beyond_what_is_kept_are_not_journalled() -> None:
    """When more ranges fail than are noted, the event names those that are: to replay it gives the same notes."""
    delivery, twin = Delivery(0), Delivery(0)
    ranges = [(2 * number, 2 * number + 1) for number in range(FAILURE_RANGES_MAX + 500)]
    delivery.note_failure(ranges[:1000], 1.0, 1)
    delivery.note_failure(ranges[1000:], 2.0, 1)
    events = [list(event) for event in delivery.events]
    assert [len(event[3]) // 2 for event in events] == [1000, FAILURE_RANGES_MAX - 1000]
    delivery.note_failure([(10**6, 10**6 + 1)], 3.0, 1)
    assert len(delivery.events) == 2
    for _, at, who, flat in events:
        twin.offsets.failures.note(list(zip(flat[::2], flat[1::2], strict=True)), at, who)
    assert list(twin.offsets.failures.ranges) == list(delivery.offsets.failures.ranges)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("settled", [(0, 5)]),
        ("ready", [(4, 6)]),
        ("ready", [(2, 3), (2, 4)]),
    ],
)
def test_an_offset_in_two_states_is_refused(name: str, columns: list[tuple[int, int]]) -> None:
    """A snapshot in which two ranges share an offset, or lie where none may be, is not restored."""
    delivery = Delivery(0)
    lease = delivery.lease(now=0.0, deadline=30.0, consumer=1, max_records=6, visible_end=6)
    assert lease is not None
    delivery.ack(lease.lease_id, [(1, 2)], 1.0)
    stored = snapshot_of(delivery)
    rows = [(*row, 0, 2) if name == "ready" else row for row in columns]
    stored[name] = [
        b"".join(number.to_bytes(8, "little") for number in column) for column in zip(*rows, strict=True)
    ]
    with pytest.raises(DeliveryEventInvalid):
        delivery_of(stored)
