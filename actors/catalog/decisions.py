"""What the catalog has decided: its state, and the journal that has all that the state is made of.

Invariants
----------
DE2  The state changes only when the journal has what changes it: decisions are tried on a copy, in the order in which
     they came, and the copy becomes the state when they are synced. All of them succeed or fail together, but for those
     that were refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

import attrs
import trio

from callboard.actors import notices
from callboard.actors.catalog import state
from callboard.actors.catalog.commands import CatalogStatistics
from callboard.actors.catalog.losses import store_losses, tell_losses
from callboard.actors.catalog.making import MadeFolders
from callboard.actors.catalog.state import CatalogState
from callboard.actors.kernel import Context
from callboard.log.errors import (
    CallboardError,
    DiskFull,
    FormatTooNew,
    InternalError,
    JournalInvalid,
    LogCorrupt,
    StorageError,
)
from callboard.log.format.segment import CATALOG
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_floor import other_log_error
from callboard.log.journal.journal_walk import Owner
from callboard.log.offline.moved_folders import owner_of_folder
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.damage_record import DamageRecord

Decide = Callable[[CatalogState], Sequence[state.Event]]
"""What a decision makes of a state, as events; raises its refusal."""
DECISIONS_AT_ONCE = 100
"""How many decisions share a sync at most: what they write should find room in the journal's reserve on a full disk."""


@attrs.define(eq=False)
class _Decision:
    """A decision that is asked for."""

    decide: Decide
    is_taken: bool = False
    """It has been tried."""
    is_stored: bool = False
    error: CallboardError | None = None


class Decisions:
    """The state and the journal of one incarnation of the catalog, which alone writes them."""

    def __init__(self, context: Context[Any], files: Incarnation, made: MadeFolders) -> None:
        self._context = context
        self._files = files
        self._made = made
        self.state = CatalogState()
        """The latest; no decision changes it, for each makes another one."""
        self._deciding = trio.Lock()
        self._undecided: deque[_Decision] = deque()
        self._is_in_doubt = False
        """Whether the journal may hold a decision that failed, and that does not count."""
        self._journal: Journal
        self._losses: DamageRecord

    # -- opening and closing

    @classmethod
    async def open(cls, context: Context[Any], files: Incarnation, made: MadeFolders) -> Self:
        """What the journal tells. Raises `LogCorrupt` when there is none, and files of topics."""
        opened = cls(context, files, made)
        found = opened.state
        owner = Owner(
            found.restore, found.replay, state.RECORDS_VERSION, versioned=found.versioned, lost=found.lost
        )
        try:
            opened._journal = await Journal.open(
                files, CATALOG, owner, clock=context.clock, entropy=context.entropy, limits=context.limits
            )
        except (LogCorrupt, JournalInvalid, FormatTooNew) as error:
            stranger = await owner_of_folder(files, CATALOG)
            if stranger in (None, CATALOG):
                raise
            raise other_log_error(CATALOG, stranger) from error
        await opened._check_not_missing()
        opened._losses = await DamageRecord.load(files, "catalog")
        return opened

    async def tell_losses(self) -> CatalogStatistics:
        """Say what the catalog has lost."""
        wrong = self._journal.wrong_files
        return await tell_losses(self._context, self._files, self.state, self._losses, wrong)

    async def prove(self) -> None:
        """What was read may be in the page cache only: write it anew before anything else is decided. On a full disk
        that waits for the next decision if all that was read is proven, and until then only that is used.
        """
        if not self._journal.needs_healing:
            return
        try:
            await store_losses(self._losses)
            await self._journal.heal(self.state.snapshot())
        except DiskFull as error:
            if self._journal.has_unproven_reads:
                raise
            self._context.emit(notices.CatalogHeld(self._context.path, str(error)))

    async def close(self) -> None:
        """Close the journal, between two decisions; there is none after that."""
        await self._deciding.acquire()
        with suppress(StorageError):  # what was found is found again, unless a snapshot has it
            await store_losses(self._losses)
        await self._made.close(self._journal, self.state)
        await self._journal.close()

    async def _check_not_missing(self) -> None:
        """Refuse an empty journal beside topics' files: what it said of them, and of the groups, would be lost."""
        if self._journal.next_sequence > 0:
            return
        found = [
            entry.name for entry in await self._files.list("topics") if state.TOPIC_ID.fullmatch(entry.name)
        ]
        if found:
            raise LogCorrupt(
                f"the catalog is empty, and there are files of {len(found)} topics ({found[0]} ...)."
                " They were left alone. Restore the directory `catalog` from a copy, or move `topics` away to begin"
                " anew.",
                path="catalog",
            )

    # -- deciding

    async def decide(self, decide: Decide) -> None:
        """What `decide` makes of the state is journalled, then applied: from here on it is decided (DE2).

        Raises what `decide` raises, and `StorageError`.
        """
        decision = _Decision(decide)
        self._undecided.append(decision)
        async with self._deciding:
            while not decision.is_taken:
                count = min(len(self._undecided), DECISIONS_AT_ONCE)
                await self._decide_together([self._undecided.popleft() for _ in range(count)])
        if decision.error is not None:
            raise decision.error
        if not decision.is_stored:
            raise InternalError("the catalog broke off before it had decided", invariant="DE2")

    async def _decide_together(self, decisions: Sequence[_Decision]) -> None:
        draft, records = self.state.copy(), []
        for decision in decisions:
            decision.is_taken = True
            try:
                events = decision.decide(draft)
            except InternalError:
                raise
            except CallboardError as refusal:
                decision.error = refusal
                continue
            for event in events:
                draft.apply(event)
                records.append(state.encode(event))
        try:
            if records:
                await self._store([*records, *self._made.records(draft)])
                self._made.noted()
        except StorageError as error:
            for decision in decisions:
                decision.error = decision.error or error.again()
            return
        self.state = draft
        for decision in decisions:
            decision.is_stored = True
        await self._maintain_journal()

    async def _store(self, records: Sequence[bytes]) -> None:
        await self._heal()
        try:
            await self._journal.append(records, sync=True)
        except StorageError as error:
            self._is_in_doubt = error.indefinite
            raise

    async def _heal(self) -> None:
        if self._journal.needs_healing:
            await store_losses(self._losses)
            await self._journal.heal(self.state.snapshot())
            self._is_in_doubt = False

    async def confirm(self) -> None:
        """What was decided stays decided, whatever a decision that failed has left in the journal.

        Raises `StorageError` when that cannot be written.
        """
        if self._is_in_doubt:
            async with self._deciding:
                await self._heal()

    async def _maintain_journal(self) -> None:
        """Keep the journal short, and its reserve. What the disk refuses now is tried again at the next decision."""
        journal = self._journal
        try:
            await store_losses(self._losses)
            if journal.bytes_since_snapshot > self._context.limits.catalog_snapshot_every_bytes:
                await journal.snapshot(self.state.snapshot())
                await journal.prune()
            elif journal.needs_maintenance:
                await journal.maintain()
        except StorageError as error:
            self._context.emit(notices.CatalogUnmaintained(self._context.path, str(error)))
