"""Damage to what is on a disk: where it may be done, and doing it. Pure; `draw` chooses."""

from __future__ import annotations

from .content import Content
from .damage_budget import DamageBudget
from .file_tree import FileTree
from .inodes import SECTOR_BYTES, Inode


def flip_a_bit(tree: FileTree, path_contains: str, draw: int, damage_budget: DamageBudget) -> bool:
    """Flip one bit of a durable byte that is not zero and that may be damaged. False when there is none."""
    candidates = [
        (path, node)
        for path, node in tree.walk()
        if isinstance(node, Inode)
        and path_contains in path
        and damage_budget.may_spoil(path)
        and any(_shared(node))
    ]
    if not candidates:
        return False
    path, inode = candidates[draw % len(candidates)]
    draw //= len(candidates)
    places = [at for at, byte in enumerate(_shared(inode)) if byte]
    at = places[draw % len(places)]
    mask = 1 << draw // len(places) % 8
    for content in (inode.volatile, inode.durable):
        content.stored[at] ^= mask
    damage_budget.note("rot", path, at, at + 1)
    return True


def _shared(inode: Inode) -> bytearray:
    """The durable bytes that reads see, too: those that are in both."""
    return inode.durable.stored[: len(inode.volatile.stored)]


def put_elsewhere(
    inode: Inode, path: str, offset: int, data: memoryview, draw: int, damage_budget: DamageBudget
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
        _overwrite(content, place, piece)
    damage_budget.note("misdirected", path, place, end)
    return place, as_well


def _overwrite(content: Content, place: int, piece: bytes) -> None:
    piece = piece[: max(0, content.length - place)]
    if piece:
        content.write(place, piece)
