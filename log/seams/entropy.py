"""The Entropy seam: the only source of randomness and of unique ids."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    """Randomness and ids."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def integer(self, bits: int) -> int:
        """An unsigned integer of `bits` random bits."""
        ...

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        ...
