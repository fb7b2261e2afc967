"""Would today's handler have done? What was published is delivered to it again, and held against how it went then.

The records of a topic are copied, and published at their pace into a topic of a new directory, with the settings of
the topic and of the group. A handler takes them there through `work`. Then both directories are read in the same way
(`figures`): so what is compared is what the journals say of then, and what they say of now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import attrs
import trio

from callboard.actors.catalog.commands import GroupRecord, TopicRecord
from callboard.actors.settings import GroupSettings, TopicSettings
from callboard.actors.source_ids import FOR_GROUP
from callboard.consumer.handler_calls import Handler
from callboard.log.errors import GroupNotFound, InvalidArgument
from callboard.log.format.columns import Columns
from callboard.offline import OfflineDirectory, files_below, recording_at
from callboard.recordings.copying import joined
from callboard.recordings.reader import LogBatches
from callboard.recordings.tally import times_of
from callboard.recordings.writer import new_recording
from callboard.replay import replay
from callboard.replay.pacing import MAX_SPEED
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.workload.figures import CAUSES, Figures, figures_of

DEAD_NAME: Final = "rehearsal.dlq"
NEW: Final = frozenset({"start", "durable"})
"""What a new group has of its own: it is durable, and begins at the beginning."""
LOOK_EVERY_S: Final = 0.05
GRACE_S: Final = 2.0
"""A handler that is under way when a rehearsal is interrupted has so long: nothing is kept of what it does then."""
WORSE: Final = 1.1
"""A latency or a lag is worse when it is this many times what it was."""
LATENCY_LEAST_US: Final = 5_000
"""and longer by so much; less is the machine."""
LAG_LEAST: Final = 10


@attrs.frozen(kw_only=True)
class Rehearsal:
    """How it went then, and now."""

    topic: str
    group: str
    speed: float | str
    then: Figures
    now: Figures
    is_finished: bool
    """Whether all messages were settled before the patience was over."""

    def rows(self) -> list[tuple[str, int | None, int | None, str]]:
        """What is compared: its name, the number then and now, and its unit ("" or "us")."""
        then, now = self.then, self.now
        rows: list[tuple[str, int | None, int | None, str]] = [
            ("messages", then.messages, now.messages, ""),
            ("settled", then.settled, now.settled, ""),
            ("dead letters", then.dead_letters, now.dead_letters, ""),
            ("redelivered", then.redelivered, now.redelivered, ""),
        ]
        rows += [(name, then.counts.get(name, 0), now.counts.get(name, 0), "") for name in CAUSES]
        rows += [
            ("lag, half of the time", then.lag_p50, now.lag_p50, ""),
            ("lag, 99 % of the time", then.lag_p99, now.lag_p99, ""),
            ("lag, largest", then.lag_max, now.lag_max, ""),
        ]
        for words, one, two in (
            ("time to delivery", then.delivery, now.delivery),
            ("time to settled", then.settling, now.settling),
        ):
            for percent in (50, 90, 99):
                first = None if one is None else one.quantile(percent, 100)
                second = None if two is None else two.quantile(percent, 100)
                rows.append((f"{words}, {percent} %", first, second, "us"))
        return rows

    @property
    def has_its_pace(self) -> bool:
        """Whether messages were published at the pace of then: at another, lags and times cannot be compared."""
        return self.speed == 1

    def verdict(self) -> dict[str, str]:
        """By name, of what differs and can be compared: "worse" or "better"."""
        found: dict[str, str] = {}
        unsettled = [figures.messages - figures.settled for figures in (self.then, self.now)]
        for name, then, now, unit in self.rows():
            is_of_pace = bool(unit) or name.startswith("lag")
            if then is None or now is None or name == "messages" or (is_of_pace and not self.has_its_pace):
                continue
            if name == "settled":
                then, now = unsettled
            least = LATENCY_LEAST_US if unit else LAG_LEAST if name.startswith("lag") else 1
            factor = WORSE if is_of_pace else 1.0
            if now >= then + least and now >= then * factor:
                found[name] = "worse"
            elif then >= now + least and then >= now * factor:
                found[name] = "better"
        return found

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "group": self.group,
            "speed": "max" if self.speed == MAX_SPEED else self.speed,
            "is_finished": self.is_finished,
            "then": self.then.document(),
            "now": self.now.document(),
            "verdict": self.verdict(),
        }


async def rehearse(
    directory: str,
    topic: str,
    group: str,
    handler: Handler,
    *,
    into: str,
    speed: float | str = 1,
    concurrency: int = 1,
    patience: float = 60.0,
    on_progress: Callable[[str], object] | None = None,
) -> Rehearsal:
    """Have `handler` take what was published to `topic` in `directory`, as `group` did, and compare.

    `directory` is only read. `into` is an empty folder, which then holds the copied recording and the new directory.
    `speed` is that of a replay: 1 for the recorded pace, N for N times that, "max"; with others than 1 latencies and
    lags are those of another load, and are not judged. `concurrency` is that of `work`. When nothing was settled for
    `patience` seconds after all was published, it ends. Raises as `figures_of`, `replay` and `Topic.work` do.
    """
    if not patience > 0:  # NaN, too: no time would ever exceed it
        raise InvalidArgument(f"patience is {patience!r}, not seconds above 0. Nothing was run.")
    told = on_progress or (lambda words: None)
    told("reading what happened then")
    then = await figures_of(directory, topic, group)
    topic_record, group_record, others = await _copy(directory, topic, group, into, then.starts)
    dead = _dead_name({topic, *(other.name for other in others)})
    data = f"{into}/data"
    async with open_runtime(data) as runtime:
        settings = topic_record.settings
        for other in others:  # a handler may publish to them
            await runtime.create_topic(other.name, **_unusual(other.settings))
        await runtime.create_topic(dead)
        made = await runtime.create_topic(
            topic,
            partitions=settings.partitions,
            priorities=settings.priorities,
            max_message_bytes=settings.max_message_bytes,
            default_ttl=settings.default_ttl,
        )
        given = _unusual(group_record.settings, NEW) | {"dead_letter_topic": dead}
        async with trio.open_nursery() as nursery:
            work: Any = partial(made.work, handler, group, concurrency=concurrency, grace=GRACE_S, **given)
            await nursery.start(work)
            async with recording_at(f"{into}/recording") as recording:
                await replay(
                    recording,
                    runtime,
                    topic,
                    speed=speed,
                    on_progress=lambda found: told(f"{found.records:,} messages published again"),
                )
            told("waiting until all is settled")
            is_finished = await _settled(runtime, topic, group, patience)
            nursery.cancel_scope.cancel()
    now = await figures_of(data, topic, group)
    return Rehearsal(topic=topic, group=group, speed=speed, then=then, now=now, is_finished=is_finished)


def _dead_name(taken: Collection[str]) -> str:
    """A name that no topic has, for the dead letters: short, so that it is never too long."""
    return next(
        name for name in (DEAD_NAME, *(f"{DEAD_NAME}.{n}" for n in range(len(taken)))) if name not in taken
    )


def _unusual(settings: TopicSettings | GroupSettings, but: Collection[str] = frozenset()) -> dict[str, Any]:
    """The settings that are not the usual ones, `but` for some."""
    usual = type(settings)()
    names = [field.name for field in attrs.fields(type(settings)) if field.name not in but]
    return {
        name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(usual, name)
    }


async def _copy(
    directory: str, topic: str, group: str, into: str, starts: Sequence[int]
) -> tuple[TopicRecord, GroupRecord, list[TopicRecord]]:
    """Copy the topic into a recording, from these offsets on; returns what the catalog says of topic and group.

    And of all other topics.
    """
    async with OfflineDirectory(directory) as offline, files_below(into, writable=True) as files:
        record = await offline.topic(topic)
        state = (await offline.catalog()).state
        others = [each for each in state.topics.values() if each.name != topic and not each.deleting]
        found = next((each for each in state.groups.values() if each.name == group), None)
        if found is None:
            raise GroupNotFound(f"there is no group {group!r}. Nothing was run.", group=group)
        source = {"topic": topic}
        count = record.settings.partitions
        async with new_recording(files, "recording", partitions=count, source=source) as writer:
            for index in range(count):
                reader = await offline.reader(record, index)
                start = max(starts[index], reader.start_offset)
                batches = LogBatches(
                    reader,
                    start,
                    reader.visible_end,
                    lambda first, last: None,
                    now_us=offline.clock.wall_us(),
                )
                async with aclosing(batches):
                    async for columns in batches:
                        taken = _addressed(columns, found.group_id)
                        if taken is not None:
                            await writer.append(index, taken)
    return record, found, others


def _addressed(columns: Columns, group_id: int) -> Columns | None:
    """What of a batch the group was to have: redriven messages are for one group, whose number is another now."""
    if columns.header_ends is None:
        return joined([columns])
    headers = columns.header_list()
    if not any(FOR_GROUP in each for each in headers):
        return joined([columns])
    ours = str(group_id).encode()
    kept = [index for index, each in enumerate(headers) if each.get(FOR_GROUP, ours) == ours]
    times = times_of(columns)
    taken = Columns.build(
        [columns.value(index) for index in kept],
        [columns.key(index) for index in kept],
        [{name: value for name, value in headers[index].items() if name != FOR_GROUP} for index in kept],
        [times[index] for index in kept],
        priorities=[columns.priority(index) for index in kept],
    )
    taken.append_time_us = columns.append_time_us
    return taken if kept else None


async def _settled(runtime: Runtime, topic: str, group: str, patience: float) -> bool:
    """Wait until the group has settled all; False when it settles nothing for so long."""
    unsettled, since = -1, trio.current_time()
    while True:
        found = await runtime.topic(topic).describe()
        if all(
            part.visible_end == part.start_offset
            or (part.groups and all(each.floor >= part.visible_end for each in part.groups))
            for part in found
        ):
            return True
        # Not the floors alone: one slow message holds its floor in place, while others are settled behind it.
        now = (await runtime.group(group).describe()).lag
        if now != unsettled:
            unsettled, since = now, trio.current_time()
        elif trio.current_time() > since + patience:
            return False
        await trio.sleep(LOOK_EVERY_S)
