"""Dead letters: the messages of a group that were rejected or failed too often, where their partitions keep them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from callboard.actors.catalog.commands import ListGroups
from callboard.actors.clients.port import PartitionPort
from callboard.actors.delivery.dead_letters import StoredLetter
from callboard.actors.kernel import Question
from callboard.actors.names import check_name
from callboard.actors.partition.commands import ForgetDead, ListDead, Read
from callboard.arguments import check_flag
from callboard.asking import ask_again
from callboard.dead_letters.reasons import ReasonCounts
from callboard.log.errors import GroupNotFound, InvalidArgument
from callboard.log.limits import OFFSET_MAX, READ_BYTES_DEFAULT
from callboard.log.plain import is_a, is_plain_function, refuse_copy, shown, whole
from callboard.log.seams.clock import wall_offset
from callboard.message import Record, from_us

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic
    from callboard.session import Session


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that a group has given up on, and why."""

    topic: str
    partition: int
    offset: int
    group: str
    number: int
    """Of the dead letters of the group in the partition, in the order in which they failed."""
    attempts: int
    """How often it was delivered and failed."""
    failed_at: datetime
    """When it failed last, or was found expired."""
    first_failed_at: datetime | None
    """When it failed first; None when that is not known."""
    consumer_id: int | None
    """The id of the consumer that it failed in last; None when that is not known."""
    consumer_name: str | None
    """Its name; None when it had none, or that is not known."""
    consumers: tuple[str, ...]
    """All that it failed in, the first eight: their names, or the ids of those that had none."""
    reason: str | None
    """What was given to `reject` or `nack`, or what ended the last attempt; "expired" for one that expired."""
    record: Record | None
    """The message; None when it was dropped (`drop_unread`) or damaged."""
    numbering: int = attrs.field(default=0, repr=False)
    """Which count `number` is of: another one begins when the delivery journal of a partition was lost."""


def check_limit(limit: object) -> int | None:
    """How many messages at most, as plain data. Raises `InvalidArgument`."""
    found = whole(limit)
    if limit is not None and (found is None or found < 1):
        raise InvalidArgument(
            f"limit is {shown(limit, 40)}, not a number of messages from 1 on. Nothing was done."
        )
    return None if found is None else min(found, OFFSET_MAX)


def check_choose(choose: object) -> None:
    """Raise `InvalidArgument` unless this can choose dead letters. What a coroutine function returns is always true."""
    if choose is not None and not is_plain_function(choose):
        raise InvalidArgument(
            f"choose is {shown(choose, 40)}, not a plain function of one dead letter. Nothing was done. Give one that"
            " returns whether a letter is chosen, and does not wait."
        )


def check_drops(drop_dead_letters: bool) -> bool:
    """Raise `InvalidArgument` unless this says whether dead letters may be dropped."""
    if type(drop_dead_letters) is not bool:
        raise InvalidArgument(
            f"drop_dead_letters is {shown(drop_dead_letters, 40)}, neither True nor False. Nothing was deleted."
        )
    return drop_dead_letters


Chooses = Callable[[DeadLetter], bool]
LISTED_AT_ONCE: Final = 100

A = TypeVar("A")


class KeptLetters:
    """The dead letters that the partitions of one topic keep of one group."""

    __reduce_ex__ = refuse_copy

    def __init__(self, session: Session, live: MirroredTopic, group: str) -> None:
        self._session = session
        self._live = live
        self._group = check_name(group, "group")

    async def list(
        self, choose: Chooses | None = None, *, limit: int | None = None
    ) -> tuple[DeadLetter, ...]:
        """Those that `choose` returns True for, or all, partition by partition, in the order of failure; with a limit
        the first of them. What it returns is synced.
        """
        limit = check_limit(limit)
        check_choose(choose)
        found: list[DeadLetter] = []

        async def keep(port: PartitionPort, stored: StoredLetter) -> bool:
            letter = await self._with_record(port, stored)
            if choose is None or choose(letter):
                found.append(letter)
            return len(found) != limit

        await self._each(keep)
        return tuple(found)

    async def count(self, choose: Chooses | None = None, *, full: bool = False) -> dict[str | None, int]:
        """How many there are by reason, the most frequent first; counted as in `DeadLetterTopic.count`."""
        check_choose(choose)
        counts = ReasonCounts(full=check_flag("full", full))

        async def note(port: PartitionPort, stored: StoredLetter) -> bool:
            if choose is None or choose(await self._with_record(port, stored)):
                counts.add(stored.reason)
            return True

        await self._each(note)
        return counts.counts()

    async def _each(self, visit: Callable[[PartitionPort, StoredLetter], Awaitable[bool]]) -> None:
        """Visit all, partition by partition, until `visit` returns False."""
        group_id = await self._group_id()
        for port in self._live.ports:
            above, listed = -1, LISTED_AT_ONCE
            while listed == LISTED_AT_ONCE:
                letters: list[StoredLetter] = await self._ask(port, ListDead(group_id, LISTED_AT_ONCE, above))
                for letter in letters:
                    if not await visit(port, letter):
                        return
                    above = letter.number
                listed = len(letters)

    async def forget(self, letter: DeadLetter) -> int:
        """Forget a dead letter and those before it in its partition; returns how many, once that is synced."""
        if not is_a(letter, DeadLetter):
            raise InvalidArgument(
                f"letter is {shown(letter, 40)}, not a dead letter as `list` returns them. Nothing was forgotten."
            )
        if letter.topic != self._live.name or letter.group != self._group:
            raise InvalidArgument(
                f"the dead letter is of group {letter.group!r} in {letter.topic!r}, not of {self._group!r} in"
                f" {self._live.name!r}. Nothing was forgotten."
            )
        port = self._live.ports[letter.partition]
        forget = ForgetDead(await self._group_id(), letter.number + 1, letter.numbering)
        count: int = await self._ask(port, forget)
        return count

    async def _group_id(self) -> int:
        for record in await self._session.ask_catalog(ListGroups()):
            if record.name == self._group and self._live.topic_id in record.topic_ids:
                found: int = record.group_id
                return found
        raise GroupNotFound(
            f"there is no group {self._group!r} of topic {self._live.name!r}. `groups()`, and `callboard group list`,"
            " tell which there are.",
            group=self._group,
        )

    async def _with_record(self, port: PartitionPort, letter: StoredLetter) -> DeadLetter:
        record = None
        answer = await self._ask(port, Read(letter.offset, 1, READ_BYTES_DEFAULT))
        for columns in () if answer is None else answer[0]:
            index = columns.index_at(letter.offset)
            if record is None and index < columns.count and columns.offset(index) == letter.offset:
                record = Record(port.topic, port.index, columns, index)
        return DeadLetter(
            topic=port.topic,
            partition=port.index,
            offset=letter.offset,
            group=self._group,
            number=letter.number,
            attempts=letter.attempts,
            failed_at=self._instant(letter.failed_at),
            first_failed_at=None if letter.first_failed_at is None else self._instant(letter.first_failed_at),
            consumer_id=letter.consumer,
            consumer_name=letter.name,
            consumers=letter.consumers,
            reason=letter.reason,
            record=record,
            numbering=letter.numbering,
        )

    def _instant(self, monotonic_s: float) -> datetime:
        return from_us(round((monotonic_s + wall_offset(self._session.clock)) * 1e6))

    async def _ask(self, port: PartitionPort, command: Question[A]) -> A:
        self._session.check_open()
        return await ask_again(port.ref, command, f"dead letters of {port.label}")
