"""The files of a recording, for reading inside a simulated run: at once, and never changed.

What the files hold is fixed by the recording's digest, which is checked before the run; so reading them is as certain
as the seed is, although they lie on the real disk. They are no part of the simulated machine: its faults do not reach
them, and they stay open when it dies.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from callboard.log.limits import MESSAGE_BYTES_MAX
from callboard.log.seams.disk import Close, Entry, Handle, Mark, Open, Plan
from callboard.log.seams.plans import IncarnationBase, check_path, plan_failed, storage_error
from callboard.offline import folder_and_name
from callboard.recordings.reader import Recording, open_recording
from callboard.replay import check_recording
from callboard.replay.positions import Selection

OPEN_MAX: Final = 64
"""Files kept open; then the one that was opened first is closed."""


@contextmanager
def checked_recording(path: str, selection: Selection) -> Iterator[tuple[Recording, int]]:
    """The recording at `path`, its files open, and how many records are selected.

    To be used where no trio program runs. Raises as `check_recording` does.
    """
    folder, name = folder_and_name(path)
    files = RecordedFiles(folder)

    async def opened() -> tuple[Recording, int]:
        recording = await open_recording(files, name)
        return recording, await check_recording(recording, selection, max_message_bytes=MESSAGE_BYTES_MAX)

    try:
        yield trio.run(opened)
    finally:
        files.close()


class _Handle:
    """A file of the recording."""

    def __init__(self, path: str, incarnation: RecordedFiles) -> None:
        self.path = path
        self.incarnation = incarnation


class RecordedFiles(IncarnationBase):
    """Files below the folder `root`, read-only, as an incarnation of a disk."""

    def __init__(self, root: str) -> None:
        super().__init__("recording")
        self._root = root
        self._descriptors: dict[str, int] = {}

    def close(self) -> None:
        """Close what is open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def handle(self, path: str) -> Handle:
        check_path(path)
        return _Handle(path, self)

    async def submit(self, plan: Plan) -> None:
        """Opens and closes only."""
        await trio.lowlevel.checkpoint_if_cancelled()
        for index, verb in enumerate(plan):
            try:
                if type(verb) is Open:
                    self._descriptor(verb.handle.path)
                elif type(verb) is not Close:
                    raise OSError(errno.EROFS, "a recording is only read")
            except OSError as error:
                raise plan_failed(self._root, index, verb, error) from error

    def start(self, plan: Plan) -> None:
        """Nothing is started without waiting."""

    async def landed(self, flight: object) -> None:
        """There is nothing to wait for."""

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return os.pread(self._descriptor(handle.path), length, offset)
        except OSError as error:
            raise storage_error("reading", self._root, handle.path, error) from error

    def read_cached(self, handle: Handle, offset: int, length: int) -> bytes | None:
        return None

    async def size(self, handle: Handle) -> int:
        return os.fstat(self._descriptor(handle.path)).st_size

    async def list(self, path: str) -> list[Entry]:
        check_path(path, root_allowed=True)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            with os.scandir(os.path.join(self._root, path)) as entries:
                found = [Entry(entry.name, entry.is_dir(), entry.stat().st_size) for entry in entries]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("listing", self._root, path, error) from error
        return sorted(found, key=lambda entry: entry.name)

    async def mark(self, path: str, length: int) -> Mark:
        raise storage_error("mapping", self._root, path, OSError(errno.EROFS, "a recording is only read"))

    async def free_bytes(self) -> int:
        return 0

    def _descriptor(self, path: str) -> int:
        found = self._descriptors.get(path)
        if found is None:
            while len(self._descriptors) >= OPEN_MAX:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))
            found = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_CLOEXEC)
            self._descriptors[path] = found
        return found
