"""One act of the demo: publishers, workers and injected crashes in one runtime, until everything is settled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator
from typing import Any

import attrs
import trio

from callboard.actors.kernel.events import ActorRestarted
from callboard.cli.demo_account import History
from callboard.cli.demo_plan import FailurePlan
from callboard.cli.demo_publish import HEADER, Numbered, Publishers, identify
from callboard.cli.demo_record import Recorder
from callboard.cli.demo_source import Source
from callboard.cli.demo_work import Workers
from callboard.log.errors import ActorCrashed, AskTimeout, PartitionUnavailable
from callboard.recordings import digest_of

__all__ = ["TOPIC", "Act", "ProgressReport", "feed_log", "perform", "record_ends", "unsettled"]

TOPIC = "traffic"
AHEAD_MAX = 2_000
"""Publishers wait while so many of their messages are not acknowledged by workers: this bounds memory."""
_BATCH_MIN, _BATCH_MAX = 4, 200
_POLL_S = 0.02
STALLED_S = 90.0
_HELD_BACK = 10
READ_RECORDS = 1000

ProgressReport = Callable[[int, int, int], None]
"""Called with the messages published, acknowledged by workers, and under way to the log, so far in this act."""


class DemoCrash(Exception):
    """What the demo crashes partitions with."""


@attrs.frozen(kw_only=True)
class Act:
    """What to perform. `skip` names events that are published already; `hold_back` keeps the last tenth unpublished,
    so that a process that is to be killed never finishes.
    """

    source: Source
    plan: FailurePlan
    workers: int
    skip: Container[int] = frozenset()
    hold_back: bool = False


async def perform(runtime: Any, act: Act, recorder: Recorder, report: ProgressReport) -> None:
    """Publish the act's events and have them all handled and settled, the plan's failures and crashes included."""
    await _Performance(runtime, act, recorder, report).run()


class _Performance:
    """One run of `perform`."""

    def __init__(self, runtime: Any, act: Act, recorder: Recorder, report: ProgressReport) -> None:
        self._runtime = runtime
        self._act = act
        self._plan = act.plan
        self._recorder = recorder
        self._report = report
        self._crashes = list(act.plan.crashes)
        self._published = self._acknowledged = 0
        self._nursery: trio.Nursery
        topic = runtime.topic(TOPIC)
        events = act.plan.last - act.plan.first
        self._publishers = Publishers(
            topic,
            recorder,
            batch=max(_BATCH_MIN, min(_BATCH_MAX, events // 50)),
            revive=self._revive,
            sending=self._show,
            acknowledged=self._on_published,
        )
        self._workers = Workers(
            topic,
            recorder,
            failures=dict(act.plan.failures),
            sent=self._publishers.sent,
            acknowledged=self._on_acknowledged,
        )

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._runtime.subscribe_events(self._on_event)
            for index in range(self._act.workers):
                self._nursery.start_soon(self._workers.work, index)
            await self._publishers.run(self._events())
            if self._act.hold_back:
                await trio.sleep_forever()
            await self._wait_until_settled()
            self._nursery.cancel_scope.cancel()

    async def _wait_until_settled(self) -> None:
        """Returns when all is settled, or when nothing has happened for so long that it never will: see the account."""
        acknowledged, since = self._acknowledged, trio.current_time()
        while not await self._all_settled():
            await trio.sleep(_POLL_S)
            if self._acknowledged != acknowledged:
                acknowledged, since = self._acknowledged, trio.current_time()
            elif trio.current_time() - since > STALLED_S:
                return

    def _events(self) -> Iterator[Numbered]:
        """The events to publish, with their numbers in the input."""
        plan = self._plan
        last = plan.last
        if self._act.hold_back:
            last -= max(1, (plan.last - plan.first) // _HELD_BACK)
        events = self._act.source.events(first=plan.first, last=last)
        numbered = zip(itertools.count(plan.first), events, strict=False)
        return (pair for pair in numbered if pair[0] not in self._act.skip)

    async def _on_published(self, count: int) -> None:
        self._published += count
        while self._crashes and self._published >= self._crashes[0][0]:
            self._crash(self._crashes.pop(0)[1])
        self._show()
        while self._published - self._acknowledged > AHEAD_MAX:  # noqa: ASYNC110 - numbers are compared
            await trio.sleep(_POLL_S)

    def _on_acknowledged(self, count: int) -> None:
        self._acknowledged += count
        self._show()

    def _show(self) -> None:
        self._report(self._published, self._acknowledged, self._publishers.under_way)

    def _crash(self, partition: int) -> None:
        path = f"topics/{TOPIC}/{partition}"
        self._recorder.path("C", path)
        self._runtime.crash(path, DemoCrash("the demo crashes partitions now and then"))

    async def _revive(self, error: PartitionUnavailable) -> None:
        """Restart a partition that has exceeded its restart intensity."""
        if error.fields.get("state") == "failed":
            await self._runtime.restart(f"topics/{TOPIC}/{error.fields['partition']}")

    def _on_event(self, event: object) -> None:
        """Write down each restart that the supervisors report."""
        if isinstance(event, ActorRestarted):
            self._recorder.path("R", event.path)

    async def _all_settled(self) -> bool:
        try:
            return not self._workers.busy and not await unsettled(self._runtime)
        except (ActorCrashed, AskTimeout, PartitionUnavailable):
            return False


async def unsettled(runtime: Any) -> int:
    """How many stored messages the group has not settled."""
    partitions = await runtime.topic(TOPIC).describe()
    return sum(
        partition.visible_end
        - min((group.floor for group in partition.groups), default=partition.start_offset)
        for partition in partitions
    )


async def record_ends(runtime: Any, recorder: Recorder) -> None:
    """Write down where each partition ends."""
    topic = runtime.topic(TOPIC)
    for partition in range(topic.partitions):
        end = 0
        async for batch in topic.read_batches(partition=partition):
            end = batch.offsets()[-1] + 1
        recorder.offsets("O", partition, [end])


async def feed_log(runtime: Any, history: History) -> None:
    """Give the history everything that is in the log."""
    topic = runtime.topic(TOPIC)
    for partition in range(topic.partitions):
        async for record in topic.read(partition=partition):
            number, _ = identify(record.headers.get(HEADER))
            key = None if record.key is None else digest_of(record.key, b"")
            digest = digest_of(record.key, record.value)
            history.add_stored(partition, record.offset, number, digest, key)
