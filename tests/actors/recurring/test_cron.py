"""When schedules are due: cron expressions in zones whose clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.recurring.cron import Cron, Every, check_cron, latest
from callboard.log.errors import InvalidArgument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BERLIN, NEW_YORK, LORD_HOWE = (
    ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
)
CHANGES = {
    "Berlin, forward": (BERLIN, datetime(2025, 3, 30, 1, tzinfo=UTC)),
    "Berlin, back": (BERLIN, datetime(2025, 10, 26, 1, tzinfo=UTC)),
    "New York, forward": (NEW_YORK, datetime(2025, 3, 9, 7, tzinfo=UTC)),
    "New York, back": (NEW_YORK, datetime(2025, 11, 2, 6, tzinfo=UTC)),
    "Lord Howe, forward": (LORD_HOWE, datetime(2025, 10, 4, 15, 30, tzinfo=UTC)),
    "Lord Howe, back": (LORD_HOWE, datetime(2025, 4, 5, 15, tzinfo=UTC)),
}
"""A zone, and when its clocks change."""


def to_us(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def dues(rule: Cron | Every, start: datetime, stop: datetime) -> list[datetime]:
    """The due instants in `(start, stop]`."""
    found, at = [], to_us(start)
    while (at := rule.after(at) or 2**62) <= to_us(stop):
        found.append(EPOCH + timedelta(microseconds=at))
    return found


def shown(expression: str, zone: ZoneInfo, day: date) -> list[str]:
    """What a clock in the zone shows at the due instants of the day that begins at `day`, with the offset from UTC."""
    start = datetime.combine(day, time(), zone)
    found = dues(Cron(expression, zone), start - timedelta(microseconds=1), start + timedelta(days=1))
    here = [each.astimezone(zone) for each in found]
    return [each.strftime("%H:%M%z") for each in here if each.date() == day]


@pytest.mark.parametrize(
    ("zone", "day", "expression", "expected"),
    [
        (BERLIN, date(2025, 3, 30), "30 2 * * *", ["03:00+0200"]),
        (BERLIN, date(2025, 3, 30), "0,15,30 2 * * *", ["03:00+0200"]),
        (BERLIN, date(2025, 3, 30), "30 1,2,3 * * *", ["01:30+0100", "03:00+0200", "03:30+0200"]),
        (BERLIN, date(2025, 3, 30), "*/30 2 * * *", []),
        (BERLIN, date(2025, 3, 30), "0 9 * * *", ["09:00+0200"]),
        (BERLIN, date(2025, 10, 26), "30 2 * * *", ["02:30+0200"]),
        (
            BERLIN,
            date(2025, 10, 26),
            "*/30 2 * * *",
            ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"],
        ),
        (BERLIN, date(2025, 10, 26), "0 3 * * *", ["03:00+0100"]),
        (NEW_YORK, date(2025, 3, 9), "30 2 * * *", ["03:00-0400"]),
        (NEW_YORK, date(2025, 3, 9), "59 1 * * *", ["01:59-0500"]),
        (NEW_YORK, date(2025, 11, 2), "30 1 * * *", ["01:30-0400"]),
        (
            NEW_YORK,
            date(2025, 11, 2),
            "*/30 1 * * *",
            ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"],
        ),
        (LORD_HOWE, date(2025, 10, 5), "15 2 * * *", ["02:30+1100"]),
        (LORD_HOWE, date(2025, 10, 5), "45 2 * * *", ["02:45+1100"]),
        (
            LORD_HOWE,
            date(2025, 10, 5),
            "0 */4 * * *",
            ["00:00+1030", *(f"{h:02}:00+1100" for h in (4, 8, 12, 16, 20))],
        ),
        (LORD_HOWE, date(2025, 4, 6), "45 1 * * *", ["01:45+1100"]),
        (
            LORD_HOWE,
            date(2025, 4, 6),
            "*/15 1 * * *",
            ["01:00+1100", "01:15+1100", "01:30+1100", "01:45+1100", "01:30+1030", "01:45+1030"],
        ),
        (LORD_HOWE, date(2025, 4, 6), "15 1 * * *", ["01:15+1100"]),
    ],
)
def test_clock_changes(zone: ZoneInfo, day: date, expression: str, expected: list[str]) -> None:
    """Times of day come once; other expressions come whenever the zone's clock shows a matching time."""
    assert shown(expression, zone, day) == expected


