"""Lines become events; bad lines become counted, named reasons."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.traffic import LINE_BYTES_MAX, Event, Format, LineColumns, Tally, detect, read_events

COMMON = b'h1.net - - [01/Aug/1995:00:00:00 +0000] "GET /a HTTP/1.0" 200 12'
COMBINED = COMMON + b' "http://ref/" "Agent \\"x\\""'
JSONL = b'{"time": 807235200, "host": "h1.net", "body": {"a": 1}}'
TSV = (b"host\tlogname\ttime\tmethod\turl", b"h1.net\t-\t807235200\tGET\t/a")
CSV = (b"TIMESTAMP,key,text", b'1995-08-01T00:00:00Z,h1.net,"a, ""b"""')
TIME_US = 807_235_200_000_000


def _read(*lines, **options):
    tally = Tally()
    return list(read_events(lines, tally=tally, **options)), tally


@pytest.mark.parametrize(
    ("lines", "form"),
    [
        ((COMMON,), Format.COMMON),
        ((COMBINED,), Format.COMBINED),
        ((JSONL,), Format.JSONL),
        (TSV, Format.TSV),
        (CSV, Format.CSV),
    ],
)
def test_each_format_is_detected_and_keyed_by_host(lines, form):
    """Without any option, the host is the key, the time is found and the value is the whole line."""
    assert detect(lines) is form
    assert _read(*lines)[0] == [Event(TIME_US, b"h1.net", lines[-1])]


def test_line_ends_and_a_byte_order_mark_are_no_part_of_the_value():
    """A file written elsewhere, with CRLF and a mark, gives the same events."""
    assert _read(b"\xef\xbb\xbf" + COMMON + b"\r\n", b"\r\n")[0] == [Event(TIME_US, b"h1.net", COMMON)]


def test_columns_may_be_named():
    """The named columns are used whatever their order and case."""
    columns = LineColumns(time="Timestamp", key="text", value="KEY")
    assert _read(*CSV, columns=columns)[0] == [Event(TIME_US, b'a, "b"', b"h1.net")]


def test_columns_may_be_numbered_in_a_table_without_a_header():
    """With positions only, and a time where the time should be, the first line is data."""
    columns = LineColumns(time="3", key="1")
    assert _read(TSV[1], columns=columns, form=Format.TSV)[0] == [Event(TIME_US, b"h1.net", TSV[1])]


def test_columns_may_be_numbered_below_a_header():
    """With positions only, a first line whose time is none is a header."""
    columns = LineColumns(time="3", key="1")
    assert _read(*TSV, columns=columns)[0] == [Event(TIME_US, b"h1.net", TSV[1])]


def test_json_fields_may_be_named():
    """A named value field that is an object is written as compact JSON."""
    assert _read(JSONL, columns=LineColumns(value="body"))[0] == [Event(TIME_US, b"h1.net", b'{"a":1}')]


def test_without_a_key_column_events_have_no_key():
    """A table of times and sizes gives events without keys."""
    assert _read(b"time,size", b"1,2")[0] == [Event(1_000_000, None, b"1,2")]


def test_a_named_column_that_is_missing_is_the_callers_mistake():
    """A wrong column name is one clear error that lists what there is, not a file full of bad lines."""
    with pytest.raises(InvalidArgument, match=r"no column 'user'.*timestamp, key, text"):
        _read(*CSV, columns=LineColumns(key="user"))


def test_a_table_without_a_time_column_is_refused():
    """A header without any known time column says which option to use."""
    with pytest.raises(InvalidArgument, match="--time-column"):
        _read(b"a,b", b"1,2")


def test_an_unknown_format_is_refused():
    """What looks like nothing known is refused with the names of the formats."""
    with pytest.raises(InvalidArgument, match="common, combined, jsonl, csv, tsv"):
        _read(b"hello world")


def test_no_lines_are_no_events():
    """An empty file is empty traffic."""
    assert _read() == ([], Tally())


def test_bad_lines_are_counted_and_named():
    """Broken lines are skipped, counted, and named by their number and reason."""
    long = b"x" * (LINE_BYTES_MAX + 1)
    events, tally = _read(COMMON, b"broken", long, b"", COMMON)
    assert len(events) == tally.events == 2
    assert (tally.lines, tally.bad) == (5, 2)
    assert [number for number, _ in tally.named] == [2, 3]
    assert "not an access log line" in tally.named[0][1]
    assert "longer than" in tally.named[1][1]


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b'{"time": null}',
        b'{"time": true}',
        b'{"time": NaN}',
        b'{"host": "a"}',
        b'{"time": 1, "host": []}',
        b'{"time": ' + b"9" * 400 + b"}",
        b'{"time":' + b"[" * 20_000,
        b'{"time": 1, "host": "' + b"k" * 5000 + b'"}',
    ],
)
def test_hostile_json_is_a_bad_line(line):
    """Wrong types, missing fields, endless numbers and bottomless nesting are bad lines."""
    events, tally = _read(line, form=Format.JSONL)
    assert (events, tally.bad) == ([], 1)


def test_only_the_first_bad_lines_are_named():
    """A file of rubbish costs a count, not memory."""
    _, tally = _read(*[b"rubbish"] * 1000, form=Format.COMMON)
    assert tally.bad == 1000
    assert len(tally.named) == 20


HOSTILE = st.one_of(
    st.binary(max_size=300),
    st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
        lambda inner: st.dictionaries(st.sampled_from(["time", "host", "x"]), inner),
    ).map(lambda value: json.dumps({"time": value, "host": value}).encode()),
    st.sampled_from([COMMON, COMBINED, JSONL, *TSV, *CSV]),
)


@given(st.lists(HOSTILE), st.sampled_from([None, *Format]))
def test_any_lines_are_events_or_bad_lines(lines, form):
    """Arbitrary bytes never crash a parser: every line is an event, a bad line, blank, or a header."""
    tally = Tally()
    try:
        events = list(read_events(lines, form=form, tally=tally))
    except InvalidArgument:
        return
    assert tally.events == len(events)
    assert tally.events + tally.bad <= tally.lines == len(lines)
    for event in events:
        assert event.time.year >= 1970


def test_the_recorded_log_is_read_whole(nasa_log):
    """All 30,969 real requests are read, in order, keyed by 2,365 hosts, without a bad line."""
    tally = Tally()
    with nasa_log.open("rb") as lines:
        events = list(read_events(lines, tally=tally))
    assert (tally.events, tally.bad) == (30_969, 0)
    assert len({event.key for event in events}) == 2365
    assert events == sorted(events, key=lambda event: event.time_us)
