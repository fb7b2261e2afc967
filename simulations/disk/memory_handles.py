"""What one life of an owner has open on a memory disk."""

from __future__ import annotations

import errno

import attrs

from callboard.log.seams.plans import IncarnationBase

from .inodes import Inode


@attrs.define(eq=False, repr=False)
class MemoryHandle:
    """A file of one incarnation."""

    path: str
    """Relative to the disk's root."""
    incarnation: MemoryLife
    inode: Inode | None = None

    def __repr__(self) -> str:
        return f"<MemoryHandle {self.path!r} of {self.incarnation.owner!r}>"

    def opened(self) -> Inode:
        """The file behind it. Raises OSError (EBADF) when closed."""
        if self.inode is None:
            raise OSError(errno.EBADF, "the handle is not open", self.path)
        return self.inode


@attrs.define(eq=False, repr=False)
class MemoryLife(IncarnationBase):
    """One life, and its open files."""

    is_dead: bool = attrs.field(default=False, init=False)
    handles: dict[MemoryHandle, None] = attrs.field(factory=dict, init=False)

    def die(self) -> None:
        """Fence, and stop the plan in flight before its next verb (M3)."""
        self.is_fenced = self.is_dead = True
        self.handles.clear()

    async def drain(self) -> None:
        """Wait for the last plan, then forget the open files."""
        await self._all_landed()
        for handle in self.handles:
            handle.inode = None
        self.handles.clear()
