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

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal

import trio

from callboard.actors.names import check_name
from callboard.actors.partition.commands import Level
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.recordings.reader import Recording
from callboard.recordings.sharing import check_fraction
from callboard.replay.checking import check_recording
from callboard.replay.feeding import ReplayFeed
from callboard.replay.merging import Merger
from callboard.replay.pacing import MAX_SPEED, Pace, check_rate, check_speed
from callboard.replay.positions import ReplayId, ReplayPosition, Selection, check_passes
from callboard.replay.progress import ReplayProgress, ReplayReport, ReplayTally
from callboard.replay.request import ReplayRequest, check_level, check_patterns, span_between
from callboard.replay.resuming import last_positions
from callboard.replay.sending import Sender
from callboard.replay.sources import ReplayLane, Timed, source_of
from callboard.runtime import Runtime, session_of
from callboard.topic import Topic, publisher_to

CHANNEL_BATCHES: Final = 2
"""Read ahead for each target partition."""

OnProgress = Callable[[ReplayProgress], object]


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
    `MessageTooLarge`, `TopicExists`, `TopicReadOnly`; and whatever `publish` raises.
    """
    pace, checked_rate = check_speed(speed), None if rate is None else check_rate(rate)
    if checked_rate is not None and pace != 1:
        raise InvalidArgument("speed and rate exclude each other. Nothing was written. Give one of them.")
    wanted = ReplayRequest(
        speed=pace if checked_rate is None else checked_rate,
        is_numbered=checked_rate is not None,
        passes=check_passes(passes),
        level=check_level(acks),
        selection=Selection(
            span=span_between(start, stop),
            keys=check_patterns(keys),
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
    with _alone(target, running.id):
        return await running.run(on_progress, progress_every)


@contextmanager
def _alone(topic: Topic, replay_id: ReplayId) -> Iterator[None]:
    """Two runs of one replay at a time would not see each other's records."""
    running = publisher_to(topic).replays
    if replay_id in running:
        raise InvalidArgument(
            f"this recording is being replayed into topic {topic.name!r} already. Nothing was written. Wait until that"
            " has ended.",
            topic=topic.name,
        )
    running.add(replay_id)
    try:
        yield
    finally:
        running.discard(replay_id)


class _Run:
    """One run of a replay."""

    def __init__(
        self, recording: Recording, runtime: Runtime, target: Topic, wanted: ReplayRequest, selected: int
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
        sources = {producer: index for index, producer in enumerate(self._source.producer_ids)}
        lasts = await last_positions(self._publisher.live, sources)
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

    def _feeds(self, lasts: Sequence[ReplayPosition | None]) -> Sequence[ReplayFeed]:
        if self.is_raw and not self._wanted.is_numbered:
            return [
                ReplayFeed([index], ReplayLane(self._source, index, last)) for index, last in enumerate(lasts)
            ]
        merger = Merger(self._source, lasts, self._publisher.choice.partitioner, is_raw=self.is_raw)
        return [ReplayFeed(range(self._target.partitions), merger)]

    def _start(self, nursery: trio.Nursery, feeds: Sequence[ReplayFeed], pace: Pace) -> None:
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
            nursery.start_soon(self._attempt, nursery, partial(feed.run, outlets))

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
        feeds: Sequence[ReplayFeed],
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
