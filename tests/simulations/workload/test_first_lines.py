"""The first lines of a file, from its first bytes: what it is detected by."""

from __future__ import annotations

import bz2
import gzip
import random
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import zstandard

from callboard.log.errors import InvalidArgument

LINES = [b"line %d" % number for number in range(50)]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": partial(bz2.compress, compresslevel=1),
    ".zst": zstandard.compress,
}


@pytest.fixture(scope="module")
def parsing(spark_packages: None) -> Any:
    """`callboard.simulations.workload.parsing`, whose packed files are read by Arrow."""
    return import_module("callboard.simulations.workload.parsing")


@pytest.mark.parametrize("suffix", PACK)
def test_lines_are_unpacked_and_counted(parsing: Any, suffix: str) -> None:
    """As many as were asked for, or all, with the last one that has no end."""
    data = PACK[suffix](b"\n".join(LINES))
    assert parsing.first_lines(f"a{suffix}", data, 20, is_whole=True) == LINES[:20]
    assert parsing.first_lines(f"a{suffix}", data, 60, is_whole=True) == LINES


@pytest.mark.parametrize("suffix", PACK)
def test_a_line_that_the_head_cuts_short_is_left_out(parsing: Any, suffix: str) -> None:
    """It would be taken for a bad one, wherever the head ends."""
    chance = random.Random(1)
    lines = [chance.randbytes(500).replace(b"\n", b"") for _ in range(400)]
    data = PACK[suffix](b"\n".join(lines))
    for end in (150_000, 150_001, len(data) - 700):
        found = parsing.first_lines(f"a{suffix}", data[:end], 1_000, is_whole=False)
        assert found == lines[: len(found)]
        assert len(found) > 150


def test_the_only_line_is_kept(parsing: Any) -> None:
    """A file may be one line that is longer than the head; it is cut to what a line may have."""
    assert parsing.first_lines("a", b"x" * 1_000, 20, is_whole=False) == [b"x" * 1_000]
    assert parsing.first_lines("a", b"", 20, is_whole=True) == []


def test_a_packed_file_that_cannot_be_read_is_named(parsing: Any) -> None:
    """What is no gzip is damaged, and so is a whole file that ends too early."""
    packed = gzip.compress(b"\n".join(LINES))
    for data in (b"no gzip", packed[:-9]):
        with pytest.raises(InvalidArgument, match=r"a\.gz cannot be read: it is not what its name says"):
            parsing.first_lines("a.gz", data, 60, is_whole=True)
