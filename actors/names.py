"""Names of topics and groups: what is accepted, and why the rest is not; how partitions are named.

A name becomes a word in paths of the actor tree, in messages and on command lines, and two names that differ only in
case would collide in many tools, so the rules are those of a portable file name. Dots are fine: they separate the
words that patterns will match later (`orders.eu.retail`).
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Final

from callboard.log.errors import GroupNotFound, InvalidArgument, TopicNotFound, TopicReadOnly
from callboard.log.limits import NAME_BYTES_MAX, NAMES_COMPARED_MAX
from callboard.log.plain import kind, shown, text

OWN: Final = "callboard."
"""What the names of the broker's own topics and groups begin with: programs make none."""
HANDLED: Final = "callboard.handled"
"""The broker's own group in which dead letters that were redriven or purged are settled."""
OWN_GROUPS: Final = frozenset({HANDLED})
FORBIDDEN: Final = frozenset('/\\:*?"<>|\0')


def label_of(topic: str, index: int, holds: str) -> str:
    """How messages name a partition: `orders/2`, and one that `holds` something besides, `orders/2 (delayed)`."""
    return f"{topic}/{index} ({holds})" if holds else f"{topic}/{index}"


def name_problem(name: object) -> str | None:
    """Why `name` cannot be the name of a topic or group; None when it can."""
    given, name = name, text(name)
    if name is None:
        return f"it is {kind(given)}, not str"
    if not name:
        return "it is empty"
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        return "it holds a lone surrogate, which has no UTF-8 form"
    if len(encoded) > NAME_BYTES_MAX:
        return f"it takes {len(encoded)} bytes of UTF-8, and {NAME_BYTES_MAX} are allowed"
    for character in name:
        if character in FORBIDDEN:
            return f"it holds {character!r}, which is not portable in file names"
        if character.isspace() or unicodedata.category(character).startswith("C"):
            return f"it holds {character!r}: white space and control characters are not allowed"
    if any(part == "" for part in name.split(".")):
        return "a part between dots is empty (leading, trailing or double dot)"
    if name.startswith("-"):
        return "it starts with '-', which command lines take for an option"
    return None


def check_name(name: object, what: str) -> str:
    """The name as plain text, or `InvalidArgument` saying what is wrong with this `what` ("topic", "group")."""
    problem, found = name_problem(name), text(name)
    if problem is not None or found is None:
        raise InvalidArgument(
            f"{shown(name, 80)} cannot be the name of a {what}: {problem}. Nothing was written; choose another name.",
            name=found,
        )
    return found


def check_not_own(name: str, what: str) -> None:
    """Raise `InvalidArgument` for the name of a new topic or group that would look like the broker's own."""
    if name.startswith(OWN) and not (what == "group" and name in OWN_GROUPS):
        raise InvalidArgument(
            f"{shown(name, 80)} cannot be the name of a {what}: names that begin with {OWN!r} are the broker's own."
            " Nothing was written; choose another name.",
            name=name,
        )


def check_not_own_group(name: object) -> None:
    """Raise `InvalidArgument` for a group of the broker's own, which programs neither read in nor change."""
    name = text(name)
    if name in OWN_GROUPS:
        raise InvalidArgument(
            f"{name!r} is a group of the broker's own: it holds which dead letters were redriven or purged, and"
            " without it they would come back. Nothing was changed; name another group.",
            name=name,
        )


def folded(name: str) -> str:
    """The form under which two names collide on disks that ignore case or normalise Unicode."""
    return unicodedata.normalize("NFC", name).casefold()


def meant(given: object, known: Iterable[str], later: Iterable[str] = ()) -> str:
    """What `given` may be a misspelling of, in words; `later` are the words of later versions."""
    later = frozenset(later)
    compared = [*islice(known, NAMES_COMPARED_MAX), *sorted(later)]
    word = text(given)
    near = [] if word is None else difflib.get_close_matches(word, compared, n=1)
    if not near:
        return ""
    return f" (did you mean {near[0]!r}{', which is not in this version' if near[0] in later else ''}?)"


def no_topic(name: object, known: Iterable[str]) -> TopicNotFound:
    """The error for a topic that is none of the known ones."""
    return TopicNotFound(
        f"there is no topic {shown(name, 300)}{meant(name, known)}. Create it with create_topic.",
        topic=text(name),
    )


def topic_read_only(name: str) -> TopicReadOnly:
    """The error for a publish to a topic that takes none."""
    return TopicReadOnly(
        f"topic {name!r} is read-only. Nothing was written. Publish elsewhere, or have it take messages again:"
        f" runtime.alter_topic({name!r}, read_only=False).",
        topic=name,
    )


def no_group(name: object, known: Iterable[str]) -> GroupNotFound:
    """The error for a group that is none of the known ones."""
    return GroupNotFound(
        f"there is no group {shown(name, 300)}{meant(name, known)}. A group begins with its first consumer;"
        " `groups()`, and `callboard group list`, tell which there are.",
        group=text(name),
    )
