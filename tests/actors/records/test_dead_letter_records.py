"""What a dead letter becomes in the topic it is forwarded to."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.dead_letters import StoredLetter
from callboard.actors.records.dead_letter_records import Found, Origin, forwarded
from callboard.actors.source_ids import (
    SOURCE_EPOCH,
    of_dead_letters,
    of_delays,
    of_outbox,
)
from callboard.log.format.columns import Columns
from callboard.log.format.frame import encode_frame

ORIGIN = Origin("orders", "00ff", 3, "billing", 7)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    value=st.none() | st.binary(max_size=9),
    key=st.none() | st.binary(max_size=9),
    headers=st.dictionaries(TEXT.filter(bool), st.binary(max_size=5), max_size=3),
    time=st.none() | st.integers(0, 2**50),
    reason=st.none() | TEXT,
)
def test_a_message_is_forwarded_as_it_was(value: Any, key: Any, headers: Any, time: Any, reason: Any) -> None:
    """With its time, which is that of its first append when it had none; and what is ours can be stored."""
    columns = Columns.build([b"other", value], [None, key], [{}, headers], [None, time], priorities=[None, 8])
    columns.append_time_us = 5
    letter = StoredLetter(41, 9, 3, 10.5, 12, reason, numbering=5)
    batch = forwarded(ORIGIN, [Found(letter, "clerk", columns, 1)], 1000.0)
    assert (batch.value(0), batch.key(0), batch.priority(0)) == (value, key, 8)
    assert batch.event_time(0) == (5 if time is None else time)
    found = batch.headers(0)
    ours = {name: told for name, told in found.items() if name.startswith("callboard-")}
    own = {name: told for name, told in headers.items() if not name.startswith("callboard-")}
    assert {name: told for name, told in found.items() if name not in ours} == own
    assert ours["callboard-failed-at"] == b"1970-01-01T00:16:50.500000+00:00"
    assert (ours["callboard-attempts"], ours["callboard-consumer"]) == (b"3", b"clerk")
    assert ours.get("callboard-reason") == (None if reason is None else reason.encode())
    assert batch.producers == [(1, ORIGIN.producer_id(5), SOURCE_EPOCH, 41)]
    assert encode_frame(batch, segment_id=1, base_offset=0, append_time_us=0)


def test_a_message_that_is_gone_is_told_of() -> None:
    """Its dead letter has an empty value."""
    batch = forwarded(ORIGIN, [Found(StoredLetter(0, 9, 1, 0.0, None, "late"), None)], 0.0)
    assert (batch.value(0), batch.headers(0)["callboard-lost"]) == (b"", b"1")
    assert "callboard-consumer" not in batch.headers(0)


def test_every_partition_group_and_numbering_is_a_source_of_its_own() -> None:
    """And a topic that is made again is another one."""
    others = [
        ORIGIN,
        Origin("orders", "00ff", 4, "billing", 7),
        Origin("orders", "00ff", 3, "billing", 8),
        Origin("orders", "00fe", 3, "billing", 7),
    ]
    sources = {origin.producer_id(numbering) for origin in others for numbering in (0, 1)}
    assert len(sources) == 2 * len(others)
    assert Origin("renamed", "00ff", 3, "another", 7).producer_id(1) == ORIGIN.producer_id(1)


def test_numbers_that_an_older_version_counts_keep_their_source() -> None:
    """What it forwarded, and had not forgotten, is still known where it is."""
    assert of_dead_letters("00ff", 3, 7, 0) == _hashed("dead letters of 00ff/3 in 7")
    assert of_outbox("00ff", 3, 0) == _hashed("outbox of 00ff/3")
    assert of_delays("00ff", 3, 0) == _hashed("delayed records of 00ff/3")


def _hashed(words: str) -> int:
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "little")
