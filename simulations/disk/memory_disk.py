"""A Disk in memory that forgets at a crash what was not synced, and fails on request.

It keeps the same protocol as the real disk and the same errors, without threads: a plan runs in one step after one
checkpoint, so a run under a deterministic scheduler repeats exactly.

The machine it stands for has three ends. `kill` is the death of the process: every incarnation is fenced, the lock is
free, the page cache lives on. `crash` is power loss: besides, what was not synced is gone, but for what a `choose`
function keeps. `crash_after` lets the power fail at a chosen verb; the disk then stays off until `power_on`, so that
supervisors of the dying run cannot start anything again on it.

Invariants
----------
DK1 to DK5 of `log/seams/disk.py`, M1 and M2 of `inodes.py`, and
M3  After a kill or crash no task of an earlier incarnation changes anything: its plan in flight stops before the
    next verb and raises `StaleIncarnation`, or waits for ever where `halted` says so.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

import attrs
import trio

from callboard.log.errors import DirectoryLocked, PlanFailed
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Entry, Handle, Plan, Verb, Write
from callboard.log.seams.plans import (
    check_path,
    check_plan,
    path_of,
    plan_failed,
    stale,
    storage_error,
    write_refused,
)

from .disk_faults import VERB_NAMES
from .file_tree import FileTree, failure
from .inodes import Choose, Content, Inode, MemoryDirectory, Node, lose_unsynced
from .memory_handles import MemoryHandle, MemoryLife
from .verbs import VerbRunner

LOCK_NAME: Final = "lock"
UNPROMISED: Final = frozenset({LOCK_NAME, "committed"})
NAMES_TOLD: Final = 4
"""This many files are named of those that a power loss treated alike."""


@attrs.frozen(eq=False)
class MemoryLock:
    """The held lock."""

    _disk: MemoryDisk

    def release(self) -> None:
        """Release it. Does nothing when it is released already, or after a crash."""
        if self._disk.held is self:
            self._disk.held = None


class MemoryDisk(VerbRunner):
    """A disk in memory. `clock` says when plans were submitted; trio's time without it.

    Knobs, to be turned at any time: `capacity_bytes` (None: no limit), `cold` (`read_cached` finds nothing),
    `latency_s` (how long each plan and read takes, on trio's clock), `instant` (plans and reads are no checkpoints: for
    a single task that goes through many disks), `damage_budget` (what may be damaged). `planting.py` has the
    calls that let things fail.

    `observer` is called with the owner, the verb's name in `VERB_NAMES` and the path before each verb of a plan, each
    read that is answered, and each mapping and store of a mark. It may `kill` or `crash`: the verb does not run then.

    `is_barred` says whether the caller is on a dead machine, and may begin nothing here.

    `halted` is awaited by tasks that find themselves on a dead machine, in place of `StaleIncarnation`: a simulator
    parks them for ever. Calls that cannot wait raise nevertheless.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__()
        self.root = "memory"
        """Its name in messages."""
        self.observer: Callable[[str, str, str], None] | None = None
        self.sleep: Callable[[float], Awaitable[None]] = _shielded_sleep
        """How a delay, in seconds, is spent: not to be cancelled."""
        self.halted: Callable[[], Awaitable[object]] | None = None
        self.is_barred: Callable[[], bool] | None = None
        self.cold = False
        self.instant = False
        self.crashed = trio.Event()
        """Set when `crash_after` has cut the power; `power_on` replaces it."""
        self.now: Callable[[], float] = trio.current_time if clock is None else clock.monotonic
        self.is_off = False
        """Whether `crash_after` struck and `power_on` was not called yet."""
        self._fuse: tuple[int, Choose, bool] | None = None
        self._epoch = 0
        self._births: dict[str, trio.Lock] = {}
        self.held: MemoryLock | None = None
        self._holder: dict[str, Any] = {}

    # -- the Disk protocol

    async def incarnate(self, owner: str) -> MemoryIncarnation:
        epoch = await self._begin(owner)
        earlier = self._current.get(owner)
        if earlier is not None:
            earlier.is_fenced = True
        async with self._births.setdefault(owner, trio.Lock()):
            earlier = self._current.get(owner)
            if earlier is not None and epoch == self._epoch:
                earlier.is_fenced = True
                await earlier.drain()
            await self._check_life(epoch, owner)
            born = self._current[owner] = MemoryIncarnation(owner, self)
            return born

    @property
    def owners(self) -> frozenset[str]:
        """The owners of the disk in this life of the machine which were not forgotten."""
        return frozenset(self._current)

    async def forget(self, owner: str) -> None:
        await trio.lowlevel.checkpoint()
        births = self._births.setdefault(owner, trio.Lock())
        async with births:
            last = self._current.get(owner)
            if last is not None:
                last.is_fenced = True
                await last.drain()
                self._current.pop(owner, None)
        if not births.locked():  # else a task waits in `incarnate`
            self._births.pop(owner, None)

    async def lock(self, holder: dict[str, Any]) -> MemoryLock:
        await self._begin("lock")
        if self.held is not None:
            raise DirectoryLocked(
                f"the directory {self.root!r} is in use by {self._holder or 'another process'}. Nothing was opened. "
                "Stop that process, or choose another directory.",
                directory=self.root,
                holder=dict(self._holder),
            )
        inode = self.tree.create_missing(LOCK_NAME)
        inode.truncate(0)
        inode.write(0, json.dumps(holder, default=str).encode())
        self.held, self._holder = MemoryLock(self), dict(holder)
        return self.held

    async def aclose(self) -> None:
        """Fence every incarnation and wait for all plans. The disk may be used again."""
        with trio.CancelScope(shield=True):
            for incarnation in self._current.values():
                incarnation.is_fenced = True
            for incarnation in tuple(self._current.values()):
                await incarnation.drain()
            await trio.lowlevel.checkpoint()
        self.held = None
        await trio.lowlevel.checkpoint_if_cancelled()

    # -- the ends of the machine

    def kill(self) -> None:
        """Kill the process: every incarnation is fenced, the lock is free, the page cache survives."""
        self._epoch += 1
        for incarnation in self._current.values():
            incarnation.die()
        self._current.clear()
        self._births.clear()
        self.held = None
        self._hanging.unpark_all()

    def crash(self, choose: Choose = lose_unsynced) -> Counter[str]:
        """Power loss: besides, everything unsynced is gone, but for what `choose` keeps. Reopen at will.

        Returns what became of it, in words; `faults.counts` sums that up.
        """
        self.kill()
        self._fuse = None
        fates = self.tree.lose_power(choose)
        self.faults.counts.update(fates)
        return fates

    def left_in_words(self, topics: Mapping[str, str] = {}) -> str:
        """What the last power loss made of what was not synced, but for marks and the lock, which promise nothing.

        `topics` are names by id, for folders of topics.
        """
        fates = [fate for fate in self.tree.fates if fate.path.rpartition("/")[2] not in UNPROMISED]
        if not fates:
            return "nothing was left to be synced"
        parts = []
        for how in ("kept", "kept in part", "spoiled", "lost"):
            names = list(dict.fromkeys(fate.what(topics) for fate in fates if fate.how == how))
            if names:
                more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
                parts.append(f"{how} {', '.join(names[:NAMES_TOLD])}{more}")
        return f"of what was not synced the disk has {'; '.join(parts)}"

    def crash_after(self, verbs: int, choose: Choose = lose_unsynced, *, answered: bool = True) -> None:
        """Lose power when `verbs` more verbs have run, failed ones included, and stay off until `power_on`.

        `answered`: power is lost as the next verb starts, so a plan that ends before it gets its answer. Otherwise it
        is lost right after the last verb (the first, for 0), and it is not reported that it ran.
        """
        self._fuse = (verbs, choose, answered)

    def power_on(self) -> None:
        """Start again after `crash_after` struck; calls it off if it did not."""
        self.is_off = False
        self._fuse = None
        self.crashed = trio.Event()

    # -- looking and damaging

    def paths(self) -> list[str]:
        """The path of every file, sorted folder by folder."""
        return [path for path, node in self.tree.walk() if isinstance(node, Inode)]

    def files(self) -> dict[str, bytes]:
        """Every file as reads see it, by path."""
        return {path: bytes(node.volatile) for path, node in self.tree.walk() if isinstance(node, Inode)}

    def file(self, path: str) -> bytes:
        """A file as reads see it; nothing when there is none of that name."""
        try:
            return bytes(self.tree.inode(path).volatile)
        except OSError:
            return b""

    def contents(self, *, durable: bool = False) -> dict[str, Content]:
        """A copy of each of `files`, or of `durable_files`, in which zeros at the end take no room."""
        return {
            path: (node.durable if durable else node.volatile).copy()
            for path, node in self.tree.walk(durable=durable)
            if isinstance(node, Inode)
        }

    def durable_files(self) -> dict[str, bytes]:
        """Every file as a plain power loss would leave it."""
        walked = self.tree.walk(durable=True)
        return {path: bytes(node.durable) for path, node in walked if isinstance(node, Inode)}

    def plant_file(self, path: str, data: bytes) -> None:
        """Put a durable file at `path`, in place of one that is there; directories are made."""
        folder, _, _ = path.rpartition("/")
        if folder:
            self.tree.make_directory(folder)
        inode = self.tree.create_missing(path)
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
        for content in (inode.volatile, inode.durable):
            if byte < content.length:
                content.write(byte, bytes([content.read(byte, byte + 1)[0] ^ mask]))

    def snapshot(self) -> FileTree:
        """A copy of everything, for `restore`."""
        return self.tree.clone()

    def restore(self, snapshot: FileTree) -> None:
        """Put the disk back as it was; all incarnations are fenced as by `kill`."""
        self.kill()
        self.tree = snapshot.clone()

    # -- running plans

    async def pause(self, paths: Iterable[str]) -> None:
        """The time that a plan or a read on `paths` takes; cancellation is not delivered in it."""
        delay = self._delay(paths) if self._slow else self.latency_s
        if self.instant and not delay:
            return
        if delay > 0:
            await self.sleep(delay)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def visit(self, incarnation: MemoryIncarnation, path: str, *, reads: bool = False) -> None:
        """What every call but `submit` does before it looks; `reads`: it is one that is observed."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await self.pause((path,))
        if self._hung or incarnation.is_dead:
            await self._hang(incarnation, path)
        if reads and self.observer is not None:
            self.observer(incarnation.owner, "read", path)
        if reads and self._cuts_read(path):
            await self.pause((path,))
        if incarnation.is_dead:
            await self._end(incarnation.owner)

    def glance(self, incarnation: MemoryIncarnation, path: str) -> bool:
        """What every cached read does before it looks: whether the bytes are in memory."""
        if self.cold:
            return False
        if self.observer is not None:
            self.look_out(incarnation, "read", path)
        return not self._cuts_read(path)

    def _cuts_read(self, path: str) -> bool:
        """Whether a read comes back short."""
        fault = self.faults.take("short read", path) if self.faults.planted else None
        if fault is not None:
            self.faults.count(fault, fault.kind)
        return fault is not None

    def look_out(self, incarnation: MemoryIncarnation, verb: str, path: str) -> None:
        """Tell the observer, in a call that cannot wait. Raises `StaleIncarnation` when that was the machine's end."""
        if self.observer is not None:
            self.observer(incarnation.owner, verb, path)
            if incarnation.is_dead:
                raise stale(incarnation.owner)

    async def _hang(self, incarnation: MemoryIncarnation, path: str) -> None:
        counted: set[int] = set()
        while not incarnation.is_dead:
            fault = next((fault for fault in self._hung if fault.path_contains in path), None)
            if fault is None:
                return
            if id(fault) not in counted:
                counted.add(id(fault))
                self.faults.count(fault, fault.kind)
            with trio.CancelScope(shield=True):
                await self._hanging.park()
        await self._end(incarnation.owner)

    async def _end(self, owner: str) -> NoReturn:
        """Stop a task of a dead machine here."""
        if self.halted is not None:
            await self.halted()
        raise stale(owner)

    async def run(self, incarnation: MemoryIncarnation, plan: tuple[Verb, ...]) -> None:
        """Run the verbs in order (DK2), until the machine dies (M3)."""
        for index, verb in enumerate(plan):
            path = path_of(verb)
            if self._hung:
                await self._hang(incarnation, path)
            if self.observer is not None and not incarnation.is_dead:
                self.observer(incarnation.owner, VERB_NAMES[type(verb)], path)
            if incarnation.is_dead or (self._fuse is not None and self._burns(self._fuse, answered=True)):
                await self._end(incarnation.owner)
            error = self.run_verb(incarnation, verb, path)
            if self._fuse is not None and self._burns(self._fuse, answered=False):
                await self._end(incarnation.owner)
            if error is not None:
                raise plan_failed(self.root, index, verb, error)
        if incarnation.is_dead:
            await self._end(incarnation.owner)

    @property
    def is_quick(self) -> bool:
        """Whether plans take no time now, and no power fails within one."""
        return not (self.instant or self.latency_s or self._slow or self._hung or self._fuse is not None)

    def run_at_once(self, incarnation: MemoryIncarnation, plan: tuple[Verb, ...]) -> PlanFailed | None:
        """Like `run`, in the caller's step: how the plan failed. Raises `StaleIncarnation` when the machine died."""
        for index, verb in enumerate(plan):
            path = path_of(verb)
            self.look_out(incarnation, VERB_NAMES[type(verb)], path)
            error = self.run_verb(incarnation, verb, path)
            if error is not None:
                return plan_failed(self.root, index, verb, error)
        return None

    def _burns(self, fuse: tuple[int, Choose, bool], *, answered: bool) -> bool:
        """Lose power if `crash_after` says so."""
        left, choose, wants_answer = fuse
        if wants_answer is answered and left <= (0 if answered else 1):
            self.crash(choose)
            self.is_off = True
            self.crashed.set()
            return True
        if not answered:
            self._fuse = (left - 1, choose, wants_answer)
        return False

    async def _begin(self, owner: str) -> int:
        """Begin a call that is not an incarnation's: the epoch that it belongs to."""
        epoch = self._epoch
        await trio.lowlevel.checkpoint()
        if self.is_off:
            raise stale(owner)
        await self._check_life(epoch, owner)
        return epoch

    async def _check_life(self, epoch: int, owner: str) -> None:
        """Stop a call that began before the machine died: it would take what belongs to the next incarnation."""
        if epoch != self._epoch or (self.is_barred is not None and self.is_barred()):
            await self._end(owner)


