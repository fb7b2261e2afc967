"""The verbs of the control socket: all that a client can ask for, and how that is answered.

`VERBS` is the one table: a verb is a function of the runtime. Its keyword arguments are what a request gives, as text;
those with a default may be left out. Its docstring says what it results in, which is sent as plain data (`plain`).

A flag is "yes" or empty. `settings` are a JSON object. `to` is "beginning", "end", an offset, an instant in ISO 8601,
or empty for where the group began. An empty `topic` or `partition` means all, an empty `limit` means no limit.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, Unpack

import attrs

from callboard.actors.kernel import Logged
from callboard.actors.settings import (
    GROUP_FIELDS,
    TOPIC_FIELDS,
    Start,
    TopicChanges,
    TopicOptions,
    check,
)
from callboard.control import dead_letters
from callboard.control.dead_letters import LetterChoice
from callboard.control.delayed import page_behind, parse_ids, plain_delayed
from callboard.control.plain import plain
from callboard.control.schedules import find_schedule, plain_schedule, settings_of_text
from callboard.dead_letters.topics import DeadLetterTopic
from callboard.group import Group
from callboard.log.errors import ControlError, InvalidArgument
from callboard.message import parse_instant
from callboard.publishing.schedules import Schedule
from callboard.reports.figures import GroupInfo
from callboard.supervision import TreeNode
from callboard.topic import Topic

VERSION: Final = 1
"""Of the protocol."""


class Controlled(Protocol):
    """What a control socket shows and steers: an open runtime."""

    @property
    def directory(self) -> str:
        """Where the socket is made."""

    def tree(self) -> TreeNode:
        """The live tree."""

    def events(self) -> Sequence[Logged]:
        """What happened lately."""

    def topic(self, name: str) -> Topic:
        """The topic of that name."""

    def topics(self) -> Sequence[Topic]:
        """All topics."""

    async def create_topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """Create a topic, unless it is there with these settings."""

    async def alter_topic(self, name: str, **settings: Unpack[TopicChanges]) -> Topic:
        """Change settings of a topic."""

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""

    def dead_letters(self, topic: str) -> DeadLetterTopic:
        """What was forwarded to a topic."""

    def schedules(self) -> Sequence[Schedule]:
        """The recurring publishes of all topics."""

    async def groups(self) -> Sequence[GroupInfo]:
        """All groups."""

    async def stats(self) -> Any:
        """Everything countable, as attrs values."""

    async def restart(self, path: str) -> None:
        """Restart the actor at `path`."""

    def group(self, name: str) -> Group:
        """A group by its name."""


# -- the runtime


async def _ping(_: Controlled) -> int:
    """The protocol's version."""
    return VERSION


async def _tree(runtime: Controlled) -> TreeNode:
    """The live tree."""
    return runtime.tree()


async def _stats(runtime: Controlled) -> Any:
    """Offsets, sizes and states of partitions and groups."""
    return await runtime.stats()


async def _events(runtime: Controlled) -> Any:
    """What happened lately."""
    return [
        {"wall_us": logged.wall_us, "kind": type(logged.event).__name__, **_event_fields(logged.event)}
        for logged in runtime.events()
    ]


def _event_fields(event: object) -> dict[str, Any]:
    fields = plain(event) if attrs.has(type(event)) else {"text": str(event)}
    return fields if isinstance(fields, dict) else {}


async def _restart(runtime: Controlled, *, path: str) -> None:
    """None, once the actor was restarted."""
    await runtime.restart(path)


# -- topics


async def _describe(runtime: Controlled, *, topic: str) -> Any:
    """A topic's settings and partitions."""
    found = runtime.topic(topic)
    return {
        "name": found.name,
        "topic_id": found.topic_id,
        "settings": found.settings,
        "partitions": await found.describe(),
    }


async def _create_topic(runtime: Controlled, *, name: str, settings: str) -> Any:
    """Its settings, and whether it is new."""
    given = parse_changes("topic", name, settings)
    is_new = all(each.name != name for each in runtime.topics())
    created = await runtime.create_topic(name, **given)
    return {"settings": created.settings, "created": is_new}


async def _alter_topic(runtime: Controlled, *, topic: str, settings: str) -> Any:
    """All settings of the topic."""
    return (await runtime.alter_topic(topic, **parse_changes("topic", topic, settings))).settings


async def _delete_topic(runtime: Controlled, *, topic: str) -> None:
    """None, once its files are gone."""
    await runtime.delete_topic(topic)


# -- groups


async def _describe_group(runtime: Controlled, *, group: str) -> Any:
    """A group's members and places."""
    return await runtime.group(group).describe()


async def _seek_group(runtime: Controlled, *, group: str, to: str, topic: str, partition: str) -> Any:
    """Where the group is now, partition by partition."""
    handle, index = runtime.group(group), parse_partition(partition)
    if to:
        sought = await handle.seek(parse_place(to), topic=topic or None, partition=index)
    else:
        sought = await handle.reset(topic=topic or None, partition=index)
    return [
        {"topic": name, "partition": number, "offset": offset}
        for (name, number), offset in sorted(sought.items())
    ]


