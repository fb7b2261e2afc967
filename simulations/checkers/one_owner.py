"""No two members of an exclusive group hold leases of a partition at any instant, and a member that stays keeps its
own.

Looked at from inside, at every step of a run. A partition changes its owner only when its owner has gone or is stalled,
or when a consumer has joined; so it is known which came and went between two looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from callboard.simulations.insides import memberships
from callboard.simulations.world.bounds import running

if TYPE_CHECKING:
    from callboard.actors.groups.commands import Place
    from callboard.actors.partition.group_state import GroupState
    from callboard.runtime import Runtime

PROMISE: Final = (
    "no two members hold leases of a partition of an exclusive group, and a member that stays keeps its own"
)


class OwnershipWatch:
    """What was seen at the last look."""

    def __init__(self) -> None:
        self.has_waited = False
        """A partition was seen that waited for its old owner to let go."""
        self.has_idle = False
        """A member was seen that owned nothing."""
        self.moving = 0
        """How many partitions were on their way from one member to another."""
        self._members: frozenset[int] | None = None
        self._owners: dict[Place, int | None] = {}
        self._machine = 0

    def forget(self) -> None:
        """What is seen next is not compared with what was seen last."""
        self._members = None

    def look(self, machine: int, runtime: Runtime) -> str | None:
        """What is wrong now, in words; None when nothing is."""
        if machine != self._machine:
            self.forget()
            self._machine = machine
        for live in runtime._session.mirror.topics():
            for port in live.ports:
                partition = running(port.ref._cell)
                for group in () if partition is None else partition._core.states:
                    problem = self._of_leases(port.label, group)
                    if problem is not None:
                        return problem
        for membership in memberships(runtime):
            if membership.settings.mode == "exclusive":
                members = membership.members.values()
                active = frozenset(member.consumer for member in members if not member.is_suspended)
                self.moving = sum(row.is_moving for row in membership.assignment.rows.values())
                return self._of_members(active, membership.assignment.rows)
        return None

    def overdue(self, runtime: Runtime, grace_s: float) -> str | None:
        """What hand-over takes longer than `rebalance_timeout` and `grace_s`, in words: for when nothing has failed."""
        for membership in memberships(runtime):
            if membership.settings.mode == "exclusive":
                since_s = runtime._session.clock.monotonic() - membership.settings.rebalance_timeout - grace_s
                for (_, index), row in membership.assignment.rows.items():
                    if row.is_moving and row.since < since_s:
                        return f"partition {index} does not come to {row.owner}, although its old owner had its time"
        return None

    def _of_leases(self, label: str, group: GroupState) -> str | None:
        holders = {lease.consumer for lease in group.delivery.offsets.leases()}
        if group.ownership is None:
            return None
        if len(holders) > 1:
            return f"consumers {sorted(holders)} hold leases of {label} at the same time"
        others = holders - {group.ownership.owner}
        if others and group.handing_over is None:
            return f"consumer {others} holds leases of {label}, which belongs to {group.ownership.owner}"
        self.has_waited = self.has_waited or bool(others)
        return None

    def _of_members(self, members: frozenset[int], rows: Any) -> str | None:
        owners = {place: row.owner for place, row in rows.items()}
        before, was = self._members, self._owners
        self._members, self._owners = members, owners
        self.has_idle = self.has_idle or bool(members - set(owners.values()))
        if before is None or members - before:
            return None
        for place, owner in owners.items():
            left = was.get(place)
            if left is not None and left in members and left != owner:
                return f"partition {place[1]} was taken from {left}, which stayed, and no consumer had joined"
        return None
