"""What the tests of traffic share: an entropy with a seed, and the recorded traffic's place."""

import random

import pytest


class _Seeded:
    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self.random = self._source.random

    def integer(self, bits: int) -> int:
        return self._source.getrandbits(bits)

    def bytes(self, count: int) -> bytes:
        return self._source.randbytes(count)


@pytest.fixture
def seeded():
    """Makes an Entropy from a seed."""
    return _Seeded
