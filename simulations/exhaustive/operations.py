"""The alphabet: what may be done to a log and its journal, one letter each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from .life import Life

Operation = Callable[[Life], Awaitable[object]]


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


OPERATIONS: Final[dict[str, Operation]] = {
    "append": lambda life: life.append(durable=True),
    "append_wide": lambda life: life.append(durable=True, count=2, size_bytes=600),  # over several sectors
    "append_leader": lambda life: life.append(durable=False),
    "commit": lambda life: life.append(durable=True, event=True),
    "sync": Life.sync,
    "roll": Life.roll,
    "drop": Life.drop,
    "note": lambda life: life.note(sync=False),
    "acknowledge": lambda life: life.note(sync=True),
    "snapshot": Life.snapshot,
    "fail_log_sync": fail_log_sync,
    "fail_journal_sync": fail_journal_sync,
    "reopen": reopen,
    "kill": kill,
    "lose_power": Life.lose_power,
    "tear": lambda life: life.lose_power(tear=True),
}
