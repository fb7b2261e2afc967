"""Window shares: how the memory for record windows is divided among the partitions of a runtime. Pure.

A partition has an *allowance*, which is nothing until it needs some. It asks when its ranges need more, and is answered
with what it has from then on. While all is given away, those that asked longest ago are asked to give some back: what
they do not use, and what ranges take that no consumer waits for. They do so at once, and are asked one after the other,
until there is enough, or none is left to ask.

Invariants
----------
WS1  The allowances of all partitions, as they were said or granted last, are together at most `bytes_max`.
WS2  Each partition that wants more is answered once, in the order of asking: with what it wants, or with what is left
     when all others have given back what they can.
"""

from __future__ import annotations

from callboard.actors.partition.commands import WindowGranted, WindowNeeded, WindowStands


class WindowShares:
    """The allowances of the partitions, by the numbers of their peers."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.granted_bytes = 0
        """What all have together."""
        self._allowances: dict[int, int] = {}
        """By partition, the one that asked longest ago first."""
        self._wanted: dict[int, int] = {}
        """What partitions want theirs to be, in the order of asking."""
        self._asked: set[int] = set()
        """Those that were asked to give back for the partition that is first to be answered."""
        self._awaited: int | None = None
        """The one of them that has not answered."""

    def stands(self, message: WindowStands) -> None:
        """A partition says what it has, and wants; it is gone when that is nothing."""
        partition, allowance, wanted = message.partition, message.allowance_bytes, message.wanted_bytes
        if partition == self._awaited:
            self._awaited = None
        if wanted:
            self._set(partition, allowance, is_newest=True)
            self._wanted[partition] = wanted
        else:
            self._set(partition, allowance)
            self._wanted.pop(partition, None)

    def gone(self, partition: int) -> None:
        """A partition does not listen any more: it has nothing."""
        self.stands(WindowStands(partition, 0, 0))

    def next_notice(self) -> tuple[int, WindowGranted | WindowNeeded] | None:
        """What to say to which partition now; None when there is nothing to say until a partition says more."""
        if self._awaited is not None or not self._wanted:
            return None
        partition, wanted = next(iter(self._wanted.items()))
        held = self._allowances.get(partition, 0)
        lacking = wanted - held - (self.bytes_max - self.granted_bytes)
        others = (each for each in self._allowances if each != partition and each not in self._asked)
        if lacking > 0 and (holder := next(others, None)) is not None:
            self._asked.add(holder)
            self._awaited = holder
            return holder, WindowNeeded(lacking)
        del self._wanted[partition]
        self._asked.clear()
        allowance = max(held, wanted - max(0, lacking))
        self._set(partition, allowance)
        return partition, WindowGranted(allowance)

    def _set(self, partition: int, allowance: int, *, is_newest: bool = False) -> None:
        self.granted_bytes += allowance - self._allowances.get(partition, 0)
        if is_newest or not allowance:
            self._allowances.pop(partition, None)
        if allowance:
            self._allowances[partition] = allowance
