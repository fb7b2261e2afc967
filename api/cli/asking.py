"""Asking the runtime that has a directory open, or one that is opened for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from callboard.cli.interruption import run
from callboard.control.client import ControlClient
from callboard.control.verbs import VERBS, answer
from callboard.log.errors import ControlError, DirectoryLocked, TopicNotFound
from callboard.looking import look_at
from callboard.offline import require_directory, topic_not_found
from callboard.runtime import Runtime, open_runtime
from callboard.topic import Topic


def ask(directory: str, verb: str, **arguments: str) -> Any:
    """The answer to one request: see `ask_all`."""
    return ask_all(directory, {"verb": verb, **arguments})[0]


def ask_all(directory: str, *requests: dict[str, str], is_made: bool = False) -> list[Any]:
    """What the runtime that has the directory open answers to these requests.

    When none answers, and a request changes something, it is opened, and made if it is missing and `is_made`; else its
    files are read, and nothing is changed.
    """
    if not is_made:
        require_directory(directory)
    only_looks = all(_looks(request) for request in requests)

    async def look(runtime: Runtime) -> list[Any]:
        return [await _answer(runtime, **request) for request in requests]

    async def work() -> list[Any]:
        client = ControlClient(directory)
        if only_looks and not await _is_listening(client):
            return await look_at(directory, look)
        async with asking(directory) as ask_one:
            answers = [await ask_one(**request) for request in requests]
        return answers

    return run(work)


def _looks(request: dict[str, str]) -> bool:
    """Whether a request changes nothing."""
    return not VERBS[request["verb"]].changes or request.get("dry_run") == "yes"


async def _is_listening(client: ControlClient) -> bool:
    """Whether a runtime answers. Raises `ControlError` when one is there and does not."""
    try:
        await client.request("ping")
    except ControlError as refused:
        if refused.is_listening:
            raise
        return False
    return True


async def _answer(runtime: Runtime, verb: str, **arguments: str) -> Any:
    if arguments.get("topic"):
        find_topic(runtime, arguments["topic"])
    return await answer(runtime, verb, arguments)


@asynccontextmanager
async def asking(directory: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """What asks the runtime that has the directory open; when there is none, it is opened for the body."""
    client = ControlClient(directory)
    if await _is_listening(client):
        yield client.request
    else:
        try:
            async with open_runtime(directory) as runtime:
                yield partial(_answer, runtime)
        except DirectoryLocked as locked:
            raise DirectoryLocked(
                f"{locked} It has no control socket: open it there with control=True to ask it.",
                directory=directory,
            ) from locked


def find_topic(runtime: Runtime, name: str) -> Topic:
    """The topic of that name. Raises `TopicNotFound` with what to type instead."""
    try:
        return runtime.topic(name)
    except TopicNotFound:
        raise topic_not_found(name, [topic.name for topic in runtime.topics()], runtime.directory) from None
