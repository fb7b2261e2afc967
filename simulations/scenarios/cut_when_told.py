"""A power cut at the worst moment: just when a client learns that what it did is done, soon after something failed.

Whatever was answered must then be on the disk. What failed before has the broker in its rarest paths: a commit that is
written once more, a journal that heals, a partition that has just restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callboard.simulations.world import World

TOLD: Final = ("acked", "published")
FAILURES: Final = ("FailVerb", "FullDisk", "ShortWrite", "CrashActor", "CrashInBatch")
"""What is waited for: labels of faults."""
CUTS: Final = 2
DOWN_S: Final = 0.05


def cut_when_told(world: World, count: int, probes: Sequence[str] = TOLD) -> None:
    """Cut the power at the n-th success of a client since a fault struck; 0: never.

    `probes`: of which success.
    """
    left, cuts = 0, 0

    def told(probe: str) -> None:
        nonlocal left, cuts
        world.probes.wait(probe, 1, "", partial(told, probe))
        left -= 1
        if left == 0 and cuts < CUTS and not world.healed.is_set():
            cuts += 1
            world.cut_power(down_s=DOWN_S)

    def failed(label: str) -> None:
        nonlocal left
        world.probes.wait("fault", 1, label, partial(failed, label))
        left = count

    if count > 0:
        for label in FAILURES:
            world.probes.wait("fault", 1, label, partial(failed, label))
        for probe in probes:
            world.probes.wait(probe, 1, "", partial(told, probe))
