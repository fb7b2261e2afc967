"""A power cut at the worst moment: just when a client is told that what it did is done, soon after something failed.

Whatever was told must then be on the disk. What failed before has the broker in its rarest paths: a commit that is
written once more, a journal that heals, a partition that has just restarted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callboard.simulations.world import World

TOLD: Final = ("acked", "published")
DOWN_S: Final = 0.05


def cut_when_told(world: World, count: int) -> None:
    """Cut the power when clients were told so many times of success after the first fault; 0: never."""
    left = count

    def told() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not world.healed.is_set():
            world.cut_power(down_s=DOWN_S)

    def failed() -> None:
        for probe in TOLD:
            for passing in range(1, count + 1):
                world.probes.wait(probe, passing, "", told)

    if count > 0:
        world.probes.wait("fault", 1, "", failed)