async def _shielded_sleep(seconds: float) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


@attrs.define(eq=False)
class MemoryMark:
    """A mapped file: stores go to the page cache."""

    _path: str
    _inode: Inode | None
    _length: int
    _incarnation: MemoryIncarnation

    def store(self, data: bytes) -> None:
        life = self._incarnation
        if life.is_fenced or len(data) != self._length:
            raise write_refused(self._path, self._length, data, life.owner, is_fenced=life.is_fenced)
        if self._inode is not None:
            life.look_out(self._path)
            self._inode.write(0, data)

    def load(self) -> bytes:
        return b"" if self._inode is None else self._inode.volatile.read(0, self._length)

    def close(self) -> None:
        self._inode = None


@attrs.define
class MemoryFlight:
    """A plan that was run at once."""

    failure: PlanFailed | None
    has_landed: bool


@attrs.define(eq=False, repr=False)
class MemoryIncarnation(MemoryLife):
    """The disk as one owner's one life sees it."""

    _disk: MemoryDisk

    def handle(self, path: str) -> MemoryHandle:
        self._check()
        check_path(path)
        return MemoryHandle(path, self)

    async def submit(self, plan: Plan) -> None:
        await self._submit(plan, self._run_plan)

    async def _run_plan(self, plan: tuple[Verb, ...]) -> None:
        await self._disk.pause(map(path_of, plan))
        await self._disk.run(self, plan)

    def _now(self) -> float:
        return self._disk.now()

    def start(self, plan: Plan) -> MemoryFlight | None:
        """Run a plan that only writes, at once, as a quick disk does; None for others, and where it would take time."""
        self._check()
        plan = tuple(plan)
        check_plan(plan, self)
        disk = self._disk
        if not disk.is_quick or any(type(verb) is not Write for verb in plan):
            return None
        failed = disk.run_at_once(self, plan)
        return MemoryFlight(failed, failed is None)

    async def landed(self, flight: MemoryFlight) -> None:
        """A checkpoint. Raises `PlanFailed`."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        if flight.failure is not None:
            raise flight.failure

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        file: MemoryHandle = self._own(handle)
        await self._disk.visit(self, file.path, reads=True)
        return self._read(file, offset, length)

    def read_cached(self, handle: Handle, offset: int, length: int) -> bytes | None:
        """The bytes, or None while the disk is `cold`."""
        file: MemoryHandle = self._own(handle)
        return self._read(file, offset, length) if self._disk.glance(self, file.path) else None

    def _read(self, file: MemoryHandle, offset: int, length: int) -> bytes:
        try:
            inode = file.opened()
            if offset < 0 or length < 0:
                raise failure(errno.EINVAL, file.path)
            self._meet_fault("read", file.path)
        except OSError as error:
            raise storage_error("reading", self._disk.root, file.path, error) from error
        return inode.volatile.read(offset, offset + length)

    def _meet_fault(self, kind: str, path: str) -> None:
        """Fail if a fault waits for this."""
        faults = self._disk.faults
        fault = faults.take(kind, path) if faults.planted else None
        if fault is not None:
            faults.count_failure(fault, kind, fault.error.errno)
            raise fault.fresh_error(path)

    async def size(self, handle: Handle) -> int:
        file: MemoryHandle = self._own(handle)
        await self._disk.visit(self, file.path)
        try:
            return len(file.opened().volatile)
        except OSError as error:
            raise storage_error("measuring", self._disk.root, file.path, error) from error

    async def list(self, path: str) -> list[Entry]:
        self._check()
        check_path(path, root_allowed=True)
        await self._disk.visit(self, path)
        try:
            names = self._disk.tree.directory(path).volatile
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("listing", self._disk.root, path, error) from error
        return [_entry(name, names[name]) for name in sorted(names)]

    async def mark(self, path: str, length: int) -> MemoryMark:
        self._check_mark(path, length)
        await self._disk.visit(self, path)
        self.look_out(path)
        try:
            self._meet_fault("mark", path)
            inode = self._disk.map(path, length)
        except OSError as error:
            raise storage_error("mapping", self._disk.root, path, error) from error
        return MemoryMark(path, inode, length, self)

    async def free_bytes(self) -> int:
        self._check()
        await self._disk.visit(self, "")
        return self._disk.free_bytes

    def look_out(self, path: str) -> None:
        """Tell the observer of a mark, in a call that cannot wait."""
        self._disk.look_out(self, "mark", path)


def _entry(name: str, node: Node) -> Entry:
    if isinstance(node, MemoryDirectory):
        return Entry(name, True, 0)
    return Entry(name, False, len(node.volatile))
