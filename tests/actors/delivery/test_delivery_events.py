"""Events and snapshots as bytes: they come back as they were, and nothing else comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import (
    FIELDS,
    REASON_CHARACTERS_MAX,
    AckEvent,
    DeliveryEventInvalid,
    Event,
    GroupEvents,
    LeaseEvent,
    NackEvent,
    PublishEvent,
    ReleaseEvent,
    RunOutEvent,
    SkipEvent,
    VoidEvent,
    decode_events,
    load,
)
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.snapshot import _DEAD_FIELDS, delivery_of, snapshot_of
from callboard.log.errors import CallboardError, FormatTooNew

NUMBERS = st.integers(0, 2**63 - 1)
RECEIPTS = st.integers(1, 2**63 - 1)
BOUNDS = st.lists(NUMBERS, min_size=2, max_size=8, unique=True).map(
    lambda n: tuple(sorted(n)[: len(n) // 2 * 2])
)
TEXTS = st.none() | st.text(max_size=20)


def with_attempts(bounds: tuple[int, ...]) -> tuple[int, ...]:
    """The same ranges as triples."""
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple(number for start, stop in pairs for number in (start, stop, 1 + start % 5))


def event(
    kind: Callable[..., Event], letter: str, *fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[Event]:
    """Events of one kind."""
    return st.builds(kind, st.just(letter), *fields)


EVENTS = st.one_of(
    event(LeaseEvent, "L", RECEIPTS, NUMBERS, BOUNDS.map(with_attempts)),
    event(AckEvent, "A", RECEIPTS, BOUNDS),
    event(NackEvent, "N", RECEIPTS, st.none() | st.floats(-1e9, 1e9), TEXTS, BOUNDS),
    event(ReleaseEvent, "R", RECEIPTS, BOUNDS),
    event(RunOutEvent, "X", st.lists(RECEIPTS, min_size=1, max_size=4).map(tuple)),
    event(VoidEvent, "V"),
    event(SkipEvent, "S", st.integers(0, 99), st.integers(100, 200), TEXTS),
)
JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


def stored_form(events: list[Event], *, wall_offset_s: float = 0.0) -> bytes:
    """The bytes of events."""
    return cbor2.dumps(cbor2.loads(GroupEvents(1, events).record(wall_offset_s))[2])


def replayed(events: list[Event]) -> Delivery:
    """What the events make of a new delivery."""
    delivery = Delivery(0)
    for event in events:
        delivery.apply(event)
    return delivery


@given(st.lists(EVENTS, max_size=6))
def test_events_come_back(events: list[Event]) -> None:
    """What is encoded decodes to the same events."""
    assert events == decode_events(load(stored_form(events)))


@given(st.binary(max_size=60))
@example(b"\xd8\x1c\x81\xd8\x1d\x00")
@example(b"\x81\x81\x61V\x00")
@example(b"\x81\x82\x61X\x81\x18\x01")
@example(b"\x9f\xff")
@example(b"\x81" * 1000)
@example(b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff")
@example(b"\xc4\x82\x1b\xff\xff\xff\xff\xff\xff\xff\xff\x01")
def test_bytes_decode_to_events_or_not_at_all(stored: bytes) -> None:
    """Arbitrary bytes either hold events that come back the same, or are refused."""
    try:
        events = decode_events(load(stored))
    except (DeliveryEventInvalid, FormatTooNew):
        return
    assert events == decode_events(load(stored_form(events)))


@given(
    st.lists(
        st.lists(st.sampled_from([*FIELDS, 0, 1, 5, None, 1.5, "why", [0, 5], [0, 5, 1]]), max_size=6)
        | JSONISH
    )
)
def test_other_cbor_is_refused(found: list[Any]) -> None:
    """Well-formed CBOR of another shape is refused, and what passes comes back the same."""
    try:
        events = decode_events(load(cbor2.dumps(found)))
    except (DeliveryEventInvalid, FormatTooNew):
        return
    assert events == decode_events(load(stored_form(events)))


@given(st.lists(EVENTS, min_size=1, max_size=6), JSONISH)
def test_what_later_versions_append_to_an_event_is_ignored(events: list[Event], more: Any) -> None:
    """Fields beyond the known ones, and unknown events with a lower-case letter, change nothing."""
    longer = [(*event, more, 1) for event in events]
    assert events == decode_events(load(cbor2.dumps([["q", more], *longer])))


def test_an_unknown_mandatory_event_is_too_new() -> None:
    """An unknown upper-case letter is the work of a later version, which nobody may ignore."""
    with pytest.raises(FormatTooNew, match="unknown kind Q"):
        decode_events([["Q", 1]])


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name not in ("must", "passed", "version", *_DEAD_FIELDS)),
        JSONISH,
        max_size=3,
    )
)
def test_fields_of_a_later_version_stay_in_the_snapshot(more: dict[str, Any]) -> None:
    """Unknown fields of a snapshot are in the next one; a mandatory one is refused."""
    own = snapshot_of(busy())
    stored = load(cbor2.dumps({**more, **own}))
    kept = cbor2.dumps(snapshot_of(delivery_of(stored)))
    assert cbor2.dumps({**own, **{name: value for name, value in more.items() if name not in own}}) == kept
    with pytest.raises(FormatTooNew, match="must not be read without its field 'later'"):
        delivery_of({**own, "later": 1, "must": ["floor", "later"]})


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_changed_bytes_never_crash(events: list[Event], data: st.DataObject) -> None:
    """One changed byte gives other valid events, or the one error; applying them gives the one error at worst."""
    stored = bytearray(stored_form(events))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        delivery = replayed(decode_events(load(bytes(stored))))
    except (DeliveryEventInvalid, FormatTooNew):
        return
    check_all(delivery.offsets)


@pytest.mark.parametrize(
    "event",
    [
        ["A", 0, [0, 5]],
        ["A", 1, []],
        ["A", 1, [0]],
        ["A", 1, [5, 5]],
        ["A", 1, [5, 4]],
        ["A", 1, [0, 5, 4, 6]],
        ["A", 1, [-1, 5]],
        ["A", True, [0, 5]],
        ["A", 1, [0, 2**63]],
        ["A", 1, "05"],
        ["L", 1, -1, [0, 5, 1]],
        ["L", 1, 0, [0, 5, 0]],
        ["L", 1, 0, [0, 5]],
        ["N", 1, float("nan"), None, [0, 5]],
        ["N", 1, float("inf"), None, [0, 5]],
        ["N", 1, 5, None, [0, 5]],
        ["N", 1, None, "x" * (REASON_CHARACTERS_MAX + 1), [0, 5]],
        ["N", 1, None, b"x", [0, 5]],
        ["X", [0]],
        ["S", 5, 5, None],
        ["AA"],
        ["1"],
        [],
        {"A": 1},
        None,
    ],
)
def test_each_bad_field_is_refused(event: Any) -> None:
    """Every field is checked for type, sign, order and length."""
    with pytest.raises(DeliveryEventInvalid):
        decode_events([event])


@pytest.mark.parametrize(
    "events",
    [
        [AckEvent("A", 1, (0, 5))],
        [LeaseEvent("L", 1, 0, (5, 9, 1))],
        [LeaseEvent("L", 1, 0, (0, 5, 2))],
        [LeaseEvent("L", 1, 0, (0, 5, 1)), LeaseEvent("L", 1, 0, (5, 9, 1))],
        [LeaseEvent("L", 1, 0, (0, 5, 1)), LeaseEvent("L", 2, 0, (3, 9, 1))],
        [LeaseEvent("L", 1, 0, (0, 5, 1)), AckEvent("A", 1, (0, 6))],
        [LeaseEvent("L", 1, 0, (0, 5, 1)), AckEvent("A", 1, (0, 5)), AckEvent("A", 1, (0, 5))],
        [LeaseEvent("L", 1, 0, (0, 5, 1)), ReleaseEvent("R", 2, (0, 5))],
        [RunOutEvent("X", (1,))],
        [PublishEvent("O", 0, 1, 0, 1)],
    ],
)
def test_impossible_histories_are_refused(events: list[Event]) -> None:
    """Events that are well formed but cannot follow each other are refused."""
    with pytest.raises(DeliveryEventInvalid):
        replayed(events)


def test_the_error_is_a_value_error_of_the_tree() -> None:
    """Bad bytes raise an error that is both a CallboardError and a ValueError."""
    assert issubclass(DeliveryEventInvalid, CallboardError)
    assert issubclass(DeliveryEventInvalid, ValueError)


def test_delays_survive_another_clock() -> None:
    """A delay is stored in wall time: another run, whose monotonic clock stands elsewhere, waits as long."""
    delivery = Delivery(0)
    delivery.lease(now=100.0, deadline=200.0, consumer=1, max_records=2, visible_end=2)
    delivery.nack(1, [(0, 1)], not_before=160.0, reason="later", now=100.0)
    stored = stored_form(delivery.take_events(), wall_offset_s=1_000_000.0)
    snapshot = snapshot_of(delivery, wall_offset_s=1_000_000.0)
    for again in (
        replayed(decode_events(load(stored), wall_offset_s=1_000_090.0)),
        delivery_of(snapshot, wall_offset_s=1_000_090.0),
    ):
        again.void_all_leases()
        assert 70.0 == again.offsets.next_deadline()


def busy() -> Delivery:
    """A delivery with something in every state."""
    delivery = Delivery(0)
    delivery.lease(now=0.0, deadline=9.0, consumer=1, max_records=10, visible_end=90)
    delivery.lease(now=0.0, deadline=1.0, consumer=2, max_records=1, visible_end=90)
    delivery.ack(1, [(0, 1), (4, 6)], 0.0)
    delivery.nack(1, [(1, 2)], not_before=7.0, reason=None, now=0.0)
    delivery.nack(1, [(2, 3)], not_before=0.0, reason=None, now=0.0)
    delivery.run_out(1.0)
    delivery.skip(20, 30)
    return delivery


def test_a_snapshot_is_small_and_plain() -> None:
    """A snapshot holds only CBOR's own types and comes back the same."""
    snapshot = snapshot_of(busy())
    stored = cbor2.dumps(snapshot)
    assert snapshot == cbor2.loads(stored) == snapshot_of(delivery_of(cbor2.loads(stored)))
    assert len(stored) < 500


