"""History: the flat list of entries that a run adds up, and the messages that exist.

A message is known by its bytes: `message` gives out its id, and `identify` finds the id of bytes that came back.
Bytes that come back altered belong to no message. So values must be unique within a run.

Invariants
----------
Y1  Entries are in the order in which things were done; `entries[n].number == n`.
Y2  After `ended(machine)`, nothing more is recorded of that machine: a dead computer does and sees nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final

import trio

from callboard.actors.notices import DamageFound, DeadLettersDropped
from callboard.simulations.history.entry import ALTERED, HistoryEntry
from callboard.simulations.history.unobserved import Unobserved

ENTRIES_MAX: Final = 2_000_000
"""Half a gigabyte. The replay of a whole recorded day writes a sixth of it."""


_made: Final = tuple.__new__
"""An entry of its fields: half of what its class takes, and there are a thousand in a small run."""


class History:
    """What was done and seen. `now` is virtual time, `tell` takes the fields of each entry.

    It takes `limit` entries (None: `ENTRIES_MAX`), then calls `full(why)` at each further one, and keeps none.
    """

    def __init__(
        self,
        now: Callable[[], float] = trio.current_time,
        tell: Callable[[tuple[Any, ...]], object] | None = None,
        *,
        full: Callable[[str], object] = lambda _: None,
        limit: int | None = None,
    ) -> None:
        self.entries: list[HistoryEntry] = []
        self._by_kind: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        self.tell = tell
        self.ids: dict[bytes, int] = {}
        self.keys: dict[int, bytes | None] = {}
        self.chosen: dict[int, int] = {}
        """Partitions that publishers chose themselves, by message."""
        self._beside: dict[int, tuple[Mapping[str, bytes], datetime | None]] = {}
        self.stored: set[int] = set()
        """Ids of messages which are stored, as their publishers know."""
        self.unobserved = Unobserved()
        """What checkers do not judge."""
        self.now = now
        self._full = full
        self._limit = ENTRIES_MAX if limit is None else limit
        self._operations = 0
        self._told_operations = 0
        self._ended = 0

    # -- messages

    def message(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> int:
        """The id of a message, a new one unless these bytes have one, and what it carries."""
        number = self.ids.setdefault(value, len(self.ids))
        self.keys[number] = key
        if partition is not None:
            self.chosen[number] = partition
        self._beside[number] = headers or {}, timestamp
        return number

    def identify(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
    ) -> int:
        """The id of bytes that came back; `ALTERED` when they were never published, or with other things beside them.

        What is None of the headers and the timestamp is not looked at.
        """
        number = ALTERED if value is None else self.ids.get(value, ALTERED)
        if number < 0:
            return ALTERED
        known_headers, known_timestamp = self._beside[number]
        same = key == self.keys[number] and (headers is None or headers == known_headers)
        if timestamp is not None and known_timestamp is not None:
            same = same and timestamp == known_timestamp
        return number if same else ALTERED

    # -- recording

    def record(
        self,
        machine: int,
        kind: str,
        who: str = "",
        operation: int = 0,
        topic: str = "",
        partition: int = -1,
        group: str = "",
        ids: tuple[int, ...] = (),
        offsets: tuple[int, ...] = (),
        attempts: tuple[int, ...] = (),
        until: float = 0.0,
        detail: str = "",
        where: str = "",
    ) -> None:
        """Add an entry; nothing when the machine is dead (Y2)."""
        if 0 < machine <= self._ended:
            return
        entries = self.entries
        if len(entries) >= self._limit:
            self._full(f"the run's history is full, with {len(entries):,} entries")
            return
        fields = (
            len(entries),
            self.now(),
            machine,
            kind,
            who,
            operation,
            topic,
            partition,
            group,
            ids,
            offsets,
            attempts,
            until,
            detail,
            where,
        )
        entry = _made(HistoryEntry, fields)
        entries.append(entry)
        self._by_kind[kind].append(entry)
        if self.tell is not None:
            self.tell(fields)

    def tell_of(self, machine: int, kind: str, who: str = "", **fields: Any) -> None:
        """Add an entry for the story alone: no checker hears of it. Fields as in `record`."""
        before = len(self.entries)
        self.record(machine, kind, who, **fields)
        if len(self.entries) > before:
            self.unobserved.told.add(before)

    def told_operation(self) -> int:
        """A number for an operation that is there for the story alone: below zero, so that none of the others moves."""
        self._told_operations -= 1
        return self._told_operations

    def operation(self) -> int:
        """A number for a new operation, or a new life of a consumer."""
        self._operations += 1
        return self._operations

    def note(self, kind: str, detail: str = "", *, who: str = "") -> None:
        """Record what the world did: a fault, a remark, healing."""
        self.record(0, kind, who, detail=detail)

    def event(self, machine: int, event: Any) -> None:
        """An event of an actor system, by the name of its class."""
        if isinstance(event, str):
            self.record(machine, "remark", detail=event)
            return
        lost = (event.first_offset, event.last_offset) if isinstance(event, DamageFound) else ()
        detail = (
            getattr(event, "cause", None) or getattr(event, "reason", None) or getattr(event, "damage", "")
        )
        if isinstance(event, DeadLettersDropped):
            detail = str(event.records)
        child = getattr(event, "child", "")
        self.record(
            machine,
            type(event).__name__,
            getattr(event, "path", ""),
            offsets=lost,
            detail=f"{child}: {detail}" if child else str(detail),
            attempts=(getattr(event, "incarnation", 0),),
            until=getattr(event, "delay_s", 0.0),
        )

    def booted(self, machine: int) -> None:
        """Record that a machine has booted."""
        self.record(0, "booted", operation=machine)

    def ended(self, machine: int, how: str, detail: str = "") -> None:
        """A machine's life is over (`how`: "power cut", "killed", "closed"); it records nothing from here on (Y2).

        `detail`: what that did to its disk.
        """
        self.record(0, how, operation=machine, detail=detail)
        self._ended = max(self._ended, machine)

    def healed(self) -> None:
        """Record that nothing fails from now on."""
        self.record(0, "healed")

    def until(self, count: int) -> History:
        """The history as it was with `count` entries, to go on with in another way. The messages are the same."""
        return self._with(self.entries[:count])

    def of_these(self, entries: Iterable[HistoryEntry]) -> History:
        """The history as if nothing but these of its entries had been recorded, numbered anew (Y1)."""
        return self._with([entry._replace(number=number) for number, entry in enumerate(entries)])

    def _with(self, entries: list[HistoryEntry]) -> History:
        other = History(self.now, limit=self._limit)
        other.ids, other.keys, other._beside = self.ids, self.keys, self._beside
        other.chosen, other.stored = self.chosen, self.stored
        other.entries = entries
        for entry in entries:
            other._by_kind[entry.kind].append(entry)
        other._operations = self._operations
        return other

    # -- looking

    @property
    def machines(self) -> int:
        """How many machines have booted."""
        return len(self.of("booted"))

    def __len__(self) -> int:
        return len(self.entries)

    def of(self, *kinds: str) -> list[HistoryEntry]:
        """Entries of these kinds, in order."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        return sorted(chain.from_iterable(self._by_kind.get(kind, ()) for kind in kinds))

    def last(self, kind: str) -> int:
        """The number of the last entry of this kind; -1 when there is none."""
        found = self._by_kind.get(kind)
        return found[-1].number if found else -1

    def story(self, about: Callable[[HistoryEntry], bool] | None = None) -> list[str]:
        """The history in words, a line per entry, of those that `about` picks."""
        return [
            f"{entry.time:10.3f} s  {entry.words()}"
            for entry in self.entries
            if about is None or about(entry)
        ]
