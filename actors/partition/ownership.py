"""The owner of a partition in an exclusive group. `member_rules` says what follows from it."""

from __future__ import annotations

import attrs


@attrs.define
class Ownership:
    """The owner of a partition in one group, by the latest decision that the partition has heard of."""

    epoch: int = 0
    owner: int | None = None

    def assign(self, owner: int | None, epoch: int) -> bool:
        """Take note of a decision; False when a later one is known (MR2)."""
        if epoch < self.epoch:
            return False
        self.owner, self.epoch = owner, epoch
        return True
