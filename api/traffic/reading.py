"""From lines to events: detection of the format, numbering, limits, and the tally of what could not be read.

A line that is not understood is counted and, for the first ones, named with its number and the reason; it
never stops the reading. Only settings that cannot be right (a column that is not there) raise `InvalidArgument`.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import attrs

from callboard.log.errors import InvalidArgument
from callboard.traffic.event import LINE_BYTES_MAX, Event
from callboard.traffic.lines import (
    BEGINS_WITH_VHOST,
    COMBINED,
    COMMON,
    SYSLOG,
    TIMED,
    VHOST,
    BadLine,
    DelimitedLines,
    LineColumns,
    Parse,
    access_log,
    json_lines,
    syslog,
    timed,
)
from callboard.traffic.quoted_records import quoted_records
from callboard.traffic.times import TimeFormat

BAD_LINES_NAMED_MAX = 20
REASONS_TOLD_MAX = 10
"""In an error."""
_SAMPLE_LINES = 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Format(enum.Enum):
    """The formats that can be read."""

    COMMON = "common"
    COMBINED = "combined"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"
    VHOST = "vhost"
    SYSLOG = "syslog"
    TIMED = "timed"


@attrs.define
class Tally:
    """What became of the lines: `lines` seen, `events` made, `keyless` of them, `bad` and `blank` ones; `named`: the
    first bad ones, with number and reason.
    """

    lines: int = 0
    events: int = 0
    keyless: int = 0
    bad: int = 0
    blank: int = 0
    named: list[tuple[int, str]] = attrs.field(factory=list)
    unit: str = "line"
    """What is numbered: a line, or an "element" of a JSON array."""

    def reasons(self) -> str:
        """Why the first bad lines are bad: each reason once, with its lines."""
        return "; ".join(self.reason_lines(self.named[:REASONS_TOLD_MAX]))

    def reason_lines(self, named: Iterable[tuple[int, str]]) -> list[str]:
        """Each reason once, with the numbers of its lines."""
        lines: dict[str, list[int]] = {}
        for number, reason in named:
            lines.setdefault(reason, []).append(number)
        return [
            f"{self.unit}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}: {reason}"
            for reason, numbers in lines.items()
        ]

    def reject(self, number: int, reason: str) -> None:
        """Count the line `number` as bad."""
        self.bad += 1
        if len(self.named) < BAD_LINES_NAMED_MAX:
            self.named.append((number, reason))


_PARSERS: dict[Format, Callable[[LineColumns], Parse]] = {
    Format.COMMON: partial(access_log, COMMON),
    Format.COMBINED: partial(access_log, COMBINED),
    Format.JSONL: json_lines,
    Format.CSV: lambda columns: DelimitedLines(columns, separator=columns.delimiter or ","),
    Format.TSV: partial(DelimitedLines, separator="\t", is_quoted=False),
    Format.VHOST: partial(access_log, VHOST),
    Format.SYSLOG: syslog,
    Format.TIMED: timed,
}
_KEYS: dict[Format, tuple[str, ...]] = {
    Format.COMMON: ("host", "user"),
    Format.COMBINED: ("host", "user"),
    Format.VHOST: ("host", "user", "vhost"),
    Format.SYSLOG: ("host", "app"),
    Format.TIMED: (),
}
"""What may be the key in formats that have no columns. Behind a time it is a word, by its number."""
_WORDS_MAX = 1_000


def check_options(form: Format, columns: LineColumns) -> None:
    """Raise `InvalidArgument` for an option that says nothing in this format."""
    problems = []
    if form in _KEYS:
        given = [what for what in ("time", "value") if getattr(columns, what) is not None]
        problems += [f"--{what}-column is for formats with columns" for what in given]
        if form is Format.TIMED:
            if columns.key is not None and not _is_place(columns.key):
                problems.append(
                    f"--key-column is {columns.key!r:.60}, and may be the number of a word behind the time, from 1"
                )
        elif columns.key not in (None, *_KEYS[form]):
            problems.append(f"--key-column is {columns.key!r:.60}, and may be {' or '.join(_KEYS[form])}")
        if columns.time_format is not TimeFormat.AUTO:
            problems.append("--time-format is for formats with columns: the time has one form here")
    if columns.delimiter is not None:
        if form is not Format.CSV:
            problems.append("--delimiter is for csv")
        elif len(columns.delimiter) != 1 or columns.delimiter in '"\r\n\0':
            problems.append(
                f"--delimiter is {columns.delimiter!r:.60}, not one character that separates fields"
            )
    if columns.records is not None and form is not Format.JSONL:
        problems.append("--records is for jsonl")
    if columns.year is not None and form is not Format.SYSLOG:
        problems.append("--year is for syslog")
    if columns.year is not None and not 1970 <= columns.year <= 9999:
        problems.append(f"--year is {columns.year}, not 1970 to 9999")
    if problems:
        raise InvalidArgument(f"format {form.value}: {'; '.join(problems)}. Nothing was read.")


def detect(sample: Sequence[bytes], columns: LineColumns | None = None) -> Format:
    """The format of a file that starts with the lines of `sample`: one in which all can be read, if there is one.

    `columns` says what is known of its columns. Raises `InvalidArgument` if none fits.
    """
    lines = [line for line in map(bare_line, sample) if line]
    if not lines:
        raise InvalidArgument("the traffic begins with blank lines only: name its format, or another file.")
    found, fitting = _of_lines(lines)
    table = Format.TSV if b"\t" in lines[0] else Format.CSV if b"," in lines[0] else None
    is_timed = not fitting and _are_timed(lines)
    is_unclear = bool(fitting) or is_timed
    if table is not None and fitting < len(lines) and (not is_unclear or _all_read(lines, table, columns)):
        return table
    if is_timed:
        return Format.TIMED
    if found is not None:
        return found
    if lines[0].lstrip().startswith(b"["):
        raise InvalidArgument(
            "this is one JSON array, or begins like one, and not lines. Make lines of it: jq -c '.[]' FILE."
        )
    names = ", ".join(form.value for form in Format)
    raise InvalidArgument(
        f"the format of the traffic is not recognised from its first lines. Name it: {names}. Of fields between other"
        " characters than commas and tabs say which (--delimiter)."
    )


def _of_lines(lines: Sequence[bytes]) -> tuple[Format | None, int]:
    """The format that most lines are clearly of, and how many are: none when all may be fields of a table."""
    looks = Counter(look for look in map(_looks_like, lines) if look is not None)
    return looks.most_common(1)[0] if looks else (None, 0)


def _are_timed(lines: Sequence[bytes]) -> bool:
    """Whether at least half of the lines begin with a time, the first one too: the others may be a traceback's."""
    begun = [TIMED.fullmatch(line) is not None for line in lines]
    return begun[0] and 2 * sum(begun) >= len(begun)


