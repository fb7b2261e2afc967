"""Ten bugs for the programs of this folder, planted one at a time, and how `@simulate` finds them with its defaults.

`python tests/simulations/users/bugs.py` measures: the seed that finds each bug, and the seconds until it is reported,
shrinking included, and which share of further seeds finds it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import attrs

from callboard.testing.session import CURRENT, Hits, RunOptions, SimulatedCall

HERE: Final = Path(__file__).parent


@attrs.frozen
class Bug:
    """In the program `program`, the text `correct` stands once; `wrong` is what somebody might have written."""

    program: str
    test: str
    correct: str
    wrong: str


TICKETS: Final = ("tickets", "test_an_evening")
SHOP: Final = ("shop", "test_orders_are_shipped_once")
MAILER: Final = ("mailer", "test_each_letter_is_sent_once")

BUGS: Final[dict[str, Bug]] = {
    "a seat is sold without its lock": Bug(
        *TICKETS, "        async with self.locks[seat]:\n", "        if seat not in self.sold:\n"
    ),
    "whoever waited for a connection takes it for granted": Bug(
        *TICKETS, "        while not self.free:\n", "        if not self.free:\n"
    ),
    "a customer who leaves keeps the connection": Bug(
        *TICKETS,
        """        try:
            yield connection
        finally:
            self.free.append(connection)
            self.returned.set()
            self.returned = trio.Event()
""",
        """        yield connection
        self.free.append(connection)
        self.returned.set()
        self.returned = trio.Event()
""",
    ),
    "a price that changed while it was fetched is kept": Bug(
        *TICKETS, "        if changes == self.changes:\n", "        if price:\n"
    ),
    "the outbox is not sent after a restart": Bug(
        *SHOP,
        "        await super().started()\n        await self.send()\n",
        "        await super().started()\n",
    ),
    "an order is taken for sent before it is": Bug(
        *SHOP,
        """            await self.shipments.publish(cbor2.dumps([number, self.orders[number]]))
            await self.persist(["sent", number])
""",
        """            await self.persist(["sent", number])
            await self.shipments.publish(cbor2.dumps([number, self.orders[number]]))
""",
    ),
    "the warehouse does not know what it shipped": Bug(
        *SHOP, "        if number not in self.known:\n", "        if number >= 0:\n"
    ),
    "a job is acked before it is done": Bug(
        *MAILER,
        """                try:
                    await self.service.send(key, message.value)
                except ServiceDown:
                    await message.nack(delay=1.0)
                else:
                    await message.ack()
""",
        """                await message.ack()
                try:
                    await self.service.send(key, message.value)
                except ServiceDown:
                    await self.jobs.publish(message.value)
""",
    ),
    "a job is known by its place in the topic": Bug(
        *MAILER,
        "                key = message.value.decode()",
        '                key = f"{message.partition}@{message.offset}"',
    ),
    "a job that failed is acked": Bug(
        *MAILER,
        """                    await message.nack(delay=1.0)
                else:
                    await message.ack()
""",
        """                    pass
                await message.ack()
""",
    ),
}


def program(name: str, bug: Bug | None = None) -> ModuleType:
    """The program as a module of its own, with the bug in it."""
    path = HERE / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    if bug is not None:
        if source.count(bug.correct) != 1:
            raise ValueError(f"{name} has {source.count(bug.correct)} times: {bug.correct}")
        source = source.replace(bug.correct, bug.wrong)
    module = ModuleType(f"user_{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # attrs and pickling look for it there
    exec(compile(source, str(path), "exec"), vars(module))
    return module


def failing_seed(test: Callable[[], None], seed: int | None = None, seeds: int | None = None) -> int | None:
    """The seed that fails the test, of those of its decorator or those that are given; None when all pass."""
    token = CURRENT.set(SimulatedCall(RunOptions("test", seed=seed, seeds=seeds), Hits()))
    try:
        test()
    except BaseException as failure:
        notes = "\n".join(getattr(failure, "__notes__", ()))
        if "--callboard-seed=" not in notes:
            raise
        return int(notes.rpartition("--callboard-seed=")[2].split()[0])
    finally:
        CURRENT.reset(token)
    return None


def measure(bug: Bug, others: int) -> tuple[int | None, float, float]:
    """The seed that finds the bug, the seconds until it is told, and which share of `others` more seeds finds it."""
    test = getattr(program(bug.program, bug), bug.test)
    began = time.process_time()
    seed = failing_seed(test)
    seconds = time.process_time() - began
    hits = sum(failing_seed(test, seed=other) is not None for other in range(1_000, 1_000 + others))
    return seed, seconds, hits / others


if __name__ == "__main__":
    OTHERS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for name, bug in BUGS.items():
        seed, seconds, share = measure(bug, OTHERS)
        print(f"| {name} | {seed} | {seconds:.1f} | {share:.1%} |", flush=True)
