"""What may go wrong on a memory disk while it runs: the calls that plant faults, and those that damage at once.

Every call returns a `PlantedFault`, whose `hits` tells how often it really had an effect. `path_contains` is a part of
the paths that are meant; `""` means all. `draw` is any number: it chooses among the possibilities, the same on the
same disk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

import trio

from .damage_budget import DamageBudget
from .disk_faults import OBSERVED, VERB_NAMES, PlantedFault, PlantedFaults
from .file_tree import FileTree, failure
from .inodes import Inode

if TYPE_CHECKING:
    from .memory_handles import MemoryLife

PLENTY_BYTES: Final = 1 << 40
"""Free space of a disk without a capacity."""


class Planting:
    """The part of a memory disk that fails. Knobs: `capacity_bytes` (None: no limit), `latency_s`."""

    def __init__(self) -> None:
        self.tree = FileTree()
        self.faults = PlantedFaults()
        self.damage_budget = DamageBudget()
        self.capacity_bytes: int | None = None
        self.latency_s = 0.0
        self._slow: list[PlantedFault] = []
        self._hung: list[PlantedFault] = []
        self._full: PlantedFault | None = None
        self._current: dict[str, MemoryLife] = {}
        self._hanging = trio.lowlevel.ParkingLot()

    # -- verbs that fail

    def fail_next(
        self,
        verb: type | str,
        error: OSError | str,
        *,
        path_contains: str = "",
        times: int = 1,
        after: int = 0,
        pages: Literal["kept", "reverted"] = "kept",
        partial: int = 0,
    ) -> PlantedFault:
        """Let verbs of a kind fail, see `PlantedFault`: `verb` is a verb's type, or one of `OBSERVED`.

        `error` is an OSError, or the name of its number: "EIO", "ENOSPC"...
        """
        if isinstance(error, str):
            error = failure(getattr(errno, error), path_contains)
        kind = VERB_NAMES[verb] if isinstance(verb, type) else verb
        if kind not in OBSERVED:
            raise ValueError(f"{kind!r} is no verb: use one of {', '.join(OBSERVED)}")
        return self.faults.plant(PlantedFault(kind, error, path_contains, times, after, pages, partial))

    def fail_read(self, path_contains: str = "", *, times: int = 1) -> PlantedFault:
        """Let the next reads, of both kinds, fail with EIO."""
        return self.fail_next("read", "EIO", path_contains=path_contains, times=times)

    def short_write_next(self, path_contains: str = "", draw: int = 0, *, error: str = "EIO") -> PlantedFault:
        """Let the next write put down some of its bytes, but not all, and then fail.

        A short write that the system continues is not meant: the contract demands that. This write ends there.
        """
        fault = self.fail_next("write", error, path_contains=path_contains)
        fault.draw = draw
        fault.partial = -1
        return fault

    def short_read_next(self, path_contains: str = "", *, times: int = 1) -> PlantedFault:
        """Let the next reads come back short: a cached one finds nothing, a waiting one takes its time twice."""
        return self.faults.plant(PlantedFault("short read", path_contains=path_contains, times=times))

    def misdirect_next(self, path_contains: str = "", draw: int = 0) -> PlantedFault:
        """Let the next write land elsewhere in its file: instead of where it belongs, or, with an odd `draw`, as well.

        It hits only where it changes bytes that are there already, and only files that may be damaged; it waits for
        a write where both hold.
        """
        return self.faults.plant(PlantedFault("misdirected write", path_contains=path_contains, draw=draw))

    # -- damage at once

    def rot(self, path_contains: str = "", draw: int = 0) -> bool:
        """Flip one bit of a durable byte that is not zero, in the page cache as well. False when there is none.

        Which ones, the damage budget decides: see `damage_budget.py`.
        """
        candidates = [
            node
            for path, node in self.tree.walk()
            if isinstance(node, Inode)
            and path_contains in path
            and self.damage_budget.may_spoil(self.tree.names(node))
            and any(node.settled)
        ]
        if not candidates:
            return False
        inode = candidates[draw % len(candidates)]
        draw //= len(candidates)
        places = [at for at, byte in enumerate(inode.settled) if byte]
        at = places[draw % len(places)]
        mask = 1 << draw // len(places) % 8
        for content in (inode.volatile, inode.durable):
            content.stored[at] ^= mask
        self.damage_budget.note("rot", self.tree.names(inode), at, at + 1)
        self.faults.count(None, "rot")
        return True

    # -- space

    def fill(self, slack_bytes: int = 0) -> PlantedFault:
        """Leave space for `slack_bytes` more and no more, until `free`. `hits` counts what failed for want of it."""
        self.capacity_bytes = self.used_bytes + slack_bytes
        self._full = PlantedFault("write", failure(errno.ENOSPC, ""))
        return self._full

    def free(self) -> None:
        """Remove the limit on space."""
        self.capacity_bytes = self._full = None

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

    # -- time

    def slow(self, path_contains: str, latency_s: float) -> PlantedFault:
        """Let every plan and read that touches such a path take `latency_s` seconds longer, until `unslow`."""
        fault = PlantedFault("slow", path_contains=path_contains, latency_s=latency_s)
        self._slow.append(fault)
        return fault

    def unslow(self, fault: PlantedFault | None = None) -> None:
        """End one slowness, or all."""
        self._slow = [] if fault is None else [other for other in self._slow if other is not fault]

    def hang(self, path_contains: str = "") -> PlantedFault:
        """Let plans and reads that touch such a path wait until `unhang`; no cancellation ends that (DK1)."""
        fault = PlantedFault("stall", path_contains=path_contains)
        self._hung.append(fault)
        return fault

    def unhang(self, fault: PlantedFault | None = None) -> None:
        """End one stall, or all."""
        self._hung = [] if fault is None else [other for other in self._hung if other is not fault]
        self._hanging.unpark_all()

    def heal(self) -> None:
        """End all faults: forget those planted, free space, end slowness and stalls. Damage stays."""
        self.faults.clear()
        self.free()
        self.unslow()
        self.unhang()

    # -- what befalls whom

    def _delay(self, paths: Iterable[str]) -> float:
        """How many seconds a plan or read on these paths takes."""
        delay, touched = self.latency_s, tuple(paths)
        for fault in self._slow:
            if any(fault.path_contains in path for path in touched):
                delay += fault.latency_s
                self.faults.count(fault, "slow")
        return delay
