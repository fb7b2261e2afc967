"""What an ack publishes, as it is stored, and what becomes of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.records.outbox_records import (
    FORM,
    HEADER,
    Addressed,
    Payload,
    Target,
    addressed,
    payload_columns,
    published,
)
from callboard.actors.source_ids import SOURCE_EPOCH, of_outbox

TIMES = st.none() | st.integers(-(2**62), 2**63 - 1)


@given(
    st.builds(
        Addressed,
        st.builds(
            Target,
            st.text("0123456789abcdef", min_size=1, max_size=32),
            st.integers(0, 2**32 - 1),
            st.booleans(),
        ),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
        TIMES,
        TIMES,
    )
)
def test_a_header_is_read_as_it_was_written(head: Addressed) -> None:
    """Whatever it says."""
    assert addressed(head.packed()) == head


@given(st.none() | st.binary(max_size=60))
def test_what_is_no_header_says_nothing_or_something(header: bytes | None) -> None:
    """It never raises."""
    head = addressed(header)
    assert head is None or head.target.topic_id


def test_a_header_of_another_form_says_nothing() -> None:
    """A later version may write such."""
    header = Addressed(Target("ab", 1), 2, 3).packed()
    assert addressed(b"\x03" + header[1:]) is None
    assert addressed(header[: FORM.size]) is None


def test_a_payload_is_published_as_it_was_given() -> None:
    """By the source, under its number, without the header, and with what did not take effect before."""
    target = Target("ab", 1)
    payloads = [
        Payload(
            target, b"one", b"key", {"headers": {"h": "1"}, "event_times": 5, "ttls": 6, "priorities": 8}
        ),
        Payload(target, b"two", None, {}),
    ]
    stored = payload_columns(payloads, 7, 9)
    assert (stored.event_times, stored.ttls) == (None, None)
    assert addressed(stored.headers(0)[HEADER]) == Addressed(target, 7, 9, 5, 6)
    source = of_outbox("cd", 0, 1)
    batch = published(source, [(3, stored, 0), (5, stored, 1)])
    assert batch.value_list() == [b"one", b"two"]
    assert batch.key_list() == [b"key", None]
    assert batch.header_list() == [{"h": b"1"}, {}]
    assert [batch.event_time(index) for index in range(2)] == [5, None]
    assert [batch.priority(index) for index in range(2)] == [8, 0]
    assert list(batch.ttls or ()) == [6, None]
    assert batch.producers == [(1, source, SOURCE_EPOCH, 3), (1, source, SOURCE_EPOCH, 5)]


def test_sources_differ() -> None:
    """Each partition of each topic is one, and each numbering."""
    places = [(topic, partition) for topic in ("ab", "cd") for partition in range(3)]
    assert len({of_outbox(*place, numbering) for place in places for numbering in (1, 2)}) == 12
