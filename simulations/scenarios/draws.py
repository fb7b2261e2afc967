"""Drawing workloads from a seed, limits of the runtime included, and the bounds of what a stored workload may ask for.

A seed may draw limits small, so that what happens at a limit happens in runs of seconds. A workload holds the limits
that differ from the usual ones, as pairs of name and value; shrinking removes pairs.

The bounds are far above what any scenario draws: they keep a stored workload from filling the memory of the process
that runs it. Only too much is refused. Counts that are too low, down to negative ones, are read as the least that makes
sense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from callboard.log.errors import InvalidArgument
from callboard.log.limits import GIB, Limits
from callboard.log.seams.entropy import Entropy

T = TypeVar("T")
DrawnLimits = tuple[tuple[str, int], ...]

COUNT_MAX: Final = 1_000_000
"""Messages, and whatever goes by messages."""
ACTORS_MAX: Final = 10_000
"""Tasks, actors, partitions: each holds memory of its own."""
NAMES_MAX: Final = 100
"""Items of a tuple."""
BYTES_MAX: Final = 1 * GIB
"""Payloads of all messages together."""
SMALL: Final[dict[str, tuple[int, int]]] = {
    "pending_bytes": (1, 20_000),
    "commit_bytes": (1, 5_000),
    "frame_records": (2, 20),
    "tail_cache_bytes": (1, 20_000),
    "unsynced_bytes": (1, 5_000),
    "mailbox": (1, 10),
    "partition_mailbox": (1, 20),
    "receive_batch": (1, 10),
    "journal_segment_bytes": (512, 16_384),
    "journal_reserve_bytes": (256, 16_384),
    "journal_unproven_bytes": (1, 2_000),
    "snapshot_every_bytes": (200, 8_000),
    "catalog_snapshot_every_bytes": (200, 4_000),
    "segment_bytes": (2_048, 65_536),
    "index_checkpoint_bytes": (256, 16_384),
    "open_segments": (1, 4),
    "prefetch": (1, 8),
    "fetch_bytes": (1, 4_000),
    "lazy_acks": (1, 10),
    "leased_batches": (1, 4),
    "window_bytes": (20, 4_000),
    "range_records": (1, 100),
    "window_span_records": (1, 50),
    "window_compact_records": (1, 20),
    "tail_compact_batches": (1, 20),
    "cancelled_sift_bytes": (1, 2_000),
    "gather_bytes": (1, 2_000),
    "consumer_ids_per_block": (1, 10),
    "producers": (4, 20),
    "dedup_ids": (10, 100),
    "publishers_every_bytes": (50, 5_000),
}
"""What a small value is: from, to. The others are never reached in a run: of these, large is as good as usual."""
LARGE: Final[dict[str, int]] = {"open_segments": 64, "prefetch": 1_000, "fetch_bytes": 64 << 20}
WINDOW_LIMITS: Final = (
    "window_bytes",
    "range_records",
    "window_span_records",
    "window_compact_records",
)
"""Those that only groups with an order come by."""
CATALOG_LIMITS: Final = ("consumer_ids_per_block",)
"""Those that only many consumers, one after the other, come by."""
PUBLISHING_LIMITS: Final = ("producers", "dedup_ids", "publishers_every_bytes")
"""Those that only guarded publishes come by."""
BROKER_LIMITS: Final = tuple(
    name for name in SMALL if name not in WINDOW_LIMITS + CATALOG_LIMITS + PUBLISHING_LIMITS
)
ACTOR_LIMITS: Final = ("mailbox", "receive_batch")
"""Those that plain actors come by."""


def between(entropy: Entropy, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return low + int(entropy.random() * (high - low + 1))


def sized(entropy: Entropy, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included: each size as likely as the next, by digits.

    Most bugs need few of anything, and a run costs what its messages cost.
    """
    return min(high, int(low * ((high + 1) / low) ** entropy.random()))


def few(entropy: Entropy, low: int, high: int) -> int:
    """The smaller of two `sized`: about half as much on average, and now and then as much as `high` still."""
    return min(sized(entropy, low, high), sized(entropy, low, high))


def uniform(entropy: Entropy, low: float, high: float) -> float:
    """A number between `low` and `high`, with three decimals, so that stories stay readable."""
    return round(low + entropy.random() * (high - low), 3)


def one_of(entropy: Entropy, choices: Sequence[T]) -> T:
    """One of `choices`."""
    return choices[int(entropy.random() * len(choices))]


def draw_limits(entropy: Entropy, names: tuple[str, ...] = BROKER_LIMITS) -> DrawnLimits:
    """None, some or most of the limits, small (each size as likely as the next, by digits), now and then large."""
    share = one_of(entropy, (0.0, 0.1, 0.3, 0.8))
    drawn = []
    for name in names:
        is_drawn, is_large, size = (entropy.random() < share), (entropy.random() < 0.1), entropy.random()
        if is_drawn and is_large and name in LARGE:
            drawn.append((name, LARGE[name]))
        elif is_drawn:
            low, high = SMALL[name]
            drawn.append((name, round(low * (high / low) ** size)))
    return tuple(drawn)


def limits_of(drawn: DrawnLimits) -> Limits:
    """The limits that `drawn` stands for. Raises `InvalidArgument` for a name that no limit has, and for no limit."""
    try:
        return Limits(**dict(drawn))
    except TypeError as error:
        raise InvalidArgument(f"the limits {drawn!r:.200} are none: {error}") from None


def check_counts(what: str, counts: Mapping[str, tuple[int, int]]) -> None:
    """Raises `InvalidArgument` with every count that is above its bound; `counts` has both by name."""
    problems = [
        f"{name}: {count if count < 1 << 64 else '2**64 or more'}, where {most:,} is the most"
        for name, (count, most) in counts.items()
        if count > most
    ]
    if problems:
        raise InvalidArgument(f"{what} asks for too much ({'; '.join(problems)})")
