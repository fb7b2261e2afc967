"""Which keys and sizes the events of a generated workload have: exactly the profile's counts."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import Any

import attrs
import numpy as np

from callboard.simulations.workload.drawing import below, words
from callboard.simulations.workload.profile_format import WorkloadProfile, other_sizes, total, weighted_sum
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
    """How long values are: those at the places `[ends[i - 1], ends[i])` among all events have the size `sizes[i]`.

    Those of `others[i]` are as much longer as `extra` says: of them the profile knows a class of sizes alone.
    """

    ends: Any
    sizes: Any
    others: Any
    before: Any
    """Of all places before, how many are of others."""
    events: int
    """Of the others."""
    extra: int
    """Bytes that all others together have beyond the least lengths of their classes."""

    @classmethod
    def of(cls, profile: WorkloadProfile) -> SizeShares:
        """The profile's sizes."""
        bins, bin_bytes, left = other_sizes(profile)
        rows = [(what * bin_bytes, 1, many) for what, many in bins]
        rows += [(size, 0, many) for size, many in profile.value_sizes]
        # The others of a class come first: they count as its least length.
        rows.sort(key=lambda row: (row[0] // bin_bytes, -row[1], row[0]))
        sizes, others, many = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        in_all = np.cumsum(many * others)
        return cls(
            ends=np.cumsum(many),
            sizes=sizes,
            others=others,
            before=in_all - many * others,
            events=max(total(bins), 1),
            extra=left - weighted_sum(bins) * bin_bytes,
        )

    def at(self, places: Any) -> Any:
        """The sizes at these places; over all places they sum up to the profile's."""
        row = np.searchsorted(self.ends, places, side="right")
        inside = places - np.where(row > 0, self.ends[row - 1], 0)
        nth = self.before[row] + inside
        each, rest = divmod(self.extra, self.events)
        more = each + proportion(nth + 1, rest, self.events) - proportion(nth, rest, self.events)
        return self.sizes[row] + more * self.others[row]


def proportion(places: Any, many: int, size: int) -> Any:
    """`places * many // size`, also where the product does not fit into 64 bits."""
    if many * size < 2**63:
        return places * many // size
    return np.array([place * many // size for place in places.tolist()], dtype=np.int64)
