"""Replaying a recording into a runtime; `replay` is what programs call.

Theory of operation
-------------------
First everything is checked: arguments, every byte of the recording, every size. Then the topic is made or found, and
the end of each of its partitions says where an earlier run of the same replay was interrupted (`resuming`). Readers
(`sources`) fill a short channel for each target partition, a sender for each (`sending`) hands over what is due.

Invariants
----------
RY1  A target partition holds a prefix of what the replay brings it, in order and once, at every moment and after any
     crash: one batch is on its way at a time, and its place in the recording is stored in the same frame.
RY2  Nothing is written before everything was checked that can be checked.
RY3  Memory is bounded by `sources.READ_BYTES_ALL`, a few times over, however large the recording is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal

import attrs
import trio

from callboard.actors.names import check_name
from callboard.actors.partition.commands import LEVELS, Level
from callboard.actors.settings import topic_settings
from callboard.log.errors import CallboardError, InvalidArgument, TopicNotFound
from callboard.message import to_us
from callboard.recordings.reader import Recording, Span
from callboard.recordings.sharing import check_fraction
from callboard.replay.checking import check_recording
from callboard.replay.merging import Merger
from callboard.replay.pacing import MAX_SPEED, NUMBER_US, Pace, TimeLine, check_rate, check_speed
from callboard.replay.positions import ReplayId, ReplayPosition, Selection, check_passes
from callboard.replay.progress import ReplayProgress, ReplayReport, ReplayTally
from callboard.replay.resuming import last_positions
from callboard.replay.sending import Sender
from callboard.replay.sources import ReplayLane, ReplaySource, Timed
from callboard.runtime import Runtime, session_of
from callboard.topic import Topic, publisher_to

CHANNEL_BATCHES: Final = 2
"""Read ahead for each target partition."""

OnProgress = Callable[[ReplayProgress], object]
Emit = Callable[[int, Timed], Awaitable[object]]


async def replay(
    recording: Recording,
    runtime: Runtime,
    topic: str,
    *,
    speed: float | str = 1,
    rate: float | None = None,
    start: datetime | None = None,
    stop: datetime | None = None,
    keys: Sequence[str] = (),
    fraction: float | str | Fraction | None = None,
    passes: int | None = 1,
    acks: Literal["leader", "all"] = "all",
    settings: Mapping[str, Any] | None = None,
    checked: int | None = None,
    on_progress: OnProgress | None = None,
    progress_every: float = 0.5,
) -> ReplayReport:
    """Publish the records of `recording` into a topic, each when its time comes, and go on where it was interrupted.

    `speed` is 1 for the recorded pace, N for N times that, "max" for no waiting; with `rate` this many records a second
    are published, in the order of their times. Only records whose time lies in [`start`, `stop`), whose key matches
    one of the patterns `keys`, and whose key is in `fraction` of all keys are published. `passes` is how often, in all;
    None: for ever. With `acks` "leader" a record is handed to the operating system in time, and its sync is not waited
    for; everything is synced in the end. The topic is made with `settings`, by default with as many partitions as the
    recording has; one that is there must have the settings that are named. `checked` is what `check_recording` returned
    where it was called before. `on_progress` is called at an interval in seconds.

    The same recording, topic and selection are the same replay: called again after a crash or an error, it publishes
    what is missing, and nothing twice. Raises, before anything is written, `InvalidArgument`, `RecordingInvalid`,
    `MessageTooLarge`, `TopicExists`; and whatever `publish` raises.
    """
    pace, checked_rate = check_speed(speed), None if rate is None else check_rate(rate)
    if checked_rate is not None and pace != 1:
        raise InvalidArgument("speed and rate exclude each other. Nothing was written. Give one of them.")
    wanted = _Request(
        speed=pace if checked_rate is None else checked_rate,
        is_numbered=checked_rate is not None,
        passes=check_passes(passes),
        level=_level(acks),
        selection=Selection(
            span=_span(start, stop),
            keys=_patterns(keys),
            fraction=None if fraction is None else check_fraction(fraction),
        ),
        settings={"partitions": len(recording.manifest.partitions)} | dict(settings or {}),
        named=dict(settings or {}),
    )
    check_name(topic, "topic")
    session_of(runtime).check_open()
    limit_bytes = wanted.max_message_bytes(runtime, topic)
    if checked is None:
        checked = await check_recording(recording, wanted.selection, max_message_bytes=limit_bytes)
    target = await wanted.topic(runtime, topic)
    running = _Run(recording, runtime, target, wanted, checked)
    with _SingleRun(target, running.id):
        return await running.run(on_progress, progress_every)


@attrs.frozen(kw_only=True)
class _Request:
    """What was asked for, checked."""

    speed: float
    is_numbered: bool
    """Whether `speed` is a rate: records are due by their number."""
    passes: int | None
    level: Level
    selection: Selection
    settings: Mapping[str, Any]
    """Of a topic that is made."""
    named: Mapping[str, Any]
    """Settings that a topic must have that is there."""

    def max_message_bytes(self, runtime: Runtime, name: str) -> int:
        """The limit of the topic that is there, or would be made."""
        made = topic_settings(dict(self.settings), f"topic {name!r}")
        try:
            return runtime.topic(name).settings.max_message_bytes
        except TopicNotFound:
            return made.max_message_bytes

    async def topic(self, runtime: Runtime, name: str) -> Topic:
        """Find the topic, or make it."""
        try:
            runtime.topic(name)
        except TopicNotFound:
            return await runtime.create_topic(name, **self.settings)
        return await runtime.create_topic(name, **self.named)


class _SingleRun:
    """Two runs of one replay at a time would not see each other's records."""

    def __init__(self, topic: Topic, replay_id: ReplayId) -> None:
        self._running, self._topic, self._id = publisher_to(topic).replays, topic, replay_id

    def __enter__(self) -> None:
        if self._id in self._running:
            raise InvalidArgument(
                f"this recording is being replayed into topic {self._topic.name!r} already. Nothing was written. Wait"
                " until that has ended.",
                topic=self._topic.name,
            )
        self._running.add(self._id)

    def __exit__(self, *_: object) -> None:
        self._running.discard(self._id)


