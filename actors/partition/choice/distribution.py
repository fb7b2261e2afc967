"""Which of the waiting consumers is notified next that a message is ready, in a shared group. Pure.

A consumer that finds nothing in a partition waits for a notice. When messages come, as many are notified as there are
messages, and a notified consumer fetches. A *distribution* is the order of notices; a consumer that does not wait is
never notified, and takes what it asks for.

Invariants
----------
DT1  Every distribution names each waiting consumer once, and no other: none that waits is left out for ever while more
     messages are ready than consumers were notified.
DT2  `round-robin`: the consumer that waits longest is first. Between two turns of a consumer that waits again and
     again, each consumer that waits all that time has had one.
DT3  `least-busy`: the consumer with the fewest messages in flight is first; of equals, the one that waits longest.
DT4  `random`: each order is as likely as any other, by numbers that are drawn for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Load = Callable[[Any], int]
"""How many messages the consumer has in flight that a token is of, in all partitions."""
Draw = Callable[[], float]
"""A number from 0 to below 1."""
Turns = Callable[[Mapping[int, Any], Load, Draw], Iterator[int]]
"""The order of consumers that wait, whose tokens are given in the order in which they began to."""


def round_robin(waiting: Mapping[int, Any], load: Load, draw: Draw) -> Iterator[int]:
    """As they wait (DT2)."""
    return iter(waiting)


def least_busy(waiting: Mapping[int, Any], load: Load, draw: Draw) -> Iterator[int]:
    """By what they have in flight (DT3)."""
    if len(waiting) == 1:
        return iter(waiting)
    loads = {consumer: load(token) for consumer, token in waiting.items()}
    return iter(sorted(waiting, key=loads.__getitem__))


def at_random(waiting: Mapping[int, Any], load: Load, draw: Draw) -> Iterator[int]:
    """As they are drawn (DT4), one after the other: only as many numbers are drawn as consumers are taken."""
    rest = list(waiting)
    while len(rest) > 1:
        place = min(int(draw() * len(rest)), len(rest) - 1)
        rest[place], rest[-1] = rest[-1], rest[place]
        yield rest.pop()
    yield from rest


DISTRIBUTIONS: Final[Mapping[str, Turns]] = {
    "round-robin": round_robin,
    "least-busy": least_busy,
    "random": at_random,
}
"""By the name that a group's setting `distribution` has."""


def load_of(token: Any) -> int:
    """What a waiting consumer says of itself; nothing when it does not say."""
    load = getattr(token, "load", None)
    return 0 if load is None else load()
