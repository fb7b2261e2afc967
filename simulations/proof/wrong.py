"""Wrong functions, each made out of the right one: what the product would do without a safeguard.

Named after the safeguard that is missing. `safeguards` says where each is put.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from callboard.actors.delivery.events import AckEvent, RunOutEvent
from callboard.actors.partition.commands import Level
from callboard.log.errors import PlanFailed
from callboard.log.format.frame import FRAME_HEADER_BYTES, SEALED_BYTES
from callboard.log.format.frame_walk import BEYOND_ALL
from callboard.log.format.layout import CHECKSUM
from callboard.log.seams.disk import Sync
from callboard.log.seams.plans import path_of

Original = Callable[..., Any]


def returns(value: Any) -> Callable[[Original], Original]:
    """Always the same."""
    return lambda _: lambda *_args, **_settings: value


def returns_async(value: Any) -> Callable[[Original], Original]:
    """Always the same, from an async function."""

    async def wrong(*_args: Any, **_settings: Any) -> Any:
        return value

    return lambda _: wrong


# -- the disk -----------------------------------------------------------------------------------------------


def leaves_out(concerns: Callable[[str], bool]) -> Callable[[Original], Original]:
    """A verb of the simulated disk that does nothing for paths that `concerns` names."""

    def change(original: Original) -> Original:
        def verb(self: Any, incarnation: Any, verb: Any) -> Any:
            return None if concerns(path_of(verb)) else original(self, incarnation, verb)

        return verb

    return change


def retries_syncs(original: Original) -> Original:
    """A commit whose sync failed is synced again, and believed."""

    async def submit(self: Any, plan: list[Any]) -> None:
        for _ in range(20):
            try:
                await original(self, plan)
                return
            except PlanFailed as error:
                if not isinstance(error.verb, Sync):
                    raise
                plan = plan[error.index :]

    return submit


# -- frames -------------------------------------------------------------------------------------------------


class Fitting(int):
    """A checksum that equals any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def believes_any_checksum(_: Original) -> Any:
    """A module `zlib` whose checksums always fit."""
    return SimpleNamespace(crc32=lambda *_: Fitting(0))


def believes_headers(original: Original) -> Original:
    """A frame header is read as if its checksum held."""

    def read_header(view: memoryview, at: int, seed: int) -> Any:
        from zlib import crc32

        copy = bytearray(view[at : at + FRAME_HEADER_BYTES])
        if len(copy) == FRAME_HEADER_BYTES:
            CHECKSUM.pack_into(copy, SEALED_BYTES, crc32(copy[:SEALED_BYTES], seed))
        return original(memoryview(bytes(copy)), 0, seed)

    return read_header


def believes_bodies(_: Original) -> Original:
    """The body of a frame is taken for whole when it is long enough."""

    def body_holds(self: Any, view: memoryview, at: int, header: Any) -> bool:
        return bool(len(view) - at >= header.frame_bytes)

    return body_holds


def leaves_out_scanned_bodies(original: Original) -> Original:
    """Scans walk over headers only."""

    def begin(self: Any, *place: Any, **settings: Any) -> None:
        original(self, *place, **{**settings, "check_from": BEYOND_ALL})

    return begin


def believes_index_bytes(original: Original) -> Original:
    """A stored index is decoded as if its checksums held and it were the segment's."""

    def decode(cls: Any, buffer: Any, segment_id: int, **settings: Any) -> Any:
        from zlib import crc32

        from callboard.log.format.frame import seed_of
        from callboard.log.format.index import INDEX_HEADER_BYTES

        data = bytearray(buffer)
        if len(data) >= INDEX_HEADER_BYTES:
            seed = seed_of(segment_id)
            data[16:24] = segment_id.to_bytes(8, "little")
            entries = crc32(data[INDEX_HEADER_BYTES:], seed)
            CHECKSUM.pack_into(data, INDEX_HEADER_BYTES - 8, entries)
            sealed = crc32(data[: INDEX_HEADER_BYTES - 4], seed)
            CHECKSUM.pack_into(data, INDEX_HEADER_BYTES - 4, sealed)
        return original(cls, bytes(data), segment_id, **settings)

    return decode


# -- recovery -----------------------------------------------------------------------------------------------


def starts_at_the_end_of_the_log(original: Original) -> Original:
    """The next offset is the end of what was found, even if a reader or journal knows more."""

    def plan_top(self: Any, directory: str, named_end: int, lost_end: int, begins_at: int) -> int:
        from callboard.log.format.committed import Committed

        self._committed = Committed(0, 0)
        top: int = original(self, directory, 0, 0, 0)
        return top

    return plan_top


