"""Which keys and sizes the events of a generated workload have: exactly the profile's counts."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import Any

import attrs
import numpy as np

from callboard.simulations.workload.drawing import below, words
from callboard.simulations.workload.profile_format import WorkloadProfile, weighted_sum
from callboard.simulations.workload.scaling import Scaling, powered

NO_KEY = -1


@attrs.frozen
class KeyShares:
    """How often each key comes: key k of a profile has the places `[ends[k - 1], ends[k])` among all events.

    A workload of ten times the volume has ten keys for each of the profile's, one in each layer.
    """

    ends: Any
    """Of the most frequent keys, one by one; then of all others together."""
    tail: int
    """How many others there are."""
    layers: int
    scale: Fraction
    """For each of these keys so many, or one for so many."""

    @classmethod
    def of(cls, profile: WorkloadProfile, scaling: Scaling) -> KeyShares:
        """The profile's counts, or others for another skew."""
        tail = profile.key_tail
        counts, rest = list(profile.key_top), tail.events
        if scaling.skew != 1:
            mean = -(-tail.events // tail.keys) if tail.keys else 1
            *counts, each = powered([*counts, mean], scaling.skew)
            rest = each * tail.keys
        keyed = profile.events - profile.keyless
        whole = max(sum(counts) + rest, 1)
        ends = [end * keyed // whole for end in accumulate([*counts, rest])]
        layers = -(-scaling.volume.numerator // scaling.volume.denominator)
        return cls(np.array(ends, dtype=np.int64), tail.keys, layers, scaling.keys)

    @property
    def count(self) -> int:
        """How many keys there are, but at least 1."""
        known = (len(self.ends) - 1 + self.tail) * self.layers
        return max(1, -(-known * self.scale.numerator // self.scale.denominator))

    def counts(self) -> Any:
        """The events of each key; the others have about as many each."""
        top = np.diff(self.ends[:-1], prepend=0)
        first = int(self.ends[-2]) if len(top) else 0
        rest = int(self.ends[-1]) - first
        others: Any = np.arange(self.tail + 1, dtype=np.int64)
        return np.concatenate([top, np.diff(proportion(others, rest, max(self.tail, 1)))])

    def at(self, places: Any, drawn: Any) -> Any:
        """The keys at these places, `NO_KEY` where none is; `drawn` chooses the layer."""
        top = len(self.ends) - 1
        key = np.searchsorted(self.ends, places, side="right")
        if self.tail:
            first = int(self.ends[-2]) if top else 0
            room = max(int(self.ends[-1]) - first, 1)
            key = np.where(key == top, top + proportion(places - first, self.tail, room), key)
        named = self.named(key, below(words(1, drawn), self.layers), words(2, drawn))
        return np.where(places < self.ends[-1], named, NO_KEY)

    def named(self, keys: Any, layers: Any, drawn: Any) -> Any:
        """The numbers in the workload of keys of the profile; `drawn` chooses among those that a key stands for."""
        found = keys * self.layers + layers
        if self.scale == 1:
            return found
        copies, together = self.scale.numerator, self.scale.denominator
        return (found * copies + below(drawn, copies)) // together


@attrs.frozen
class SizeShares:
    """How long values are: those at the places `[ends[i - 1], ends[i])` among all events lie in bin i."""

    ends: Any
    bins: Any
    """The least length in each."""
    events: int
    rest: int
    """Bytes that all values together have beyond the least lengths of their bins."""

    @classmethod
    def of(cls, profile: WorkloadProfile) -> SizeShares:
        """The profile's sizes."""
        ends = accumulate(many for _, many in profile.value_bytes)
        bins = [what * profile.value_bin_bytes for what, _ in profile.value_bytes]
        rest = profile.value_total_bytes - weighted_sum(profile.value_bytes) * profile.value_bin_bytes
        return cls(
            np.array(list(ends), dtype=np.int64),
            np.array(bins, dtype=np.int64),
            profile.events,
            rest,
        )

    def at(self, places: Any) -> Any:
        """The sizes at these places; over all places they sum up to the profile's."""
        found = self.bins[np.searchsorted(self.ends, places, side="right")]
        each, rest = divmod(self.rest, self.events)
        before = proportion(places, rest, self.events)
        return found + each + proportion(places + 1, rest, self.events) - before

    def by_bin(self, sizes: Any) -> Any:
        """The sizes, the lowest bins first; those of one bin stay in their order."""
        bins = np.searchsorted(self.bins, sizes - self.rest // self.events, side="right")
        return sizes[np.argsort(bins, kind="stable")]


def proportion(places: Any, many: int, size: int) -> Any:
    """`places * many // size`, also where the product does not fit into 64 bits."""
    if many * size < 2**63:
        return places * many // size
    return np.array([place * many // size for place in places.tolist()], dtype=np.int64)
