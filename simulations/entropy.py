"""Entropy from a seed."""

from __future__ import annotations

import random

Generator = random.Random
"""A source of randomness with a seed of its own; the seed may be text. It gives the same numbers in every process."""


class SeededEntropy:
    """The same randomness and ids for the same seed, in any process."""

    __slots__ = ("_generator", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generator: Generator | None = None

    @property
    def _source(self) -> Generator:
        """Made when something is drawn: many sources give seeds to others only."""
        if self._generator is None:
            self._generator = random.Random(self.seed)
        return self._generator

    def random(self) -> float:
        """A float in [0, 1)."""
        return (self._generator or self._source).random()

    def integer(self, bits: int) -> int:
        """An unsigned integer of that many random bits."""
        return self._source.getrandbits(bits)

    def bytes(self, count: int) -> bytes:
        """That many random bytes."""
        return self._source.randbytes(count)

    def fork(self, name: str) -> SeededEntropy:
        """A source of its own for `name`, so that one part's draws do not shift another's."""
        return SeededEntropy(random.Random(f"{self.seed}/{name}").getrandbits(64))
