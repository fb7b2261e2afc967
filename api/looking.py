"""Looking at a directory as its runtime would: all that can be asked of an open runtime, and nothing is changed.

It is opened on a disk that keeps what is written in memory. So it takes no lock, needs no right to write, and another
process may have the directory open, or open it meanwhile; what is seen of that process is what its files say. Nothing
is published: no schedule fires, and what is due, given up or published with acks stays where it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import trio

from callboard.actors.recurring.commands import RECURRING, LookAtSchedules
from callboard.log.errors import CallboardError, StorageError
from callboard.log.host.disk import HostDisk
from callboard.log.host.overlay_disk import OverlayDisk
from callboard.reports.figures import DESCRIBE_TIMEOUT_S
from callboard.runtime import Runtime, runtime_that_looks, session_of

T = TypeVar("T")
TRIES: Final = 20
"""So often it is begun anew when the process that has the directory open removes a file that was to be read."""


async def look_at(directory: str, ask: Callable[[Runtime], Awaitable[T]]) -> T:
    """What `ask` returns for the runtime of a directory that exists; it may be called several times.

    Raises as opening does, and as `ask`; `StorageError` when the files change faster than they can be read.
    """
    for _ in range(TRIES):
        with trio.CancelScope() as outdated:
            disk = OverlayDisk(
                HostDisk(directory, read_only=True), root=directory, on_outdated=outdated.cancel
            )
            async with runtime_that_looks(disk) as runtime:
                with trio.move_on_after(DESCRIBE_TIMEOUT_S):
                    await _read_what_waits(runtime)
                found = await ask(runtime)
        if not outdated.cancel_called:
            return found
    raise StorageError(
        f"the files in {directory} change faster than they can be read. Nothing was changed. Try again, or have the"
        " program that has it open do so with control=True: it is asked then.",
        path=directory,
    )


async def _read_what_waits(runtime: Runtime) -> None:
    """Have delayed messages counted, and learn what the schedules published last and have next."""
    session = session_of(runtime)
    for topic in runtime.topics():
        with suppress(CallboardError):
            await topic.delayed().count()
    root = session.system.root
    if RECURRING in root:
        await root.child(RECURRING).ask(LookAtSchedules())
