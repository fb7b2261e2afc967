"""Metrics for Prometheus: a collector over `Runtime.stats`, for `prometheus_client` (`callboard[prometheus]`).

`RuntimeCollector.refresh` looks at the runtime and replaces what `collect` gives out. So a scrape reads what is there,
from any thread, asks no actor, and never waits for a partition that hangs. What there is: `measures`.

Invariants
----------
MX2  What `collect` gives out is of one moment.
MX3  A partition that does not answer keeps the numbers that it had, since a counter never falls for want of an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Never

import attrs
import trio

from callboard import __version__
from callboard.log.errors import InvalidArgument
from callboard.log.plain import number, shown, whole
from callboard.measures import (
    HOT_WINDOW_S,
    LEVELS,
    PREFIX,
    Family,
    HotPartition,
    LabelledFamilies,
    Snapshot,
    bounded,
    hot_partitions,
)
from callboard.reports.group_figures import oldest_unsettled
from callboard.runtime import Runtime, session_of

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError as error:
    raise ImportError(
        "callboard.metrics needs prometheus_client. Install it: pip install 'callboard[prometheus]'"
    ) from error

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from callboard.statistics import PartitionStatistics, RuntimeStatistics

ROWS_MAX: Final = 2_000
REFRESH_S: Final = 15.0
AGES_MAX: Final = 500
"""How many first messages are looked at each time: those of the places in which most messages wait."""


class RuntimeCollector:
    """What a registry of `prometheus_client` collects of a runtime: `registry.register(RuntimeCollector(runtime))`.

    `rows_max` bounds how many samples each metric has. Have `run` keep it up to date, or call `refresh` yourself.
    """

    def __init__(self, runtime: Runtime, *, rows_max: int = ROWS_MAX) -> None:
        count = whole(rows_max)
        if count is None or not 1 <= count <= 1_000_000:
            raise InvalidArgument(f"rows_max is {shown(rows_max, 40)}, not a number from 1 to 1,000,000.")
        self._runtime = runtime
        self._rows_max = count
        self._clock = session_of(runtime).clock
        self._answered: dict[tuple[str, int], PartitionStatistics] = {}
        self._offsets: deque[tuple[float, dict[tuple[str, int], int]]] = deque()
        """Of earlier moments, the newest last; the first is as old as the window, where there is one."""
        self._metrics: tuple[Metric, ...] = ()
        self.hot: tuple[HotPartition, ...] = ()
        """The partitions that were hot at the last `refresh`, with what to do."""

    # -- for the registry

    def describe(self) -> Sequence[Metric]:
        """All metrics without samples."""
        return [_empty(level, family) for level in LEVELS for family in level.families]

    def collect(self) -> Iterable[Metric]:
        """What the last `refresh` has found; nothing before the first."""
        return self._metrics

    # -- for the program

    async def run(self, every: float = REFRESH_S) -> Never:
        """Refresh at an interval in seconds, until cancelled: `nursery.start_soon(collector.run)`."""
        pause_s = number(every)
        if pause_s is None or not 0.1 <= pause_s <= 3600:
            raise InvalidArgument(f"every is {shown(every, 40)}, not seconds from 0.1 to 3,600.")
        while True:
            await self.refresh()
            await trio.sleep(pause_s)

    async def refresh(self) -> None:
        """Look at the runtime. Raises as `Runtime.stats`; what was found before stays then."""
        begun = self._clock.monotonic()
        statistics = await self._runtime.stats()
        partitions = self._believed(statistics.partitions)
        ages = await self._ages_of(statistics)
        now = self._clock.monotonic()
        self.hot = self._found_hot(
            now, {(each.topic, each.partition): each.next_offset for each in partitions}
        )
        snapshot = Snapshot(
            statistics,
            partitions,
            self._runtime.tree(),
            {topic.name: topic.settings.read_only for topic in self._runtime.topics()},
            self.hot,
            ages,
            self._clock.wall_us() / 1e6,
            now - begun,
        )
        self._metrics = tuple(self._made(snapshot))

    async def _ages_of(self, statistics: RuntimeStatistics) -> dict[tuple[str, ...], float]:
        """How old the first message is that each group has not settled, in the partitions where most wait."""
        names = {group.group_id: group.name for group in statistics.groups}
        waits = [
            (place.pending, names[place.group_id], partition, place.group_id)
            for partition in statistics.partitions
            for place in partition.groups
            if place.pending and place.group_id in names
        ]
        waits.sort(key=lambda each: -each[0])
        ages: dict[tuple[str, ...], float] = {}
        mirror = session_of(self._runtime).mirror

        async def ask(group: str, partition: PartitionStatistics, group_id: int) -> None:
            live = mirror.find(partition.topic)
            if live is not None:
                since = await oldest_unsettled(live.ports[partition.partition], partition, group_id)
                if since is not None:
                    age_s = self._clock.wall_us() / 1e6 - since.timestamp()
                    ages[group, partition.topic, str(partition.partition)] = max(0.0, age_s)

        async with trio.open_nursery() as nursery:
            for _, group, partition, group_id in waits[:AGES_MAX]:
                nursery.start_soon(ask, group, partition, group_id)
        return ages

    def _believed(self, partitions: Sequence[PartitionStatistics]) -> tuple[PartitionStatistics, ...]:
        """A partition that does not answer counts zeros: it keeps what it had (MX3)."""
        found = []
        for each in partitions:
            known = self._answered.get((each.topic, each.partition))
            is_silent = not each.segments and not each.next_offset
            found.append(attrs.evolve(known, state=each.state) if is_silent and known is not None else each)
        self._answered = {(each.topic, each.partition): each for each in found}
        return tuple(found)

    def _found_hot(self, now: float, offsets: dict[tuple[str, int], int]) -> tuple[HotPartition, ...]:
        seen = self._offsets
        while len(seen) > 1 and seen[1][0] <= now - HOT_WINDOW_S:
            seen.popleft()
        hot = hot_partitions(seen[0][1], offsets, now - seen[0][0]) if seen else ()
        if not seen or now - seen[-1][0] >= HOT_WINDOW_S / 10:  # a bounded number of them
            seen.append((now, offsets))
        return hot

    def _made(self, snapshot: Snapshot) -> Iterator[Metric]:
        for level in LEVELS:
            rows = list(level.rows(snapshot))
            for family in level.families:
                metric = _empty(level, family)
                found = [(labels, float(family.value(each))) for labels, each in rows]
                values = bounded(found, self._rows_max, family.join)
                for labels, value in values.items():
                    metric.add_metric(labels, value)
                yield metric
        info = GaugeMetricFamily(f"{PREFIX}build_info", "1, with the version.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info


def _empty(level: LabelledFamilies, family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    return kind(f"{PREFIX}{family.name}", family.meaning, labels=level.labels)
