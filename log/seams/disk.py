"""The Disk seam: plans of verbs, handles bound to an incarnation, reads with a page-cache fast path.

Theory of operation
-------------------
An owner (a partition, the catalog, a journal) asks the disk for an *incarnation* and reaches all its files through
that object. When the owner is restarted, it asks again: the disk *fences* the earlier incarnation and waits for its
last plan. From then on every call on the earlier one raises `StaleIncarnation`, so a thread of a crashed owner can
never write after its successor has truncated.

A *plan* is a tuple of *verbs*, run in order in one thread hop. A crash may happen at every verb. A submitted plan
always runs to its end or to its first failing verb: cancellation waits for it.

Paths are `/`-separated, relative to the disk's root, without empty, `.` or `..` components.

Invariants
----------
DK1  A plan, once submitted, is never abandoned: `submit` returns or raises only when no thread works on it.
DK2  Verbs run in order; after the first failure none runs. `PlanFailed` names the verb.
DK3  A fenced incarnation never reaches the disk again; its successor is returned only after its last plan has ended.
DK4  After `Sync` has returned, the bytes survive a power loss. Any part of what is written but not synced may be lost.
     A new, renamed, linked or unlinked name survives a power loss only after `SyncDirectory` of its folder.
DK5  A failed `Sync` proves nothing about any byte written since the last successful one, nor does a later success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs

Buffer = bytes | bytearray | memoryview


class NotAFile(OSError):
    """What is opened as a file is a pipe, a socket or a device."""


class Handle(Protocol):
    """A file of one incarnation. A new handle is closed; `Open` or `Create` in a plan opens it."""

    @property
    def path(self) -> str: ...


@attrs.frozen
class Open:
    """Open an existing file. Fails with FileNotFoundError when it is missing."""

    handle: Handle


@attrs.frozen
class Create:
    """Create an empty file and open it. Fails with FileExistsError when the name is taken."""

    handle: Handle


@attrs.frozen
class Write:
    """Write `buffers` one after the other, starting at byte `offset`; a short write is continued."""

    handle: Handle
    offset: int
    buffers: Sequence[Buffer]


@attrs.frozen
class Zero:
    """Preallocate: write `length` zero bytes, starting at `offset`, so that later syncs change no metadata."""

    handle: Handle
    offset: int
    length: int


@attrs.frozen
class Sync:
    """Make the file's bytes, and the size needed to read them, survive a power loss (fdatasync, F_FULLFSYNC)."""

    handle: Handle


@attrs.frozen
class Truncate:
    """Cut or extend (with zeros) the file to `length` bytes."""

    handle: Handle
    length: int


@attrs.frozen
class Close:
    """Close the handle. Closing a closed handle does nothing."""

    handle: Handle


@attrs.frozen
class Rename:
    """Rename the file (or directory), replacing a file that has the new name."""

    source: str
    target: str


@attrs.frozen
class Link:
    """Give the file a second name. Fails with FileExistsError when it is taken."""

    source: str
    target: str


@attrs.frozen
class Unlink:
    """Remove a file's name. Fails with FileNotFoundError when it is missing."""

    path: str


@attrs.frozen
class MakeDirectory:
    """Make a directory and its missing parents. An existing directory is not an error."""

    path: str


@attrs.frozen
class RemoveDirectory:
    """Remove an empty directory."""

    path: str


@attrs.frozen
class SyncDirectory:
    """Make the names in a directory survive a power loss. The root is `""`."""

    path: str


FileVerb = Open | Create | Write | Zero | Sync | Truncate | Close
TwoNamesVerb = Rename | Link
NameVerb = Unlink | MakeDirectory | RemoveDirectory | SyncDirectory
Verb = FileVerb | TwoNamesVerb | NameVerb
Plan = Sequence[Verb]


@attrs.frozen
class Entry:
    """One name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int
    is_special: bool = False
    """It is neither a file nor a directory: a symbolic link, a pipe, a socket, a device."""

    @property
    def is_file(self) -> bool:
        """Whether it is a file, to be read and written."""
        return not (self.is_directory or self.is_special)


class Mark(Protocol):
    """A small mapped file: other processes see a store at once, and the OS writes it to disk at some later time."""

    def store(self, data: bytes) -> None:
        """Replace the content. `data` has the length with which the mark was opened. Never blocks.

        Raises `StaleIncarnation` once fenced; does nothing once closed.
        """
        ...

    def load(self) -> bytes:
        """The current content; empty once closed."""
        ...

    def close(self) -> None:
        """Unmap. Later calls do nothing."""
        ...


class Flight(Protocol):
    """A plan that was started."""

    has_landed: bool
    """The plan has ended well already."""


class Incarnation(Protocol):
    """One owner's access to the disk during one life. After it is fenced, every method raises `StaleIncarnation`."""

    @property
    def owner(self) -> str: ...

    @property
    def in_flight_since(self) -> float | None:
        """Monotonic time at which the oldest unfinished plan was submitted, None when none is in flight."""
        ...

    def handle(self, path: str) -> Handle:
        """A closed handle for `path`; opened by `Open` or `Create` in a plan."""
        ...

    async def submit(self, plan: Plan) -> None:
        """Run the plan (DK1, DK2). A checkpoint; cancellation is delivered only before it starts.

        Raises `PlanFailed`, with the OSError as `error` and cause.
        """
        ...

    def start(self, plan: Plan) -> Flight | None:
        """Start the plan now; None, and nothing done, where that cannot be: then `submit` it.

        Holds the loop for at most a moment (see the disk), for a plan that is likely to end within it.
        """
        ...

    async def landed(self, flight: Any) -> None:
        """Wait for the end of a plan, whatever happens. Raises `PlanFailed`.

        The starter of the plan calls it, once; it has nothing to do when the flight `has_landed`.
        """
        ...

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer only at the end of the file. Raises `StorageError`."""
        ...

    def read_cached(self, handle: Handle, offset: int, length: int) -> bytes | None:
        """Like `read`, without waiting: None unless all of it is in memory. May be shorter at the end of the file."""
        ...

    async def size(self, handle: Handle) -> int:
        """The file's length in bytes."""
        ...

    async def list(self, path: str) -> list[Entry]:
        """The names in a directory, sorted; empty when the directory is missing. Raises `StorageError`."""
        ...

    async def mark(self, path: str, length: int) -> Mark:
        """Map a small file of `length` bytes, made (zero-filled, directory not synced) when missing."""
        ...

    async def free_bytes(self) -> int:
        """Bytes that may still be written to the file system."""
        ...


class Lock(Protocol):
    """The lock of the root directory."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A root directory on a real, or simulated, disk."""

    @property
    def root(self) -> str:
        """The name of the root in messages."""
        ...

    async def incarnate(self, owner: str) -> Incarnation:
        """A new incarnation for `owner`; fences the earlier one and waits for its last plan (DK3)."""
        ...

    async def forget(self, owner: str) -> None:
        """`owner` has ended for good: fence its incarnation, wait for its last plan, and forget it."""
        ...

    async def lock(self, holder: dict[str, Any]) -> Lock:
        """Lock the root for writing, or raise `DirectoryLocked` naming the holder. Creates the root if missing."""
        ...

    async def aclose(self) -> None:
        """Fence every incarnation, wait for all plans, release threads."""
        ...
