"""Recurring publishes of a topic, as their users hold them: `topic.schedule(...)`, `topic.schedules()`."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final, Literal, cast

from callboard.actors.catalog.commands import AddSchedule, PauseSchedule, RemoveSchedule
from callboard.actors.names import check_name
from callboard.actors.partition.commands import Flush
from callboard.actors.recurring.commands import RECURRING, HearSchedules
from callboard.actors.recurring.spec import DUE, MISSED, SCHEDULE, Cron, ScheduleSpec, check_cron
from callboard.asking import ask_again
from callboard.log.errors import CallboardError, InvalidArgument, ScheduleNotFound
from callboard.log.format.columns import FOREVER
from callboard.log.limits import (
    HEADERS_COUNT_MAX,
    SCHEDULE_BYTES_MAX,
    SCHEDULE_EVERY_S_MAX,
    SCHEDULE_EVERY_S_MIN,
)
from callboard.log.plain import number, refuse_copy, shown, text, whole
from callboard.message import Headers, Message, check_headers, from_us, plain_headers
from callboard.publishing.partitioning import consistent
from callboard.publishing.publisher import publisher_of
from callboard.reports.figures import ScheduleStatistics, schedule_statistics

if TYPE_CHECKING:
    from callboard.actors.kernel import Question
    from callboard.actors.mirror import MirroredSchedule, MirroredTopic
    from callboard.session import Session

Missed = Literal["latest", "all", "skip"]
"""What becomes of firings that were missed: the latest comes, all of them do (at most 100), or none."""
NEXT_MAX: Final = 1000
"""Due instants that `Schedule.next` returns at most."""


class Schedule:
    """A recurring publish of a topic. Get one from `Topic.schedule`, `Topic.schedules` or `Runtime.schedules`."""

    __reduce_ex__ = refuse_copy

    def __init__(self, session: Session, live: MirroredSchedule) -> None:
        self._session = session
        self._live = live

    @property
    def name(self) -> str:
        """Its name; no other schedule of the topic has it."""
        return self._live.record.spec.name

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._live.port.topic

    @property
    def partition(self) -> int:
        """Where it publishes."""
        return self._live.record.spec.partition

    @property
    def cron(self) -> str | None:
        """The cron expression, in capitals; None with `every`."""
        return self._live.record.spec.cron

    @property
    def zone(self) -> str | None:
        """The time zone of `cron`."""
        return self._live.record.spec.zone

    @property
    def every(self) -> float | None:
        """How many seconds lie between due instants; None with `cron`."""
        every_us = self._live.record.spec.every_us
        return None if every_us is None else every_us / 1e6

    @property
    def missed(self) -> Missed:
        """What becomes of firings that were missed."""
        return cast("Missed", self._live.record.spec.missed)

    @property
    def value(self) -> bytes:
        """What it publishes."""
        return self._live.record.spec.value

    @property
    def key(self) -> bytes | None:
        """The key of what it publishes."""
        return self._live.record.spec.key

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of what it publishes, without those that tell the schedule and the due instant."""
        return dict(self._live.record.spec.headers)

    @property
    def ttl(self) -> float | None:
        """How many seconds after it came a message expires; None: as the topic says."""
        ttl_us = self._live.record.spec.ttl_us
        return None if ttl_us is None else math.inf if ttl_us == FOREVER else ttl_us / 1e6

    @property
    def priority(self) -> int | None:
        """The priority of what it publishes."""
        stored = self._live.record.spec.priority
        return None if stored is None else stored - 1

    @property
    def created(self) -> datetime:
        """When it was made."""
        return from_us(self._live.record.created_us)

    @property
    def is_paused(self) -> bool:
        """Whether the schedule is paused."""
        return self._live.record.is_paused

    def __repr__(self) -> str:
        when = f"cron={self.cron!r}, zone={self.zone!r}" if self.every is None else f"every={self.every:g}"
        return f"<Schedule {self.name!r} of topic {self.topic!r}, {when}>"

    def statistics(self) -> ScheduleStatistics:
        """What it has done, when it is due next, and why a firing waits."""
        self._check()
        return schedule_statistics(self._live, self._session.load_zone)

    def next(self, count: int = 5) -> tuple[datetime, ...]:
        """The next due instants from now on, in the schedule's zone, also while it is paused. Raises `InvalidArgument`.

        Of a schedule that waits until the wall clock, which was set back, has passed what was published: from there on.
        """
        most = whole(count)
        if most is None or not 1 <= most <= NEXT_MAX:
            raise InvalidArgument(f"count is {shown(count, 40)}, not 1 to {NEXT_MAX}.")
        self._check()
        live = self._live
        fired_us = None if live.stands is None else live.stands.fired_us
        rule, at = live.rule(self._session.load_zone), max(self._session.clock.wall_us(), fired_us or 0)
        here: tzinfo = UTC if self.zone is None else self._session.load_zone(self.zone)
        found: list[datetime] = []
        while len(found) < most and (due := rule.after(at)) is not None:
            found.append(from_us(due).astimezone(here))
            at = due
        return tuple(found)

    async def pause(self) -> None:
        """Publish nothing until `resume`; due instants until then count for nothing.

        Returns when that is synced and no firing is on its way. Where the partition takes nothing now, one that it got
        before may still come. Raises `ScheduleNotFound`, `TopicNotFound`.
        """
        await self._change(PauseSchedule, is_paused=True)
        await self._drain()

    async def resume(self) -> None:
        """Go on with the first due instant from now on. Raises as `pause` does."""
        await self._change(PauseSchedule, is_paused=False)

    async def remove(self) -> None:
        """Remove it: what it published stays. Returns and raises as `pause` does."""
        await self._change(RemoveSchedule)
        await self._drain()

    async def _change(self, command: Callable[..., Question[None]], **change: bool) -> None:
        port = self._live.port
        self._check()
        await self._session.ask_catalog(command(port.topic, port.topic_id, self.name, **change))

    async def _drain(self) -> None:
        """Wait until the actor knows what the catalog has decided, and the partition has what it was sent before."""
        port, root = self._live.port, self._session.system.root
        with suppress(CallboardError):  # what has failed or ended publishes nothing
            if RECURRING in root:
                await ask_again(root.child(RECURRING), HearSchedules(), f"changing schedule {self.name!r}")
            if self._session.mirror.refusal(port) is None:
                await ask_again(port.ref, Flush(), f"changing schedule {self.name!r}")

    def _check(self) -> None:
        self._session.check_open()
        if self._live.is_over:
            raise _was_removed(self.name, self.topic)


