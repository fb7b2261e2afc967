"""Who owns a partition in an exclusive group, and how it is handed over: the core's part for members of groups. Pure.

The coordinator decides (`groups.assignment`), the partition keeps to it: whatever members ask for, and in whatever
order that comes, a partition leases only to its owner, and not even to that while another member has a lease here. So
no two members ever hold leases of a partition at the same time. Ownership outlives a core, but not the process: leases
do the same.

Invariants
----------
MR1  All leases of an exclusive group in a partition are one member's.
MR2  What is leased is leased to the owner by the highest epoch that the partition has heard of.
MR3  An assignment is answered once: True when only its owner has leases here, False when a later one came.
MR4  What a consumer has leased when it leaves, or is fenced, is given back in steps, a lease at a time or a part of it.
     The question is answered when all of it is; what the consumer leases later, as a new generation, it keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.delivery.intervals import NOTHING
from callboard.actors.partition import effects as e
from callboard.actors.partition.commands import Holder
from callboard.actors.partition.group_state import Releases
from callboard.actors.partition.ownership import Ownership
from callboard.log.limits import HOLDERS_MAX

if TYPE_CHECKING:
    from collections.abc import Generator

    from callboard.actors.partition import commands as c
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.group_state import GroupState


class MemberRules:
    """Members that own a partition, leave, or begin a new generation."""

    def __init__(self, deliveries: PartitionDeliveries) -> None:
        self._deliveries = deliveries

    def assign_partition(self, message: c.AssignPartition, token: Token, now: float) -> None:
        """The partition has another owner from now on; answered when no other consumer has leases (MR3).

        With `is_forced` the leases of others end now.
        """
        ownership = self._deliveries.carried.owners.setdefault(message.group_id, Ownership())
        group = self._deliveries.groups.get(message.group_id)
        if not ownership.assign(message.consumer, message.epoch):
            self._deliveries.effects.append(e.Answer([(token, False)]))
            return
        if group is None:
            self._deliveries.effects.append(e.Answer([(token, True)]))  # it has no leases
            return
        waiting = group.handing_over or []
        stale = [(earlier, False) for epoch, earlier in waiting if epoch < message.epoch]
        self._deliveries.effects.append(e.Answer(stale))
        waiting = [waits for waits in waiting if waits[0] == message.epoch]
        group.handing_over = [*waiting, (message.epoch, token)]
        if group.notified:
            group.notified = {key: until for key, until in group.notified.items() if key == message.consumer}
        if message.is_forced:
            for other in sorted(group.delivery.offsets.holders() - {message.consumer}):
                self._gives_back(group, group.delivery.offsets.lease_ids(other), None)
            self.release_some(group, now)
        self._deliveries.notify(group, now)

    def list_holders(self, message: c.ListHolders, token: Token, now: float) -> None:
        """Answer with what each consumer has leased; nothing of a group that is not known here."""
        group = self._deliveries.groups.get(message.group_id)
        held = {} if group is None else group.delivery.offsets.holdings(now, HOLDERS_MAX)
        answer = [Holder(consumer, each.leased, now - each.since) for consumer, each in sorted(held.items())]
        self._deliveries.effects.append(e.Answer([(token, answer)]))

    def end_hand_over(self, group: GroupState) -> None:
        """The group, or the partition, ends: who waits for a hand-over asks again, and hears that. Nothing is left that
        is to be given back.
        """
        if group.handing_over is not None:
            waiting, group.handing_over = group.handing_over, []
            self._deliveries.effects.append(e.Answer([(token, False) for _, token in waiting]))
        for waits in group.releases:
            self._deliveries.journal.answer(waits.token, None, must_sync=False)
        group.releases = NOTHING

    def may_lease(self, group: GroupState, consumer: int) -> bool:
        """Whether a member may be leased something now (MR1, MR2)."""
        ownership = group.ownership
        return ownership is None or (ownership.owner == consumer and self._deliveries.is_handed_over(group))

    def release_consumer(self, message: c.ReleaseConsumer, token: Token, now: float) -> None:
        """A consumer leaves: release all that it has leased, and pass its notice on."""
        self._deliveries.carried.fences.pop((message.group_id, message.consumer), None)
        self._deliveries.carried.names.pop((message.group_id, message.consumer), None)
        self._release_consumer(message.group_id, message.consumer, token, now)

    def release_others(self, message: c.RemainingMembers, _: Token, now: float) -> None:
        """Consumers have left that the partition has not heard of: release what they have leased."""
        group_id, remaining = message.group_id, frozenset(message.consumers)
        gone = {
            consumer
            for known, consumer in (*self._deliveries.carried.fences, *self._deliveries.carried.names)
            if known == group_id
        }
        if (group := self._deliveries.groups.get(group_id)) is not None:
            gone |= group.delivery.offsets.holders()
        for consumer in sorted(gone - remaining):
            self._deliveries.carried.fences.pop((group_id, consumer), None)
            self._deliveries.carried.names.pop((group_id, consumer), None)
            self._release_consumer(group_id, consumer, None, now)

    def _release_consumer(self, group_id: int, consumer: int, token: Token, now: float) -> None:
        group = self._deliveries.groups.get(group_id)
        if group is not None:
            group.waiting.pop(consumer, None)
            group.has_fetched(consumer)
            if group.returning:
                group.returning.pop(consumer, None)
            if group.choice is not None:
                tokens = group.choice.take_fetches_of(consumer)
                self._deliveries.effects.append(e.Answer([(token, None) for token in tokens]))
            self._gives_back(group, group.delivery.offsets.lease_ids(consumer), token)
            self.release_some(group, now)
            self._deliveries.notify(group, now)
        else:
            self._deliveries.journal.answer(token, None, must_sync=False)

    @staticmethod
    def _gives_back(group: GroupState, lease_ids: list[int], token: Token) -> None:
        """These leases are to be given back; then `token` is answered."""
        if group.releases is NOTHING:
            group.releases = []
        group.releases.append(Releases(lease_ids, token))

    def release_in_steps(self, now: float, *, all_leases: bool) -> Generator[None, None, None]:
        """The partition stops: what is to be given back is, before that, and `all_leases` when the runtime closes and
        its consumers end with it.
        """
        for group in self._deliveries.groups.values():
            if all_leases:
                self._gives_back(group, group.delivery.offsets.lease_ids(), None)
            while group.releases:
                self.release_some(group, now)
                yield

    def release_some(self, group: GroupState, now: float) -> None:
        """Give back a part of what consumers had that have left (MR4). The rest is due at once."""
        before = len(group.delivery.events)
        released, done = group.releases_some(self._deliveries.options.limits.step_items)
        if released:
            self._deliveries.carried.has_released(group, before)
            self._deliveries.has_changed(group, now)
        for token in done:
            self._deliveries.journal.answer(token, None, must_sync=False)
        if group.releases:
            self._deliveries.arm(now)

    def fence_consumer(self, message: c.FenceConsumer, token: Token, now: float) -> None:
        """A member begins a new generation: release what it leased as an earlier one. Fetches of that are refused."""
        group = self._deliveries.groups.get(message.group_id)
        fences = self._deliveries.carried.fences
        key = message.group_id, message.consumer
        if group is not None and message.generation > fences.get(key, 0):
            fences[key] = message.generation
        if group is not None and message.consumer in group.waiting:
            self._deliveries.effects.append(e.Answer([(group.waiting.pop(message.consumer), True)]))
        self._release_consumer(message.group_id, message.consumer, token, now)
