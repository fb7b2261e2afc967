"""The deliveries of a partition to its groups, as the parts of its core share them. Pure.

Here is what each part needs of the others: the groups, where the log begins and ends, and what is to follow from a
step, which is effects, entries of the journal, and the next deadline. What only one part knows is in that part.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from callboard.actors.delivery.receipts import between
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.choice.distribution import Draw, Load, load_of
from callboard.actors.partition.choice.record_window import WindowAllowance
from callboard.actors.partition.queues import LINGER_S, NEVER, JournalQueue
from callboard.log.errors import GroupNotFound
from callboard.log.limits import USUAL, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from callboard.actors.delivery.receipts import Lease, OffsetRange
    from callboard.actors.partition.carried import Carried
    from callboard.actors.partition.group_state import GroupState
    from callboard.actors.partition.group_states import GroupStates

NOTICE_LASTS_S: Final = 0.05
"""How long a notified consumer may take to fetch before the next one is notified."""


@attrs.frozen(kw_only=True)
class CoreOptions:
    """What a core is given about its partition, and what it may ask of its shell."""

    label: str
    limits: Limits = USUAL
    has_priorities: bool = False
    """Every group of the topic looks at priorities before it leases."""
    windows: WindowAllowance = attrs.field()
    """What its record windows may take."""
    is_abandoned: Callable[[c.Token], bool] = lambda _: False
    """Whether an asker has stopped waiting."""
    load: Load = load_of
    """How busy a waiting asker is."""
    draw: Draw = lambda: 0.0
    """Draws a random number."""

    @windows.default
    def _own_windows(self) -> WindowAllowance:
        return WindowAllowance(self.limits.window_bytes)


class PartitionDeliveries:
    """What the parts of a core share about the partition's groups."""

    def __init__(
        self,
        states: GroupStates,
        carried: Carried,
        options: CoreOptions,
        *,
        start_offset: int = 0,
        visible_end: int = 0,
    ) -> None:
        self.states = states
        self.groups = states.groups
        self.carried = carried
        self.options = options
        self.start_offset = start_offset
        """Where the log begins."""
        self.visible_end = self.durable_end = visible_end
        """Where what may be leased ends, and what is synced."""
        self.wall_offset_s = states.wall_offset_s
        """Wall time minus monotonic time, by which it is known how long records have waited."""
        self.effects: list[e.Effect] = []
        """What to do, in order."""
        self.journal = JournalQueue()
        self.armed = NEVER
        """The earliest deadline that is watched."""
        self.lost_to_reads: list[tuple[int, int, int]] | None = None
        """Groups, offsets and how many records, that reads have missed while retention drops records."""

    def take_effects(self) -> list[e.Effect]:
        """What there is to do by now."""
        taken, self.effects = self.effects, []
        return taken

    def refuse_unknown(self, group_id: int, token: c.Token) -> None:
        """Nothing is known here of the group that was named: say so."""
        if token is not None:
            error = GroupNotFound(
                f"partition {self.options.label} knows no group with id {group_id}: it was deleted or expired."
                " Subscribe again.",
                group=group_id,
            )
            self.effects.append(e.Refuse([token], error))

    # -- what a step changes ------------------------------------------------------------------------------------

    def has_changed(self, group: GroupState, now: float, *, urgent: bool = True) -> None:
        """What changed in `group` goes into the next commit (PC3).

        Late steps of a group that was closed meanwhile are not journalled: nothing may follow its closing.
        """
        if not group.delivery.events or self.groups.get(group.group_id) is not group:
            return
        journal = self.journal
        journal.changed[group.group_id] = group
        journal.due.at = min(journal.due.at, 0.0 if urgent else now + LINGER_S)

    def settled_in(self, group: GroupState, ranges: Sequence[OffsetRange], now: float) -> None:
        """Offsets of a group with a choice are settled: others may be free now."""
        if group.choice is not None:
            group.choice.settled(ranges)
        if group.choice is not None or group.handing_over is not None:
            self.notify(group, now)

    def died_in(self, group: GroupState, now: float) -> None:
        """Records of `group` may have become dead letters: they are settled."""
        if group.choice is not None and (died := group.delivery.just_died()):
            self.settled_in(group, died, now)
        delivery = group.delivery
        if delivery.dead.count:
            count, group.dead_reported = delivery.dead.total - group.dead_reported, delivery.dead.total
            self.effects.append(e.HasDead(group.group_id, count, delivery.dead.rows[-1].reason))

    def give_back(self, group: GroupState, lease: Lease, ranges: list[OffsetRange], now: float) -> None:
        """Release what no consumer has heard of. Until that is journalled, another core has to do it again."""
        group.delivery.release(lease.lease_id, ranges, now)
        self.carried.released.append((group.group_id, lease.lease_id, ranges))

    def leases_ended(self, group_id: int) -> None:
        """Have clients know which leases of the group a seek, or retention, has ended."""
        sought, dropped = self.carried.first_sought, self.carried.dropped_below
        news = c.LeasesEnded(group_id, sought.get(group_id, 0), dropped.get(group_id, 0))
        self.effects.append(e.TellClients(news))

    def records_lost(self, start: int, stop: int, now: float) -> None:
        """The log holds nothing at these offsets: settle them for every group, except where a consumer has them."""
        for group in self.groups.values():
            kept = group.delivery.offsets.leased_in(start, stop, besides=group.pending)
            for first, last in between(start, stop, kept):
                lost = group.delivery.skip(first, last)
                group.lost_records += lost
                if self.lost_to_reads is not None:
                    self.lost_to_reads.append((group.group_id, first, lost))
                self.settled_in(group, [(first, last)], now)
            if group.delivery.events:
                self.has_changed(group, now, urgent=False)

    # -- what follows ---------------------------------------------------------------------------------------

    def notify(self, group: GroupState, now: float) -> None:
        """Notify as many waiting consumers as there are records ready, less those that are notified already; none of a
        paused group (PC4, PC7).
        """
        if group.is_expired_full or not self.is_handed_over(group) or group.is_paused:
            return
        waiting, notified = group.waiting, len(group.notified)
        if not waiting:
            return
        if group.choice is not None:
            wanted = len(waiting) + notified
            ready = group.choice.ready_count(now, wanted)
            if ready < wanted:
                self.reads_window(group)
        else:
            ready = group.delivery.leasable_count(now, self.visible_end, len(waiting) + notified)
        others = group.to_be_notified(now, self.visible_end, self.options.load, self.options.draw)
        for consumer in list(islice(others, max(0, ready - notified))):
            group.notifies(consumer, now + NOTICE_LASTS_S)
            self.effects.append(e.Notify(waiting.pop(consumer), group.group_id, consumer))
        if waiting and group.notified:
            self.arm(next(iter(group.notified.values())))

    def reads_window(self, group: GroupState) -> bool:
        """Have more records read for the group's choice; False when there are none, or no room for them."""
        choice = group.choice
        if choice is None:
            return False
        span = choice.begin_reading(self.visible_end)
        if span is not None:
            self.effects.append(
                e.AwaitRoom(group.group_id)
                if choice.awaits_room
                else e.ReadWindow(group.group_id, *span, choice.columns, choice.is_uniform)
            )
        return choice.is_reading

    def is_handed_over(self, group: GroupState) -> bool:
        """Whether only the owner has leases; those that wait for that hear of it."""
        if group.handing_over is None:
            return True
        if group.is_held_by_others():
            return False
        waiting, group.handing_over = group.handing_over, None
        self.effects.append(e.Answer([(token, True) for _, token in waiting]))
        return True

    def arm(self, at: float | None) -> None:
        """Something is due by itself at this time."""
        if at is not None and at < self.armed:
            self.armed = at
            self.effects.append(e.ArmTimer(at))

    def arm_anew(self, at: float | None) -> None:
        """The deadline that was watched has come: this one is next."""
        self.armed = NEVER
        self.arm(at)
