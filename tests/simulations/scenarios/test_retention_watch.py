"""How old the watch of what retention drops takes a segment to be, where the wall clock was set anew."""

from __future__ import annotations

from callboard.simulations.scenarios.retention_watch import DECIDED_US, oldest_us

SECOND = 1_000_000
HOUR = 3600 * SECOND
NOON = 1_700_000_000 * SECOND


def test_a_stamp_counts_as_it_is() -> None:
    """Without a jump, and where the clock was set back by less than what is believed."""
    assert oldest_us(NOON, None, NOON + 5, []) == 5
    set_back = [(NOON, NOON - HOUR // 2)]
    assert oldest_us(NOON, None, NOON - HOUR // 2 + 2 * DECIDED_US, set_back) == 2 * DECIDED_US - HOUR // 2


def test_a_stamp_of_a_wrong_clock_is_no_older_than_the_earliest_time_since() -> None:
    """The clock may have been set back once more before that was noticed; what it showed earlier does not count."""
    first, second = NOON - 2 * HOUR, NOON - 2 * HOUR - 20 * SECOND
    jumps = [(NOON - 9 * HOUR, NOON - 8 * HOUR), (NOON, first), (first, second)]
    now = second + 2 * DECIDED_US
    assert oldest_us(NOON, None, now, jumps) == now - second
    assert oldest_us(NOON, None, first + 2 * DECIDED_US, jumps[:2]) == 2 * DECIDED_US


def test_what_goes_may_have_been_decided_before_the_last_jumps() -> None:
    """A segment is unlinked a moment after the decision, and by then the clock may have been set back, also twice."""
    stamp, shown = NOON - 5 * SECOND, NOON
    jumps = [(shown, NOON - HOUR // 4), (NOON - HOUR // 4, NOON - HOUR // 2)]
    assert oldest_us(stamp, None, NOON - HOUR // 2 + DECIDED_US, jumps) == 5 * SECOND
    assert (
        oldest_us(stamp, None, NOON - HOUR // 2 + DECIDED_US + 1, jumps)
        == DECIDED_US + 1 + 5 * SECOND - HOUR // 2
    )


def test_a_segment_with_a_stamp_of_a_wrong_clock_counts_as_of_the_one_behind_it() -> None:
    """Also when that was stamped before the clock was set back once more; what is not ahead counts as it is."""
    behind = NOON - 2 * HOUR
    now = behind + 2 * DECIDED_US
    assert oldest_us(NOON, behind, now, [(NOON, behind)]) == 2 * DECIDED_US
    assert oldest_us(NOON, behind + HOUR // 2, now, [(NOON, behind)]) == 2 * DECIDED_US - HOUR // 2
    assert oldest_us(NOON, NOON + 5, now, [(NOON + 9, behind)]) == 2 * DECIDED_US
    assert oldest_us(behind + 1, behind + 2, now, []) == 2 * DECIDED_US - 1