async def _alter_group(runtime: Controlled, *, group: str, settings: str) -> Any:
    """All settings of the group."""
    return await runtime.group(group).alter(**parse_changes("group", group, settings))


async def _delete_group(runtime: Controlled, *, group: str, drop_dead_letters: str = "") -> None:
    """None, once it is forgotten."""
    await runtime.group(group).delete(drop_dead_letters=drop_dead_letters == "yes")


# -- dead letters


async def _list_dead(runtime: Controlled, choice: LetterChoice, *, limit: str) -> Any:
    """Dead letters in a topic."""
    return await dead_letters.list_forwarded(runtime.dead_letters(choice.topic), choice, limit)


async def _count_dead(runtime: Controlled, choice: LetterChoice, *, full: str = "") -> Any:
    """How many there are, by group and reason."""
    return await dead_letters.count_forwarded(runtime.dead_letters(choice.topic), choice, full=full == "yes")


async def _list_kept(runtime: Controlled, choice: LetterChoice, *, limit: str) -> Any:
    """What partitions of a topic keep, group by group."""
    return await dead_letters.list_kept(runtime.topic(choice.topic), await runtime.groups(), choice, limit)


async def _count_kept(runtime: Controlled, choice: LetterChoice, *, full: str = "") -> Any:
    """How many that are, group by group, by reason."""
    topic, groups = runtime.topic(choice.topic), await runtime.groups()
    return await dead_letters.count_kept(topic, groups, choice, full=full == "yes")


async def _ends_of_dead(runtime: Controlled, *, topic: str) -> Any:
    """Where each partition of it ends now."""
    return await dead_letters.ends_of(runtime.dead_letters(topic))


async def _redrive_dead(
    runtime: Controlled,
    choice: LetterChoice,
    *,
    to: str,
    limit: str,
    rate: str,
    dry_run: str,
    below: str = "",
) -> Any:
    """How many were redriven, and passed over. With `below`, what `ends_of_dead` returned, newer ones are left out."""
    letters = dead_letters.letters_in(runtime.dead_letters(choice.topic), below)
    return await letters.redrive(
        choice.chooses(),
        to=to or None,
        limit=dead_letters.whole_number(limit, "limit"),
        rate=dead_letters.parse_rate(rate),
        dry_run=dry_run == "yes",
    )


async def _purge_dead(runtime: Controlled, choice: LetterChoice, *, limit: str, below: str = "") -> int:
    """How many were purged; `below` as above."""
    letters = dead_letters.letters_in(runtime.dead_letters(choice.topic), below)
    return await letters.purge(choice.chooses(), limit=dead_letters.whole_number(limit, "limit"))


# -- recurring publishes and delayed messages


async def _schedules(runtime: Controlled, *, topic: str) -> Any:
    """The recurring publishes of a topic, or of all."""
    found = runtime.topic(topic).schedules() if topic else runtime.schedules()
    return [plain_schedule(each) for each in found]


async def _add_schedule(runtime: Controlled, *, topic: str, name: str, settings: str) -> Any:
    """The recurring publish, made from what `settings_text` has written."""
    return plain_schedule(await runtime.topic(topic).schedule(name, **settings_of_text(settings)))


async def _change_schedule(runtime: Controlled, *, topic: str, name: str, change: str) -> None:
    """None, once it is synced; `change` is "pause", "resume" or "remove"."""
    schedule = find_schedule(runtime.topic(topic).schedules(), topic, name)
    match change:
        case "pause":
            await schedule.pause()
        case "resume":
            await schedule.resume()
        case "remove":
            await schedule.remove()
        case _:
            raise InvalidArgument(f"{change!r:.40} is no change of a schedule. Nothing was changed.")


async def _next_due(runtime: Controlled, *, topic: str, name: str, count: str) -> Any:
    """Instants, `count` at most."""
    return find_schedule(runtime.topic(topic).schedules(), topic, name).next(parse_count(count))


async def _list_delayed(runtime: Controlled, *, topic: str, count: str) -> Any:
    """The delayed messages that are due first, `count` at most."""
    return [
        plain_delayed(each) for each in await runtime.topic(topic).delayed().next(limit=parse_count(count))
    ]


async def _page_delayed(runtime: Controlled, *, topic: str, after: str, count: str) -> Any:
    """Those behind a partition and an id, as published."""
    return [
        plain_delayed(each) for each in await page_behind(runtime.topic(topic), after, parse_count(count))
    ]


async def _count_delayed(runtime: Controlled, *, topic: str) -> int:
    """How many wait."""
    return await runtime.topic(topic).delayed().count()


async def _cancel_delayed(runtime: Controlled, *, topic: str, partition: str, ids: str) -> Any:
    """Ids of those that waited until then; `ids` are numbers with spaces between."""
    return await runtime.topic(topic).delayed().cancel_ids(parse_count(partition), parse_ids(ids))


# -- the table


