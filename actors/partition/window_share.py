"""Window share: a partition's end of what it and the giver of turns say to each other about memory (`window_shares`).

It is one for each incarnation of the partition, and silent until the ranges of the partition need memory. Then it says
what its allowance is, and what it is to be. It hears what it is from then on, or that some of it is needed elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from callboard.actors.kernel import Began, Failed, Peer, Terminated
from callboard.actors.partition.choice.record_window import WindowAllowance
from callboard.actors.partition.commands import WindowGranted, WindowNeeded, WindowStands

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.commands import GiverCommand


class WindowShare:
    """The allowance of one partition, and its peer of the giver."""

    def __init__(self, giver: ActorRef[GiverCommand]) -> None:
        self.allowance = WindowAllowance(0, self._ask)
        self._answered = trio.Event()
        self._is_open = False
        self._peer: Peer[None, GiverCommand] = Peer(giver, self)

    async def answered(self) -> None:
        """Wait until what was asked for is granted, or is known not to be."""
        await self._answered.wait()

    def end(self) -> None:
        """The incarnation ends: it holds nothing any more."""
        if self._is_open:
            self.allowance.ask = None
            self.allowance.allow(0)
            self._peer.mark(None)
            self._peer.close()

    def _ask(self) -> None:
        if self._answered.is_set():
            self._answered = trio.Event()
        if not self._is_open:
            self._is_open = True
            self._peer.open()
        self._peer.mark(None)

    # -- to the giver, and from it

    def compose(self, _: None) -> GiverCommand:
        """What it has, and wants."""
        return WindowStands(self._peer.number, self.allowance.bytes_max, self.allowance.wanted_bytes)

    def hear(self, message: object) -> None:
        """The giver says this."""
        allowance = self.allowance
        match message:
            case WindowGranted(bytes_max):
                allowance.allow(bytes_max)
                self._answered.set()
            case WindowNeeded(size_bytes):
                allowance.give_back(size_bytes)
                self._peer.mark(None)
            case Began():
                allowance.ask = self._ask
                self._peer.mark(None)
            case Failed() | Terminated():
                allowance.ask = None
                allowance.allow(allowance.bytes_max)  # makes do with what it has
                self._answered.set()
