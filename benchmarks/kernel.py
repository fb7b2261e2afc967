"""How fast the actor kernel is: statements and questions per second, beside trio's own checkpoints as the ceiling.

Run it as `python benchmarks/kernel.py`. Numbers of a shared machine vary by some 30 %: compare within one run only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import trio

from callboard.actors.kernel import Actor, ActorRef, Batch, MailboxSpec
from callboard.supervision import ChildSpec, SupervisorSpec, open_system

TELLS = 300_000
ASKS = 120_000
CHECKPOINTS = 200_000
ASKERS = (1, 8, 64, 512)


class Wall:
    """The Clock seam."""

    def monotonic(self) -> float:
        """trio's own."""
        return trio.current_time()

    def wall_us(self) -> int:
        """From the system clock."""
        return time.time_ns() // 1000


class Chance(random.Random):
    """The Entropy seam."""

    def integer(self, bits: int) -> int:
        """Random bits."""
        return self.getrandbits(bits)

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        return self.randbytes(count)


class One(Actor[int]):
    """Handles one message at a time."""

    async def receive(self, message: int) -> int:
        """Answers with the message."""
        return message


class Many(Actor[int]):
    """Handles all that waits in one go."""

    def __init__(self) -> None:
        self.sum = 0

    async def receive_batch(self, batch: Batch[int]) -> None:
        """Adds up."""
        for message, reply in batch:
            self.sum += message
            if reply is not None:
                reply.answer(message)


async def timed(name: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
    """Print how many of `count` per second."""
    started = time.perf_counter()
    await work()
    print(f"{name:<52}{count / (time.perf_counter() - started):>12,.0f} /s", flush=True)


async def checkpoints() -> None:
    """The ceiling."""
    for _ in range(CHECKPOINTS):
        await trio.lowlevel.checkpoint()


async def tells(ref: ActorRef[int]) -> None:
    """Statements, each a checkpoint; the last is a question, so all are handled."""
    for number in range(TELLS - 1):
        await ref.tell(number)
    await ref.ask(0)


async def tells_of_many(ref: ActorRef[int]) -> None:
    """Statements of 64 tasks at once, each a checkpoint: the actor finds many in its mailbox."""

    async def teller() -> None:
        for number in range(TELLS // 64):
            await ref.tell(number)

    async with trio.open_nursery() as nursery:
        for _ in range(64):
            nursery.start_soon(teller)
    await ref.ask(0)


async def tells_nowait(ref: ActorRef[int]) -> None:
    """Statements without a checkpoint, a thousand at a time."""
    for _ in range(TELLS // 1000):
        for number in range(1000):
            ref.tell_nowait(number)
        await ref.ask(0)


async def asks(ref: ActorRef[int], askers: int, timeout: float | None = None) -> None:
    """Questions from many tasks at once."""

    async def asker() -> None:
        for number in range(ASKS // askers):
            await ref.ask(number, timeout=timeout)

    async with trio.open_nursery() as nursery:
        for _ in range(askers):
            nursery.start_soon(asker)


async def main() -> None:
    """Everything, one after the other."""
    mailbox = MailboxSpec(capacity=4096)
    spec = SupervisorSpec(
        name="benchmark",
        children=(
            ChildSpec(name="one", start=One, mailbox=mailbox),
            ChildSpec(name="many", start=Many, mailbox=mailbox),
        ),
    )
    async with open_system(spec, clock=Wall(), entropy=Chance(1)) as system:
        one: ActorRef[int] = system.actor("one")
        many: ActorRef[int] = system.actor("many")
        await timed("trio checkpoints (the ceiling)", CHECKPOINTS, checkpoints)
        await timed("tell, receive", TELLS, lambda: tells(one))
        await timed("tell, receive_batch", TELLS, lambda: tells(many))
        await timed("tell, receive_batch, 64 tellers", TELLS, lambda: tells_of_many(many))
        await timed("tell_nowait, receive", TELLS, lambda: tells_nowait(one))
        await timed("tell_nowait, receive_batch", TELLS, lambda: tells_nowait(many))
        for askers in ASKERS:
            await timed(f"ask, receive, {askers} askers", ASKS, lambda askers=askers: asks(one, askers))
            await timed(
                f"ask, receive_batch, {askers} askers", ASKS, lambda askers=askers: asks(many, askers)
            )
        for askers in (1, 64):
            name = f"ask with a timeout, receive, {askers} askers"
            await timed(name, ASKS, lambda askers=askers: asks(one, askers, 30.0))


if __name__ == "__main__":
    trio.run(main)