@pytest.mark.parametrize(("day", "expected"), [(date(2025, 3, 30), 23), (date(2025, 10, 26), 25)])
def test_each_hour_that_passes(day: date, expected: int) -> None:
    """An expression for each hour comes 23 times and 25 times on the days of Berlin's clock changes."""
    assert len(shown("0 * * * *", BERLIN, day)) == expected


def test_a_day_that_a_zone_left_out_comes_at_its_end() -> None:
    """Samoa had no 30 December 2011: what was due on that day is due as the next one begins."""
    apia = ZoneInfo("Pacific/Apia")
    rule = Cron("0 9 30 12 *", apia)
    (due,) = dues(rule, datetime(2011, 12, 29, tzinfo=UTC), datetime(2012, 1, 2, tzinfo=UTC))
    assert due.astimezone(apia) == datetime(2011, 12, 31, tzinfo=apia)


def minutes(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    lists = st.lists(one, min_size=1, max_size=3).map(",".join)
    spans = st.tuples(st.integers(low, high), st.integers(low, high)).map(
        lambda two: f"{min(two)}-{max(two)}"
    )
    steps = st.integers(1, 20).map(lambda step: f"*/{step}")
    return st.one_of(one, lists, spans, steps, st.just("*"))


def expanded(field: str, low: int, high: int) -> set[int]:
    """What a field of `minutes` names."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(CHANGES)), minutes(0, 59), minutes(0, 23))
def test_as_a_clock_on_the_wall_would_tell(change: str, minute: str, hour: str) -> None:
    """The due instants around a clock change are those that looking at the zone's clock each minute finds."""
    zone, at = CHANGES[change]
    start, stop = at - timedelta(hours=30), at + timedelta(hours=30)
    wanted_hours, wanted_minutes = expanded(hour, 0, 23), expanded(minute, 0, 59)
    expected: list[datetime] = []
    told: set[datetime] = set()
    before = start.astimezone(zone).replace(tzinfo=None)
    now = start + MINUTE
    while now <= stop:
        wall = now.astimezone(zone).replace(tzinfo=None)
        walls = [wall]
        if not minute.startswith("*") and not hour.startswith("*"):
            gap = before + MINUTE
            while gap < wall:  # what the clock has leapt over
                walls.append(gap)
                gap += MINUTE
            walls = [each for each in walls if each not in told]
            told.update(walls)
        if any(each.hour in wanted_hours and each.minute in wanted_minutes for each in walls):
            expected.append(now)
        before, now = wall, now + MINUTE
    assert dues(Cron(f"{minute} {hour} * * *", zone), start, stop) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2_000_000_000),
    st.integers(0, 90_000),
    minutes(0, 59),
    minutes(0, 23),
    st.sampled_from((BERLIN, LORD_HOWE, UTC)),
)
def test_the_latest(after_s: int, span_s: int, minute: str, hour: str, zone: ZoneInfo) -> None:
    """The last due instant of a span is the one that counting through it ends with."""
    rule, at = Cron(f"{minute} {hour} * * *", zone), after_s * 1_000_000 + 7
    until, last = at + span_s * 1_000_000, None
    step = rule.after(at)
    while step is not None and step <= until:
        step, last = rule.after(step), step
    assert latest(rule, at, until) == last


def test_every() -> None:
    """Instants lie so far apart, before their anchor too, and the next one is always later."""
    rule = Every(5_000_000, 12_000_000)
    assert [rule.after(at) for at in (0, 2_000_000, 11_999_999, 12_000_000)] == [
        2_000_000,
        7_000_000,
        12_000_000,
        17_000_000,
    ]


def test_every_ends_with_the_calendar() -> None:
    """As cron expressions do: there is no due instant that no calendar shows, and none is counted."""
    century, start = 100 * 366 * 86_400_000_000, to_us(datetime(2025, 1, 1, tzinfo=UTC))
    rule, found = Every(century, start), [start]
    while (due := rule.after(found[-1])) is not None:
        found.append(due)
    assert found == [start + number * century for number in range(79)]
    assert datetime(9800, 1, 1, tzinfo=UTC) < EPOCH + timedelta(microseconds=found[-1])
    assert rule.count(start, 2**62) == 78


