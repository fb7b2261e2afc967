"""A Disk in memory that forgets at a crash what was not synced, and fails when told to.

It keeps the same protocol as the real disk and the same errors, without threads: a plan runs in one step after one
checkpoint, so a run under a deterministic scheduler repeats exactly.

The machine it stands for has three ends. `kill` is the death of the process: every incarnation is fenced, the lock is
free, the page cache lives on. `crash` is power loss: besides, what was not synced is gone, but for what a `choose`
function keeps. `crash_after` lets the power fail at a chosen verb; the disk then stays off until `power_on`, so that
supervisors of the dying run cannot start anything anew on it.

Invariants
----------
D1 to D5 of `log/seams/disk.py`, M1 and M2 of `inodes.py`, and
M3  After a kill or crash no task of an earlier incarnation changes anything: its plan in flight stops before the
    next verb and raises `StaleIncarnation`.
"""

from __future__ import annotations

import copy
import errno
import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import attrs
import trio

from callboard.log.errors import DirectoryLocked
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Create,
    Link,
    MakeDirectory,
    Open,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Verb,
    Write,
    Zero,
)
from callboard.log.seams.plans import path_of, plan_failed, stale

from .disk_faults import Fault, Faults, Read
from .file_tree import FileTree, failure
from .inodes import Choose, Directory, Inode, keep_unsynced, lose_unsynced
from .memory_incarnation import MemoryHandle, MemoryIncarnation, MemoryMark

__all__ = [
    "Executed",
    "MemoryDisk",
    "MemoryHandle",
    "MemoryIncarnation",
    "MemoryMark",
    "Read",
    "keep_unsynced",
    "lose_unsynced",
]

LOCK_NAME: Final = "lock"
EXECUTED_KEPT: Final = 10_000
PLENTY_BYTES: Final = 1 << 40
"""Free space of a disk without a capacity."""


@attrs.frozen
class Executed:
    """One verb that ran: by whom, what, on which path."""

    owner: str
    verb: str
    path: str


class MemoryLock:
    """The held lock."""

    __slots__ = ("_disk",)

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def release(self) -> None:
        """Let go. Releasing twice, or after a crash, does nothing."""
        self._disk.unlock(self)


