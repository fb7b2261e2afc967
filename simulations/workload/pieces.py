"""The events of a generated workload, piece by piece: which there are is fixed by profile, scaling and seed alone.

Vocabulary
----------
part      what one profile of a mixture contributes
turn      a repetition of the profile's time
layer     as many events as the profile has, with keys of their own: three times the volume is three layers. The last
          one holds less where the volume is not whole: as many whole keys as fit
window    a run of buckets (`dependence.windows_of`)
number    of an event: counts all events of a part's layer; those of the next layer follow
piece     a window of a turn, in some layers: what is made at a time, so that memory is bounded

All layers have their events in the same seconds; inside of these, and in the order of keys, each is another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import attrs
import numpy as np

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.arrivals import Arrivals
from callboard.simulations.workload.dependence import class_sums, windows_of
from callboard.simulations.workload.drawing import below, permuted, stream_of, words
from callboard.simulations.workload.population import Population
from callboard.simulations.workload.profile_format import SECOND_US, WorkloadProfile
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.shares import NO_KEY, KeyShares, SizeShares
from callboard.simulations.workload.size_order import SizeChains, in_order
from callboard.simulations.workload.turns import Turns

PIECE_EVENTS: Final = 131_072
BATCH_BYTES: Final = 32 * 1024 * 1024
SECONDS_MAX: Final = 10_000_000
"""In a bucket; those of 100 days have fewer."""


class Piece(NamedTuple):
    """A window of a turn, in the layers `[start, stop)`."""

    part: int
    turn: int
    window: int
    start: int
    stop: int


class Events(NamedTuple):
    """Columns of equal length."""

    number: Any
    copy: Any
    """Distinguishes events of one number; 0 unless something was added."""
    time_us: Any
    key: Any
    """The key's number, or `NO_KEY`."""
    size: Any
    """Of the value, in bytes."""
    word: Any
    """Chooses the value, and the partition of an event without a key."""

    def rows(self, chosen: Any) -> Events:
        """Those of a mask, or of a list of places."""
        return Events(*(column[chosen] for column in self))


