"""DurableActor: an actor that stores its events in a journal and replays them at every start.

Vocabulary
----------
A *command* is the message that arrives. An *event* is a change of state: `persist` has `apply` change the state, writes
the event to the journal, and returns when it is synced. A *snapshot* is the whole state; a start replays only the
events after it.

Invariants
----------
DU1  The state is what `apply` makes of the snapshot and the events after it: nothing else changes it.
DU2  What was answered after `persist` survives a power loss.
DU3  When `persist` fails, or is cut off, the incarnation crashes: the next one uses the journal, not memory.
DU4  A life begins with events that a power loss cannot take back, or not at all.
DU5  `apply` gets what a replay would give it: the event as it comes back from its stored form.
DU6  What is written was applied before: nothing becomes durable that would keep the next life from its start.
DU7  What several tasks of the actor persist is written in the order in which it was applied, one call after the other.
DU8  What only shortens the next start fails no event: a snapshot that cannot be made is reported.
DU9  A journal that was there and is gone, is an older copy or another actor's, is not taken for the state: the actor
     does not start.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import cbor2
import trio

from callboard.actors.kernel.actor import Actor, check_plain_methods
from callboard.actors.kernel.events import call_guarded
from callboard.actors.kernel.failures import text_of
from callboard.log.errors import InvalidArgument, LogCorrupt, PlanFailed, StorageError
from callboard.log.journal.journal import Journal, ProvenEnd
from callboard.log.journal.journal_floor import (
    Floor,
    other_log_error,
    owner_of_journal,
    read_floor,
    store_floor,
)
from callboard.log.journal.journal_walk import Owner
from callboard.log.offline.moved_folders import owner_of_folder
from callboard.log.plain import shown
from callboard.log.segments.wrong_kind import opening_error

if TYPE_CHECKING:
    from callboard.actors.kernel.batch import Batch
    from callboard.log.seams.disk import Incarnation

M = TypeVar("M")
E = TypeVar("E")

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class DurableActor(Actor[M], Generic[M, E]):
    """Subclass it: decide in `receive`, `await self.persist(event)`, and change state in `apply` only.

    Needs a system with a disk. If you override `started` or `stopping`, call the inherited one: first in
    `started`, last in `stopping`.
    """

    snapshot_every: int = 1000
    """Events between two snapshots."""

    _journal: Journal
    _files: Incarnation
    _proven: ProvenEnd
    _floor: Floor
    _turn: trio.Lock | None = None
    _events_since_snapshot: int = 0
    _is_cut_off: bool = False
    """A `persist` failed: the state may hold what the journal does not, and this incarnation ends (DU3)."""

    # -- what a subclass defines ----------------------------------------------------------------------------

    def apply(self, event: E) -> None:
        """Change the state. Pure: every start runs it again, in the same order, and must reach the same state.

        It gets `decode(encode(event))` as CBOR has stored it, also the first time: a tuple is a list by then.
        """
        raise InvalidArgument(f"{type(self).__name__} has no apply method. Define it.")

    def snapshot(self) -> Any:
        """The whole state, as something that CBOR can encode."""
        raise InvalidArgument(f"{type(self).__name__} has no snapshot method. Define snapshot and restore.")

    def restore(self, state: Any) -> None:
        """Set the whole state from what `snapshot` returned."""
        raise InvalidArgument(f"{type(self).__name__} has no restore method. Define snapshot and restore.")

    def encode(self, event: E) -> Any:
        """The event as something that CBOR can encode. By default the event itself."""
        return event

    def decode(self, data: Any) -> E:
        """The event from what `encode` returned."""
        return data  # type: ignore[no-any-return]

    def directory(self) -> str:
        """The journal's folder below the disk's root. By default it is made from the actor's path."""
        return "actors/" + "/".join(_safe(part) for part in self.context.path.split("/"))

    # -- what a subclass calls ------------------------------------------------------------------------------

    async def persist(self, *events: E) -> None:
        """Apply `events` and write them, all or none; returns once they survive a power loss.

        Tasks of the actor that call it take turns. Raises `InvalidArgument`, before anything is done, for an event that
        has no stored form. When `apply` raises, nothing is written; when the disk fails, it raises `StorageError`.
        After either, and when it is cancelled while it writes, the actor restarts from its journal, also where the
        exception is caught.
        """
        async with self._opened_turn():
            if self._is_cut_off:
                await trio.sleep_forever()  # until the crash cancels it
            records = [self._record(event) for event in events]
            try:
                for record in records:
                    self.apply(self._event(record))  # DU5, DU6
                await self._journal.append(records)
            except BaseException as error:
                self._give_up(error)
                raise
            self._events_since_snapshot += len(records)
            if not self._floor.end:
                await self._store_floor()
            # The events are stored: what the upkeep of the journal meets is no failure of theirs, and is met again.
            with suppress(StorageError):
                if self._events_since_snapshot >= self.snapshot_every:
                    await self._save_snapshot_if_made()
                elif self._journal.needs_maintenance:
                    await self._journal.maintain()

    async def save_snapshot(self) -> None:
        """Write a snapshot now, and remove journal segments that are no longer needed.

        Raises what `snapshot` raises, `InvalidArgument` when CBOR does not know what it returns, `StorageError`.
        """
        async with self._opened_turn():
            await self._save_snapshot(self._made_snapshot())

    def _opened_turn(self) -> trio.Lock:
        if self._turn is None:
            raise InvalidArgument(
                f"Actor {self.context.path!r} has no open journal yet. Nothing was done. Where"
                f" {type(self).__name__} overrides started, it calls `await super().started()` first."
            )
        return self._turn

    def _record(self, event: E) -> bytes:
        try:
            return cbor2.dumps(self.encode(event))
        except cbor2.CBOREncodeError as error:
            raise InvalidArgument(
                f"Actor {self.context.path!r} cannot persist {shown(event)}: CBOR does not know it"
                f" ({text_of(error)}). Nothing was done. Give {type(self).__name__} the methods encode and decode."
            ) from error

    def _event(self, record: bytes) -> E:
        return self.decode(cbor2.loads(record))

    def _give_up(self, error: BaseException) -> None:
        """The state may hold what the journal does not: this incarnation ends, even if the error is caught (DU3)."""
        if not isinstance(error, Exception):  # it ends by that, or goes on without it
            error = StorageError(
                f"Actor {self.context.path!r} was cut off while it persisted: it begins anew."
            )
        self._is_cut_off = True
        self.context.ref.crash(error)

    def _made_snapshot(self) -> bytes:
        state = self.snapshot()
        try:
            return cbor2.dumps(state)
        except cbor2.CBOREncodeError as error:
            raise InvalidArgument(
                f"Actor {self.context.path!r} cannot store its snapshot: CBOR does not know what it returned"
                f" ({text_of(error)}). Its events are stored. Make {type(self).__name__}.snapshot return plain values."
            ) from error

    async def _save_snapshot(self, stored: bytes) -> None:
        await self._journal.snapshot(stored)
        self._events_since_snapshot = 0
        await self._store_floor()  # it names a segment that stays
        await self._journal.prune()

    async def _save_snapshot_if_made(self) -> None:
        """A `snapshot` that raises is reported and fails no caller: the next one is due as many events later (DU8)."""
        made, events = list[bytes](), self.context.system.events
        call_guarded(
            lambda: made.append(self._made_snapshot()),
            self.context.path,
            "snapshot",
            events.emit,
            events.trace,
        )
        self._events_since_snapshot = 0
        for stored in made:
            await self._save_snapshot(stored)

    # -- life -----------------------------------------------------------------------------------------------

    async def receive_batch(self, batch: Batch[M]) -> None:
        """As of `Actor`. The message in which `persist` failed is the last one, also where `receive` catches that."""
        for message, reply in batch:
            value = await self.receive(message)
            if reply is not None and not reply.deferred:
                reply.answer(value)
            if self._is_cut_off:
                batch.current = None  # it is handled: no dead letter
                await trio.sleep_forever()  # until the crash cancels it

    async def started(self) -> None:
        """Replay the journal."""
        context = self.context
        if context.disk is None:
            raise InvalidArgument(
                f"Actor {context.path!r} is durable, but its system has no disk. Open it with one."
            )
        check_plain_methods(self, "apply", "snapshot", "restore", "encode", "decode", "directory")
        files = await context.disk.incarnate(context.path)
        self._events_since_snapshot = 0
        self._floor = await read_floor(files, self.directory())
        await self._check(owner_of_journal(files, self.directory(), self._floor))
        self._proven = ProvenEnd(self._floor.end)
        try:
            self._journal = await Journal.open(
                files,
                self.directory(),
                Owner(self._restored, self._replayed),
                clock=context.clock,
                entropy=context.entropy,
                proven_end=self._proven,
                limits=context.limits,
            )
        except LogCorrupt:
            await self._check(owner_of_folder(files, self.directory()))
            raise
        self._files, self._turn = files, trio.Lock()
        await self._settle_journal()
        await self._store_floor()

    async def _check(self, found: Awaitable[str | None]) -> None:
        """Raise `LogCorrupt` when the folder holds the log of another owner, as is `found` (DU9)."""
        directory = self.directory()
        try:
            owner = await found
        except PlanFailed as error:
            raise opening_error(f"journal {directory}", error) from error
        if owner is not None and owner != directory:
            raise other_log_error(directory, owner)

    async def _settle_journal(self) -> None:
        """Begin with nothing that a power loss can take back (DU4), and with a journal that takes events, if it can."""
        journal = self._journal
        if journal.has_unproven_reads:
            raise StorageError(
                f"journal {self.directory()}: events were read that no sync has proven, and the disk would not sync "
                "them now. The actor begins when it does.",
                path=self.directory(),
            )
        if journal.needs_healing and type(self).snapshot is not DurableActor.snapshot:
            with suppress(StorageError):  # what was read is sound; `persist` says that nothing can be written
                await self._save_snapshot_if_made()

    async def stopping(self) -> None:
        if self._turn is not None:
            await self._journal.close()
            await self._store_floor()

    async def _store_floor(self) -> None:
        """Remember elsewhere how far the journal goes (DU9). A disk that refuses is asked again the next time."""
        floor = Floor(self._proven.sequence, self._journal.segment.segment_id)
        is_new = floor.end > self._floor.end or (floor.end and floor.segment_id != self._floor.segment_id)
        if is_new and await store_floor(self._files, self.directory(), floor):
            self._floor = floor

    def _restored(self, data: bytes) -> None:
        self._events_since_snapshot = 0
        self.restore(cbor2.loads(data))

    def _replayed(self, data: bytes) -> None:
        self._events_since_snapshot += 1
        self.apply(self._event(data))


def _safe(part: str) -> str:
    """`part` as a name that every file system accepts, different for different parts."""
    return "".join(
        char if char in PLAIN else "".join(f"%{byte:02X}" for byte in char.encode()) for char in part
    )
