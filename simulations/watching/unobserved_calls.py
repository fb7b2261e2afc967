"""Notes into which topics and groups a program reaches by itself, and not by way of observed clients.

For the length of a run the public methods that publish, consume and change are replaced by ones that note the name and
call them. What the simulator's own modules call is observed, or their own affair; what Callboard calls itself was begun
by a call that is noted here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.dead_letters.topics import DeadLetterTopic
from callboard.group import Group
from callboard.publishing.producer import Producer
from callboard.runtime import Runtime
from callboard.simulations.history.unobserved import Unobserved
from callboard.simulations.watching.tasks import is_of_program
from callboard.topic import Topic

OURS: Final = "callboard."
Find = Callable[..., Any]
"""Finds the name in the arguments of a call."""


def _topic(topic: Topic, *_: Any, **__: Any) -> Any:
    return topic.name


def _of_producer(producer: Producer, *_: Any, **__: Any) -> Any:
    return producer._publisher.live.name


def _target(_: Any, topic: Any = None, *__: Any, **___: Any) -> Any:
    return topic if isinstance(topic, str) else getattr(topic, "name", None)


def _group(_: Any, group: Any = None, *__: Any, **___: Any) -> Any:
    return group


def _worked(_: Any, __: Any = None, group: Any = None, *___: Any, **____: Any) -> Any:
    return group


def _several_worked(_: Any, __: Any = None, ___: Any = None, group: Any = None, **____: Any) -> Any:
    return group


def _name(_: Any, name: Any = None, *__: Any, **___: Any) -> Any:
    return name


def _name_of(group: Group, *_: Any, **__: Any) -> Any:
    return group.name


def _letters(topic: DeadLetterTopic, *_: Any, **__: Any) -> Any:
    return topic._live.name


TOPICS: Final[tuple[tuple[type, str, Find], ...]] = (
    (Topic, "publish", _topic),
    (Topic, "publish_batch", _topic),
    (Producer, "publish", _of_producer),
    (Producer, "publish_batch", _of_producer),
    (ReceivedMessage, "publish", _target),
    (ReceivedBatch, "publish", _target),
    (DeadLetterTopic, "purge", _letters),
    (Runtime, "delete_topic", _name),
    (Runtime, "alter_topic", _name),
)
GROUPS: Final[tuple[tuple[type, str, Find], ...]] = (
    (Topic, "subscribe", _group),
    (Topic, "work", _worked),
    (Runtime, "subscribe", _worked),
    (Runtime, "work", _several_worked),
    *((Group, verb, _name_of) for verb in ("alter", "seek", "reset", "delete")),
)


@contextmanager
def unobserved_calls(unobserved: Unobserved) -> Iterator[None]:
    """Replace the methods while inside."""
    made = [(unobserved.topics, *call) for call in TOPICS] + [(unobserved.groups, *call) for call in GROUPS]
    originals = [(owner, name, vars(owner)[name]) for _, owner, name, _ in made]
    try:
        for names, owner, name, find in made:
            setattr(owner, name, _noting(getattr(owner, name), names, find))
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _noting(original: Any, names: set[str], find: Find) -> Any:
    @functools.wraps(original)
    def noting(*given: Any, **named: Any) -> Any:
        if _is_called_by_program(sys._getframe(1)):
            _note(names, find, given, named)
        return original(*given, **named)

    return noting


def _is_called_by_program(frame: FrameType | None) -> bool:
    """Whether the nearest frame is the program's that is neither trio's nor of a library by which one calls."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(OURS):
            return False
        if is_of_program(frame):
            return True
        frame = frame.f_back
    return False


def _note(names: set[str], find: Find, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    try:
        found = find(*given, **named)
    except TypeError:  # the call itself will refuse these arguments
        return
    if isinstance(found, str):
        names.add(found)
