"""What the users of a log and its journal were answered, and what they may therefore expect after a crash."""

from __future__ import annotations

import attrs


class Broken(Exception):
    """A promise does not hold; the words say which."""


@attrs.frozen
class OpenedLog:
    """What an open found."""

    records: dict[int, bytes]
    """By offset."""
    unexplained: frozenset[int]
    """Offsets between the start and the end that have no record and are not named as lost."""
    start_offset: int
    next_offset: int
    events: tuple[bytes, ...]
    """What the journal replayed."""
    rewritten: int
    """Records and journal bytes that were unproven, and are written again."""
    torn_bytes: int
    gaps: frozenset[int] = frozenset()
    """Offsets that no record has, as the log explains them."""


@attrs.define
class LogPromises:
    """The state of knowledge at one moment. `copy` is cheap: it is taken at every crash point."""

    promised: dict[int, bytes] = attrs.field(factory=dict)
    """Acknowledged as synced: must be there."""
    visible: dict[int, bytes] = attrs.field(factory=dict)
    """Readers may have seen them: no other record may be in their place."""
    attempted: dict[int, frozenset[bytes]] = attrs.field(factory=dict)
    """All that was ever staged at an offset: nothing else may be found there."""
    start_dropped: int = 0
    """Retention has dropped everything below."""
    start_allowed: int = 0
    """Retention may have dropped everything below."""
    events: tuple[bytes, ...] = ()
    """Events handed to the journal, in order."""
    events_proven: int = 0
    """This many of them were synced."""
    tentative: tuple[bytes, ...] = ()
    """Events on their way, or failed: they may follow those."""
    gaps: frozenset[int] = frozenset()
    """Offsets that an earlier open explained: no later one may forget why they have no record."""

    def copy(self) -> LogPromises:
        """One that changes on its own."""
        return attrs.evolve(
            self, promised=dict(self.promised), visible=dict(self.visible), attempted=dict(self.attempted)
        )

    def key(self) -> int:
        """The same for ledgers that expect the same."""
        facts = attrs.astuple(self, recurse=False)
        return hash(tuple(tuple(fact.items()) if isinstance(fact, dict) else fact for fact in facts))

    def attempt(self, base_offset: int, values: list[bytes]) -> None:
        """Records are on their way."""
        for offset, value in enumerate(values, base_offset):
            self.attempted[offset] = self.attempted.get(offset, frozenset()) | {value}

    def check(self, found: OpenedLog) -> None:
        """Hold what an open found against what was promised. Raises `Broken`."""
        start = found.start_offset
        if not self.start_dropped <= start <= max(self.start_dropped, self.start_allowed):
            raise Broken(f"the log starts at {start}: retention had dropped {self.start_dropped}")
        for offset, value in self.promised.items():
            if offset >= start and found.records.get(offset) != value:
                raise Broken(
                    f"offset {offset} was synced with {value!r}: {found.records.get(offset)!r} is there"
                )
        for offset, value in found.records.items():
            if value not in self.attempted.get(offset, ()):
                raise Broken(f"garbage was served: offset {offset} has {value!r}")
            if self.visible.get(offset, value) != value:
                raise Broken(f"offset {offset} was used twice: {self.visible[offset]!r}, {value!r}")
        if found.unexplained:
            raise Broken(f"offsets {sorted(found.unexplained)} are missing and not named")
        forgotten = {offset for offset in self.gaps - found.gaps if offset >= start}
        if forgotten:
            raise Broken(f"offsets {sorted(forgotten)} have no record, and nothing says why any more")
        above = max((*self.promised, *found.records, self.start_dropped - 1, -1))
        named = max(map(named_end, found.events), default=0)
        if found.next_offset <= above or found.next_offset < named:
            raise Broken(
                f"the next offset is {found.next_offset}: {above} has a record, {named - 1} is named"
            )
        possible = (*self.events, *self.tentative)
        count = len(found.events)
        if found.events != possible[:count]:
            raise Broken(f"the journal replays {found.events!r}: {possible!r} were appended")
        if count < self.events_proven:
            raise Broken(f"the journal replays {count} events: {self.events_proven} were synced")

    def recovered(self, found: OpenedLog) -> None:
        """From here on what was found is what there is: an open proves all of it; offsets of what is gone are free."""
        self.promised = dict(found.records)
        self.visible = dict(found.records)
        self.gaps = found.gaps
        self.start_dropped = found.start_offset
        self.start_allowed = max(self.start_allowed, found.start_offset)
        self.events = found.events
        self.events_proven = len(found.events)
        self.tentative = ()


def event_naming(number: int, end: int) -> bytes:
    """A journal event that names all offsets below `end`."""
    return b"%d names below %d" % (number, end)


def named_end(event: bytes) -> int:
    """One above the offsets that an event names."""
    return int(event.rpartition(b" ")[2])
