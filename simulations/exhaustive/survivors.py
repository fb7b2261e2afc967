"""Every way in which power loss may treat what was not synced.

An *item* is a dirty sector, a changed length, or a change of a directory. Of up to `ITEMS_MAX` items every subset is
tried. Beyond that it is these: none, all, each alone, all but each, every other one from the first and from the
second on, the first half, the second half.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from callboard.simulations.disk.file_tree import FileTree
from callboard.simulations.disk.inodes import MemoryDirectory, Node

ITEMS_MAX: Final = 4

Item = tuple[int, int]
"""The number of the node in `_nodes`, and the item."""
Subset = tuple[int, ...]
"""The places of the items that survive."""


def _nodes(tree: FileTree) -> list[Node]:
    """Every node that any outcome may leave, in an order that a clone shares."""
    found: dict[int, Node] = {}
    waiting: list[Node] = [tree.root]
    while waiting:
        node = waiting.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        if isinstance(node, MemoryDirectory):
            waiting += node.durable.values()
            waiting += node.volatile.values()
            for names in node.changes:
                waiting += [changed for changed in names.values() if changed is not None]
    return list(found.values())


def items_of(tree: FileTree) -> list[Item]:
    """What was not synced."""
    return [(number, item) for number, node in enumerate(_nodes(tree)) for item in node.unsynced]


def subsets(count: int) -> Iterator[Subset]:
    """Which of `count` items survive: see the module's docstring."""
    everything = range(count)
    if count <= ITEMS_MAX:
        for mask in range(1 << count):
            yield tuple(at for at in everything if mask >> at & 1)
        return
    yield ()
    yield tuple(everything)
    for one in everything:
        yield (one,)
        yield tuple(at for at in everything if at != one)
    yield tuple(everything[::2])
    yield tuple(everything[1::2])
    yield tuple(everything[: count // 2])
    yield tuple(everything[count // 2 :])


def apply(tree: FileTree, items: list[Item], subset: Subset) -> FileTree:
    """A copy of the tree after a power loss that the items of the subset survive."""
    left = tree.clone()
    kept: dict[int, list[int]] = {}
    for place in subset:
        number, item = items[place]
        kept.setdefault(number, []).append(item)
    for number, node in enumerate(_nodes(left)):
        node.lose_power(kept.get(number, ()))
    return left


def fingerprint(tree: FileTree) -> int:
    """The same for trees that hold the same; of a tree without anything unsynced."""
    return hash(
        tuple(
            (path, None)
            if isinstance(node, MemoryDirectory)
            else (path, node.volatile.length, bytes(node.volatile.stored).rstrip(b"\0"))
            for path, node in tree.walk()
        )
    )
