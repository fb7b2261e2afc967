"""What is noted of failures, by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.delivery.failures import TABLE_SLACK, FailureNotes
from callboard.log.limits import FAILED_IN_MAX

END = 6
RANGES = st.tuples(st.integers(0, END - 1), st.integers(1, END)).map(
    lambda pair: (min(pair), max(pair[1], pair[0] + 1))
)
STEPS = st.lists(st.tuples(st.booleans(), RANGES), min_size=1, max_size=3 * TABLE_SLACK)


@given(STEPS)
def test_notes_tell_who_failed_however_many_names_come_and_go(
    steps: list[tuple[bool, tuple[int, int]]],
) -> None:
    """They agree with a plain list of names for each record, each failure in a consumer that failed never before."""
    notes = FailureNotes()
    expected: dict[int, tuple[float, tuple[str, ...]]] = {}
    for turn, (failed, (start, stop)) in enumerate(steps * 4):
        if failed:
            notes.note([(start, stop)], float(turn), str(turn))
        else:
            notes.forget(start, stop)
        for offset in range(start, stop):
            since, names = expected.pop(offset, (float(turn), ()))
            if failed:
                expected[offset] = since, (*names, str(turn))[:FAILED_IN_MAX]
    told = {at: row[2:] for row in notes.of(0, END) for at in range(row[0], row[1])}
    assert expected == told


def test_names_that_only_carved_ranges_need_outlive_a_sweep() -> None:
    """Two neighbours with different pasts fail together when the table of names is due to be swept."""
    notes = FailureNotes()
    for turn in range(TABLE_SLACK):
        notes.forget(0, 2)
        notes.note([(0, 1)], 1.0, f"a{turn}")
        notes.note([(1, 2)], 2.0, f"b{turn}")
        notes.note([(0, 2)], 3.0, f"both{turn}")
        assert notes.of(0, 2) == [
            (0, 1, 1.0, (f"a{turn}", f"both{turn}")),
            (1, 2, 2.0, (f"b{turn}", f"both{turn}")),
        ]
