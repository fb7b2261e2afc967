"""Party: the owner of a peer, which hears what an actor says; and what the kernel itself says to it.

The mailbox and the cell of an actor know a peer (`peer`) only as an `OpenPeer`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import attrs

K_contra = TypeVar("K_contra", contravariant=True)
M_co = TypeVar("M_co", covariant=True)


@attrs.frozen
class Began:
    """An incarnation of the actor has begun. It knows nothing of what its peers have said to earlier ones."""


@attrs.frozen
class Failed:
    """The actor has failed more often than its supervisor allows. It refuses messages until it is restarted by hand,
    and has refused the questions that waited in its mailbox; statements stay there."""

    cause: BaseException = attrs.field(eq=False)


@attrs.frozen
class Terminated:
    """The notice to watchers that the actor at `path` has ended for good. `cause` is None when it ended in order."""

    path: str
    cause: BaseException | None = attrs.field(default=None, eq=False)


class Party(Protocol[K_contra, M_co]):
    """Whose peer it is. Neither method waits or raises."""

    def compose(self, mark: K_contra, /) -> M_co:
        """The message for the actor, which takes it now."""

    def hear(self, message: Any, /) -> object:
        """The actor says this."""


class OpenPeer(Protocol[M_co]):
    """What the mailbox and the cell of an actor need of a peer."""

    marks: dict[Any, None]
    """What it has news of and the actor has not taken yet."""
    number: int
    """By which the actor names it."""

    def take(self) -> M_co:
        """Compose what is marked first: for the mailbox."""

    def hear(self, message: object) -> None:
        """The actor, or the kernel, says this."""
