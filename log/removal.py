"""Removing a directory and all below it, crash-safe: a second call finishes what the first began."""

from __future__ import annotations

from callboard.log.format.committed import COMMITTED_NAME
from callboard.log.seams.disk import Incarnation, RemoveDirectory, SyncDirectory, Unlink, Verb

NAMES_PER_PLAN = 256


async def remove_tree(files: Incarnation, path: str) -> None:
    """Remove `path` and everything in it; a missing path is no error. The parent's names are synced.

    Raises `PlanFailed`.
    """
    # First what proves that a log had records: without it verify takes a log that is half removed for no loss.
    entries = sorted(await files.list(path), key=lambda entry: entry.name != COMMITTED_NAME)
    plan: list[Verb] = []
    for entry in entries:
        below = f"{path}/{entry.name}"
        if entry.is_directory:
            await remove_tree(files, below)
        else:
            plan.append(Unlink(below))
        if len(plan) >= NAMES_PER_PLAN:
            await files.submit(plan)
            plan = []
    parent, _, name = path.rpartition("/")
    if entries or any(entry.name == name for entry in await files.list(parent)):
        plan.append(RemoveDirectory(path))
    plan.append(SyncDirectory(parent))
    await files.submit(plan)
