"""What the delivery core costs, without disk or tasks: `python benchmarks/delivery.py`.

Each line is the best of several runs, because the machine is shared.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable

import cbor2

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import GroupEvents, decode_events
from callboard.publishing.partitioning import StickyRoundRobin, split

PLENTY = 1 << 40
MILLION = 1_000_000


def best_us(run: Callable[[], int], repeats: int = 5) -> float:
    """Microseconds per step; `run` returns how many steps it made."""
    fastest = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        steps = run()
        fastest = min(fastest, (time.perf_counter() - begun) / steps * 1e6)
    return fastest


def lease_and_ack(batch: int, steps: int = 20_000) -> int:
    """Lease `batch` records and acknowledge them as one range."""
    delivery = Delivery(0)
    for _ in range(steps):
        grant = delivery.lease(now=1.0, deadline=31.0, consumer=1, max_records=batch, visible_end=PLENTY)
        if grant is not None:
            delivery.ack(grant.lease_id, [grant.ranges[0][:2]], 1.0)
    delivery.take_events()
    return steps


def ack_singly(shuffled: bool) -> int:
    """Lease in thousands, acknowledge one by one."""
    delivery, offsets = Delivery(0), list(range(1000))
    if shuffled:
        random.Random(0).shuffle(offsets)
    for _ in range(20):
        grant = delivery.lease(now=1.0, deadline=31.0, consumer=1, max_records=1000, visible_end=PLENTY)
        if grant is not None:
            base = grant.ranges[0][0]
            for offset in offsets:
                delivery.ack(grant.lease_id, [(base + offset, base + offset + 1)], 1.0)
    return 20_000


def journal() -> int:
    """Encode and decode the events of single leases and acks, a hundred pairs to a commit."""
    delivery = Delivery(0)
    for _ in range(100):
        grant = delivery.lease(now=1.0, deadline=31.0, consumer=1, max_records=1, visible_end=PLENTY)
        if grant is not None:
            delivery.ack(grant.lease_id, [grant.ranges[0][:2]], 1.0)
    events = delivery.take_events()
    for _ in range(20):
        decode_events(cbor2.loads(GroupEvents(1, events).record(0.0))[2])
    return 20 * len(events)


def exceptional(leases: bool) -> tuple[float, float]:
    """Seconds, and megabytes by which the process grew, for a million gaps, each in a lease of its own or not."""
    delivery, size = Delivery(0), 1 if leases else 1000
    resident = peak_mb()
    begun = time.perf_counter()
    for _ in range(MILLION // size):
        grant = delivery.lease(now=1.0, deadline=31.0, consumer=1, max_records=2 * size, visible_end=PLENTY)
        if grant is not None:
            base = grant.ranges[0][0]
            delivery.ack(grant.lease_id, [(base + n, base + n + 1) for n in range(1, 2 * size, 2)], 1.0)
        delivery.events.clear()
    if not leases:
        delivery.run_out(31.0)
        delivery.events.clear()
    return time.perf_counter() - begun, peak_mb() - resident


def peak_mb() -> float:
    """The most memory that this process ever had (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one line per measurement."""
    keys = [b"key-%d" % (n % 100) for n in range(1000)]
    sticky = StickyRoundRobin(6)
    for name, run in (
        ("lease + ack of 1", lambda: lease_and_ack(1)),
        ("lease + ack of 1,000 as one range", lambda: lease_and_ack(1000)),
        ("ack of 1 of 1,000, in order", lambda: ack_singly(False)),
        ("ack of 1 of 1,000, shuffled", lambda: ack_singly(True)),
        ("encode + decode an event", journal),
        ("split 1,000 keys over 6 partitions", lambda: len(split(keys, 6, sticky=sticky)) // 6),
    ):
        print(f"{name:42} {best_us(run):8.2f} us")
    for name, leases in (
        ("1,000,000 expired one-record gaps", False),
        ("1,000,000 leases of one record", True),
    ):
        spent, held = exceptional(leases)
        print(f"{name:42} {spent:8.2f} s {held:8.1f} MB")


if __name__ == "__main__":
    main()