@attrs.frozen
class Verb:
    """What a client can ask for."""

    answer: Callable[..., Awaitable[object]]
    changes: bool = False
    """Whether it does more than look."""

    def split(self, given: Mapping[Any, Any]) -> tuple[list[object], dict[str, str]] | None:
        """The arguments of a request as `answer` takes them, by place and by keyword; None when they are others."""
        wanted, may_lack = self.arguments()
        is_complete = set(wanted) - may_lack <= given.keys() <= set(wanted)
        if not is_complete or not all(isinstance(value, str) for value in given.values()):
            return None
        chosen = {name: given[name] for name in given if self._chooses and name in LetterChoice.NAMES}
        rest = {name: value for name, value in given.items() if name not in chosen}
        return ([LetterChoice(**chosen)] if chosen else []), rest

    def arguments(self) -> tuple[list[str], set[str]]:
        """Their names, and those that a request may leave out."""
        parameters = inspect.signature(self.answer).parameters.values()
        named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
        may_lack = {each.name for each in named if each.default is not each.empty}
        chosen = LetterChoice.NAMES if self._chooses else ()
        return [*chosen, *(each.name for each in named)], may_lack | ({"at"} & set(chosen))

    @property
    def _chooses(self) -> bool:
        return "choice" in inspect.signature(self.answer).parameters


VERBS: Final[dict[str, Verb]] = {
    "ping": Verb(_ping),
    "tree": Verb(_tree),
    "stats": Verb(_stats),
    "events": Verb(_events),
    "restart": Verb(_restart, changes=True),
    "describe": Verb(_describe),
    "create_topic": Verb(_create_topic, changes=True),
    "alter_topic": Verb(_alter_topic, changes=True),
    "delete_topic": Verb(_delete_topic, changes=True),
    "describe_group": Verb(_describe_group),
    "seek_group": Verb(_seek_group, changes=True),
    "alter_group": Verb(_alter_group, changes=True),
    "delete_group": Verb(_delete_group, changes=True),
    "list_dead": Verb(_list_dead),
    "count_dead": Verb(_count_dead),
    "list_kept": Verb(_list_kept),
    "count_kept": Verb(_count_kept),
    "ends_of_dead": Verb(_ends_of_dead),
    "redrive_dead": Verb(_redrive_dead, changes=True),
    "purge_dead": Verb(_purge_dead, changes=True),
    "schedules": Verb(_schedules),
    "add_schedule": Verb(_add_schedule, changes=True),
    "change_schedule": Verb(_change_schedule, changes=True),
    "next_due": Verb(_next_due),
    "list_delayed": Verb(_list_delayed),
    "page_delayed": Verb(_page_delayed),
    "count_delayed": Verb(_count_delayed),
    "cancel_delayed": Verb(_cancel_delayed, changes=True),
}


async def answer(runtime: Controlled, verb: object, given: Mapping[Any, Any]) -> Any:
    """What a verb results in, as plain data.

    Raises `ControlError` for a verb or arguments that there are not, and what the runtime raises.
    """
    found = VERBS.get(verb) if isinstance(verb, str) else None
    if found is None:
        raise ControlError(f"unknown verb {verb!r:.40}; known are {', '.join(VERBS)}.")
    arguments = found.split(given)
    if arguments is None:
        raise ControlError(f"the arguments of {verb!r} are {found.arguments()[0] or 'none'}, as text.")
    by_place, by_keyword = arguments
    return plain(await found.answer(runtime, *by_place, **by_keyword))


def what_then(verb: str) -> str:
    """What to do about a request that was not answered."""
    if verb in VERBS and VERBS[verb].changes:
        return "It may have been done all the same: look before you try again."
    return "Try again."


# -- what arguments mean


def parse_place(text: str) -> Start:
    """Where to seek: "beginning", "end", an offset, or an instant in ISO 8601. Raises `InvalidArgument`."""
    if text in ("beginning", "end"):
        return text  # type: ignore[return-value]
    if is_negative(text):
        raise InvalidArgument(
            f"{text:.60} lies before the start: offsets begin at 0. Nothing was changed. Say beginning for the oldest"
            " message that is kept."
        )
    try:
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
        return parse_instant(text)
    except ValueError as error:
        raise InvalidArgument(
            f"{text!r:.60} is no place in a topic. Nothing was changed. Say beginning, end, an offset, or an instant"
            " such as 2026-05-01T12:00:00Z."
        ) from error


def is_negative(text: str) -> bool:
    """Whether it is a number below 0, as typed to go before the start, or back from the end."""
    return text.isascii() and text[:1] == "-" and text[1:].isdigit()


def parse_partition(text: str) -> int | None:
    """A partition's number; None for all. Raises `InvalidArgument`."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgument(f"{text!r:.60} is no partition. Nothing was changed.")
    return int(text)


def parse_changes(kind: Literal["group", "topic"], name: str, text: str) -> dict[str, Any]:
    """Settings of a group or topic, as a JSON object. Raises `InvalidArgument`, `ConfigurationError`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{text!r:.60} is no JSON object of settings. Nothing was changed.")
    check(kind, GROUP_FIELDS if kind == "group" else TOPIC_FIELDS, found, f"{kind} {name!r:.80}")
    return found


def parse_count(text: str) -> int:
    """A number of things. Raises `InvalidArgument`."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgument(f"{text!r:.60} is no number. Nothing was changed.")
    return int(text)
