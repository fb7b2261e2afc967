"""Limits of a run: how many seeds draw them small, so that what happens at a limit happens in runs of seconds.

A workload holds what differs from the usual, as pairs of name and value: shrinking takes pairs away, back to the usual.
"""

from __future__ import annotations

from typing import Final

from callboard.log.errors import InvalidArgument
from callboard.log.limits import Limits
from callboard.log.seams.entropy import Entropy
from callboard.simulations.scenarios.draws import one_of

__all__ = ["ACTOR_LIMITS", "DrawnLimits", "draw_limits", "limits_of"]

DrawnLimits = tuple[tuple[str, int], ...]

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
    "leased_batches": (1, 4),
    "fetch_bytes": (1, 4_000),
    "lazy_acks": (1, 10),
}
"""What a small value is: from, to. The others are never reached in a run: of these, large is as good as usual."""
LARGE: Final[dict[str, int]] = {"open_segments": 64, "prefetch": 1_000, "fetch_bytes": 64 << 20}
ACTOR_LIMITS: Final = ("mailbox", "receive_batch")
"""Those that plain actors come by."""


def draw_limits(entropy: Entropy, names: tuple[str, ...] = tuple(SMALL)) -> DrawnLimits:
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