@given(
    st.sampled_from(sorted(snapshot_of(busy()))),
    st.sampled_from([None, -1, 1, 2**70, "x", [], [b""], [b"x"] * 2, {}]),
)
def test_a_changed_snapshot_is_refused_or_whole(key: str, value: object) -> None:
    """A snapshot with one field replaced is refused, unless all invariants hold."""
    snapshot = snapshot_of(busy())
    snapshot[key] = value
    try:
        delivery = delivery_of(snapshot)
    except (DeliveryEventInvalid, FormatTooNew):
        return
    check_all(delivery.offsets)


@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_snapshot_with_a_changed_byte_is_refused_or_whole(index: int, value: int) -> None:
    """Whatever one changed byte makes of a snapshot, what restores is whole."""
    stored = bytearray(cbor2.dumps(snapshot_of(busy())))
    stored[index % len(stored)] = value
    try:
        found = cbor2.loads(bytes(stored))
    except (cbor2.CBORDecodeError, ValueError):
        return
    try:
        delivery = delivery_of(found)
    except (DeliveryEventInvalid, FormatTooNew):
        return
    check_all(delivery.offsets)
    delivery.void_all_leases()
    check_all(delivery.offsets)


def test_a_lease_that_cannot_have_been_given_whole_changes_nothing() -> None:
    """An event of which one range fits and the next does not leaves the state sound."""
    delivery = Delivery(26)
    with pytest.raises(DeliveryEventInvalid, match="not ready"):
        delivery.apply(LeaseEvent("L", 1, 7, (26, 38, 1, 50, 51, 2)))
    check_all(delivery.offsets)
    assert (delivery.offsets.floor, delivery.offsets.next, delivery.offsets.leased) == (26, 26, 0)
