"""Questions to actors that may be asked again, since asking twice changes nothing."""

from __future__ import annotations

from typing import Any, TypeVar

from callboard.actors.kernel import ActorRef, Question
from callboard.log.errors import ActorCrashed, ActorStopped, RuntimeClosed

A = TypeVar("A")


async def ask_again(ref: ActorRef[Any], question: Question[A], doing: str) -> A:
    """What the actor answers, after as many restarts as it takes.

    Raises `RuntimeClosed` when the actor has ended: its text begins with `doing`. Raises the actor's own error when it
    has failed.
    """
    while True:
        try:
            return await ref.ask(question)
        except ActorCrashed:
            continue
        except ActorStopped as error:
            raise ended(doing) from error


def ended(doing: str) -> RuntimeClosed:
    """The error for what was being done with an actor that has ended."""
    return RuntimeClosed(f"{doing}: the runtime is closed or the topic was deleted. Open it again.")
