"""Counts what joins the events of a window, from their times and keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from callboard.simulations.workload.cascade import count_splits, parts_of
from callboard.simulations.workload.dependence import Grid
from callboard.simulations.workload.tables import counted
from callboard.simulations.workload.turns import count_turns


def count_window(grid: Grid, times_us: Any, keys: Any, *, has_keys: bool) -> dict[str, Any]:
    """Counts by name: `parts`, those of `count_turns`, and splits as "second 0", "step 3" and so on.

    Times are ascending and count from the recording's first event; keys are any numbers that tell them apart.
    """
    bucket, inside = np.divmod(times_us, grid.bucket_us)
    first = -(bucket * grid.bucket_us) % grid.cell_us
    cell = (inside - first) // grid.cell_us
    part = parts_of(bucket, cell, grid.cells, grid.part_bits)
    found = {"parts": counted(bucket, part)}
    splits = count_splits(bucket, cell, grid.cells, grid.part_bits, has_slopes=True)
    found |= {f"second {depth}": counts for depth, counts in enumerate(splits)}
    step = times_us % grid.cell_us // grid.clock_us
    splits = count_splits(times_us // grid.cell_us, step, grid.steps, 0, has_slopes=False)
    found |= {f"step {depth}": counts for depth, counts in enumerate(splits)}
    if has_keys:
        found |= count_turns(keys)
    return found
