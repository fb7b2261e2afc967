"""How many inputs a second the pure state machines take, with all rules checked: `python benchmarks/machines.py`.

One core. Seeds as `callboard simulate --machines` draws them, faults included: crashes of actors, of the process and of
power, with every rebuilding from the journal's bytes. The second line leaves the faults out.
"""

from __future__ import annotations

import time
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


if __name__ == "__main__":
    main()
