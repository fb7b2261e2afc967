"""Zstandard frames come out piece by piece; lines are cut from pieces wherever these end."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from callboard.traffic.event import LINE_BYTES_MAX
from callboard.traffic.unpacking import ZSTD_FED_BYTES, cut_lines, unpacked_zstd


def fed(packed: bytes) -> list[bytes]:
    """In pieces as a reader gives them."""
    return [packed[at : at + ZSTD_FED_BYTES] for at in range(0, len(packed), ZSTD_FED_BYTES)]


@given(st.lists(st.binary(max_size=2_000), max_size=4))
def test_frames_are_unpacked_one_after_the_other(texts: list[bytes]) -> None:
    """Several frames give what they hold, together."""
    packed = b"".join(zstandard.compress(text) for text in texts)
    assert b"".join(unpacked_zstd(fed(packed))) == b"".join(texts)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_frame_that_ends_early_is_an_error(cut: int) -> None:
    """What lacks its end is told once all that is there was given."""
    packed = zstandard.compress(bytes(range(256)) * 8)
    with pytest.raises(EOFError, match="within a Zstandard frame"):
        list(unpacked_zstd(fed(packed[:-cut])))


def test_what_is_no_frame_is_an_error() -> None:
    """Other bytes are not taken for a frame."""
    with pytest.raises(zstandard.ZstdError):
        list(unpacked_zstd([b"plain text, and more of it"]))


@given(st.binary(max_size=60), st.integers(min_value=1, max_value=9))
def test_lines_are_cut_wherever_pieces_end(text: bytes, size: int) -> None:
    """Lines are those of the whole text, however it is divided."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    expected = text.split(b"\n")
    assert list(cut_lines(pieces)) == (expected if expected[-1] else expected[:-1])


def test_a_long_line_is_cut() -> None:
    """Of a line that is too long one byte more is kept than is allowed: enough to tell."""
    pieces = [b"x" * 40_000, b"y" * 40_000, b"z" * 10 + b"\nshort\n"]
    assert [len(line) for line in cut_lines(pieces)] == [LINE_BYTES_MAX + 1, 5]
