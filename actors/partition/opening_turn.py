"""Opening turn: a partition's end of what it and the giver of turns say to each other (`openings`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from callboard.actors.kernel import Began, Peer
from callboard.actors.partition.commands import MemoryHeld, OpeningStage, OpeningStands, TurnBegins

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.commands import GiverCommand


class OpeningTurn:
    """One turn of one partition: it waits, opens, and ends."""

    def __init__(self, giver: ActorRef[GiverCommand], topic_id: str) -> None:
        self._topic_id = topic_id
        self._stage = OpeningStage.WAITS
        self._size_bytes = 0
        self._is_overdue = False
        self._moved = trio.Event()
        self._peer: Peer[None, GiverCommand] = Peer(giver, self)
        self._peer.open()
        self._peer.mark(None)

    def need(self) -> None:
        """A task waits for the partition."""
        if self._stage is OpeningStage.WAITS:
            self._say(OpeningStage.NEEDED)

    async def wait(self) -> None:
        """Until it has begun: `end` it. Cancelled: it has ended."""
        try:
            await self._moved.wait()
        except BaseException:
            self.end()
            raise

    async def hold(self, size_bytes: int) -> None:
        """Wait until that much memory may be held."""
        self._size_bytes, self._moved = size_bytes, trio.Event()
        self._say(self._stage)
        await self._moved.wait()

    def overdue(self) -> None:
        """It takes long."""
        self._is_overdue = True
        self._say(self._stage)

    def end(self) -> None:
        """It is over."""
        self._say(OpeningStage.ENDED)
        self._peer.close()

    def _say(self, stage: OpeningStage) -> None:
        self._stage = stage
        self._peer.mark(None)

    # -- to the giver of turns, and from it

    def compose(self, _: None) -> OpeningStands:
        """How far it is now."""
        return OpeningStands(
            self._peer.number, self._topic_id, self._stage, self._size_bytes, is_overdue=self._is_overdue
        )

    def hear(self, message: object) -> None:
        """The giver of turns says this."""
        match message:
            case TurnBegins():
                self._stage = OpeningStage.BEGUN
                self._moved.set()
            case MemoryHeld():
                self._stage = OpeningStage.HOLDS
                self._moved.set()
            case Began():
                self._peer.mark(None)