def _was_removed(name: str, topic: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"schedule {name!r} of topic {topic!r} was removed. Nothing was changed.", topic=topic, schedule=name
    )


async def add_schedule(
    session: Session,
    live: MirroredTopic,
    name: str,
    *,
    value: bytes,
    cron: str | None,
    zone: str | None,
    every: float | None,
    missed: str,
    key: bytes | None,
    headers: Headers | None,
    ttl: float | None,
    priority: int | None,
    partition: int | None,
) -> Schedule:
    """See `Topic.schedule`. Everything is checked before the catalog is asked."""
    name, word = check_name(name, "schedule"), text(missed)
    every_us = _check_times(session, cron, zone, every)
    if word not in MISSED:
        raise InvalidArgument(
            f'missed is {shown(missed, 40)}, and it is "latest", "all" or "skip". Nothing was changed.'
        )
    if headers is not None:
        headers = plain_headers(headers)
        _check_headers(headers)
    if key is None and partition is None:
        partition = consistent(name.encode(), len(live.ports))
    publisher, message = publisher_of(session, live), Message(value, key, headers, ttl=ttl, priority=priority)
    part = publisher.part_of(message, publisher.checked(message), partition)
    columns = part.columns
    if columns.size_bytes > SCHEDULE_BYTES_MAX:
        raise InvalidArgument(
            f"the message of schedule {name!r} has {columns.size_bytes} bytes with its key and headers, and"
            f" {SCHEDULE_BYTES_MAX} are allowed: all schedules are kept in memory. Nothing was changed. Publish the"
            " name of what is larger."
        )
    spec = ScheduleSpec(
        name=name,
        value=columns.value(0) or b"",
        partition=part.port.index,
        cron=None if cron is None else check_cron(cron),
        zone=None if cron is None else text(zone) or "UTC",
        every_us=every_us,
        missed=word,
        key=columns.key(0),
        headers=columns.headers(0),
        ttl_us=None if columns.ttls is None else columns.ttls[0],
        priority=columns.priority(0) or None,
    )
    schedule_id = await session.ask_catalog(AddSchedule(live.name, live.topic_id, spec))
    found = session.schedules_of(live.topic_id)
    made = next((each for each in found if each.record.schedule_id == schedule_id), None)
    if made is None:
        raise _was_removed(name, live.name)
    return Schedule(session, made)


def _check_times(session: Session, cron: str | None, zone: str | None, every: float | None) -> int | None:
    """`every` in microseconds. Raises `InvalidArgument` for what says not, or not clearly, when the schedule is due."""
    if (cron is None) == (every is None):
        raise InvalidArgument(
            "a schedule has cron or every, and either says when it is due. Nothing was changed. Give one."
        )
    if every is None:
        Cron(check_cron(cron), session.load_zone("UTC" if zone is None else zone))
        return None
    seconds = number(every)
    if seconds is None or not SCHEDULE_EVERY_S_MIN <= seconds <= SCHEDULE_EVERY_S_MAX:
        raise InvalidArgument(
            f"every is {shown(every, 40)}, not seconds from {SCHEDULE_EVERY_S_MIN:g} to {SCHEDULE_EVERY_S_MAX:g} (100"
            " years). Nothing was changed."
        )
    if zone is not None:
        raise InvalidArgument(
            "a schedule has every and a zone, and seconds are as long in all zones. Nothing was changed. Leave the zone"
            " out, or use cron."
        )
    return round(seconds * 1_000_000)


def _check_headers(names: Headers) -> None:
    check_headers(names)
    if len(names) > HEADERS_COUNT_MAX - 2 or SCHEDULE in names or DUE in names:
        raise InvalidArgument(
            f"a recurring message may have {HEADERS_COUNT_MAX - 2} headers, and none named {SCHEDULE!r} or {DUE!r}:"
            " it gets these by itself. Nothing was changed."
        )
