"""The real directory lock: flock on a file named `lock`, which the system releases when the process dies.

The file names the holder of the lock, as JSON for people to read. It is never removed: a process that waits on a
removed file would lock a file that no other process sees. flock belongs to the open file, so a second disk on the
same root is refused in the same process too. (A lock by fcntl would not be: it belongs to the process, and is lost when
the process closes any descriptor of the file, as the refused second disk does.)

A forked child inherits the open file, and with it the lock. So the lock is let go of explicitly, not only closed, and
every child closes what it inherited, before anything else runs in it: else a child that outlives its parent would keep
the directory locked in the name of a dead process.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import weakref
from typing import Any, Final

from callboard.log.errors import DirectoryLocked, StorageError

LOCK_NAME: Final = "lock"
HOLDER_BYTES_MAX: Final = 4096
HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class HostLock:
    """The lock of the root directory."""

    __slots__ = ("__weakref__", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held_here.add(self)

    def release(self) -> None:
        """Release the lock, also for forked children that inherited it. A second call, or a child's, does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _held_here.discard(self)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def drop(self) -> None:
        """Close a forked child's descriptor; the parent keeps the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_held_here: weakref.WeakSet[HostLock] = weakref.WeakSet()


def _drop_inherited() -> None:
    for lock in tuple(_held_here):
        lock.drop()
    _held_here.clear()


os.register_at_fork(after_in_child=_drop_inherited)


def make_root(root: str) -> None:
    """Make the root folder, private to the user, if it is missing. Raises `StorageError`."""
    try:
        if not os.path.isdir(root):
            os.makedirs(root, mode=0o700, exist_ok=True)
            _sync_folder(os.path.dirname(root))
        # Listing asks for more than existence: an unreadable directory is better refused now than half way.
        os.scandir(root).close()
    except OSError as error:
        reason = (
            "it is not a directory"
            if isinstance(error, FileExistsError | NotADirectoryError)
            else error.strerror
        )
        raise StorageError(
            f"the directory {root!r} cannot be used: {reason}. Nothing was written. "
            "Choose another directory or correct its permissions.",
            path=root,
            error=error,
        ) from error


def acquire(root: str, holder: dict[str, Any]) -> HostLock:
    """Lock `root` for writing, or raise `DirectoryLocked` with what the holder wrote about itself."""
    path = f"{root}/{LOCK_NAME}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        words = {"pid": os.getpid(), "host": socket.gethostname(), **holder}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(words, default=str).encode()[:HOLDER_BYTES_MAX], 0)
    except OSError as error:
        found = _read_holder(descriptor)
        os.close(descriptor)
        if error.errno in HELD:
            raise _refused(root, found) from error
        raise _unusable(root, error) from error
    return HostLock(descriptor)


def _read_holder(descriptor: int) -> dict[str, Any]:
    """What the holder wrote about itself; empty while it is writing."""
    try:
        words = json.loads(os.pread(descriptor, HOLDER_BYTES_MAX, 0))
    except (OSError, ValueError):
        return {}
    return words if isinstance(words, dict) else {}


def _refused(root: str, holder: dict[str, Any]) -> DirectoryLocked:
    advice = "Stop that process, or choose another directory"
    if holder.get("pid") == os.getpid() and holder.get("host") == socket.gethostname():
        who, advice = (
            f"this process (pid {os.getpid()})",
            "Use the runtime that has it open, or close that first",
        )
    elif "pid" in holder:
        who = f"process {holder['pid']} on {holder.get('host', 'an unknown host')}"
    else:
        who = "another process"
    return DirectoryLocked(
        f"the directory {root!r} is in use by {who}. Nothing was opened. {advice}.",
        directory=root,
        holder=holder,
    )


def _unusable(root: str, error: OSError) -> StorageError:
    path = f"{root}/{LOCK_NAME}"
    reason, remedy = error.strerror, "Correct the permissions of the directory, or free space on its disk"
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        reason, remedy = f"{path} is no file", "Remove it: the file is made anew"
    return StorageError(
        f"the lock file in {root!r} cannot be used: {reason}. Nothing was opened. {remedy}.",
        path=LOCK_NAME,
        error=error,
    )


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