def actor_restarts_without_its_state(original: Original) -> Original:
    """A restarted partition begins with the delivery state of a new one, but knows its groups."""

    async def opened(files: Any, place: Any, context: Any, **options: Any) -> Any:
        journal, states = await original(files, place, context, **options)
        if place.hand_over.has_run:
            for group in states:
                group.delivery = type(group.delivery)(0)
        return journal, states

    return opened


def drops_the_mailbox(original: Original) -> Original:
    """A restarted actor finds its mailbox empty."""

    async def live(self: Any, *args: Any) -> Any:
        if self.cell.number > 1:
            for _ in self.cell.mailbox.drain():
                pass
        return await original(self, *args)

    return live


# -- commits ------------------------------------------------------------------------------------------------


def answers_before_the_commit(original: Original) -> Original:
    """Publishers get their offsets before the plan runs."""

    def stage(self: Any, now: float, *, must_sync: bool) -> Any:
        staged = original(self, now, must_sync=must_sync)
        if hasattr(staged, "base_offsets") and self.in_flight is not None:
            for part, base in zip(self.in_flight.parts, staged.base_offsets, strict=True):
                tokens = part.tokens
                for offset, token in enumerate(tokens, base):
                    if token is not None:
                        token.answer(offset)
        return staged

    return stage


def answers_at_once(original: Original) -> Original:
    """A sender that waits for a synced journal record is answered before the record is written."""

    def stage(self: Any, now: float, *, must_sync: bool) -> Any:
        staged = original(self, now, must_sync=must_sync)
        if staged is not None and self._work is not None and self._work.sync:
            for token, value in self._work.answers:
                token.answer(value)
            self._work.answers.clear()
        return staged

    return stage


def journals_first(original: Original) -> Original:
    """The journal's part of a plan runs before the log's."""

    async def submit(self: Any, plan: list[Any]) -> None:
        await original(self, sorted(plan, key=lambda verb: "/delivery/" not in path_of(verb)))

    return submit


def commits_want_syncs(is_durable: Callable[[Any], bool]) -> Callable[[Original], Original]:
    """Commits that want a sync only as `is_durable` says."""

    def change(original: Original) -> Original:
        def take(self: Any, *arguments: Any) -> Any:
            commit = original(self, *arguments)
            if commit is not None:
                commit.durable = is_durable(commit)
            return commit

        return take

    return change


def is_pure(commit: Any) -> bool:
    """Whether each record of a commit wants a sync."""
    levels = {one.level for part in commit.parts for one in getattr(part, "messages", (part,))}
    return levels == {Level.ALL}


def swaps_answers(original: Original) -> Original:
    """Publishers of one commit hear each other's offsets."""

    def appends_stored(self: Any, effect: Any) -> None:
        for part in effect.appends.parts:
            part.tokens.reverse()
        original(self, effect)

    return appends_stored


def writes_what_is_healed(original: Original) -> Original:
    """What a journal could not take is written again after the snapshot that healed it, and holds it."""

    async def write_state(self: Any, write: Any) -> Any:
        core = self._core
        entries = list(core.journal.entries)
        failed = await original(self, write)
        if failed is None:
            core.journal.entries[:0] = entries
            core.journal.due.at = 0.0
        return failed

    return write_state


# -- delivery -----------------------------------------------------------------------------------------------


def drops_acks(original: Original) -> Original:
    """The journal does not get what was acked."""

    def record(self: Any, wall_offset_s: float) -> Any:
        kept = [event for event in self.events if not isinstance(event, AckEvent)]
        return original(self._replace(events=kept), wall_offset_s)

    return record


def leases_what_is_leased(original: Original) -> Original:
    """A consumer that finds nothing ready gets what another one has leased."""

    def lease(self: Any, *, consumer: int, **arguments: Any) -> Any:
        lease = original(self, consumer=consumer, **arguments)
        if lease is None:
            for lease_id, held in list(self.offsets.lease_states.items()):
                if held.consumer != consumer:
                    self.offsets.end_lease(lease_id, lease_id)
                    self.events.append(RunOutEvent("X", (lease_id,)))
                    return original(self, consumer=consumer, **arguments)
        return lease

    return lease


def counts_no_attempts(_: Original) -> Original:
    """An attempt that failed is forgotten."""
    return lambda self, rows: list(rows)


def nobody_is_unsettled(_: Original) -> Original:
    """Retention is answered that every group has settled everything."""
    return lambda self, otherwise: otherwise
