"""Records that are not one line each: elements of a JSON array, and CSV with line breaks between quotes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.traffic.event import LINE_BYTES_MAX
from callboard.traffic.json_arrays import elements
from callboard.traffic.lines import LineColumns
from callboard.traffic.quoted_records import is_left_open, quoted_records
from callboard.traffic.reading import Format, Tally, read_events

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('"\\[]{},: \n\u20ac', max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text('"\\[]{},', max_size=4), children)
    ),
    max_leaves=8,
)


def cut(content: bytes, size: int) -> Iterator[bytes]:
    """A file in pieces."""
    return (content[at : at + size] for at in range(0, len(content), size))


@given(
    st.lists(JSON.filter(lambda each: each is not None), max_size=5),
    st.integers(1, 40),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_the_elements_of_an_array_are_found_however_it_is_laid_out_and_read(
    array: list[object], size: int, indent: int | None, is_ascii: bool
) -> None:
    """Whatever signs are in their texts."""
    content = json.dumps(array, indent=indent, ensure_ascii=is_ascii).encode()
    for start in (b"", b"\xef\xbb\xbf", b" \n"):
        assert [json.loads(found) for found in elements(cut(start + content + b"\n", size))] == array


@given(
    st.dictionaries(st.text(max_size=4) | st.just("features"), JSON, max_size=4),
    st.lists(JSON.filter(lambda each: each is not None), max_size=4),
    st.text(max_size=4) | st.sampled_from(["features", "a.b", 'a"b', "\\", "[", ":"]),
    st.integers(1, 40),
    st.booleans(),
)
def test_the_elements_of_a_member_are_found_wherever_it_stands(
    others: dict[str, object], array: list[object], name: str, size: int, is_ascii: bool
) -> None:
    """The one outside of all others, whatever these hold; what follows it is not looked at."""
    others = {"first": [[{name: [0]}], {name: [1]}, name], **others, name: array, "last": [{name: [2]}, name]}
    content = json.dumps(others, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    assert [json.loads(found) for found in elements(cut(content, size), name)] == array


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b'{"a": [1], "feature": [2]}', b'{"features": 1}', b'{"x": "features", "y": [1]}'],
)
def test_a_file_without_the_member_is_refused(content: bytes) -> None:
    """And so is one whose member is no array."""
    with pytest.raises(InvalidArgument, match="no JSON object with an array 'features'"):
        list(elements([content], "features"))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"[]", []),
        (b'[{"a": 1}, {"b"', [b'{"a": 1}', b'{"b"']),
        (b"[1, , 2]", [b"1", b"", b"2"]),
        (b"[1] behind [2]", [b"1", b"behind [2]"]),
        (b"[1]]", [b"1", b"]"]),
    ],
)
def test_what_is_no_whole_array_loses_nothing(content: bytes, found: list[bytes]) -> None:
    """What follows it, or breaks off, is an element that nobody can read."""
    assert list(elements([content])) == found


def test_a_long_element_is_cut_and_the_next_one_is_read() -> None:
    """It is one byte longer than any good line, however long it was."""
    content = b'["' + b"x" * (3 * LINE_BYTES_MAX) + b'", 5]'
    first, second = elements(cut(content, 1000))
    assert (len(first), second) == (LINE_BYTES_MAX + 1, b"5")


@given(
    st.lists(st.lists(st.text('ab",;\n', max_size=6), min_size=2, max_size=3), min_size=1, max_size=6),
    st.sampled_from([",", ";"]),
)
def test_records_of_csv_are_joined_as_the_library_reads_them(rows: list[list[str]], separator: str) -> None:
    """Line breaks between quotes are part of their fields."""
    written = io.StringIO()
    csv.writer(written, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    lines = written.getvalue().encode().splitlines(keepends=True)
    found = [
        next(csv.reader(io.StringIO(record.decode(), newline=""), delimiter=separator))
        for _, record in quoted_records(lines, separator)
    ]
    assert found == rows


@given(st.lists(st.text('ab",', max_size=8), max_size=6), st.booleans())
def test_lines_are_joined_only_behind_one_that_leaves_a_quote_open(
    texts: list[str], are_closed: bool
) -> None:
    """Of a file without such a line, each line is a record: its lines may be read apart."""
    lines = [text.encode() for text in texts]
    if are_closed:
        lines = [line for line in lines if not is_left_open(line, b",")]
    records = list(quoted_records(lines, ","))
    if not any(is_left_open(line, b",") for line in lines):
        assert records == [(number, line + b"\n") for number, line in enumerate(lines, start=1)]
    assert b"".join(record for _, record in records) == b"".join(line + b"\n" for line in lines)


def test_events_of_csv_with_line_breaks_keep_them() -> None:
    """The value is the record as it was written, and lines are counted as they are in the file."""
    lines = [
        b"time,key,text\n",
        b'1,a,"one\n',
        b"\n",
        b'two, ""three"""\n',
        b'2,b,5" pipe\n',
        b'3,c,"open\n',
        b"4,d,last\n",
    ]
    tally = Tally()
    events = list(read_events(lines, form=Format.CSV, columns=LineColumns(value="text"), tally=tally))
    assert [event.value for event in events] == [b'one\n\ntwo, "three"', b'5" pipe', b"last"]
    assert (tally.lines, tally.events, tally.bad) == (7, 3, 1)
    assert tally.named[0][0] == 6


def test_quotes_that_are_never_closed_spoil_one_line_each() -> None:
    """What follows is read, and no more than a record's bytes are held meanwhile."""
    lines = [b"time,text\n", b'1,"open\n', *(b"%d,%s\n" % (number, b"x" * 500) for number in range(2, 1000))]
    tally = Tally()
    events = list(read_events(lines, form=Format.CSV, tally=tally))
    assert [event.time_us for event in events][:2] == [2_000_000, 3_000_000]
    assert (len(events), tally.bad, tally.lines) == (998, 1, 1000)
