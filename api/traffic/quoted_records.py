"""CSV with line breaks between quotes: lines become records, sans I/O. What is held at a time is bounded, whatever the
file says.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from callboard.traffic.event import LINE_BYTES_MAX

_CLOSING: Final = re.compile(rb'(?>(?:[^"]|"")*)"')


def quoted_records(lines: Iterable[bytes], separator: str) -> Iterator[tuple[int, bytes]]:
    """CSV records with the numbers of their first lines: those whose quotes are closed in a later line are made one.

    A line whose quotes are not closed within `LINE_BYTES_MAX` bytes stands alone, and so does what follows it.
    """
    waiting: deque[tuple[int, bytes]] = deque()
    every = iter(enumerate(lines, start=1))
    between = separator.encode()
    held: list[tuple[int, bytes]] = []
    size_bytes, is_open = 0, False
    while True:
        item = waiting.popleft() if waiting else next(every, None)
        if item is not None:
            line = item[1] if item[1].endswith(b"\n") else item[1] + b"\n"
            held.append((item[0], line))
            size_bytes += len(line)
            is_open = is_left_open(line, between, is_open)
            if not is_open:
                yield held[0][0], b"".join([line for _, line in held])
                held, size_bytes = [], 0
                continue
        elif not held:
            return
        if item is None or size_bytes > LINE_BYTES_MAX:
            yield held[0]
            waiting.extendleft(reversed(held[1:]))
            held, size_bytes, is_open = [], 0, False


def is_left_open(line: bytes, separator: bytes, is_open: bool = False) -> bool:
    """Whether a quoted field goes on behind a line of CSV; `is_open`: one goes on from the line before.

    None goes on behind a line that is longer than `LINE_BYTES_MAX`.
    """
    if len(line) > LINE_BYTES_MAX:
        return False
    if b'"' not in line:
        return is_open
    at = 0
    while True:
        if is_open or line.startswith(b'"', at):
            closed = _CLOSING.match(line, at if is_open else at + 1)
            if closed is None:
                return True
            at, is_open = closed.end(), False
        next_field = line.find(separator, at)
        if next_field < 0:
            return False
        at = next_field + len(separator)
