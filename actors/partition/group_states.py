"""All groups of one partition, as the shared delivery journal rebuilds them.

One journal serves all groups of a partition, so that a commit pays one extra sync however many groups there are; see
`group_records` for its records.

A snapshot is the map {"groups": {group id: {"durable", "delivery", "numbering", "birth"}}, "named_end", "outbox"}; the
last but one is there when an offset above all that the groups still name was named once, the last when an ack has
published something (`outbox.entries`). In version 0 a snapshot is {group id: [durable, delivery snapshot]}.

A group that the catalog says to read the topic from its beginning is *implied*: it exists before its record does, so
that a consumer of a thousand partitions joins without a write in each. `opening_rules` say when the record is written,
with the time since when the group is open. Until then the group is *unwritten*, and a snapshot does not have it.

Where the journal lost records (`lost`), what follows may not fit. A group is *salvaged* from its first such event on:
what is settled stays settled, and nothing else is believed. Attempts and delays since are forgotten, all leases have
ended, and what was acked in the lost part is delivered again.

A journal counts dead letters and entries of the outbox, and the actor that takes them elsewhere publishes them under
these numbers; the targets remember the highest. So no number may be used for two things. Each group gets the id of a
*numbering* when it is opened, which no other opening has, and which is a part of who publishes (`source_ids`). Where
records are lost and the numbering is known, numbers go on above all that they can have given, which their sequences
tell (`above_lost`); where it is not known, another one begins. A copy of a journal that is older than what the targets
have taken tells nothing of that: so the numbers of each life of a partition begin at its instant (`begin_life`).

Everything read back is untrusted. A record that cannot have followed those before it raises `JournalInvalid` with the
group it is about, one that only a later version understands `FormatTooNew`; neither is damage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final

from callboard.actors.delivery.delivery import NO_FIELDS, Delivery
from callboard.actors.delivery.events import (
    EVENTS,
    AckEvent,
    DeathEvent,
    DeliveryEventInvalid,
    Event,
    ExpiryEvent,
    ForgetEvent,
    LeaseEvent,
    PublishEvent,
    SeekEvent,
    SkipEvent,
    VoidEvent,
    decode_events,
    parts_of,
    takes_steps,
)
from callboard.actors.delivery.pieces import decode_in_pieces, encode_in_pieces
from callboard.actors.delivery.snapshot import number, restore_in_steps, take_snapshot
from callboard.actors.partition.group_records import (
    CLOSE,
    OPEN,
    RECORDS_VERSION,
    SENT,
    Stored,
    besides,
    closing_record,
    flag,
    group_id_of,
    opening_record,
    parsed_record,
    senseless,
    sent_record,
)
from callboard.actors.partition.group_state import GroupState
from callboard.actors.partition.outbox.entries import OutboxEntries
from callboard.log.format.fields import MUST, unknown_fields
from callboard.log.format.stamps import Stamps

GROUP_FIELDS: Final = ("durable", "delivery", "numbering", "birth")
SNAPSHOT_FIELDS: Final = ("groups", "named_end", "outbox")
GONE_FROM: Final = 2**31
"""A journal that has lost more records than this has lost all: how many it had is unknown."""
GIVEN_PER_RECORD: Final = 2**24
"""More numbers, or ids of leases, than a record of the journal can give."""
GIVEN_BEFORE: Final = 2**53
"""More than was given that does not go by the number of records: by lives, which begin at their instant until the year
2255, and by older versions.
"""


class GroupStates:
    """The groups of one partition by id."""

    def __init__(
        self, wall_offset_s: float = 0.0, *, opened_us: int = 0, stamps: Stamps | None = None
    ) -> None:
        self._opened_us = opened_us
        self._stamps = Stamps() if stamps is None else stamps
        self.wall_offset_s = wall_offset_s
        """Wall time minus monotonic time when the partition was opened."""
        self.groups: dict[int, GroupState] = {}
        self.outbox = OutboxEntries()
        self.lost_sequences: list[tuple[int, int]] = []
        """First and last sequence of the records that the journal lost."""
        self.wrong_files: list[str] = []
        """Files of other logs that were found in the journal's folder, for people."""
        self._salvaged: set[int] = set()
        """Groups of whose events some did not fit, after a loss."""
        self._first_number = 0
        """Of this life, once it has begun."""
        self._unnumbered: set[int] = set()
        """Groups whose opening the journal lost."""
        self._version = RECORDS_VERSION
        self.salvaged_end = 0
        """One above the highest offset that what was not believed names: no record may get it again."""
        self._wall_offset_s = wall_offset_s
        self._unknown_fields: dict[str, Any] = {}

    def open(
        self, group_id: int, durable: bool, start: int, numbering: int = 0, birth: int = 0
    ) -> tuple[GroupState, bytes]:
        """Add a group whose floor is `start` and which begins `numbering`; returns it and the record to journal."""
        group = self.add(group_id, durable, start, numbering, birth)
        return group, opening_record(group)

    def add(
        self, group_id: int, durable: bool, start: int, numbering: int = 0, birth: int = 0, since_us: int = 0
    ) -> GroupState:
        """The same, for a record that is journalled later."""
        group = GroupState(group_id, durable, Delivery(start), opened_at=start, birth=birth)
        group.unwritten_since_us = since_us
        group.delivery.dead.numbering, group.delivery.dead.first = numbering, self._first_number
        self.groups[group_id] = group
        return group

    def close(self, group_id: int) -> bytes:
        """Forget a group; returns the record to journal."""
        del self.groups[group_id]
        return closing_record(group_id)

    def forget_sent(self, numbers: Iterable[int]) -> bytes | None:
        """Forget entries of the outbox; returns the record to journal, or None when there are no such entries."""
        forgotten = self.outbox.forget(numbers)
        return sent_record(forgotten) if forgotten else None

    def versioned(self, version: int) -> None:
        """What is replayed next is in the form of `version`."""
        self._version = version

    def lost(self, first: int, last: int) -> None:
        """The journal lost the records `first` to `last`: what is replayed next may not fit."""
        self.lost_sequences.append((first, last))

    def losses(self, directory: str) -> list[str]:
        """What the journal in `directory` lost, and what was in its place, for people."""
        lost = [
            f"{directory}: {f'records {first} to {last} are' if last < GONE_FROM else 'all that it said is'} lost"
            for first, last in self.lost_sequences
        ]
        return lost + self.wrong_files

    def replayed(self, numbering: int, sequence: int) -> None:
        """The replay is over, and the next record has this sequence. After a loss all leases end, and neither the
        receipt of a lost lease nor a number is given again; where nothing is known of the numbers, `numbering` begins.
        """
        if self.lost_sequences:
            for group in self.groups.values():
                group.delivery.void_all_leases()
                group.delivery.take_events()
            self.number_on(self.groups, numbering, sequence)

    def begin_life(self) -> None:
        """What there was is replayed: the numbers given from now on begin at this instant, in microseconds since 1970.

        The files may be an older copy that was put back: what was given after it was made was less than that,
        since no partition has given a number for every microsecond, and the targets may have taken it.
        """
        self._first_number = self.outbox.first_of_life = min(max(0, self._opened_us), GIVEN_BEFORE)
        for group in self.groups.values():
            group.delivery.dead.first = self._first_number

    def number_on(self, group_ids: Iterable[int], numbering: int, sequence: int) -> None:
        """Some of what records below `sequence` told of these groups, and of the outbox, is lost: ids of leases and
        numbers go on above all that they can have given. Where nothing is known of a numbering, this one begins.
        """
        if not self.outbox.next:
            self.outbox.begin_again(numbering)
        self.outbox.go_on_above(above_lost(sequence))
        for group_id in group_ids:
            delivery = self.groups[group_id].delivery
            delivery.go_on_above(above_lost(sequence))
            if group_id in self._unnumbered:
                delivery.dead.numbering = numbering
        self._unnumbered.clear()

    def written(self, wall_us: int) -> None:
        """What is replayed next was written at `wall_us`. If that is still to come, the clock was set back meanwhile:

        delays then run from the opening, or from when an earlier one has noticed it (`stamps`), so none gets longer
        than it was asked to be.
        """
        written_us = min(self._stamps.believed(wall_us, self._opened_us), self._opened_us)
        self._wall_offset_s = self.wall_offset_s + max(0, wall_us - written_us) / 1e6

    def parsed(self, record: bytes) -> Stored:
        """What one journal record says. Raises `JournalInvalid`, `FormatTooNew`."""
        kind, group_id, body, unknown = parsed_record(record, self._version)
        if kind == EVENTS:
            try:
                body = decode_events(body, wall_offset_s=self._wall_offset_s)
            except DeliveryEventInvalid as error:
                raise senseless(f"the events of group {group_id} do not parse: {error}", group_id) from error
        return kind, group_id, body, unknown

    def apply(self, record: bytes) -> None:
        """Replay one journal record. Raises `JournalInvalid`, `FormatTooNew`."""
        self.replay(*self.parsed(record))

    def apply_in_steps(self, record: bytes) -> Iterator[None] | None:
        """The same; steps that are still to be taken when a single event takes many, before anything else is asked."""
        kind, group_id, body, unknown = self.parsed(record)
        group = self.groups.get(group_id)
        if kind == EVENTS and group is not None and any(map(takes_steps, body)):
            return self._apply_events_in_steps(group_id, group.delivery, body)
        self.replay(kind, group_id, body, unknown)
        return None

    def _apply_events_in_steps(
        self, group_id: int, delivery: Delivery, events: list[Event]
    ) -> Iterator[None]:
        for event in events:
            if isinstance(event, VoidEvent) and group_id not in self._salvaged:
                yield from delivery.void_replayed()
            else:
                for part in parts_of(event):
                    self._apply_events(group_id, [part])
                    yield

    def replay(self, kind: int, group_id: int, body: Any, unknown: dict[str, Any]) -> None:
        """Replay what a record says. Raises `JournalInvalid`."""
        if kind == OPEN:
            if group_id not in self.groups:
                group = self.add(group_id, *body)
                group.unwritten_since_us, group.unknown_fields = None, unknown or NO_FIELDS
        elif kind == CLOSE:
            self.groups.pop(group_id, None)
        elif kind == SENT:
            self.outbox.forget(body)
        elif kind == EVENTS:
            self._apply_events(group_id, body)

    def _apply_events(self, group_id: int, events: list[Event]) -> None:
        group = self.groups.get(group_id)
        if group is None:
            if not self.lost_sequences:
                raise senseless(f"events name group {group_id}, which was never opened", group_id)
            group = self.groups[group_id] = GroupState(group_id, True, Delivery(0))
            self._salvaged.add(group_id)
            self._unnumbered.add(group_id)
        for event in events:
            if isinstance(event, PublishEvent):
                self._publish(group, event)
                continue
            if isinstance(event, SeekEvent):
                self.salvaged_end = max(self.salvaged_end, group.delivery.offsets.next)
            if group_id in self._salvaged:
                self._salvage(group.delivery, event)
                continue
            try:
                group.delivery.apply(event)
            except DeliveryEventInvalid as error:
                if not self.lost_sequences:
                    words = f"the event {tuple(event)!r:.200} of group {group_id} does not fit: {error}"
                    raise senseless(words, group_id) from error
                self._salvaged.add(group_id)
                self._salvage(group.delivery, event)

    def _publish(self, group: GroupState, event: PublishEvent) -> None:
        _, first, lease_id, start, stop = event
        try:
            self.outbox.add(first, group.group_id, lease_id, start, stop, group.delivery.dead.numbering)
        except ValueError as error:
            raise senseless(
                f"the event {tuple(event)!r:.200} of group {group.group_id} does not fit: {error}",
                group.group_id,
            ) from error

    def _salvage(self, delivery: Delivery, event: Event) -> None:
        """Settle what the event settles; remember what it names, so that it is not given away again."""
        match event:
            case AckEvent():
                for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
                    delivery.skip(start, stop)
            case SkipEvent():
                delivery.skip(event.start, event.stop)
            case DeathEvent():
                for start, stop in zip(event.attempts[::3], event.attempts[1::3], strict=True):
                    delivery.skip(start, stop)
                delivery.dead.believe(event)
            case ExpiryEvent():
                for start, stop in zip(event.ranges[::2], event.ranges[1::2], strict=True):
                    delivery.skip(start, stop)
                delivery.dead.believe(event)
            case ForgetEvent():
                delivery.forget_dead(event.below)
            case SeekEvent():
                delivery.seek(event.offset)
            case LeaseEvent():
                delivery.offsets.next_lease_id = max(delivery.offsets.next_lease_id, event.lease_id + 1)
        delivery.take_events()
        self.note_named([event])

    def note_named(self, events: list[Event]) -> None:
        """Remember the offsets in events that are not believed: they must not be given away again."""
        for event in events:
            if isinstance(event, LeaseEvent):
                self.salvaged_end = max(self.salvaged_end, event.attempts[-2])
            elif isinstance(event, PublishEvent):
                self.outbox.pass_over(event.number, event.stop - event.start)

    def snapshot(self, wall_offset_s: float) -> bytes:
        """Everything, as one CBOR map; `wall_offset_s` as for `GroupState.events_record`."""
        return b"".join(self.snapshot_in_pieces(wall_offset_s))

    def snapshot_in_pieces(self, wall_offset_s: float) -> Iterator[bytes]:
        """The same in pieces, each quickly made. What changes after this call does not touch them."""
        groups = {
            group.group_id: {
                "durable": group.durable,
                "delivery": take_snapshot(group.delivery, wall_offset_s),
                **besides(group.delivery.dead.numbering, group.birth),
                **group.unknown_fields,
            }
            for group in self.groups.values()
            if group.unwritten_since_us is None
        }
        named: dict[str, Any] = {"named_end": self.salvaged_end} if self.salvaged_end else {}
        if self.outbox.next:
            named |= {"outbox": self.outbox.snapshot(), MUST: ["outbox"]}
        return encode_in_pieces({"groups": groups, **named, **self._unknown_fields})

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot. Raises `JournalInvalid`, `FormatTooNew`."""
        for _ in self.restore_in_steps(data):
            pass

    def restore_in_steps(self, data: bytes) -> Iterator[None]:
        """The same, yielding now and then; until its end ask for nothing else."""
        self.groups, self._unknown_fields = {}, {}
        self._unnumbered.clear()
        try:
            decoded: Any = yield from decode_in_pieces(data)
            if not self._version:
                decoded = {
                    "groups": {
                        group_id: {"durable": durable, "delivery": delivery}
                        for group_id, (durable, delivery) in decoded.items()
                    }
                }
            self._unknown_fields = unknown_fields(decoded, SNAPSHOT_FIELDS, "a snapshot")
            self.salvaged_end = number(decoded.get("named_end", 0))
            outbox = OutboxEntries.restore(decoded["outbox"]) if "outbox" in decoded else OutboxEntries()
            if "outbox" not in decoded:
                outbox.begin_again(self.outbox.numbering)
            outbox.pass_over(self.outbox.next, 0)
            self.outbox = outbox
            groups: dict[Any, Any] = decoded["groups"]
            for group_id, stored in groups.items():
                self.groups[group_id_of(group_id)] = yield from self._restored(group_id, stored)
        except (DeliveryEventInvalid, ValueError, TypeError, KeyError, AttributeError) as error:
            raise senseless(f"a snapshot does not parse: {error}", None) from error

    def _restored(self, group_id: int, stored: Any) -> Generator[None, None, GroupState]:
        unknown, delivery = unknown_fields(stored, GROUP_FIELDS, "a group's state"), Delivery(0)
        try:
            yield from restore_in_steps(delivery, stored["delivery"], self._wall_offset_s)
            delivery.dead.numbering, birth = (
                number(stored.get("numbering", 0)),
                number(stored.get("birth", 0)),
            )
        except DeliveryEventInvalid as error:
            raise senseless(f"the state of group {group_id} makes no sense: {error}", group_id) from error
        durable = flag(stored["durable"])
        return GroupState(group_id, durable, delivery, birth=birth, unknown_fields=unknown or NO_FIELDS)

    def named_end(self) -> int:
        """One above the highest offset that any group names."""
        return max(self.salvaged_end, *(group.delivery.offsets.next for group in self.groups.values()), 0)

    def unsettled_from(self, otherwise: int) -> int:
        """The lowest offset that a durable group has not settled, or whose record is a dead letter."""
        return min((g.delivery.oldest_needed() for g in self.groups.values() if g.durable), default=otherwise)

    def next_deadline(self) -> float | None:
        """The earliest monotonic time at which some group has something to expire or to hand out again."""
        deadlines = (group.delivery.offsets.next_deadline() for group in self.groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def __iter__(self) -> Iterator[GroupState]:
        return iter(self.groups.values())


def above_lost(sequence: int) -> int:
    """Above all numbers, and ids of leases, that records below `sequence` can have given, be it behind another loss."""
    return GIVEN_BEFORE + sequence * GIVEN_PER_RECORD
