"""Names of copied keys: each only once, none of the recording, and of the same length where that can be."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.sets(
    st.binary(max_size=3)
    | st.from_regex(rb"[0-9]{1,9}", fullmatch=True)
    | st.from_regex(rb"[-a-zA-Z0-9_]{1,12}"),
    min_size=1,
    max_size=60,
)


@pytest.fixture(scope="module")
def renaming(spark_packages: None) -> Any:
    """`callboard.simulations.workload.renaming`, which needs numpy."""
    return import_module("callboard.simulations.workload.renaming")


def classes_of(renaming: Any, keys: set[bytes]) -> list[Any]:
    """The keys by their lengths, as Spark counts them."""
    found = []
    for length in sorted({len(key) for key in keys}):
        prefixes = [renaming.plain_prefix(key) for key in keys if len(key) == length]
        plain = [prefix for prefix in prefixes if prefix is not None]
        found.append(
            renaming.KeyClass(length, len(prefixes), min(plain, default=None), max(plain, default=None))
        )
    return found


def names_of(renaming: Any, keys: set[bytes], copies: int, secret: str = "s") -> dict[int, list[bytes]]:
    """All names of all copies, by the length of keys."""
    import numpy as np

    classes = classes_of(renaming, keys)
    names = renaming.Names.of(classes, copies, secret)
    return {
        each.length: [
            name
            for copy in range(copies)
            for name in names.of_keys(each.length, copy, np.arange(each.keys, dtype=np.int64))
        ]
        for each in classes
    }


@given(keys=KEYS, copies=st.integers(1, 40))
def test_every_name_is_new_and_comes_once(renaming: Any, keys: set[bytes], copies: int) -> None:
    """In all copies and lengths together (N1, N2); longer keys never get shorter names."""
    by_length = names_of(renaming, keys, copies)
    found = [name for names in by_length.values() for name in names]
    assert len(found) == len(set(found)) == copies * len(keys)
    assert not set(found) & keys
    assert all(len(name) >= length for length, names in by_length.items() for name in names)


def test_names_have_the_length_of_their_keys(renaming: Any) -> None:
    """Hosts, numbers, hexadecimal ids and symbols from the first to the last, where there are enough names (N3)."""
    keys = {b"host-%02d.example.com" % number for number in range(100)}
    keys |= {b"%05d" % number for number in range(0, 100_000, 321)}
    keys |= {b"%032x" % (number * 2**120 // 3) for number in range(256)}
    keys |= {bytes((symbol,)) + b"A" * 21 for symbol in renaming.SYMBOLS}
    for length, names in names_of(renaming, keys, 10).items():
        assert {len(name) for name in names} == {length}


def test_names_that_are_too_few_become_longer(renaming: Any) -> None:
    """Ten digits leave 54 names of one symbol."""
    keys = {b"%d" % number for number in range(10)}
    lengths = [len(name) for name in names_of(renaming, keys, 10)[1]]
    assert (lengths.count(1), lengths.count(2)) == (54, 46)


def test_another_secret_gives_other_names(renaming: Any) -> None:
    """And the same one the same."""
    keys = {b"user%04d" % number for number in range(50)}
    once = names_of(renaming, keys, 2)
    assert once == names_of(renaming, keys, 2)
    assert not set(once[8]) & set(names_of(renaming, keys, 2, "other")[8])
