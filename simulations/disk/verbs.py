"""Running one verb on a tree of files, with the faults that hit it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.log.seams.disk import (
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

from .damage_budget import DamageBudget
from .disk_faults import VERB_NAMES, PlantedFault
from .file_tree import failure
from .inodes import SECTOR_BYTES, Inode
from .planting import Planting

if TYPE_CHECKING:
    from .memory_handles import MemoryLife


class VerbRunner(Planting):
    """The part of a memory disk that runs verbs, in one step each."""

    def __init__(self) -> None:
        super().__init__()
        self.verbs_executed = 0
        self._verbs: dict[type, Callable[[MemoryLife, Any], None]] = {
            Open: self._open,
            Create: self._open,
            Write: self._write,
            Zero: self._zero,
            Sync: self._sync,
            Truncate: self._truncate,
            Close: self._close,
            Rename: self._rename,
            Link: lambda _, verb: self.tree.link(verb.source, verb.target),
            Unlink: lambda _, verb: self.tree.unlink(verb.path),
            MakeDirectory: lambda _, verb: self.tree.make_directory(verb.path),
            RemoveDirectory: lambda _, verb: self.tree.remove_directory(verb.path),
            SyncDirectory: lambda _, verb: self.tree.directory(verb.path).sync(),
        }

    def run_verb(self, incarnation: MemoryLife, verb: Verb, path: str) -> OSError | None:
        """Run it, or let it fail. Returns the error."""
        self.verbs_executed += 1
        kind = VERB_NAMES[type(verb)]
        fault = self.faults.take(kind, path) if self.faults.planted else None
        try:
            if fault is None:
                self._verbs[type(verb)](incarnation, verb)
                return None
            self._fail(verb, fault)
        except OSError as error:
            return error
        self.faults.count_failure(fault, kind, fault.error.errno)
        return fault.fresh_error(path)

    def _fail(self, verb: Any, fault: PlantedFault) -> None:
        """What a failing verb leaves behind."""
        kind = type(verb)
        if kind is Sync:
            if verb.handle.opened().fail_sync(reverted=fault.pages == "reverted"):
                self.faults.count(None, f"pages {fault.pages}")
        elif kind is Write and fault.partial:
            data = b"".join(verb.buffers)
            count = fault.partial
            if count < 0:
                count = 1 + fault.draw % (len(data) - 1) if len(data) > 1 else 0
                self.faults.count(None, "short write")
            verb.handle.opened().write(verb.offset, data[:count])
        elif kind is Zero and fault.partial:
            verb.handle.opened().zero(verb.offset, min(abs(fault.partial), verb.length))

    # -- verbs on files

    def _open(self, incarnation: MemoryLife, verb: Open | Create) -> None:
        handle: Any = verb.handle
        if handle.inode is not None:
            raise OSError(errno.EBUSY, "the handle is open already", handle.path)
        find = self.tree.inode if type(verb) is Open else self.tree.create
        handle.inode = find(handle.path)
        incarnation.handles[handle] = None

    def _write(self, _: MemoryLife, verb: Write) -> None:
        inode, path = _inode(verb), verb.handle.path
        buffers = verb.buffers
        data = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers)).cast("B")
        if not len(data):
            return
        if verb.offset < 0:
            raise failure(errno.EINVAL, path)
        room = self._room(inode, verb.offset, len(data))
        if room < len(data):
            inode.write(verb.offset, data[:room])
            raise self._no_space("write", path)
        if self.faults.planted and self._misdirect(inode, path, verb.offset, data):
            return
        inode.write(verb.offset, data)

    def _misdirect(self, inode: Inode, path: str, offset: int, data: memoryview) -> bool:
        """Whether the bytes landed elsewhere, and not where they belong."""
        fault = self.faults.find("misdirected write", path)
        if fault is None:
            return False
        names = list(dict.fromkeys([path, *self.tree.names(inode)]))
        if not self.damage_budget.may_spoil(names):
            return False
        landed = put_elsewhere(inode, names, offset, data, fault.draw, self.damage_budget)
        if landed is None:
            return False
        self.faults.take(fault.kind, path)
        self.faults.count(fault, fault.kind)
        _, as_well = landed
        if not as_well:
            # The file is as long as the system believes, but its new bytes are not there.
            self.damage_budget.note("misdirected", names, offset, offset + len(data))
            if offset + len(data) > inode.volatile.length:
                inode.truncate(offset + len(data))
        return not as_well

    def _zero(self, _: MemoryLife, verb: Zero) -> None:
        inode, path = _inode(verb), verb.handle.path
        if verb.length < 0 or (verb.length and verb.offset < 0):
            raise failure(errno.EINVAL, path)
        room = self._room(inode, verb.offset, verb.length)
        inode.zero(verb.offset, min(room, verb.length))
        if room < verb.length:
            raise self._no_space("zero", path)

    def _room(self, inode: Inode, offset: int, length: int) -> int:
        """How many of the bytes fit."""
        size = inode.volatile.length
        if self.capacity_bytes is None or offset + length <= size:
            return length
        return min(length, max(0, size + self.free_bytes - offset))

    def _no_space(self, kind: str, path: str) -> OSError:
        self.faults.count_failure(self._full, kind, errno.ENOSPC)
        return failure(errno.ENOSPC, path)

    def _sync(self, _: MemoryLife, verb: Sync) -> None:
        _inode(verb).sync()

    def _truncate(self, _: MemoryLife, verb: Truncate) -> None:
        inode = _inode(verb)
        if verb.length < 0:
            raise failure(errno.EINVAL, verb.handle.path)
        inode.truncate(verb.length)

    def _rename(self, _: MemoryLife, verb: Rename) -> None:
        self.tree.rename(verb.source, verb.target)
        self.damage_budget.renamed(verb.source, verb.target)

    def _close(self, incarnation: MemoryLife, verb: Close) -> None:
        handle: Any = verb.handle
        handle.inode = None
        incarnation.handles.pop(handle, None)

    def map(self, path: str, length: int) -> Inode:
        """The file behind a mark, made and filled with zeros as needed."""
        inode = self.tree.create_missing(path)
        missing = length - inode.volatile.length
        if missing > 0:
            if missing > self.free_bytes:
                raise failure(errno.ENOSPC, path)
            inode.zero(inode.volatile.length, missing)
        return inode


def _inode(verb: Write | Zero | Sync | Truncate) -> Inode:
    handle: Any = verb.handle
    return handle.opened()  # type: ignore[no-any-return]


def put_elsewhere(
    inode: Inode, names: list[str], offset: int, data: memoryview, draw: int, damage_budget: DamageBudget
) -> tuple[int, bool] | None:
    """Write over other sectors of the file than those meant. Returns where, and whether also where it belongs.

    None, and nothing is done, when it would change durable bytes in no other place.
    """
    sectors = -(-len(inode.durable.stored) // SECTOR_BYTES)
    shift = offset % SECTOR_BYTES
    first, last = offset // SECTOR_BYTES, -(-(offset + len(data)) // SECTOR_BYTES)
    length = -(-(shift + len(data)) // SECTOR_BYTES)
    places = [at for at in range(sectors) if at + length <= first or at >= last]
    if not places:
        return None
    as_well, draw = bool(draw % 2), draw // 2
    place = places[draw % len(places)] * SECTOR_BYTES + shift
    end = min(place + len(data), inode.volatile.length)
    piece = bytes(data[: max(0, end - place)])
    if piece in (b"", inode.volatile.read(place, end)):
        return None
    for content in (inode.volatile, inode.durable):
        if place < content.length:
            content.write(place, piece[: content.length - place])
    damage_budget.note("misdirected", names, place, end)
    return place, as_well
