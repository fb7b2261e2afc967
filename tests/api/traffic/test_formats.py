"""Formats of traffic beyond plain access logs: virtual hosts, syslog, delimiters, nested fields, options that fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.traffic.lines import LineColumns
from callboard.traffic.reading import Format, Tally, detect, read_events
from callboard.traffic.times import TimeFormat

NOON_US = 1_777_636_800_000_000
VHOST = b'shop.example:443 192.0.2.7 - ada [01/May/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 7 "-" "curl"'
NEW = b'<34>1 2026-05-01T12:00:00.000Z mail.example sshd 411 ID47 [a b="c"] failed'
OLD = b"<34>May  1 12:00:00 mail.example sshd[411]: failed"
ISO = b"2026-05-01T14:00:00+02:00 mail.example sshd[411]: failed"


def one(line: bytes, form: Format | None = None, **columns: Any) -> tuple[int, bytes | None, bytes]:
    """The event on a line: time, key, value."""
    tally = Tally()
    found = list(read_events([line], form=form, columns=LineColumns(**columns), tally=tally))
    assert found, tally.named
    return found[0].time_us, found[0].key, found[0].value


@pytest.mark.parametrize(
    ("line", "form", "columns", "key"),
    [
        (VHOST, Format.VHOST, {}, b"192.0.2.7"),
        (VHOST, Format.VHOST, {"key": "vhost"}, b"shop.example:443"),
        (VHOST, Format.VHOST, {"key": "user"}, b"ada"),
        (VHOST.replace(b":443", b""), Format.VHOST, {}, b"192.0.2.7"),
        (VHOST.replace(b":443", b"").replace(b"192.0.2.7", b"2001:db8::7"), Format.VHOST, {}, b"2001:db8::7"),
        (VHOST.partition(b" ")[2], Format.COMBINED, {}, b"192.0.2.7"),
        (VHOST.partition(b' "-"')[0], Format.VHOST, {}, b"192.0.2.7"),
        (NEW, Format.SYSLOG, {}, b"mail.example"),
        (NEW, Format.SYSLOG, {"key": "app"}, b"sshd"),
        (OLD, Format.SYSLOG, {"year": 2026}, b"mail.example"),
        (OLD.partition(b">")[2], Format.SYSLOG, {"year": 2026, "key": "app"}, b"sshd"),
        (ISO, Format.SYSLOG, {}, b"mail.example"),
    ],
)
def test_a_line_is_told_by_its_looks(line: bytes, form: Format, columns: dict[str, Any], key: bytes) -> None:
    """Its format is detected, and it has its time, its key, and itself as its value."""
    assert detect([b"", line]) is form
    assert one(line, **columns) == (NOON_US, key, line)


@pytest.mark.parametrize(
    "line",
    [
        b"<34>May  1 12:00:00 mail.example : failed",
        b"May  1 12:00:00 mail.example [411]: failed",
        b"May  1 12:00:00 mail.example  failed",
        b"May  1 12:00:00 mail.example",
        b"2026-05-01T12:00:00Z mail.example : failed",
        b"<34>1 2026-05-01T12:00:00Z mail.example - - - - failed",
    ],
)
def test_syslog_may_lack_the_process(line: bytes) -> None:
    """Its name is no key then."""
    assert detect([line]) is Format.SYSLOG
    assert one(line, Format.SYSLOG, year=2026) == (NOON_US, b"mail.example", line)
    assert one(line, Format.SYSLOG, year=2026, key="app") == (NOON_US, None, line)


@pytest.mark.parametrize(
    "time",
    [
        b"2026-05-01 12:00:00",
        b"2026-05-01 12:00",
        b"2026-05-01 12:00:00,000",
        b"2026/05/01 12:00:00.000",
        b"2026-05-01T14:00:00+0200",
        b"2026-05-01 14:00:00 +02:00",
        b"2026-05-01 12:00:00.000 UTC",
        b"[2026-05-01 12:00:00]",
        b"[2026-05-01 12:00:00,000 +0000]",
        b"1777636800.000000",
        b"(1777636800.000)",
    ],
)
def test_a_line_may_begin_with_its_time(time: bytes) -> None:
    """As programs write it; the line is the value, and a word behind the time is the key when its number is named."""
    line = time + b" INFO, the  first: order came"
    if not time.startswith(b"2026-05-01T"):  # which is syslog, and has a host
        assert detect([line, b"Traceback", line]) is Format.TIMED
        assert one(line) == (NOON_US, None, line)
    assert one(line, Format.TIMED, key="3") == (NOON_US, b"first:", line)
    assert one(line, Format.TIMED, key="7") == (NOON_US, None, line)


def test_only_a_line_that_begins_with_a_time_has_one() -> None:
    """What goes on in the next lines is bad lines, and a table whose first column is a time stays a table."""
    lines = [
        b"2026-05-01 12:00:00 ERROR failed",
        b"Traceback",
        b"  at 2026-05-01 12:00:00",
        b"2026-13-01 12:00:00 no",
    ]
    tally = Tally()
    assert len(list(read_events(lines, form=Format.TIMED, tally=tally))) == 1
    assert [number for number, _ in tally.named] == [2, 3, 4]
    rows = [b"2026-05-01 12:00:00,7 pies,ada", b"2026-05-01 12:00:00,8 pies,bo"]
    assert detect(rows, LineColumns(time="1")) is Format.CSV
    assert detect([b"time,what", *rows]) is Format.CSV


def test_a_virtual_host_without_a_port_may_stand_before_a_name() -> None:
    """Then the format has to be named, because the second word may be what a client says of itself."""
    line = VHOST.replace(b":443", b"").replace(b"192.0.2.7", b"client.example")
    assert detect([line]) is Format.COMBINED
    found = list(read_events([line], form=Format.VHOST))
    assert [event.key for event in found] == [b"client.example"]


@pytest.mark.parametrize("client", [b"::1", b"2001:db8::7", b"localhost"])
def test_an_address_with_colons_is_no_virtual_host(client: bytes) -> None:
    """It is the client, as in any access log."""
    line = client + b' - - [01/May/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 7'
    assert detect([line]) is Format.COMMON
    assert one(line)[1] == client


HEADED = b"time,user,message"
ROW = b"2026-05-01T12:00:00Z,ada,the first order came"


@pytest.mark.parametrize(
    ("lines", "form", "events"),
    [
        ([HEADED, ROW, ROW], Format.CSV, 2),
        ([b"timestamp,level,text", b'2026-05-01T12:00:00+00:00,INFO,"started in 5 s"'], Format.CSV, 1),
        ([b"time\tuser\tmessage", ROW.replace(b",", b"\t")], Format.TSV, 1),
        ([b"time,request", b'2026-05-01T12:00:00Z,"%s"' % VHOST.replace(b'"', b'""')], Format.CSV, 1),
        ([b"text,time", b'{"a":1},2026-05-01T12:00:00Z'], Format.CSV, 1),
        ([b'{"a": 1, "time": 1777636800}', b"broken, line"], Format.JSONL, 1),
        ([b"broken, line", ISO, ISO], Format.SYSLOG, 2),
        ([VHOST, b"a, b", VHOST], Format.VHOST, 2),
    ],
)
def test_the_format_in_which_all_lines_can_be_read_is_the_one(
    lines: list[bytes], form: Format, events: int
) -> None:
    """A table whose fields look like lines of another format is a table; one bad line changes no format."""
    tally = Tally()
    assert detect(lines) is form
    assert len(list(read_events(lines, tally=tally))) == events


def test_a_named_time_column_helps_to_tell_a_table() -> None:
    """Its header has no known name, and its rows look like another format."""
    lines = [b"text,at", b'{"a":1},2026-05-01T12:00:00Z']
    assert detect(lines) is Format.JSONL
    assert detect(lines, LineColumns(time="at")) is Format.CSV
    assert len(list(read_events(lines, columns=LineColumns(time="at")))) == 1


def test_a_named_format_is_obeyed() -> None:
    """Whatever the lines look like."""
    tally = Tally()
    assert not list(read_events([ISO], form=Format.JSONL, tally=tally))
    assert tally.bad == 1


def test_fields_of_json_may_be_nested() -> None:
    """By dots, unless a field has that whole name; what is not there is told."""
    line = b'{"at": {"ms": 1777636800000}, "who": {"id": 7, "x.y": "z"}, "a.b": "whole", "a": {"b": "part"}}'
    assert one(line, time="at.ms", key="who.id") == (NOON_US, b"7", line)
    assert one(line, time="at.ms", key="a.b", value="who")[1:] == (b"whole", b'{"id":7,"x.y":"z"}')
    tally = Tally()
    for name in ("who.name", "who.id.deep", "nobody.id", ".", "who."):
        assert not list(read_events([line], columns=LineColumns(time="at.ms", value=name), tally=tally))
    assert tally.named[0][1] == "no field 'who.name' for the value"
    assert tally.bad == 5


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        ([b"time,host", b"1777636800,"], {}),
        ([b"time\thost", b"1777636800\t"], {}),
        ([b'{"time": 1777636800, "host": ""}'], {}),
        ([b'{"time": 1777636800, "host": null}'], {}),
        ([b'{"time": 1777636800}'], {}),
        ([b'{"time": 1777636800}'], {"key": "customer.id"}),
    ],
)
def test_an_event_whose_key_field_is_empty_has_no_key(lines: list[bytes], columns: dict[str, Any]) -> None:
    """Nor one whose field is null or absent; such events are counted. On request an empty field is a key."""
    tally = Tally()
    (event,) = read_events(lines, columns=LineColumns(**columns), tally=tally)
    assert (event.key, tally.keyless, tally.bad) == (None, 1, 0)
    (event,) = read_events(lines, columns=LineColumns(**columns, keeps_empty_keys=True))
    assert event.key == (b"" if lines[-1].endswith((b",", b"\t", b'""}')) else None)


@pytest.mark.parametrize("delimiter", [";", "|", "\t", "·", " "])
def test_fields_may_be_separated_by_anything(delimiter: str) -> None:
    """Quoted or not."""
    rows = [["time", "key", "text"], ["1777636800", "k", f'"a{delimiter}b"']]
    lines = [delimiter.join(row).encode() for row in rows]
    found = list(read_events(lines, columns=LineColumns(value="text", delimiter=delimiter)))
    assert [(event.time_us, event.key, event.value) for event in found] == [
        (NOON_US, b"k", f"a{delimiter}b".encode())
    ]


@pytest.mark.parametrize(
    ("form", "columns", "words"),
    [
        (Format.COMMON, {"time": "t"}, "--time-column"),
        (Format.COMBINED, {"value": "v"}, "--value-column"),
        (Format.COMMON, {"key": "ip"}, "may be host or user"),
        (Format.COMMON, {"key": "vhost"}, "may be host or user"),
        (Format.SYSLOG, {"key": "user"}, "may be host or app"),
        (Format.SYSLOG, {"time_format": TimeFormat.ISO}, "--time-format"),
        (Format.SYSLOG, {"year": 1}, "1970 to 9999"),
        (Format.TIMED, {"key": "level"}, "number of a word"),
        (Format.TIMED, {"key": "0"}, "number of a word"),
        (Format.TIMED, {"time": "1"}, "--time-column"),
        (Format.JSONL, {"delimiter": ";"}, "--delimiter is for csv"),
        (Format.TSV, {"delimiter": ";"}, "--delimiter is for csv"),
        (Format.CSV, {"delimiter": ";;"}, "not one character"),
        (Format.CSV, {"delimiter": '"'}, "not one character"),
        (Format.CSV, {"delimiter": ""}, "not one character"),
        (Format.JSONL, {"year": 2026}, "--year is for syslog"),
        (Format.CSV, {"records": "features"}, "--records is for jsonl"),
    ],
)
def test_an_option_that_says_nothing_is_refused(form: Format, columns: dict[str, Any], words: str) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidArgument, match=words):
        list(read_events([b"x"], form=form, columns=LineColumns(**columns)))


@pytest.mark.parametrize("line", [b'{"time": 1777636800}', VHOST, NEW, OLD])
def test_a_delimiter_for_lines_of_another_format_is_refused(line: bytes) -> None:
    """The format is told by the lines, not by the option that does not fit."""
    with pytest.raises(InvalidArgument, match="--delimiter is for csv"):
        list(read_events([line], columns=LineColumns(delimiter=";")))


def test_the_reasons_of_bad_lines_are_told_once_each() -> None:
    """With the numbers of their lines."""
    tally = Tally()
    assert not list(read_events([b"{", b"{}", b"[]", b"{}"], form=Format.JSONL, tally=tally))
    first, second, third = tally.reasons().split("; ")
    assert first.startswith("line 1: not JSON")
    assert second == "lines 2, 4: no time field"
    assert third == "line 3: not a JSON object"


def test_a_quoted_field_that_is_not_closed_is_told_as_that() -> None:
    """As by a reader of single lines, of a record that goes on in the next one."""
    tally = Tally()
    assert not list(read_events([b"time,text", b'1777636800,"a'], tally=tally))
    assert tally.named == [(2, "not CSV: a quoted field is not closed")]


def test_what_begins_with_blank_lines_only_is_told() -> None:
    """And a delimiter is named where the format is not recognised."""
    with pytest.raises(InvalidArgument, match="blank lines only"):
        detect([b"", b"\r\n"])
    with pytest.raises(InvalidArgument, match="--delimiter"):
        detect([b"a;b"])


def test_blank_lines_are_counted_and_a_year_is_asked_for() -> None:
    """Each line has its reason."""
    tally = Tally()
    assert not list(read_events([OLD, b"", b"\r\n", OLD.replace(b"May  1", b"Feb 30")], tally=tally))
    assert (tally.lines, tally.blank, tally.bad) == (4, 2, 2)
    assert tally.named[0] == (1, "the time has no year: name one (--year)")


@given(st.binary(max_size=200), st.sampled_from(list(Format)))
def test_no_line_breaks_a_parser(line: bytes, form: Format) -> None:
    """It is an event, or a bad line."""
    tally = Tally()
    columns = LineColumns(time="1") if form in (Format.CSV, Format.TSV) else LineColumns()
    assert len(list(read_events([line], form=form, columns=columns, tally=tally))) <= 1
