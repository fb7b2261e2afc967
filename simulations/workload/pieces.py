"""The events of a generated workload, piece by piece: which there are is fixed by profile, scaling and seed alone.

Vocabulary
----------
part      what one profile of a mixture contributes
cell      one bucket of a part's profile, in the workload's time
entry     a second of a cell that has events, and how many
number    of an event: counts all events of a part, in the order of cells and of entries within them
piece     some of a cell's events, by number: what is made at a time, so that memory is bounded

An event's key and size are what its number, permuted, finds in the profile's exact counts: so all counts come out as
the profile has them, and yet in no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import attrs
import numpy as np

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.drawing import below, permuted, stream_of, words
from callboard.simulations.workload.profile_format import SECOND_US, WorkloadProfile
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.shares import KeyShares, SizeShares

PIECE_EVENTS: Final = 131_072
PIECE_BYTES: Final = 32 * 1024 * 1024
SECONDS_MAX: Final = 10_000_000
"""In a bucket; those of 100 days have fewer."""


class Piece(NamedTuple):
    """Events `[start, stop)` of a cell, counted within it."""

    part: int
    cell: int
    start: int
    stop: int


class Events(NamedTuple):
    """Columns of equal length."""

    number: Any
    copy: Any
    """Tells events of one number apart; 0 unless something was added."""
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
class Part:
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
    def keys(self) -> KeyShares:
        """Which keys there are, and how often."""
        return KeyShares.of(self.profile, self.scaling, self.events, self.stream("key copies"))

    @cached_property
    def sizes(self) -> SizeShares:
        """How long values are."""
        return SizeShares.of(self.profile, self.events)

    def pieces(self) -> Iterator[Piece]:
        """All of them, in order."""
        longest_key = max((length for length, _ in self.profile.key_bytes), default=0)
        mean_bytes = self.profile.value_total_bytes // self.profile.events + longest_key + 1
        most = max(1, min(PIECE_EVENTS, PIECE_BYTES // mean_bytes))
        for cell in range(self.cells):
            events = self.first_number(cell + 1) - self.first_number(cell)
            for start in range(0, events, most):
                yield Piece(self.index, cell, start, min(start + most, events))

    def make(self, piece: Piece) -> Events:
        """The events of a piece."""
        inside: Any = np.arange(piece.start, piece.stop, dtype=np.int64)
        number: Any = inside + self.first_number(piece.cell)
        return Events(
            number=number,
            copy=np.zeros_like(number),
            time_us=self._times(piece.cell, inside, number),
            key=self.keys.at(permuted(self.stream("keys"), number, self.events), number),
            size=self.sizes.at(permuted(self.stream("sizes"), number, self.events)),
            word=words(self.stream("values"), number),
        )

    def first_number(self, cell: int) -> int:
        """The number of the first event of a cell."""
        return self._scaled(self._unscaled(cell))

    @cached_property
    def _before(self) -> list[int]:
        """Unscaled events before each bucket, and in all."""
        return list(accumulate(self.profile.bucket_counts, initial=0))

    def _unscaled(self, cell: int) -> int:
        """Unscaled events before a cell."""
        whole, bucket = divmod(cell, len(self.profile.bucket_counts))
        return whole * self.profile.events + self._before[bucket]

    def _scaled(self, unscaled: int) -> int:
        return unscaled * self.scaling.volume.numerator // self.scaling.volume.denominator

    def _times(self, cell: int, inside: Any, number: Any) -> Any:
        seconds, ends = self._entries(cell)
        second = seconds[np.searchsorted(ends, inside, side="right")]
        offset = self.offsets(words(self.stream("times"), number))
        # The profile's time is that from its first event to its last.
        bucket = cell % len(self.profile.bucket_counts)
        if bucket == 0:
            offset[number == self.first_number(cell)] = 0
        if bucket == len(self.profile.bucket_counts) - 1:
            offset[number == self.first_number(cell + 1) - 1] = self.profile.span_us % SECOND_US
        return self.start_us + cell * self.profile.bucket_us + second * SECOND_US + offset

    def offsets(self, drawn: Any) -> Any:
        """Times within a second, of the profile's resolution."""
        step_us = self.profile.time_step_us
        return below(drawn, SECOND_US // step_us) * step_us

    def _entries(self, cell: int) -> tuple[Any, Any]:
        """Each entry's second of the bucket, and how many events there are up to its end."""
        bucket = cell % len(self.profile.sub_buckets)
        pairs = np.array(self.profile.sub_buckets[bucket], dtype=np.int64)
        counts = self._spread(cell, np.repeat(pairs[:, 0], pairs[:, 1]))
        base, volume = self._unscaled(cell), self.scaling.volume
        ends = (base + np.cumsum(counts)) * volume.numerator // volume.denominator - self._scaled(base)
        seconds = self.profile.bucket_us // SECOND_US
        is_last = bucket == len(self.profile.sub_buckets) - 1
        if is_last:  # the profile ends within it
            seconds = self.profile.span_us % self.profile.bucket_us // SECOND_US + 1
        found: Any = np.arange(len(counts), dtype=np.int64) % seconds
        found = permuted(self.stream("seconds", cell), found, seconds)
        if is_last:
            _move(found, len(found) - 1, seconds - 1)
        if bucket == 0:
            _move(found, 0, 0)
        return found, ends

    def _spread(self, cell: int, counts: Any) -> Any:
        """The counts in no order; several put together for a larger burst, each divided for a smaller one."""
        counts = counts[permuted(self.stream("entries", cell), np.arange(len(counts)), len(counts))]
        burst = self.scaling.burst
        if burst.denominator == 1:
            return np.add.reduceat(counts, np.arange(0, len(counts), int(burst)))
        shares = burst.denominator
        each, rest = counts // shares, counts % shares
        return (each[:, None] + (np.arange(shares)[None, :] < rest[:, None])).reshape(-1)


def _move(seconds: Any, entry: int, second: int) -> None:
    """Let an entry have a second; who has it takes the entry's."""
    seconds[seconds == second] = seconds[entry]
    seconds[entry] = second
