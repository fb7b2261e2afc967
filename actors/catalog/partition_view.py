"""View: what the catalog knows of one partition, for itself and for those that have no account with it.

It is a peer of the partition's actor (`callboard.actors.kernel.peer`): it has what the partition has said last. By it,
the catalog refuses what a stuck partition would not answer for long, and learns that folders are made. The state goes
on to mirrors.

Invariants
----------
VW1  A view only hears from its partition: it never has news for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from callboard.actors.catalog.commands import PartitionStands
from callboard.actors.clients.port import unavailable
from callboard.actors.kernel import Failed, Peer
from callboard.actors.partition.commands import FilesOpened, OpeningWaits, StateChanged
from callboard.log.errors import InternalError

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.partition.commands import PartitionCommand
    from callboard.log.errors import PartitionUnavailable, StorageError


class PartitionView:
    """The catalog's peer of one partition: what the partition has said last."""

    __slots__ = ("_notes", "_peer", "_say", "failure", "has_files", "port", "state")

    def __init__(self, port: PartitionPort, say: Callable[[PartitionStands], object]) -> None:
        """`say` has mirrors hear."""
        self.port = port
        self.state = "starting"
        self.failure: BaseException | None = None
        """What it failed with for good, last."""
        self.has_files = False
        """Its folders are there, and their names durable, as far as the present incarnation knows."""
        self._notes: dict[Callable[[StorageError], object], None] = {}
        """Called when it cannot be opened for want of space."""
        self._say = say
        self._peer: Peer[None, PartitionCommand] = Peer(port.ref, self)
        self._peer.open()

    def close(self) -> None:
        """Its topic is deleted."""
        self._peer.close()

    @contextmanager
    def noting(self, note: Callable[[StorageError], object]) -> Iterator[None]:
        """Have `note` called meanwhile when it cannot be opened for want of space."""
        self._notes[note] = None
        try:
            yield
        finally:
            self._notes.pop(note, None)

    def unavailable(self) -> PartitionUnavailable:
        """The error for an operation that its state refuses."""
        port, cause = self.port, self.failure if self.state == "failed" else None
        return unavailable(port.topic, port.index, port.label, self.state, cause)

    def stands(self) -> PartitionStands:
        """What mirrors are to know of it."""
        return PartitionStands(
            self.port.ref.path, self.state, self.failure if self.state == "failed" else None
        )

    def compose(self, _: None) -> PartitionCommand:
        """It has no news for the partition."""
        raise InternalError("a view of a partition only hears", invariant="VW1")

    def hear(self, message: object) -> None:
        """The partition says this; what else it says is for clients."""
        match message:
            case StateChanged(state):
                self.state = state
                self._say(self.stands())
            case FilesOpened(has_all):
                self.has_files = has_all
            case OpeningWaits(lack):
                for note in list(self._notes):
                    note(lack)
            case Failed(cause):
                self.state, self.failure = "failed", cause
                self._say(self.stands())
