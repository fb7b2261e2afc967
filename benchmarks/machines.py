"""How many inputs a second the pure state machines take, with all rules checked: `python benchmarks/machines.py`.

Per second of processor time of one core; the last line by the clock on the wall, with a process for each core, as a
sweep does it. Seeds as `callboard simulate --machines` draws them, faults included: crashes of actors, of the process
and of power, with every rebuilding from the journal's bytes. The second line leaves the faults out.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import click

from callboard.simulations.faults.plan import NO_FAULTS
from callboard.simulations.machines import drive

TARGET_PER_S: Final = 300_000


@click.command()
@click.option("--seeds", default=200, help="How many seeds.")
@click.option("--events", default=20_000, help="Inputs per seed.")
def main(seeds: int, events: int) -> None:
    """Print events per second of processor time, and whether any seed failed."""
    for name, plan in (("faults as drawn", None), ("no faults", NO_FAULTS)):
        begun = time.process_time()
        driven = [drive(seed, events=events, plan=plan) for seed in range(seeds)]
        spent = time.process_time() - begun
        total = sum(run.events for run in driven)
        crashes = sum(run.crashes for run in driven)
        failed = [run.seed for run in driven if run.violation is not None]
        print(
            f"{name:16} {total:>12,} events  {total / spent:>10,.0f} /s (target {TARGET_PER_S:,})"
            f"  {crashes:,} crashes  failed seeds: {failed or 'none'}"
        )
    on_all_cores(seeds, events)


def on_all_cores(seeds: int, events: int) -> None:
    """The first line again, by all cores at once."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(_events, range(cores), [events] * cores))  # the modules are imported
        begun = time.perf_counter()
        total = sum(pool.map(partial(_events, events=events), range(seeds), chunksize=10))
        spent = time.perf_counter() - begun
    name, rate = f"on {cores} cores", f"{total / spent:,.0f}"
    print(f"{name:16} {total:>12,} events  {rate:>10} /s (target {TARGET_PER_S:,}), by wall time")


def _events(seed: int, events: int) -> int:
    """One drive."""
    return drive(seed, events=events).events


if __name__ == "__main__":
    main()
