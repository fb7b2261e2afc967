"""When the events of a window come.

How many seconds of a bucket have how many events, the profile says exactly. In which order they come, a cascade draws:
the second with the most events is the one where it put the most. Inside each second another cascade puts the events on
steps of the clock.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs
import numpy as np

from callboard.simulations.workload.cascade import KINDS, SLOPES, Nodes, divide
from callboard.simulations.workload.dependence import Grid
from callboard.simulations.workload.drawing import below, permuted, words
from callboard.simulations.workload.profile_format import WorkloadProfile
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.tables import Table


@attrs.frozen(slots=False)
class Arrivals:
    """The times of one profile's events, from its first event on."""

    profile: WorkloadProfile
    scaling: Scaling
    stream: int

    @cached_property
    def grid(self) -> Grid:
        """How the time divides."""
        found = self.profile.dependence
        return Grid(self.profile.bucket_us, found.clock_us if found else self.profile.time_step_us)

    @cached_property
    def _second_tables(self) -> list[Table]:
        found = self.profile.dependence
        return [Table.of(counts, KINDS * SLOPES) for counts in found.second_splits] if found else []

    @cached_property
    def _step_tables(self) -> list[Table]:
        found = self.profile.dependence
        return [Table.of(counts, KINDS) for counts in found.step_splits] if found else []

    def cells(self, turn: int, start: int, stop: int) -> tuple[Any, Any]:
        """When the cells of the buckets `[start, stop)` begin that have events, ascending, and how many each has.

        `turn` distinguishes repetitions of the profile's time.
        """
        stream = int(words(self.stream, np.array([turn], dtype=np.int64))[0])
        weights = self._weights(stream, start, stop)
        begins, counts = [], []
        for bucket in range(start, stop):
            if self.profile.sub_buckets[bucket]:
                begin, count = self._bucket(stream, bucket, weights[bucket - start])
                begins.append(begin)
                counts.append(count)
        if not begins:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found, many = np.concatenate(begins), np.concatenate(counts)
        order = np.argsort(found, kind="stable")
        return found[order], many[order]

    def within(self, begins: Any, counts: Any, layers: Any, turn: int) -> Any:
        """The times of the events of cells in each layer, ascending in each: one layer after the other."""
        streams = words(self.stream ^ 1, layers * 2**20 + turn)
        seeds = words(5, streams[:, None] + begins.astype(np.uint64)[None, :]).reshape(-1)
        begins, counts = np.tile(begins, len(layers)), np.tile(counts, len(layers))
        grid = self.grid
        if self.profile.dependence is None:
            cell: Any = np.repeat(np.arange(len(counts)), counts)
            inside = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts)
            step = below(words(6, seeds[cell] + inside.astype(np.uint64)), grid.steps)
            step = step[np.lexsort((step, cell))]
        else:
            whole = Nodes.whole(counts, grid.steps, seeds)
            nodes = divide(whole, self._step_tables, has_slopes=False)
            cell = np.repeat(nodes.places >> grid.step_bits, nodes.many)
            step = np.repeat(nodes.low, nodes.many)
        return self._inside_the_span(begins[cell] + step * grid.clock_us, begins[cell])

    def _inside_the_span(self, times: Any, begins: Any) -> Any:
        """The last second ends with the span."""
        last = self.profile.span_us - self.profile.span_us % self.grid.cell_us
        room = (self.profile.span_us - last) // self.grid.clock_us + 1
        step = (times - begins) // self.grid.clock_us
        return np.where(begins == last, last + step * room // self.grid.steps * self.grid.clock_us, times)

    def _weights(self, stream: int, start: int, stop: int) -> Any:
        """How many events a cascade puts into each cell of these buckets."""
        grid, found = self.grid, self.profile.dependence
        weights: Any = np.zeros((stop - start, grid.cells), dtype=np.int64)
        if found is None or grid.cells == 1:
            return weights
        width = 1 << grid.part_bits
        parts = np.array(found.parts[start * width : stop * width], dtype=np.int64)
        whole = np.array(self.profile.bucket_counts[start:stop], dtype=np.int64)
        seeds = words(stream, np.arange(start * width, stop * width, dtype=np.int64))
        known = Nodes.parts(whole, grid.cells, grid.part_bits, parts, seeds)
        nodes = divide(known, self._second_tables, has_slopes=True)
        np.add.at(weights, (nodes.places >> grid.cell_bits, nodes.low), nodes.many)
        return weights

    def _bucket(self, stream: int, bucket: int, weights: Any) -> tuple[Any, Any]:
        """The cells of one bucket."""
        grid, profile = self.grid, self.profile
        pairs = np.array(profile.sub_buckets[bucket], dtype=np.int64)
        counts: Any = np.repeat(pairs[:, 0], pairs[:, 1])
        draw = int(words(stream ^ 2, np.array([bucket]))[0])
        counts = np.sort(self._spread(draw, counts))[::-1]
        first = -(bucket * grid.bucket_us) % grid.cell_us
        begins: Any = first + np.arange(grid.cells, dtype=np.int64) * grid.cell_us
        is_last = bucket == len(profile.bucket_counts) - 1
        stop = profile.span_us % grid.bucket_us + 1 if is_last else grid.bucket_us
        begins = begins[begins < stop] if first < stop else begins[:1]
        drawn = words(draw, np.arange(len(begins)))
        order = np.lexsort((drawn, -weights[: len(begins)]))
        found = order[np.arange(len(counts)) % len(order)]
        if is_last:
            _move(found, len(found) - 1, len(begins) - 1)
        if bucket == 0:
            _move(found, max(len(found) - (2 if is_last else 1), 0), 0)
        return bucket * grid.bucket_us + begins[found], counts

    def _spread(self, draw: int, counts: Any) -> Any:
        """The counts; several put together for a larger burst, each divided for a smaller one."""
        burst = self.scaling.burst
        if burst == 1:
            return counts
        if burst.denominator == 1:
            counts = counts[permuted(draw, np.arange(len(counts)), len(counts))]
            return np.add.reduceat(counts, np.arange(0, len(counts), int(burst)))
        shares = burst.denominator
        each, rest = counts // shares, counts % shares
        divided = (each[:, None] + (np.arange(shares)[None, :] < rest[:, None])).reshape(-1)
        return divided[divided > 0]


def _move(cells: Any, entry: int, cell: int) -> None:
    """Let an entry have a cell, unless one has it already; the one that has it takes the entry's."""
    if not (cells == cell).any():
        cells[entry] = cell
