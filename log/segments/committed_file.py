"""The `committed` file of a log: its slots are synced, and copied where one of both is always whole."""

from __future__ import annotations

from contextlib import suppress

from callboard.log.errors import PlanFailed
from callboard.log.format.committed import COMMITTED_COPY_AT, Committed, encode_slot
from callboard.log.seams.disk import Close, Incarnation, Open, Sync, Verb, Write


async def store_copy(files: Incarnation, path: str, ends: Committed) -> None:
    """Sync the slots of a `committed` file, which hold `ends`, then write its copy: one of both is always whole.

    The slots must not be stored into meanwhile. A disk that refuses is no error: the file says no less than before.
    """
    handle, copy = files.handle(path), encode_slot(ends.visible_end, ends.durable_end)
    write = Write(handle, COMMITTED_COPY_AT, (copy,))
    try:
        await files.submit((Open(handle), Sync(handle), write, Sync(handle), Close(handle)))
    except PlanFailed:
        with suppress(PlanFailed):
            await files.submit((Close(handle),))


async def sync_slots(files: Incarnation, path: str, slots: bytes | None) -> None:
    """Sync the slots of a `committed` file: these `slots`, or what is stored into them. Raises `PlanFailed`."""
    handle = files.handle(path)
    verbs: list[Verb] = [] if slots is None else [Write(handle, 0, (slots,))]
    try:
        await files.submit((Open(handle), *verbs, Sync(handle), Close(handle)))
    except PlanFailed:
        with suppress(PlanFailed):
            await files.submit((Close(handle),))
        raise
