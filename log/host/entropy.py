"""The real Entropy."""

from __future__ import annotations

import random


class HostEntropy:
    """Randomness from the operating system, or from `seed` if a run must be repeatable."""

    __slots__ = ("_source",)

    def __init__(self, seed: int | None = None) -> None:
        self._source: random.Random = random.SystemRandom() if seed is None else random.Random(seed)

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._source.random()

    def integer(self, bits: int) -> int:
        """An unsigned integer of `bits` random bits."""
        return self._source.getrandbits(bits)

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return self._source.randbytes(count)
