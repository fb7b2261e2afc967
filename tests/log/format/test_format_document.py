"""docs/format.md: its tables and its worked example are made from the code; the rest is checked by the golden files.

Run this module as a program to write the generated parts anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callboard.log import limits
from callboard.log.format.columns import Columns
from callboard.log.format.committed import COMMITTED_LAYOUT
from callboard.log.format.frame import BODY_COLUMNS, FRAME_LAYOUT, encode_frame
from callboard.log.format.index import INDEX_LAYOUT
from callboard.log.format.layout import Layout
from callboard.log.format.segment import SEGMENT_LAYOUT, encode_segment_header

PAGE = Path(__file__).resolve().parents[3] / "docs" / "format.md"
SEGMENT = 0x0123456789ABCDEF
NOON_US = 1_700_000_000_000_000


def layout_table(layout: Layout) -> str:
    rows = ["| at | bytes | type | field | meaning |", "|---|---|---|---|---|"]
    rows += [
        f"| {at} | {size} | {type_name} | `{name}` | {meaning} |"
        for at, size, type_name, name, meaning in layout.rows()
    ]
    return "\n".join(rows)


def column_table() -> str:
    rows = ["| key | column | type | tag | present when | holds |", "|---|---|---|---|---|---|"]
    rows += [
        f"| {column.key} | `{column.name}` | {column.type.name} | {column.type.tag or ''} | {column.present} | "
        f"{column.meaning} |"
        for column in BODY_COLUMNS
    ]
    return "\n".join(rows)


def limit_table() -> str:
    rows = [
        ("records in a frame", limits.BATCH_RECORDS_MAX),
        ("bytes of a stored body", limits.FRAME_BODY_BYTES_MAX),
        ("bytes of a body when uncompressed", limits.FRAME_DECOMPRESSED_BYTES_MAX),
        ("bytes between two entries of an index", limits.INDEX_INTERVAL_BYTES),
    ]
    return "\n".join(["| what | limit |", "|---|---|", *(f"| {what} | {limit:,} |" for what, limit in rows)])


def field_lines(layout: Layout, data: bytes, start: int) -> Iterator[tuple[int, bytes, str]]:
    """(position, bytes, explanation) of every field of a header."""
    values = layout.struct.unpack_from(data, start)
    for (at, size, _, name, _), value in zip(layout.rows(), values, strict=True):
        shown = (
            ""
            if isinstance(value, bytes)
            else f" {value}"
            if value < 2**32 or "id" not in name
            else f" {value:#x}"
        )
        yield start + at, data[start + at : start + at + size], name + shown


def example() -> str:
    """A segment with one frame of two records, byte by byte."""
    columns = Columns.build([b"hello", b"board"], [b"alice", None])
    (frame,) = encode_frame(columns, segment_id=SEGMENT, base_offset=42, append_time_us=NOON_US)
    data = encode_segment_header(segment_id=SEGMENT, base_offset=42, created_us=NOON_US) + bytes(frame)
    lines = list(field_lines(SEGMENT_LAYOUT, data, 0))
    lines.append((64, b"", "the same 64 bytes again"))
    lines += field_lines(FRAME_LAYOUT, data, 128)
    at = 128 + FRAME_LAYOUT.size_bytes
    for length, meaning in (
        (1, "a map of 5 columns"),
        (2, "key 0, values: 10 bytes"),
        (10, "helloboard"),
        (4, "key 1, value_ends: tag 70, 12 bytes"),
        (12, "0, 5, 10"),
        (2, "key 3, keys: 5 bytes"),
        (5, "alice"),
        (4, "key 4, key_ends: tag 70, 12 bytes"),
        (12, "0, 5, 5"),
        (2, "key 5, key_nulls: 1 byte"),
        (1, "bit 1: record 1 has no key"),
    ):
        lines.append((at, data[at : at + length], meaning))
        at += length
    if at != len(data):
        raise ValueError("the example does not explain all bytes of its frame")
    rows = [f"{position:>4}  {part.hex(' '):<59}  {meaning}" for position, part, meaning in lines]
    return "\n".join(["```text", *rows, "```"])


PARTS: dict[str, Callable[[], str]] = {
    "segment header": lambda: layout_table(SEGMENT_LAYOUT),
    "frame header": lambda: layout_table(FRAME_LAYOUT),
    "columns": column_table,
    "index header": lambda: layout_table(INDEX_LAYOUT),
    "committed slot": lambda: layout_table(COMMITTED_LAYOUT),
    "limits": limit_table,
    "example": example,
}


def renewed(page: str) -> str:
    """The page with all generated parts as the code would make them now."""
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- made from the code: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = pattern.subn(
            lambda match, make=make: match[1] + "\n" + make() + "\n\n" + match[2], page
        )
        if count != 1:
            raise ValueError(f"docs/format.md has {count} parts called {name!r}")
    return page


def test_the_format_page_has_not_drifted() -> None:
    """Every table and the worked example in docs/format.md are what the code makes today."""
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, f"run: python {Path(__file__).name}"


def test_a_page_that_lacks_a_part_is_noticed() -> None:
    """A generated part cannot be removed from the page unnoticed."""
    with pytest.raises(ValueError, match="0 parts"):
        renewed("")


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
