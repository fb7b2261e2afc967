"""What pending records cost in the due index, and would cost in a timer wheel: `python benchmarks/due_index.py`.

A million records are added, due at random within 30 days, a fifth of them are cancelled, drawn at random, and the rest
is taken when all are due. Each kind runs in processes of its own, interleaved. Times are of the process's processor;
memory is what is resident after a garbage collection, beyond what was before.
"""

from __future__ import annotations

import argparse
import gc
import random
import subprocess
import sys
import time
from pathlib import Path

from callboard.actors.forwarding.due_index import DueIndex
from callboard.actors.timers.wheel import Slot, Wheel

RECORDS = 1_000_000
CANCELLED = RECORDS // 5
DUE_BY = 30 * 86_400_000
"""Milliseconds."""


class RecordSlot(Slot):
    """A slot of the wheel that knows its record."""

    __slots__ = ("delayed_id",)


def resident_mib() -> float:
    """What the process has in memory."""
    (row,) = [row for row in Path("/proc/self/status").read_text("utf-8").splitlines() if row[:6] == "VmRSS:"]
    return int(row.split()[1]) / 1024


def told(kind: str, added_s: float, grown_mib: float, cancelled_s: float, taken_s: float) -> None:
    """Print a row."""
    print(
        f"{kind:<6} add {RECORDS / added_s:>9,.0f}/s, {grown_mib:4.0f} MiB,"
        f" cancel {CANCELLED / cancelled_s:>9,.0f}/s, take {(RECORDS - CANCELLED) / taken_s:>9,.0f}/s",
        flush=True,
    )


def run_index(ticks: list[int], cancelled: list[int]) -> None:
    """The index, in batches as the delayed forwarder uses it."""
    before, begun = resident_mib(), time.process_time()
    index = DueIndex()
    for first in range(0, RECORDS, 1000):
        index.add([(each, ticks[each]) for each in range(first, first + 1000)])
    added_s = time.process_time() - begun
    gc.collect()
    grown_mib, begun = resident_mib() - before, time.process_time()
    for first in range(0, CANCELLED, 100):
        index.cancel(cancelled[first : first + 100])
    cancelled_s, begun = time.process_time() - begun, time.process_time()
    while index.next_look() is not None:
        while index.spread(DUE_BY):
            pass
        index.moved([each.delayed_id for each in index.take(DUE_BY, 256)])
    told("index", added_s, grown_mib, cancelled_s, time.process_time() - begun)


def run_wheel(ticks: list[int], cancelled: list[int]) -> None:
    """A wheel with a slot for each record, found by its id."""
    before, begun = resident_mib(), time.process_time()
    wheel, slots = Wheel[RecordSlot](0), dict[int, RecordSlot]()
    for each, tick in enumerate(ticks):
        slot = slots[each] = RecordSlot()
        slot.delayed_id = each
        wheel.arm(slot, tick)
    added_s = time.process_time() - begun
    gc.collect()
    grown_mib, begun = resident_mib() - before, time.process_time()
    for each in cancelled:
        wheel.cancel(slots.pop(each))
    cancelled_s, begun = time.process_time() - begun, time.process_time()
    for slot in wheel.advance(DUE_BY):
        del slots[slot.delayed_id]
    told("wheel", added_s, grown_mib, cancelled_s, time.process_time() - begun)


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("index", "wheel"))
    options = parser.parse_args()
    if options.only is None:
        for _ in range(options.rounds):
            for kind in ("index", "wheel"):
                subprocess.run([sys.executable, __file__, "--only", kind], check=True)
        return
    numbers = random.Random(1)
    ticks = [1 + numbers.randrange(DUE_BY - 1) for _ in range(RECORDS)]
    cancelled = numbers.sample(range(RECORDS), CANCELLED)
    gc.collect()
    gc.disable()
    (run_index if options.only == "index" else run_wheel)(ticks, cancelled)


if __name__ == "__main__":
    main()