def source_of(
    recording: Recording,
    selection: Selection,
    passes: int | None,
    topic_id: str,
    *,
    numbered: int | None = None,
) -> ReplaySource:
    """What is replayed into the topic of that id."""
    manifest, span = recording.manifest, selection.span
    first, last = manifest.first_time_us or 0, manifest.last_time_us or 0
    first = first if span.from_us is None else max(first, span.from_us)
    last = last if span.to_us is None else min(last, span.to_us)
    return ReplaySource(
        recording=recording,
        selection=selection,
        line=TimeLine(first, max(1, last - first)) if numbered is None else TimeLine(0, numbered * NUMBER_US),
        passes=passes,
        numbered=numbered,
        producer_ids=ReplayId(manifest.digest, topic_id, selection).producer_ids(len(manifest.partitions)),
    )


class _Run:
    """One run of a replay."""

    def __init__(
        self, recording: Recording, runtime: Runtime, target: Topic, wanted: _Request, selected: int
    ) -> None:
        manifest = recording.manifest
        numbered = selected if wanted.is_numbered else None
        self._source = source_of(
            recording, wanted.selection, wanted.passes, target.topic_id, numbered=numbered
        )
        self.id = ReplayId(manifest.digest, target.topic_id, wanted.selection)
        self._clock = session_of(runtime).clock
        self._target = target
        self._publisher = publisher_to(target)
        self._wanted = wanted
        self._selected = selected
        self._digest = manifest.digest
        self.is_raw = target.partitions == len(manifest.partitions)
        self._tally = ReplayTally(held_s=[0.0] * target.partitions)
        self._stored: int | None = None
        self._failure: CallboardError | None = None
        self._raised: Exception | None = None
        """What `on_progress` raised."""

    async def run(self, on_progress: OnProgress | None, every_s: float) -> ReplayReport:
        clock = self._clock
        source_of = {producer: index for index, producer in enumerate(self._source.producer_ids)}
        lasts = await last_positions(self._publisher.live, source_of)
        feeds = self._feeds(lasts)
        self._stored = self._stored_before(lasts)
        pace = Pace(self._wanted.speed, clock.monotonic(), 0)
        try:
            origins = [await feed.prime() for feed in feeds]
            origin = min((origin for origin in origins if origin is not None), default=0)
            pace = Pace(self._wanted.speed, clock.monotonic(), origin)
            async with trio.open_nursery() as nursery:
                if on_progress is not None:
                    nursery.start_soon(self._report_progress, nursery, pace, on_progress, every_s)
                async with trio.open_nursery() as working:
                    self._start(working, feeds, pace)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                for feed in feeds:
                    await feed.reader.aclose()
            if on_progress is not None and self._raised is None:  # however it ended
                on_progress(self._progress(pace))
        if self._raised is not None:
            raise self._raised
        if self._failure is not None:
            raise self._failure
        if self._wanted.level is not Level.ALL:
            await self._target.flush()
        return self._report(pace, lasts, feeds)

    def _stored_before(self, lasts: Sequence[ReplayPosition | None]) -> int | None:
        """How many records earlier runs stored; None when that is not known without counting them."""
        if not any(lasts):
            return 0
        if not (self.is_raw and self._wanted.selection.is_whole):
            return None
        rows = self._source.recording.manifest.partitions
        return sum(
            last.number * row.records + last.offset + 1
            for last, row in zip(lasts, rows, strict=True)
            if last is not None
        )

    # -- readers and senders

    def _feeds(self, lasts: Sequence[ReplayPosition | None]) -> Sequence[_Feed]:
        if self.is_raw and not self._wanted.is_numbered:
            return [
                _Feed([index], _LaneReader(index, ReplayLane(self._source, index, last)))
                for index, last in enumerate(lasts)
            ]
        merger = Merger(self._source, lasts, self._publisher.partitioner, is_raw=self.is_raw)
        return [_Feed(range(self._target.partitions), merger)]

    def _start(self, nursery: trio.Nursery, feeds: Sequence[_Feed], pace: Pace) -> None:
        channels = [trio.open_memory_channel[Timed](CHANNEL_BATCHES) for _ in range(self._target.partitions)]
        for index, (_, batches) in enumerate(channels):
            sender = Sender(
                index,
                batches,
                publish=self._publisher.publish_columns,
                level=self._wanted.level,
                pace=pace,
                clock=self._clock,
                tally=self._tally,
            )
            nursery.start_soon(self._attempt, nursery, sender.run)
        for feed in feeds:
            outlets = {index: channels[index][0] for index in feed.targets}
            nursery.start_soon(self._attempt, nursery, partial(_feed_all, feed, outlets))

    async def _attempt(self, nursery: trio.Nursery, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work. Its first error ends the run, and is raised as itself."""
        try:
            await work()
        except CallboardError as error:
            self._failure = self._failure or error
            nursery.cancel_scope.cancel()

    # -- what is reported

    async def _report_progress(
        self, nursery: trio.Nursery, pace: Pace, on_progress: OnProgress, every_s: float
    ) -> None:
        while True:
            try:
                on_progress(self._progress(pace))
            except Exception as error:  # noqa: BLE001 - the user's code: raised again, outside of the group, by `run`
                self._raised = error
                nursery.cancel_scope.cancel()
            await trio.sleep(every_s)

    def _progress(self, pace: Pace) -> ReplayProgress:
        passes, line, end = self._wanted.passes, self._source.line, None
        if passes is not None and pace.speed != MAX_SPEED:
            end = pace.due(passes * line.period_us)
        total = None if passes is None or self._stored is None else passes * self._selected - self._stored
        return self._tally.progress(self._clock.monotonic(), pace, total=total, end=end)

    def _report(
        self,
        pace: Pace,
        lasts: Sequence[ReplayPosition | None],
        feeds: Sequence[_Feed],
    ) -> ReplayReport:
        tally = self._tally
        elapsed_s = self._clock.monotonic() - pace.began
        return ReplayReport(
            topic=self._target.name,
            recording=self._digest,
            records=tally.records,
            payload_bytes=tally.payload_bytes,
            is_resumed=any(last is not None for last in lasts),
            passed_over=sum(feed.reader.passed_over for feed in feeds),
            elapsed_s=elapsed_s,
            rate=tally.records / max(elapsed_s, 1e-9),
            lateness=tally.lateness.found(),
            held_s=max(tally.held_s),
            held_batches=tally.held_batches,
            is_raw=self.is_raw,
        )


class _Feed:
    """What is read for some target partitions. The first records are read before the clock starts."""

    def __init__(self, targets: Sequence[int], reader: _LaneReader | Merger) -> None:
        self.targets = targets
        self.reader = reader
        self._primed: Sequence[tuple[int, Timed]] | None = None

    async def prime(self) -> int | None:
        """Read the first records; their first position."""
        self._primed = await self.reader.next()
        return None if self._primed is None else min(timed.positions[0] for _, timed in self._primed)

    async def run(self, emit: Emit) -> None:
        """Emit everything."""
        batches, self._primed = self._primed, None
        while batches is not None:
            for index, timed in batches:
                await emit(index, timed)
            batches = await self.reader.next()


class _LaneReader:
    """Reads a lane as a `Merger` is read."""

    passed_over = 0

    def __init__(self, index: int, lane: ReplayLane) -> None:
        self._index = index
        self._lane = lane
        self.aclose = lane.aclose

    async def next(self) -> Sequence[tuple[int, Timed]] | None:
        """The next records, with their target partition."""
        timed = await self._lane.next()
        return None if timed is None else [(self._index, timed)]


async def _feed_all(feed: _Feed, outlets: Mapping[int, trio.MemorySendChannel[Timed]]) -> None:
    """Send what the feed emits to the senders, and end their channels with it."""

    async def emit(index: int, timed: Timed) -> None:
        await outlets[index].send(timed)

    try:
        with suppress(trio.BrokenResourceError):  # a sender failed, and says why
            await feed.run(emit)
    finally:
        for outlet in outlets.values():
            outlet.close()


def _span(start: datetime | None, stop: datetime | None) -> Span:
    return Span(
        None if start is None else to_us(start, "start"),
        None if stop is None else to_us(stop, "stop"),
    )


def _level(acks: str) -> Level:
    if acks not in ("leader", "all"):
        raise InvalidArgument(f'acks is {acks!r:.40}, not "leader" or "all". Nothing was written.')
    return LEVELS[acks]


def _patterns(keys: Sequence[str]) -> tuple[str, ...]:
    if isinstance(keys, str) or not all(isinstance(pattern, str) for pattern in keys):
        raise InvalidArgument(
            f'keys are {keys!r:.60}, not a list of patterns such as ["user-*"]. Nothing was written.'
        )
    return tuple(keys)
