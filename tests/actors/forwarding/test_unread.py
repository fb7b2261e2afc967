"""Picking what is pending out of what is read when a directory opens."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.receipts import merged
from callboard.actors.forwarding.unread import Unread
from callboard.actors.records.delayed_records import DELAYED, DueTime, moments_of
from callboard.log.format.columns import Columns


def batch_of(offsets: list[int], base: int, end: int) -> Columns:
    """A batch from `base` to `end` with records at these offsets, each due at its own."""
    headers = [{DELAYED: DueTime(offset).packed()} for offset in offsets]
    columns = Columns.build([b""] * len(offsets), None, headers)
    columns.base_offset = base
    if offsets != list(range(base, end)):
        columns.span, columns.offset_deltas = (
            end - 1 - base,
            array("I", [offset - base for offset in offsets]),
        )
    return columns


@given(
    st.sets(st.integers(0, 40)),
    st.sets(st.integers(0, 40)),
    st.lists(st.integers(1, 12), max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_what_is_pending_is_taken_and_what_lacks_is_named(
    pending: set[int], stored: set[int], sizes: list[int], absent: set[int]
) -> None:
    """However batches are cut, whichever are missing: each pending record is taken once or missing, and no other is."""
    unread = Unread(merged([(offset, offset + 1) for offset in sorted(pending)]))
    taken: list[int] = []
    held: set[int] = set()
    base = 0
    for number, size in enumerate([*sizes, 41]):
        offsets = [offset for offset in range(base, base + size) if offset in stored]
        if offsets and number not in absent:
            span = unread.span()
            assert span is None or span[0] == min(o for o in pending if o not in taken and o >= base)
            columns = batch_of(offsets, base, base + size)
            ids, moments = unread.take(columns)
            assert [(moment[1]) for moment in moments] == list(ids)
            assert len(moments_of(columns)) == len(offsets)
            taken += ids
            held |= set(offsets)
        unread.pass_over(base + size)
        base += size
    assert taken == sorted(pending & held)
    lacking = {offset for start, stop in unread.missing for offset in range(start, stop)}
    assert lacking == pending - held
    assert unread.span() is None