def _is_place(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 4 and 1 <= int(text) <= _WORDS_MAX


def _looks_like(line: bytes) -> Format | None:
    if line.startswith(b"{"):
        return Format.JSONL
    if VHOST.fullmatch(line) and BEGINS_WITH_VHOST.match(line):
        return Format.VHOST
    if COMBINED.fullmatch(line):
        return Format.COMBINED
    if COMMON.fullmatch(line):
        return Format.COMMON
    if SYSLOG.fullmatch(line):
        return Format.SYSLOG
    return None


def _all_read(lines: Sequence[bytes], form: Format, columns: LineColumns | None) -> bool:
    """Whether each line can be read in this format, and one is an event."""
    tally = Tally()
    try:
        for _ in read_events(lines, form=form, columns=columns, tally=tally):
            pass
    except InvalidArgument:
        return False
    return tally.events > 0 and not tally.bad


def read_events(
    lines: Iterable[bytes],
    *,
    form: Format | None = None,
    columns: LineColumns | None = None,
    tally: Tally | None = None,
) -> Iterator[Event]:
    """The events on `lines`, in their order. `form` None detects the format; `tally` is filled on the way.

    Raises `InvalidArgument`, at the first event, when the format cannot be recognized or a named column is missing.
    """
    tally = Tally() if tally is None else tally
    remaining = iter(lines)
    sample = list(itertools.islice(remaining, _SAMPLE_LINES))
    if not sample:
        return
    columns = columns or LineColumns()
    form = form or named_by(columns, sample) or detect(sample, columns)
    parse = parser_of(form, columns)
    every = itertools.chain(sample, remaining)
    records = (
        quoted_records(every, columns.delimiter or ",") if form is Format.CSV else enumerate(every, start=1)
    )
    for number, raw in records:
        tally.lines += raw.count(b"\n") if form is Format.CSV else 1
        if len(raw) > LINE_BYTES_MAX:
            tally.reject(number, f"longer than {LINE_BYTES_MAX} bytes")
            continue
        line = bare_line(raw)
        if not line:
            tally.blank += 1
            continue
        try:
            event = parse(line)
        except BadLine as error:
            tally.reject(number, str(error))
            continue
        if event is not None:
            tally.events += 1
            tally.keyless += event.key is None
            yield event


def named_by(columns: LineColumns, sample: Sequence[bytes] = ()) -> Format | None:
    """The format that an option is for, if it is for one only, and no line of `sample` is clearly of another."""
    named = Format.CSV if columns.delimiter is not None else None if columns.year is None else Format.SYSLOG
    return named and (_of_lines([bare_line(line) for line in sample])[0] or named)


def parser_of(form: Format, columns: LineColumns) -> Parse:
    """What makes events of the lines of one file, which it gets in order, without their ends (`bare_line`).

    Raises `InvalidArgument` for columns that say nothing in this format.
    """
    check_options(form, columns)
    return _PARSERS[form](columns)


def bare_line(line: bytes) -> bytes:
    """A line without its end, and the first one without a byte order mark."""
    return line.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")
