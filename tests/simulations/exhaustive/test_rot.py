"""A log whose disk loses what it confirmed: beyond the promise, and then nothing is lost without a word."""

from __future__ import annotations

from collections import Counter

import trio

from callboard.simulations.disk.damage_budget import DamageBudget
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.exhaustive.ledger import LogPromises
from callboard.simulations.exhaustive.life import HandClock, Life
from callboard.simulations.exhaustive.operations import OPERATIONS

NAMES = (
    "append",
    "append_wide",
    "append_leader",
    "commit",
    "sync",
    "roll",
    "reopen",
    "kill",
    "fail_log_sync",
)
STEPS = 12
SEEDS = 150


async def rot_a_bit(seed: int, counts: Counter[str]) -> None:
    """A history, one bit flipped in a segment of the log, the end of the process or of the power, and an open."""
    entropy = SeededEntropy(seed)
    disk = MemoryDisk()
    disk.instant = True
    disk.damage_budget = DamageBudget(beyond=True)
    life = Life(disk, LogPromises(), HandClock(), seed=seed)
    await life.reopen()
    for _ in range(STEPS):
        await OPERATIONS[NAMES[int(entropy.random() * len(NAMES))]](life)
    segments = [path for path in disk.files() if path.endswith(".log") and "delivery" not in path]
    assert disk.rot(segments[entropy.integer(8) % len(segments)], entropy.integer(40))
    is_cut = entropy.random() >= 0.5
    if is_cut:
        disk.crash()
    else:
        disk.kill()
    promised = life.ledger.promised
    found = await life.open()
    assert not found.unexplained, seed
    for offset, value in found.records.items():
        assert value in life.ledger.attempted[offset], seed
        assert promised.get(offset, value) == value, seed
    lost = set(promised) - set(found.records)
    named = {at for damage in life.log.damages for at in range(damage.first_offset, damage.last_offset + 1)}
    # Once power loss took the proof that they were synced, nobody can tell damage from a torn write, whose bytes are
    # kept, or from writes that were lost: then the log explains a gap.
    assert lost <= (named | found.gaps if is_cut else named) or found.torn_bytes, seed
    counts["lost"] += len(lost)
    counts["kept"] += len(promised) - len(lost)


def test_a_flipped_bit_loses_only_what_is_named() -> None:
    """Whichever bit of a log flips, what is served is what was written, and what is lost is named."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        trio.run(rot_a_bit, seed, counts)
    assert counts["kept"] > 2 * counts["lost"] > 0
