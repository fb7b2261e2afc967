"""Arguments that several public methods take, as plain data: names, places in a directory, flags, seams.

Each raises `InvalidArgument`, or says that there is nothing of such a name, before anything is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from callboard.actors.names import check_not_own_group, no_group, no_topic
from callboard.log.errors import InvalidArgument
from callboard.log.plain import shown, text, whole


class PathLike(Protocol):
    """What `os.PathLike[str]` is."""

    def __fspath__(self) -> str: ...


def check_flag(what: str, given: object) -> bool:
    """True or False. Raises `InvalidArgument` for anything else."""
    if given is True or given is False:
        return given
    raise InvalidArgument(f"{what} is {shown(given, 40)}, neither True nor False. Nothing was done.")


def check_seams(disk: object, clock: object, entropy: object) -> None:
    """Raise `InvalidArgument` for what cannot stand in for a seam."""
    _check_seam("disk", disk, ("lock", "incarnate", "forget", "aclose"))
    _check_seam("clock", clock, ("monotonic", "wall_us"))
    _check_seam("entropy", entropy, ("random", "integer", "bytes"))


def _check_seam(what: str, given: object, methods: Sequence[str]) -> None:
    if given is None:
        return
    missing = []
    for name in methods:
        found = None
        with suppress(Exception):  # the caller's code
            found = getattr(given, name, None)
        if not callable(found):
            missing.append(name)
    if missing:
        raise InvalidArgument(
            f"{what} is {shown(given)}, which has no {' and no '.join(missing)}. Nothing was opened. Give a {what} as"
            f" callboard.{what.capitalize()} describes it, or none."
        )


def seed_of(seed: object) -> int | None:
    """A number that fixes the randomness of a runtime, or None."""
    found = whole(seed)
    if seed is not None and found is None:
        raise InvalidArgument(f"seed is {shown(seed)}, not a whole number. Nothing was opened.")
    return found


def part_of(group: str, topic: object, partition: object) -> tuple[str | None, int | None]:
    """A topic and a partition that a group may read; None stands for all."""
    word, index = text(topic), whole(partition)
    if topic is not None and word is None:
        raise InvalidArgument(f"group {group!r} reads no topic {shown(topic)}. Nothing was changed.")
    if partition is not None and index is None:
        raise InvalidArgument(f"group {group!r} reads no partition {shown(partition)}. Nothing was changed.")
    return word, index


def path_of(directory: object) -> str | None:
    """The directory's name; None for what is none."""
    fspath = getattr(type(directory), "__fspath__", None)
    if fspath is not None:
        with suppress(Exception):  # the caller's code
            directory = fspath(directory)
    path = text(directory)
    return path if path and "\0" not in path else None


def topic_name(name: object) -> str:
    """The name of a topic that exists, or none is said to."""
    found = text(name)
    if found is None:
        raise no_topic(name, ())
    return found


def group_name(name: object) -> str:
    """The name of a group that exists, or none is said to."""
    found = text(name)
    if found is None:
        raise no_group(name, ())
    return found


def actor_path(path: object) -> str:
    """The path of an actor."""
    found = text(path)
    if found is None:
        raise InvalidArgument(f"There is no actor at {shown(path)}. `tree()` shows the actors that exist.")
    return found


def changed_group(name: object) -> str:
    """The name of a group that may be changed."""
    check_not_own_group(name)
    return group_name(name)
