"""Which keys and sizes the events of a generated workload have: exactly the profile's counts, in proportion."""

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
    """How often each key comes: key k has the places `[ends[k - 1], ends[k])` among all events."""

    ends: Any
    """Of the most frequent keys, one by one; then of all others together."""
    tail: int
    """How many others there are."""
    scale: Fraction
    """For each key of the profile so many, or one for so many."""
    stream: int

    @classmethod
    def of(cls, profile: WorkloadProfile, scaling: Scaling, events: int, stream: int) -> KeyShares:
        """The profile's counts in proportion to `events`."""
        tail = profile.key_tail
        counts, rest = list(profile.key_top), tail.events
        if scaling.skew != 1:
            mean = -(-tail.events // tail.keys) if tail.keys else 1
            *counts, each = powered([*counts, mean], scaling.skew)
            rest = each * tail.keys
        keyed = (profile.events - profile.keyless) * events // profile.events
        whole = max(sum(counts) + rest, 1)
        ends = [end * keyed // whole for end in accumulate([*counts, rest])]
        return cls(np.array(ends, dtype=np.int64), tail.keys, scaling.keys, stream)

    @property
    def count(self) -> int:
        """How many keys there are, but at least 1."""
        known = len(self.ends) - 1 + self.tail
        return max(1, -(-known * self.scale.numerator // self.scale.denominator))

    def at(self, places: Any, drawn: Any) -> Any:
        """The keys at these places, `NO_KEY` where none is. `drawn` tells apart who is there."""
        top = len(self.ends) - 1
        key = np.searchsorted(self.ends, places, side="right")
        if self.tail:
            first = int(self.ends[-2]) if top else 0
            room = max(int(self.ends[-1]) - first, 1)
            key = np.where(key == top, top + proportion(places - first, self.tail, room), key)
        if self.scale != 1:
            copies, together = self.scale.numerator, self.scale.denominator
            key = (key * copies + below(words(self.stream, drawn), copies)) // together
        return np.where(places < self.ends[-1], key, NO_KEY)


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
    def of(cls, profile: WorkloadProfile, events: int) -> SizeShares:
        """The profile's sizes in proportion to `events`."""
        ends = accumulate(many for _, many in profile.value_bytes)
        bins = [what * profile.value_bin_bytes for what, _ in profile.value_bytes]
        rest = profile.value_total_bytes - weighted_sum(profile.value_bytes) * profile.value_bin_bytes
        return cls(
            np.array([end * events // profile.events for end in ends], dtype=np.int64),
            np.array(bins, dtype=np.int64),
            events,
            rest * events // profile.events,
        )

    def at(self, places: Any) -> Any:
        """The sizes at these places; over all places they sum up to the profile's."""
        found = self.bins[np.searchsorted(self.ends, places, side="right")]
        each, rest = divmod(self.rest, self.events)
        before = proportion(places, rest, self.events)
        return found + each + proportion(places + 1, rest, self.events) - before


def proportion(places: Any, many: int, size: int) -> Any:
    """`places * many // size`, also where the product does not fit into 64 bits."""
    if many * size < 2**63:
        return places * many // size
    return np.array([place * many // size for place in places.tolist()], dtype=np.int64)
