"""Times to live, the rules alone: when a record expires, and what is left out."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.partition.choice.expiry import (
    LOOK_LEAST_S,
    LOOK_MOST_S,
    has_expired,
    may_expire,
    stamp,
    unexpired,
)
from callboard.log.format.columns import FOREVER, Columns, first_expiry
from callboard.log.format.stamps import Stamps
from callboard.simulations.clock import VirtualClock
from tests.actors.partition.test_core import core_with

NOW_US = 1_000_000
TTL = st.none() | st.just(FOREVER) | st.integers(1, 2**40)


def batch(count: int, ttls: list[int | None] | None, base_offset: int = 0) -> Columns:
    """A batch to be appended."""
    columns = Columns.build([b"v"] * count, ttls=ttls)
    columns.base_offset = base_offset
    return columns


@given(st.lists(TTL, min_size=1, max_size=20), st.none() | st.integers(1, 2**40))
def test_a_record_expires_after_its_own_time_or_the_topics(ttls: list[int | None], default: Any) -> None:
    """Counted from its append; what has neither, and what is to live for ever, never."""
    columns = batch(len(ttls), ttls)
    first = stamp([columns], NOW_US, default)
    wanted = [default if ttl is None else ttl for ttl in ttls]
    instants = [None if ttl in (None, FOREVER) else NOW_US + ttl for ttl in wanted]
    assert [columns.expiry(index) for index in range(columns.count)] == instants
    assert first == first_expiry([columns]) == min([time for time in instants if time], default=None)


def test_batches_without_times_to_live_are_left_alone() -> None:
    """They get no column, unless the topic says so; stamping again gives the later instants."""
    plain, other = batch(3, None), batch(2, [None, 5])
    assert stamp([plain, other], NOW_US, None) == NOW_US + 5
    assert (plain.expiries, may_expire([plain]), may_expire([plain, other])) == (None, False, True)
    assert stamp([plain], NOW_US, 7) == NOW_US + 7
    assert stamp([plain], NOW_US + 1, 7) == NOW_US + 8
    assert list(plain.expiries or ()) == [NOW_US + 8] * 3


@given(st.lists(st.lists(TTL, min_size=1, max_size=6), max_size=6), st.integers(0, 2**41))
def test_what_has_expired_is_left_out_and_nothing_else(groups: list[list[int | None]], later: int) -> None:
    """In order, and the offsets of what is left and of what is not make up the whole."""
    batches, offset = [], 10
    for ttls in groups:
        batches.append(batch(len(ttls), ttls, offset))
        offset += len(ttls)
    stamp(batches, NOW_US, None)
    kept, expired = unexpired(batches, NOW_US + later)
    left = [place for columns in kept for place in columns.offset_list()]
    gone = [place for start, stop in expired for place in range(start, stop)]
    flat = [ttl for ttls in groups for ttl in ttls]
    assert left == [10 + at for at, ttl in enumerate(flat) if ttl in (None, FOREVER) or ttl > later]
    assert sorted(left + gone) == list(range(10, offset))


def test_a_group_has_one_look_ahead_of_it() -> None:
    """No sooner than a second, no later than a minute, and the first that was asked for."""
    core = core_with(0)
    assert core.next_deadline() is None
    core.expiry.expires(1000.0, 5.0)
    assert core.next_deadline() == 5.0 + LOOK_MOST_S
    other = core_with(0)
    other.expiry.expires(0.0, 5.0)
    other.expiry.expires(30.0, 5.1)
    assert other.next_deadline() == 5.0 + LOOK_LEAST_S


def test_a_look_that_the_disk_refuses_is_repeated() -> None:
    """Nothing is settled, and the group is looked at again within a minute."""
    core = core_with(3)
    core.expiry.expires(0.0, 0.0)
    core.time_has_come(1.0)
    assert core.expiry.unseen(1, 2.0) == (0, 3)
    assert core.next_deadline() is None
    core.expiry.skipped(1, 2.0)
    assert core.expiry.unseen(1, 2.0) is None
    assert core.next_deadline() == 2.0 + LOOK_MOST_S
    assert core.states.groups[1].delivery.offsets.floor == 0


async def test_the_first_instant_of_a_batch_is_looked_for_once() -> None:
    """It is that of the records that expire, whatever others there are, and is another when they are stamped anew."""
    mixed = batch(4, [None, 9, FOREVER, 5])
    stamp([mixed], NOW_US, None)
    aged = [
        has_expired([mixed], Stamps(), VirtualClock(NOW_US + later_us, lambda: 0.0)) for later_us in (4, 5)
    ]
    assert (mixed.first_expiry, *aged) == (
        NOW_US + 5,
        False,
        True,
    )
    assert mixed.select(0, 2).first_expiry == NOW_US + 9
    stamp([mixed], NOW_US + 1, None)
    assert mixed.first_expiry == NOW_US + 6
    assert batch(2, None).first_expiry == FOREVER