class MemoryDisk:
    """A disk in memory. `clock` tells when plans were submitted; trio's time without it.

    Knobs, to be turned at any time: `capacity_bytes` (None: no limit), `cold` (`read_cached` finds nothing),
    `latency_s` (how long each plan and read takes, on trio's clock).
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.tree = FileTree()
        self.faults = Faults()
        self.capacity_bytes: int | None = None
        self.cold = False
        self.latency_s = 0.0
        self.plans: deque[Executed] = deque(maxlen=EXECUTED_KEPT)
        """The last verbs that ran."""
        self.verbs_executed = 0
        self.crashed = trio.Event()
        """Set when `crash_after` strikes; a new event after `power_on`."""
        self.now: Callable[[], float] = trio.current_time if clock is None else clock.monotonic
        self._is_off = False
        self._fuse: tuple[int, Choose, bool] | None = None
        self._epoch = 0
        self._current: dict[str, MemoryIncarnation] = {}
        self._births: dict[str, trio.Lock] = {}
        self._lock: MemoryLock | None = None
        self._holder: dict[str, Any] = {}
        self._hung: list[str] = []
        self._hanging = trio.lowlevel.ParkingLot()
        self._verbs: dict[type, Callable[[MemoryIncarnation, Any], None]] = {
            Open: self._open,
            Create: self._create,
            Write: self._write,
            Zero: self._zero,
            Sync: self._sync,
            Truncate: self._truncate,
            Close: self._close,
            Rename: lambda _, verb: self.tree.rename(verb.source, verb.target),
            Link: lambda _, verb: self.tree.link(verb.source, verb.target),
            Unlink: lambda _, verb: self.tree.unlink(verb.path),
            MakeDirectory: lambda _, verb: self.tree.make_directory(verb.path),
            RemoveDirectory: lambda _, verb: self.tree.remove_directory(verb.path),
            SyncDirectory: lambda _, verb: self.tree.directory(verb.path).sync(),
        }

    @property
    def root(self) -> str:
        """How messages name it."""
        return "memory"

    # -- the Disk protocol

    async def incarnate(self, owner: str) -> MemoryIncarnation:
        """A new incarnation for `owner`; fences the earlier one and waits for its last plan (D3)."""
        await trio.lowlevel.checkpoint()
        self._check_power(owner)
        epoch = self._epoch
        earlier = self._current.get(owner)
        if earlier is not None:
            earlier.is_fenced = True
        async with self._births.setdefault(owner, trio.Lock()):
            earlier = self._current.get(owner)
            if earlier is not None and epoch == self._epoch:
                earlier.is_fenced = True
                await earlier.drain()
            if epoch != self._epoch:
                raise stale(owner)
            born = self._current[owner] = MemoryIncarnation(owner, self)
            return born

    async def forget(self, owner: str) -> None:
        """`owner` is gone for good: fence its incarnation, wait for its last plan, keep nothing of it."""
        await trio.lowlevel.checkpoint()
        births = self._births.setdefault(owner, trio.Lock())
        async with births:
            last = self._current.get(owner)
            if last is not None:
                last.is_fenced = True
                await last.drain()
                self._current.pop(owner, None)
        if not births.locked():  # else somebody waits in `incarnate`
            self._births.pop(owner, None)

    async def lock(self, holder: dict[str, Any]) -> MemoryLock:
        """Lock the root for writing, or raise `DirectoryLocked` naming the holder."""
        await trio.lowlevel.checkpoint()
        self._check_power("lock")
        if self._lock is not None:
            raise DirectoryLocked(
                f"the directory {self.root!r} is in use by {self._holder or 'another process'}. Nothing was opened. "
                "Stop that process, or choose another directory.",
                directory=self.root,
                holder=dict(self._holder),
            )
        names = self.tree.root.volatile
        inode = self.tree.inode(LOCK_NAME) if LOCK_NAME in names else self.tree.create(LOCK_NAME)
        inode.truncate(0)
        inode.write(0, json.dumps(holder, default=str).encode())
        self._lock, self._holder = MemoryLock(self), dict(holder)
        return self._lock

    def unlock(self, lock: MemoryLock) -> None:
        """Let go of `lock`, if it is the one held."""
        if lock is self._lock:
            self._lock = None

    async def aclose(self) -> None:
        """Fence every incarnation and wait for all plans. The disk may be used again."""
        with trio.CancelScope(shield=True):
            for incarnation in self._current.values():
                incarnation.is_fenced = True
            for incarnation in tuple(self._current.values()):
                await incarnation.drain()
            await trio.lowlevel.checkpoint()
        self._lock = None
        await trio.lowlevel.checkpoint_if_cancelled()

    # -- the ends of the machine

    def kill(self) -> None:
        """The process dies: all is fenced, the lock is free, the page cache lives on."""
        self._epoch += 1
        for incarnation in self._current.values():
            incarnation.die()
        self._current.clear()
        self._births.clear()
        self._lock = None
        self._hanging.unpark_all()

    def crash(self, choose: Choose = lose_unsynced) -> None:
        """Power loss: besides, everything unsynced is gone, but for what `choose` keeps. Reopen at will."""
        self.kill()
        self._fuse = None
        self.tree.lose_power(choose)

    def crash_after(self, verbs: int, choose: Choose = lose_unsynced, *, answered: bool = True) -> None:
        """Lose power when `verbs` more verbs have run, failed ones included, and stay off until `power_on`.

        `answered`: power is lost as the next verb starts, so a plan that ends before it gets its answer. Otherwise it
        is lost right after the last verb (the first, for 0), and nobody learns that it ran.
        """
        self._fuse = (verbs, choose, answered)

    def power_on(self) -> None:
        """Start again after `crash_after` struck; calls it off if it did not."""
        self._is_off = False
        self._fuse = None
        self.crashed = trio.Event()

    @property
    def is_off(self) -> bool:
        """Whether `crash_after` struck and `power_on` was not called yet."""
        return self._is_off

    # -- planting faults

    def fail_next(
        self,
        verb_type: type,
        error: OSError,
        *,
        path_contains: str = "",
        times: int = 1,
        after: int = 0,
        pages: Literal["kept", "reverted"] = "kept",
        partial: int = 0,
    ) -> None:
        """Let verbs of a type (or `Read`) fail; see `Fault`."""
        self.faults.plant(Fault(verb_type, error, path_contains, times, after, pages, partial))

    def hang(self, path_contains: str = "") -> None:
        """Let plans and reads that touch such a path wait until `unhang`; no cancellation ends that (D1)."""
        self._hung.append(path_contains)

    def unhang(self) -> None:
        """Let everything go on."""
        self._hung.clear()
        self._hanging.unpark_all()

    # -- looking and damaging

    def files(self) -> dict[str, bytes]:
        """Every file as reads see it, by path."""
        return {path: bytes(node.volatile) for path, node in self.tree.walk() if isinstance(node, Inode)}

    def durable_files(self) -> dict[str, bytes]:
        """Every file as a plain power loss would leave it."""
        walked = self.tree.walk(durable=True)
        return {path: bytes(node.durable) for path, node in walked if isinstance(node, Inode)}

    def plant_file(self, path: str, data: bytes) -> None:
        """Put a durable file at `path`, in place of one that is there; directories are made."""
        folder, _, _ = path.rpartition("/")
        if folder:
            self.tree.make_directory(folder)
        try:
            inode = self.tree.inode(path)
        except FileNotFoundError:
            inode = self.tree.create(path)
        inode.truncate(0)
        inode.write(0, data)
        inode.sync()
        place = ""
        for name in path.split("/"):
            self.tree.directory(place).sync()
            place = f"{place}/{name}" if place else name

    def flip(self, path: str, byte: int, mask: int = 1) -> None:
        """Rot: flip the bits of `mask` in one byte, in the page cache and on the disk."""
        inode = self.tree.inode(path)
        inode.volatile[byte] ^= mask
        if byte < len(inode.durable):
            inode.durable[byte] ^= mask

    def snapshot(self) -> Directory:
        """A copy of everything, for `restore`."""
        return copy.deepcopy(self.tree.root)

    def restore(self, snapshot: Directory) -> None:
        """Put the disk back as it was; all incarnations are fenced as by `kill`."""
        self.kill()
        self.tree = FileTree(copy.deepcopy(snapshot))

    @property
    def used_bytes(self) -> int:
        """The bytes of all files, those without a name but open included."""
        sizes = {id(node): len(node.volatile) for _, node in self.tree.walk() if isinstance(node, Inode)}
        for incarnation in self._current.values():
            for handle in incarnation.handles:
                if handle.inode is not None:
                    sizes[id(handle.inode)] = len(handle.inode.volatile)
        return sum(sizes.values())

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be written."""
        return PLENTY_BYTES if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes)

    # -- running plans

    async def pause(self) -> None:
        """The time that a plan or a read takes; cancellation is not delivered in it."""
        with trio.CancelScope(shield=True):
            if self.latency_s > 0:
                await trio.sleep(self.latency_s)
            else:
                await trio.lowlevel.checkpoint()

    async def visit(self, incarnation: MemoryIncarnation, path: str) -> None:
        """What every read does before it looks."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await self.pause()
        await self._hang(incarnation, path)

    async def _hang(self, incarnation: MemoryIncarnation, path: str) -> None:
        while not incarnation.is_dead and any(part in path for part in self._hung):
            with trio.CancelScope(shield=True):
                await self._hanging.park()
        if incarnation.is_dead:
            raise stale(incarnation.owner)

    async def run(self, incarnation: MemoryIncarnation, plan: tuple[Verb, ...]) -> None:
        """Run the verbs in order (D2)."""
        for index, verb in enumerate(plan):
            await self._hang(incarnation, path_of(verb))
            self._burn(incarnation, answered=True)
            error = self._execute(incarnation, verb)
            self.verbs_executed += 1
            self._burn(incarnation, answered=False)
            if error is not None:
                raise plan_failed(self.root, index, verb, error)
        if incarnation.is_dead:
            raise stale(incarnation.owner)

    def _burn(self, incarnation: MemoryIncarnation, *, answered: bool) -> None:
        """Strike, if `crash_after` says that it is time."""
        if self._fuse is None:
            return
        left, choose, wants_answer = self._fuse
        if wants_answer is answered and left <= (0 if answered else 1):
            self.crash(choose)
            self._is_off = True
            self.crashed.set()
            raise stale(incarnation.owner)
        if not answered:
            self._fuse = (left - 1, choose, wants_answer)

    def _execute(self, incarnation: MemoryIncarnation, verb: Verb) -> OSError | None:
        path = path_of(verb)
        self.plans.append(Executed(incarnation.owner, type(verb).__name__, path))
        fault = self.faults.take(type(verb), path)
        try:
            if fault is None:
                self._verbs[type(verb)](incarnation, verb)
                return None
            self._fail(verb, fault)
        except OSError as error:
            return error
        return fault.fresh_error(path)

    def _fail(self, verb: Any, fault: Fault) -> None:
        """What a failing verb leaves behind."""
        handle: Any = verb.handle if type(verb) in {Sync, Write, Zero} else None
        if type(verb) is Sync:
            handle.opened().fail_sync(reverted=fault.pages == "reverted")
        elif handle is not None and fault.partial:
            data = bytes(verb.length) if type(verb) is Zero else b"".join(verb.buffers)
            handle.opened().write(verb.offset, data[: fault.partial])

    def _check_power(self, owner: str) -> None:
        if self._is_off:
            raise stale(owner)

    # -- verbs on files

    def _open(self, incarnation: MemoryIncarnation, verb: Open) -> None:
        handle = self._closed(verb.handle)
        handle.inode = self.tree.inode(handle.path)
        incarnation.handles[handle] = None

    def _create(self, incarnation: MemoryIncarnation, verb: Create) -> None:
        handle = self._closed(verb.handle)
        handle.inode = self.tree.create(handle.path)
        incarnation.handles[handle] = None

    @staticmethod
    def _closed(handle: Any) -> MemoryHandle:
        if handle.inode is not None:
            raise OSError(errno.EBUSY, "the handle is open already", handle.path)
        return handle  # type: ignore[no-any-return]

    def _write(self, _: MemoryIncarnation, verb: Write) -> None:
        self._put(verb.handle, verb.offset, verb.buffers)

    def _zero(self, _: MemoryIncarnation, verb: Zero) -> None:
        if verb.length < 0:
            raise failure(errno.EINVAL, verb.handle.path)
        self._put(verb.handle, verb.offset, (bytes(verb.length),))

    def _put(self, handle: Any, offset: int, buffers: Sequence[Buffer]) -> None:
        inode: Inode = handle.opened()
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        view = memoryview(data).cast("B")
        if not len(view):
            return
        if offset < 0:
            raise failure(errno.EINVAL, handle.path)
        size = len(inode.volatile)
        if self.capacity_bytes is not None and offset + len(view) > size:
            room = size + self.free_bytes - offset
            if room < len(view):
                inode.write(offset, view[: max(0, room)])
                self.faults.hits[Write.__name__, errno.ENOSPC] += 1
                raise failure(errno.ENOSPC, handle.path)
        inode.write(offset, view)

    def _sync(self, _: MemoryIncarnation, verb: Sync) -> None:
        handle: Any = verb.handle
        handle.opened().sync()

    def _truncate(self, _: MemoryIncarnation, verb: Truncate) -> None:
        handle: Any = verb.handle
        inode = handle.opened()
        if verb.length < 0:
            raise failure(errno.EINVAL, handle.path)
        inode.truncate(verb.length)

    def _close(self, incarnation: MemoryIncarnation, verb: Close) -> None:
        handle: Any = verb.handle
        handle.inode = None
        incarnation.handles.pop(handle, None)

    def map(self, path: str, length: int) -> Inode:
        """The file behind a mark, made and filled with zeros as needed."""
        try:
            inode = self.tree.inode(path)
        except FileNotFoundError:
            inode = self.tree.create(path)
        missing = length - len(inode.volatile)
        if missing > 0:
            if missing > self.free_bytes:
                raise failure(errno.ENOSPC, path)
            inode.write(len(inode.volatile), bytes(missing))
        return inode
