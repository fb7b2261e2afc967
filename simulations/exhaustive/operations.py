"""The alphabet: what may be done to a log and its journal, one letter each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from .life import Life

Operation = Callable[[Life], Awaitable[object]]


async def append(life: Life) -> None:
    """A record at `all`."""
    await life.append(durable=True)


async def append_wide(life: Life) -> None:
    """A batch at `all` that covers several sectors."""
    await life.append(durable=True, count=2, size_bytes=600)


async def append_leader(life: Life) -> None:
    """A record at `leader`."""
    await life.append(durable=False)


async def commit(life: Life) -> None:
    """A record at `all` and a synced event that names it, in one plan."""
    await life.append(durable=True, event=True)


async def sync(life: Life) -> None:
    """A sync of what is unsynced."""
    await life.sync()


async def roll(life: Life) -> None:
    """A new segment."""
    await life.roll()


async def drop(life: Life) -> None:
    """Retention drops all sealed segments."""
    await life.drop()


async def note(life: Life) -> None:
    """A journal event, not synced."""
    await life.note(sync=False)


async def acknowledge(life: Life) -> None:
    """A journal event, synced."""
    await life.note(sync=True)


async def snapshot(life: Life) -> None:
    """A journal snapshot; the earlier segments go."""
    await life.snapshot()


async def fail_log_sync(life: Life) -> None:
    """A record at `all` whose sync fails; the log heals."""
    life.disk.fail_next("sync", "EIO", path_contains=".log")
    await life.append(durable=True)
    life.disk.faults.clear()


async def fail_journal_sync(life: Life) -> None:
    """An event whose sync fails; the journal heals."""
    life.disk.fail_next("sync", "EIO", path_contains="delivery/", pages="reverted")
    await life.note(sync=True)
    life.disk.faults.clear()


async def reopen(life: Life) -> None:
    """Closed in good order, and opened."""
    await life.close()
    await life.reopen()


async def kill(life: Life) -> None:
    """The process dies; the page cache lives on. Opened again."""
    life.disk.kill()
    await life.reopen()


async def lose_power(life: Life) -> None:
    """Power lost with all that was not synced. Opened again."""
    life.lose_power()
    await life.reopen()


async def tear(life: Life) -> None:
    """Power lost, with every other unsynced item applied. Opened again."""
    life.lose_power((1,))
    await life.reopen()


OPERATIONS: Final[dict[str, Operation]] = {
    operation.__name__: operation
    for operation in (
        append,
        append_wide,
        append_leader,
        commit,
        sync,
        roll,
        drop,
        note,
        acknowledge,
        snapshot,
        fail_log_sync,
        fail_journal_sync,
        reopen,
        kill,
        lose_power,
        tear,
    )
}
