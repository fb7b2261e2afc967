"""Times as traffic files write them."""

import datetime as dt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.traffic import Event, TimeFormat, parse_time, time_form

SAME = 807_249_600_250_000


@pytest.mark.parametrize(
    "text",
    [
        "807249600.25",
        "807249600250",
        "807249600250000",
        "807249600250000000",
        "1995-08-01T04:00:00.250Z",
        "1995-08-01 04:00:00.2500000",
        "1995-08-01T00:00:00.25-04:00",
        "1995/08/01 04:00:00.25",
        "1995/08/01T00:00:00.25-04:00",
    ],
)
def test_every_way_to_write_an_instant_is_told_by_its_looks(text):
    """Numbers by magnitude and ISO 8601 with and without zone are the same microsecond."""
    assert parse_time(text) == SAME


@pytest.mark.parametrize("text", ["01/Aug/1995:00:00:00 -0400", "[01/Aug/1995:04:00:00 +0000]"])
def test_the_access_logs_own_form_is_understood_with_its_zone(text):
    """The zone of a common log time is taken off, brackets or not."""
    assert parse_time(text) == SAME - 250_000
    assert parse_time(text, TimeFormat.CLF) == SAME - 250_000


def test_a_leap_second_is_the_next_minute():
    """Second 60 does not spoil a line: it is the first second of the minute that follows."""
    expected = parse_time("01/Jan/1999:00:00:00 +0000")
    assert parse_time("31/Dec/1998:23:59:60 +0000") == expected


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("12", TimeFormat.SECONDS, 12_000_000),
        ("12", TimeFormat.MILLISECONDS, 12_000),
        ("12.5", TimeFormat.MILLISECONDS, 12_500),
        ("12", TimeFormat.MICROSECONDS, 12),
        ("19950801", TimeFormat.ISO, 807_235_200_000_000),
    ],
)
def test_a_named_form_overrides_the_looks(text, form, expected):
    """Small numbers are read in the unit that was named, and a compact date as a date."""
    assert parse_time(text, form) == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%d/%m/%Y %H:%M:%S.%f", "01/08/1995 04:00:00.250000"),
        ("%m-%d-%y %I:%M:%S.%f %p %z", "08-01-95 12:00:00.25 AM -0400"),
        ("%Y%j %H:%M:%S.%f", "1995213 04:00:00.25"),
    ],
)
def test_a_pattern_describes_any_other_form(pattern, text):
    """As `datetime.strptime` reads it, in UTC without a zone; another text is a value error."""
    assert parse_time(text, time_form(pattern)) == SAME
    with pytest.raises(ValueError, match="is not a time like"):
        parse_time("1995-08-01T04:00:00", time_form(pattern))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("%d/%m %H:%M", "lacks part of the date"),
        ("%H:%M", "lacks part of the date"),
        ("%Q", "not a pattern"),
        ("%Y-%m-%d %", "not a pattern"),
        ("%Y%Y", "not a pattern"),
        ("iso8601", "is none of auto"),
        ("", "is none of auto"),
    ],
)
def test_a_pattern_without_a_whole_date_is_refused(pattern, words):
    """In words, before any time is read."""
    with pytest.raises(ValueError, match=words):
        time_form(pattern)


@given(st.text(st.sampled_from("%YmdHMSfzjyGVubBcxXp-/ "), max_size=12))
@example("%x ")
def test_any_text_is_a_form_or_a_value_error(text):
    """And a form that is taken reads what it writes."""
    try:
        form = time_form(text)
    except ValueError:
        return
    moment = dt.datetime(2024, 11, 27, tzinfo=dt.UTC)
    assert parse_time(moment.strftime(text), form) == round(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "-5",
        "nan",
        "1e9",
        "99/Aug/1995:00:00:00 +0000",
        "01/Foo/1995:00:00:00 +0000",
        "9" * 21,
    ],
)
def test_what_is_no_time_is_a_value_error(text):
    """Nonsense and times outside the years 1970 to 9999 raise ValueError."""
    with pytest.raises(ValueError, match=r"time|month|day"):
        parse_time(text)


@given(st.text(), st.sampled_from(TimeFormat))
def test_any_text_is_a_time_or_a_value_error(text, form):
    """Nothing else than ValueError ever comes out, and a time found is one that datetime can hold."""
    try:
        time_us = parse_time(text, form)
    except ValueError:
        return
    assert Event(time_us, None, b"").time.tzinfo is dt.UTC


@given(st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(9999, 12, 30), timezones=st.timezones()))  # noqa: DTZ001
def test_iso_instants_come_back_exactly(moment):
    """What isoformat writes is read back to the microsecond, whatever the zone."""
    assert Event(parse_time(moment.isoformat()), None, b"").time == moment.astimezone(dt.UTC)
