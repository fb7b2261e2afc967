"""How many keys differ: exact as long as they are few, then an estimate in bounded memory.

The least `KEPT` hashes of 64 bits are kept (a "k minimum values" sketch, Bar-Yossef et al., 2002). As many hashes as
there are keys below `KEPT` make the count exact; of more, the largest of those kept shows how densely hashes lie. The
relative error is about 1 / sqrt(KEPT), and counts of parts can be merged, in any order, to the count of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

KEPT: Final = 16_384
HASHES: Final = 1 << 64
SIFT_AT: Final = 2 * KEPT
RECENT_MAX: Final = 100_000


class KeyCount:
    """Counts different keys. `hashes` are those of another count that was stored or sent."""

    def __init__(self, hashes: Iterable[int] = ()) -> None:
        self._hashes = set(hashes)
        self._is_cut = len(self._hashes) >= KEPT
        self._recent: set[bytes | None] = {None}
        self._sift()

    def add(self, keys: Sequence[bytes | None]) -> None:
        """Count `keys`; None is no key."""
        new = set(keys) - self._recent
        if not new:
            return
        if len(self._recent) > RECENT_MAX:
            self._recent = {None}
        self._recent |= new
        for key in new:
            if key is not None:
                digest = hashlib.blake2b(key, digest_size=8).digest()
                self._hashes.add(int.from_bytes(digest, "little"))
        if len(self._hashes) >= SIFT_AT:
            self._sift()

    def merge(self, other: KeyCount) -> None:
        """Count what the other has counted, too."""
        self._hashes |= other._hashes
        self._is_cut = self._is_cut or other._is_cut
        self._sift()

    def _sift(self) -> None:
        if len(self._hashes) >= KEPT:
            self._hashes = set(sorted(self._hashes)[:KEPT])
            self._is_cut = True

    @property
    def hashes(self) -> list[int]:
        """The hashes kept, rising: at most `KEPT`."""
        self._sift()
        return sorted(self._hashes)

    @property
    def is_exact(self) -> bool:
        """Whether `distinct` is exact."""
        self._sift()
        return not self._is_cut

    @property
    def distinct(self) -> int:
        """How many keys differ."""
        hashes = self.hashes
        if self.is_exact:
            return len(hashes)
        return (len(hashes) - 1) * HASHES // hashes[-1]