@given(st.integers(-100, 100), st.integers(0, 100), st.integers(1, 9), st.integers(-20, 20))
def test_every_counts_what_it_names(after: int, span: int, every: int, anchor: int) -> None:
    """How many are due in a span is how many are met when they are gone through."""
    rule, met, at = Every(every, anchor), 0, after
    while (due := rule.after(at)) is not None and due <= after + span:
        met, at = met + 1, due
    assert rule.count(after, after + span) == met


def test_seconds_come_first_of_six() -> None:
    """The first of six fields is for seconds."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    found = dues(Cron("*/20 5 0 * * *", UTC), start, start + timedelta(hours=1))
    assert [each.strftime("%M:%S") for each in found] == ["05:00", "05:20", "05:40"]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("61 * * * *", "field for the minute is '61'"),
        ("* 24 * * *", "field for the hour is '24'"),
        ("* * 0 * *", "field for the day of month is '0'"),
        ("* * * FOO *", "field for the month is 'FOO'"),
        ("* * * * MON#6", "field for the day of week is 'MON#6'"),
        ("* * * * MON#1/2", "field for the day of week"),
        ("5-1 * * * *", "field for the minute is '5-1'"),
        ("*/0 * * * *", "field for the minute"),
        ("99 * * * * *", "field for the second is '99'"),
        ("\u0663 * * * *", "field for the minute"),
        ("0 0 30 2 *", "never due"),
        ("0 0 31 4,6,9,11 *", "never due"),
        ("* * * *", "has 4 fields"),
        ("", "has 0 fields"),
        ("@daily", "Write @daily as"),
        ("1," * 200 + "1 * * * *", "letters"),
        (5, "not an expression"),
    ],
)
def test_wrong_expressions(expression: object, words: str) -> None:
    """What is wrong with an expression is said before anything else is done: which field, and what it may hold."""
    with pytest.raises(InvalidArgument, match="Nothing was changed") as caught:
        check_cron(expression)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["0 0 29 2 *", "0 0 30 2 MON", "0 0 * 2 MON#5", "0 0 L * *", "0 0 LW * *", "0 0 * * 5L"]
)
def test_rare_days(expression: str) -> None:
    """Days that come every few years are named all the same."""
    assert Cron(expression, BERLIN).after(to_us(datetime(2025, 1, 1, tzinfo=UTC))) is not None


def test_no_text_breaks_it() -> None:
    """Whatever the text, it is an expression, or refused."""

    @given(st.lists(st.text("0123456789*/,-#LWMON@", max_size=6), min_size=5, max_size=6).map(" ".join))
    def check(text: str) -> None:
        try:
            rule = Cron(text, LORD_HOWE)
        except InvalidArgument:
            return
        at = to_us(datetime(2025, 1, 1, tzinfo=UTC))
        due = rule.after(at)
        assert due is None or due > at

    check()


@pytest.mark.parametrize(
    ("expression", "due"),
    [
        ("5-5/10 * * * *", [(0, 5), (1, 5), (2, 5)]),
        ("0 5-5/3 * * *", [(5, 0)]),
        ("5-5/10,30-30/2 * * * *", [(0, 5), (0, 30), (1, 5)]),
        ("10-50/15 0 * * *", [(0, 10), (0, 25), (0, 40)]),
        ("5/15 0 * * *", [(0, 5), (0, 20), (0, 35), (0, 50)]),
        ("15-5/10 5 * * *", None),
    ],
)
def test_a_range_of_one_value_is_that_value(expression: str, due: list[tuple[int, int]] | None) -> None:
    """Whatever its step: it is not widened to the end of the field."""
    if due is None:
        with pytest.raises(InvalidArgument):
            Cron(expression, UTC)
        return
    cron, at, found = Cron(expression, UTC), start_us() - 1, []
    while len(found) < len(due):
        at = cron.after(at) or 0
        moment = datetime.fromtimestamp(at / 1e6, UTC)
        found.append((moment.hour, moment.minute))
    assert found == due


def start_us() -> int:
    """The beginning of a day."""
    return int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)