@attrs.frozen(slots=False)
class ProfilePart:
    """One profile's part of a workload. Raises `InvalidArgument` when it is too large."""

    index: int
    profile: WorkloadProfile
    scaling: Scaling
    start_us: int
    seed: str

    def __attrs_post_init__(self) -> None:
        self.scaling.events(self.profile)
        if self.profile.bucket_us // SECOND_US > SECONDS_MAX:
            raise InvalidArgument(
                f"the profile's buckets have {self.profile.bucket_us // SECOND_US} s, and at most {SECONDS_MAX} are"
                " possible. Measure the recording with a shorter --bucket."
            )

    def stream(self, *what: object) -> int:
        """The stream of words for a purpose."""
        return stream_of(self.seed, self.index, *what)

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.scaling.buckets(self.profile)

    @property
    def stop_us(self) -> int:
        """Where its time ends."""
        return self.start_us + self.cells * self.profile.bucket_us

    @cached_property
    def events(self) -> int:
        """How many there are, before anything happens to them."""
        return self.scaling.events(self.profile)

    @cached_property
    def layer_events(self) -> int:
        """How many a whole layer has."""
        return self.scaling.unscaled_events(self.profile)

    @cached_property
    def keys(self) -> KeyShares:
        """Which keys there are, and how often."""
        return KeyShares.of(self.profile, self.scaling)

    @cached_property
    def sizes(self) -> SizeShares:
        """How long values are."""
        return SizeShares.of(self.profile)

    @cached_property
    def batch_events(self) -> int:
        """How many events are put into rows at a time."""
        longest_key = max((length for length, _ in self.profile.key_bytes), default=0)
        mean_bytes = self.profile.value_total_bytes // self.profile.events + longest_key + 1
        return max(1, min(PIECE_EVENTS, BATCH_BYTES // mean_bytes))

    def pieces(self) -> Iterator[Piece]:
        """All of them, in order."""
        buckets = len(self.profile.bucket_counts)
        for turn in range(-(-self.cells // buckets)):
            for window in range(len(self._ends)):
                start, stop = self._buckets(turn, window)
                if start >= stop:
                    continue
                layers = max(1, PIECE_EVENTS // max(self._before[stop] - self._before[start], 1))
                for layer in range(0, self.keys.layers, layers):
                    yield Piece(self.index, turn, window, layer, min(layer + layers, self.keys.layers))

    def make(self, piece: Piece) -> Events:
        """The events of a piece, one layer after the other."""
        turn, window = piece.turn, piece.window
        start, stop = self._buckets(turn, window)
        begins, counts = self._arrivals.cells(turn, start, stop)
        many = int(counts.sum())
        layers: Any = np.arange(piece.start, piece.stop, dtype=np.int64)
        times = self._arrivals.within(begins, counts, layers, turn).reshape(len(layers), many)
        if many and not start:  # the profile's time is that from its first event to its last
            times[:, 0] = 0
        if many and stop == len(self.profile.bucket_counts):
            times[:, -1] = self.profile.span_us
        found = self._layers(turn, window, layers, times)
        if piece.stop <= int(self.scaling.volume):
            return found
        whole = (len(layers) - 1) * many
        first = self._first(turn, window)
        rest = self._thinned(found.rows(slice(whole, None)), first)
        return Events(*map(np.concatenate, zip(found.rows(slice(whole)), rest, strict=True)))

    def offsets(self, drawn: Any) -> Any:
        """Times within a second, of the profile's resolution."""
        step_us = self.profile.time_step_us
        return below(drawn, SECOND_US // step_us) * step_us

    # -- what all layers have in common

    @cached_property
    def _ends(self) -> list[int]:
        return list(windows_of(self.profile.bucket_counts))

    @cached_property
    def _before(self) -> list[int]:
        """Events before each bucket, and in all."""
        return list(accumulate(self.profile.bucket_counts, initial=0))

    def _buckets(self, turn: int, window: int) -> tuple[int, int]:
        """Those of a window; the last turn may end within it."""
        start = self._ends[window - 1] if window else 0
        return start, min(self._ends[window], self.cells - turn * len(self.profile.bucket_counts))

    @cached_property
    def _arrivals(self) -> Arrivals:
        return Arrivals(self.profile, self.scaling, self.stream("arrivals"))

    @cached_property
    def _population(self) -> Population:
        return Population.of(self.profile, self.scaling, self.stream("population"))

    @cached_property
    def _turns(self) -> Turns:
        found = self.profile.dependence
        if found is None:
            return Turns.of()
        return Turns.of(
            starts=found.starts,
            runs=found.runs,
            returns=found.returns,
            paces=found.paces,
            pace_returns=found.pace_returns,
        )

    @cached_property
    def _chains(self) -> SizeChains | None:
        found = self.profile.dependence
        return SizeChains.of(found, self.stream("anchors")) if found else None

    @cached_property
    def _size_places(self) -> list[list[tuple[int, int, int, int]]]:
        """For each window and class: the class's first place, its places, those that are taken, and how many are."""
        found = self.profile.dependence
        sums = class_sums(self.profile.value_bytes)
        first = list(accumulate(sums, initial=0))
        taken = [0] * len(sums)
        windows: list[list[tuple[int, int, int, int]]] = [[] for _ in self._ends]
        for window, which, many in found.window_sizes if found else ():
            windows[window].append((first[which], sums[which], taken[which], many))
            taken[which] += many
        return windows

    def _sizes(self, window: int) -> Any:
        """The sizes of a window's values, in no order."""
        start, stop = self._before[self._ends[window - 1] if window else 0], self._before[self._ends[window]]
        if self.profile.dependence is None:
            inside: Any = np.arange(start, stop, dtype=np.int64)
            return self.sizes.at(permuted(self.stream("sizes"), inside, self.profile.events))
        places = [
            first + permuted(self.stream("sizes", first), np.arange(taken, taken + many), size)
            for first, size, taken, many in self._size_places[window]
        ]
        return self.sizes.at(np.concatenate(places))

    # -- layers

    def _first(self, turn: int, window: int) -> int:
        """The number in its layer of a window's first event."""
        return self._before[self._ends[window - 1] if window else 0] + turn * self.profile.events

    def _layers(self, turn: int, window: int, layers: Any, times: Any) -> Events:
        """All events of a window in these layers, whose times are the rows of `times`."""
        many = times.shape[1]
        names = [self.stream("layer", turn, window, layer) for layer in layers.tolist()]
        seeds = np.array(names, dtype=np.uint64)
        keys = self._population.keys[window]
        who, lengths = self._turns.take(self._population.events[window], seeds)
        chain: Any = np.repeat(who, lengths)
        key = keys[chain % len(keys)]
        sizes = np.broadcast_to(self._sizes(window), (len(layers), len(key) // len(layers)))
        if self._chains is not None:
            drawn = words(11, seeds[:, None] + np.arange(sizes.shape[1], dtype=np.uint64)[None, :])
            ranks = self._chains.ranks(key, chain, drawn.reshape(-1))
            sizes = in_order(np.sort(sizes[0]), ranks.reshape(sizes.shape))
        layer: Any = np.repeat(layers, many)
        key, sizes = (each.reshape(len(layers), -1)[:, :many].reshape(-1) for each in (key, sizes))
        inside = np.tile(np.arange(many, dtype=np.int64), len(layers))
        number = layer * self.layer_events + self._first(turn, window) + inside
        drawn = words(12, np.repeat(seeds, many) + key.astype(np.uint64))
        begin_us = self.start_us + turn * len(self.profile.bucket_counts) * self.profile.bucket_us
        return Events(
            number=number,
            copy=np.zeros_like(number),
            time_us=begin_us + times.reshape(-1),
            key=np.where(key > 0, self.keys.named(key - 1, layer, drawn), NO_KEY),
            size=sizes,
            word=words(self.stream("values"), number),
        )

    def _thinned(self, events: Events, first: int) -> Events:
        """As many events as the last layer has of these, of whole keys; one key may lose some."""
        volume = self.scaling.volume % 1

        def scaled(unscaled: int) -> int:
            return unscaled * volume.numerator // volume.denominator

        wanted = scaled(first + len(events.number)) - scaled(first)
        stream = self.stream("thinning")
        has_key = events.key != NO_KEY
        drawn = np.where(has_key, words(stream, events.key), words(stream + 1 & 2**64 - 1, events.number))
        return events.rows(np.sort(np.lexsort((events.number, drawn))[:wanted]))
