"""What a coordinator is started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from callboard.actors.groups.commands import GroupDecided
from callboard.actors.groups.membership import Membership

if TYPE_CHECKING:
    from callboard.actors.timing import WheelAddress


@attrs.frozen(eq=False)
class CoordinatorSpec:
    """Which group a coordinator is of."""

    name: str
    group_id: int
    birth: int
    """Which group it is of those that have had its id; 0: unknown."""
    decided: GroupDecided
    """What the catalog had decided when the first incarnation was started."""
    wheel: WheelAddress
    idle_since_us: int | None = None
    """Since when the group had no members then."""
    idle_noticed: tuple[int, int] | None = None
    """An instant since which the group was idle, and when it was noticed that it is ahead; later than that instant: how
    much of the grace was used, added to it."""
    membership: Membership = attrs.field(init=False)
    """What its incarnations hand on to each other: only they write it."""

    @membership.default
    def _new_membership(self) -> Membership:
        return Membership(self.group_id, self.birth, self.decided)
