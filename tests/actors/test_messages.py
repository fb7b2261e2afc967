"""What crosses between the broker's actors is data."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_origin

import trio
import trio.testing

import callboard
import callboard.actors
from callboard.actors.kernel import Actor, Question
from callboard.actors.messages import ASKED, COMMANDS, EXCHANGES, broker_wire, notices_to
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


def actors_of_the_broker() -> Iterator[tuple[type, Any]]:
    """Every class of actors below `callboard.actors`, and the type of its messages."""
    for module in pkgutil.walk_packages(callboard.actors.__path__, "callboard.actors."):
        if not module.name.startswith("callboard.actors.kernel"):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and issubclass(kind, Actor) and kind.__module__ == module.name:
                    for base in kind.__orig_bases__:  # type: ignore[attr-defined]
                        if get_origin(base) is Actor:
                            yield kind, get_args(base)[0]


def test_the_commands_of_every_actor_are_known():
    """The wire of a runtime knows all commands of each of the broker's actors."""
    found = dict(actors_of_the_broker())
    assert len(found) > 6
    lacking = {
        kind.__name__: command.__name__
        for kind, commands in found.items()
        for command in (get_args(commands) or (commands,))
        if command is not NoneType and command not in broker_wire().known
    }
    assert lacking == {}


def test_commands_are_frozen():
    """A command cannot be changed: it is a named tuple or a frozen attrs class."""
    for command in [
        command for commands in COMMANDS.values() for command in get_args(commands) or (commands,)
    ]:
        assert issubclass(command, tuple) or command.__setattr__ is not object.__setattr__, command


def test_answers_are_known():
    """What the broker's actors answer is known: it follows from the commands."""
    names = {kind.__name__ for kind in broker_wire().known}
    assert {"LeasedRecords", "Settlement", "PartitionStatistics", "GroupRecord", "StoredLetter"} <= names


def test_commands_that_are_asked_name_their_answers():
    """Type checkers know what the broker's own questions are answered with."""
    for actor, commands in COMMANDS.items():
        told = {command for command in get_args(commands) or (commands,) if not issubclass(command, Question)}
        assert told <= notices_to(actor) | ASKED


class Port:
    """A live object."""


async def test_actors_of_users_are_not_covered():
    """An actor that a user spawns in a runtime in wire mode gets the very object that is sent."""
    got: list[Any] = []

    async def mine(context: Any) -> None:
        got.append((await context.next())[0])
        await trio.sleep_forever()

    runtime = callboard.open_runtime(disk=MemoryDisk(), clock=VirtualClock(), entropy=SeededEntropy(1))
    runtime._delivers_copies = True
    async with runtime:
        topic = await runtime.create_topic("orders")
        receipt = await topic.publish(b"one")
        ref = await runtime.spawn(mine, name="mine")
        port = Port()
        await ref.tell(port)
        await trio.testing.wait_all_tasks_blocked()
        async with topic.subscribe("g") as consumer:
            async with consumer.receive(timeout=1) as message:
                assert (message.value, message.offset) == (b"one", receipt.offset)
    assert got == [port]


def test_the_table_of_exchanges_is_whole() -> None:
    """Each notice that an actor understands is in the table, as said to that actor and to no other."""
    for actor in COMMANDS:
        said = {kind for each in EXCHANGES if actor in each.receiver for kind in each.notices}
        assert notices_to(actor) == said, actor
