"""`Runtime.subscribe` and `Runtime.work`: reading several topics, by their names, or all that match a pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Never, Unpack, cast, overload

import trio

from callboard.actors.names import check_name, check_not_own_group
from callboard.actors.settings import GroupOptions
from callboard.actors.topic_patterns import MANY, ONE, TopicPattern, check_pattern
from callboard.consumer.work import GRACE_S, Handler, Working, check_settings_of_work
from callboard.log.errors import InvalidArgument
from callboard.log.limits import TOPICS_MAX
from callboard.log.plain import items, refuse_copy, shown, text

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveTopic
    from callboard.consumer.consumer import Consumer


class ReadsTopics:
    """The part of a runtime that consumes."""

    __reduce_ex__ = refuse_copy

    if TYPE_CHECKING:

        def check_open(self) -> None: ...
        def _live(self, name: str) -> LiveTopic: ...
        def _consumer(
            self,
            lives: Sequence[LiveTopic],
            group: str,
            settings: GroupOptions,
            name: str | None,
            pattern: TopicPattern | None,
        ) -> Consumer: ...

    @overload
    def subscribe(
        self, topics: Sequence[str], group: str, *, name: str | None = None, **settings: Unpack[GroupOptions]
    ) -> Consumer: ...
    @overload
    def subscribe(
        self,
        *,
        pattern: str,
        group: str,
        dead_letters: bool = False,
        name: str | None = None,
        **settings: Unpack[GroupOptions],
    ) -> Consumer: ...
    def subscribe(
        self,
        topics: Sequence[str] | None = None,
        group: str | None = None,
        *,
        pattern: str | None = None,
        dead_letters: bool = False,
        name: str | None = None,
        **settings: Unpack[GroupOptions],
    ) -> Consumer:
        """A consumer of several topics in a group: `async with runtime.subscribe(["orders", "refunds"], "billing")`.

        Topics take turns; `topic` of a message or batch tells which it is from. `name` and settings as in
        `Topic.subscribe`. When one of the topics is deleted, `TopicNotFound` is raised once where the consumer meets
        that, and the consumer goes on with the others when it is asked again.

        With a `pattern`, `runtime.subscribe(pattern="orders.*", group="billing")`, the group reads all topics whose
        names match: `*` stands for any characters, `?` for one. Its consumers take up new topics that match, from their
        beginning, and leave deleted ones without a word. Topics for dead letters match only with `dead_letters`.

        Raises `TopicNotFound`, and `InvalidArgument` for anything but a sequence of different names, or a pattern.
        """
        self.check_open()
        lives, wanted = read_topics(self._live, topics, pattern, dead_letters)
        return self._consumer(lives, _check_group(group), settings, name, wanted)

    @overload
    async def work(
        self,
        topics: Sequence[str],
        handler: Handler,
        group: str,
        *,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never: ...
    @overload
    async def work(
        self,
        *,
        pattern: str,
        handler: Handler,
        group: str,
        dead_letters: bool = False,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never: ...
    async def work(
        self,
        topics: Sequence[str] | None = None,
        handler: Handler | None = None,
        group: str | None = None,
        *,
        pattern: str | None = None,
        dead_letters: bool = False,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never:
        """As `Topic.work`, for messages of several topics, or of a `pattern` as in `subscribe`.

        A named topic that is deleted is left out; the last one ends it.
        """
        self.check_open()
        check_settings_of_work(settings)
        lives, wanted = read_topics(self._live, topics, pattern, dead_letters)
        consumer = self._consumer(lives, _check_group(group), settings, name, wanted)
        await Working(consumer, cast("Handler", handler), concurrency, grace).run(task_status)


def _check_group(group: str | None) -> str:
    if group is None:
        raise InvalidArgument('no group is named. Nothing was done. Name one: group="billing".')
    check_not_own_group(group)
    return check_name(group, "group")


def read_topics(
    find: Callable[[str], LiveTopic], topics: Any, pattern: object, dead_letters: object
) -> tuple[list[LiveTopic], TopicPattern | None]:
    """The topics that are named, or none and the pattern. Raises `TopicNotFound`, `InvalidArgument`."""
    if pattern is not None:
        if topics is not None:
            raise InvalidArgument("topics and a pattern are named: name one or the other. Nothing was done.")
        return [], check_pattern(pattern, dead_letters)
    if dead_letters is not False:
        raise InvalidArgument(
            "dead_letters is for a pattern: topics that are named are read, whatever they are for. Nothing was done."
        )
    word = text(topics)
    if word is not None and (MANY in word or ONE in word):
        raise InvalidArgument(f"topics are {shown(topics, 80)}: did you mean pattern={shown(topics, 80)}?")
    found = items(topics, TOPICS_MAX)
    names = [name for name in map(text, found or ()) if name is not None]
    if not found or len(names) < len(found):
        raise InvalidArgument(
            f'topics are {shown(topics, 80)}, not a sequence of names such as ["orders", "refunds"], nor is there a'
            " pattern."
        )
    lives = [find(name) for name in names]
    if len(set(names)) < len(names):
        raise InvalidArgument(f"topics {shown(names, 80)} name one more than once. Name each once.")
    return lives, None
