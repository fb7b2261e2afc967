"""Measures: what metrics there are, what each is of a moment of a runtime, and how many samples it has. Pure.

A *family* is a metric with one sample for each of its *rows*: a row is what its labels name, such as a group in a
partition. `FAMILIES` is the table of all families; the page of metrics and the tests go by it. Names, units and labels
are as Prometheus wants them: base units, at the end of the name, in plural; counters end in `_total`; no label in a
name; and each family can be summed up over each of its labels, but for seconds and ratios, of which the largest counts.

Invariants
----------
MX1  A family has at most as many rows as it may: where there would be more, the last label that they have is left out,
     and its rows are joined. That label is empty then, which to Prometheus is the same as none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

if TYPE_CHECKING:
    from callboard.statistics import PartitionStatistics, RuntimeStatistics, TreeNode

PREFIX: Final = "callboard_"
HOT_WINDOW_S: Final = 60.0
"""Rates of partitions are compared over this time."""
HOT_TIMES: Final = 3.0
"""A partition with more than this many times the mean rate of its topic is hot."""
HOT_MESSAGES_LEAST: Final = 100
"""Of a topic, within the window: with fewer messages no partition is hot."""
HOT_ADVICE: Final = (
    "Keys decide where messages go, so few keys, or one, have most of them. Look which with `callboard peek`. Then let"
    " such a key's messages spread (append a number to the key, or publish without a key where no order is needed), or"
    " give the topic a `partitioner`. More partitions do not help one key; a consumer more for that partition does, in"
    " a shared group without order per partition."
)

Row = tuple[tuple[str, ...], Any]
"""The values of the labels, and what is counted there."""


@attrs.frozen
class Family:
    """One metric: its name, without the prefix and, of a counter, without `_total`; and what it is of a row."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    value: Callable[[Any], float]
    join: Callable[[Sequence[float]], float] = sum
    """What several rows are together."""

    @property
    def full_name(self) -> str:
        """As Prometheus knows it."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, meaning: str, field: str | Callable[[Any], float]) -> Family:
    return Family(name, "counter", meaning, attrgetter(field) if isinstance(field, str) else field)


def _gauge(name: str, meaning: str, field: str | Callable[[Any], float]) -> Family:
    return Family(name, "gauge", meaning, attrgetter(field) if isinstance(field, str) else field)


def _largest(name: str, meaning: str) -> Family:
    return Family(name, "gauge", meaning, float, max)


@attrs.frozen
class LabelledFamilies:
    """Families with the same labels and rows."""

    labels: tuple[str, ...]
    rows: Callable[[Snapshot], Iterable[Row]]
    families: tuple[Family, ...]


@attrs.frozen
class HotPartition:
    """A partition that gets over 3 times the mean rate of its topic's partitions."""

    topic: str
    partition: int
    messages_per_s: float
    mean_per_s: float
    """Of the partitions of the topic."""
    advice: str = HOT_ADVICE
    """What to do."""

    @property
    def ratio(self) -> float:
        """How many times the mean it gets."""
        return self.messages_per_s / self.mean_per_s


@attrs.frozen
class Snapshot:
    """What is known of a runtime at one moment."""

    statistics: RuntimeStatistics
    partitions: tuple[PartitionStatistics, ...]
    """As in `statistics`; one that did not answer has the numbers that it had before (MX3)."""
    tree: TreeNode
    read_only: Mapping[str, bool]
    """By topic."""
    hot: tuple[HotPartition, ...]
    ages: Mapping[tuple[str, ...], float]
    """Of the first messages that are not settled, in seconds, by group, topic and partition."""
    wall_s: float
    took_s: float


def hot_partitions(
    before: Mapping[tuple[str, int], int], after: Mapping[tuple[str, int], int], seconds: float
) -> tuple[HotPartition, ...]:
    """Those that got over 3 times the mean of their topic between two moments, by their next offsets then; in a topic
    of at least 4 partitions, since of fewer none can.
    """
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in after.items():
        more = max(0, offset - before.get((topic, partition), offset))
        by_topic.setdefault(topic, {})[partition] = more
    found = []
    for topic, counts in sorted(by_topic.items()):
        total = sum(counts.values())
        if total < HOT_MESSAGES_LEAST or seconds <= 0:
            continue
        mean = total / len(counts)
        found += [
            HotPartition(topic, partition, count / seconds, mean / seconds)
            for partition, count in sorted(counts.items())
            if count > HOT_TIMES * mean
        ]
    return tuple(found)


# -- rows


def _partitions(snapshot: Snapshot) -> Iterator[Row]:
    for each in snapshot.partitions:
        yield (each.topic, str(each.partition)), each


def _states(snapshot: Snapshot) -> Iterator[Row]:
    counts = Counter((each.topic, each.state) for each in snapshot.partitions)
    counts.update({(each.topic, "running"): 0 for each in snapshot.partitions})
    yield from sorted(counts.items())


def _places(snapshot: Snapshot) -> Iterator[Row]:
    names = {group.group_id: group.name for group in snapshot.statistics.groups}
    for partition in snapshot.partitions:
        for place in partition.groups:
            if place.group_id in names:
                yield (names[place.group_id], partition.topic, str(partition.partition)), place


def _ages(snapshot: Snapshot) -> Iterator[Row]:
    yield from sorted(snapshot.ages.items())


def _groups(snapshot: Snapshot) -> Iterator[Row]:
    for group in snapshot.statistics.groups:
        yield (group.name,), group


def _beside(field: str) -> Callable[[Snapshot], Iterator[Row]]:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        for each in getattr(snapshot.statistics, field):
            yield (each.topic, str(each.partition)), each

    return rows


def _forwarding(snapshot: Snapshot) -> Iterator[Row]:
    for each in snapshot.statistics.forwarding:
        yield (each.topic,), each


def _schedules(snapshot: Snapshot) -> Iterator[Row]:
    for each in snapshot.statistics.schedules:
        yield (each.topic, each.name), each


def _topics(snapshot: Snapshot) -> Iterator[Row]:
    for topic, is_read_only in sorted(snapshot.read_only.items()):
        yield (topic,), is_read_only


def _hot(snapshot: Snapshot) -> Iterator[Row]:
    for each in snapshot.hot:
        yield (each.topic, str(each.partition)), each.ratio


def _actors(snapshot: Snapshot) -> Iterator[Row]:
    for node in snapshot.tree.walk():
        if node.kind == "actor":
            yield (node.path.partition("/")[0],), node


def _runtime(snapshot: Snapshot) -> Iterator[Row]:
    yield (), snapshot


LEVELS: Final = (
    LabelledFamilies(
        ("topic", "partition"),
        _partitions,
        (
            _counter(
                "appended_messages",
                "Messages stored, over all runs; offsets without one count.",
                "next_offset",
            ),
            _gauge(
                "stored_messages", "Offsets that are kept.", lambda each: each.next_offset - each.start_offset
            ),
            _gauge("stored_bytes", "Bytes of segments.", "size_bytes"),
            _gauge("segments", "Segments of the log.", "segments"),
            _gauge("pending_messages", "Messages that wait for a commit.", "pending_records"),
            _gauge("pending_bytes", "Bytes that wait for a commit.", "pending_bytes"),
            _counter("commits", "Commits since the partition started.", "commits"),
            _counter("failed_commits", "Commits in which log or delivery journal failed.", "failed_commits"),
            _counter("heals", "How often log or delivery journal began anew after a failure.", "heals"),
            _gauge("damaged_messages", "Damaged or missing, until acknowledged by a repair.", "lost_records"),
            _counter(
                "cancelled_messages", "Never written: their publishers had given up.", "cancelled_records"
            ),
            _counter(
                "duplicate_messages", "Not stored again, by producer or deduplication id.", "duplicates"
            ),
            _gauge("producers", "Producers that partitions know.", "producers"),
            _gauge("dedup_ids", "Deduplication ids that partitions hold.", "dedup_ids"),
        ),
    ),
    LabelledFamilies(("topic", "state"), _states, (_gauge("partitions", "Partitions by state.", float),)),
    LabelledFamilies(("topic",), _topics, (_gauge("read_only", "1: the topic takes no messages.", float),)),
    LabelledFamilies(
        ("topic", "partition"),
        _hot,
        (
            _largest(
                "hot_ratio",
                f"How many times the mean rate of its topic a partition gets, where that is over {HOT_TIMES:g}."
                f" {HOT_ADVICE}",
            ),
        ),
    ),
    LabelledFamilies(
        ("group", "topic", "partition"),
        _places,
        (
            _gauge("lag_messages", "Messages that the group has not settled.", "pending"),
            _gauge("ready_messages", "Messages that may be leased now.", "ready"),
            _gauge("leased_messages", "Messages that consumers have.", "leased"),
            _counter("redelivered_messages", "Deliveries of what was delivered before.", "redelivered"),
            _counter("ran_out_messages", "Messages whose lease ran out.", "expired"),
            _counter("expired_messages", "Settled because the time to live was over.", "expired_records"),
            _counter("filtered_messages", "Settled because they are for another group.", "filtered_records"),
            _counter(
                "lost_messages", "Settled without delivery: dropped, or not there any more.", "lost_records"
            ),
            _counter(
                "dead_lettered_messages", "Rejected, failed too often, or expired and kept.", "dead_lettered"
            ),
            _gauge("dead_letters", "Dead letters that partitions keep.", "dead"),
        ),
    ),
    LabelledFamilies(
        ("group", "topic", "partition"),
        _ages,
        (_largest("lag_seconds", "Age of the first message that the group has not settled."),),
    ),
    LabelledFamilies(
        ("group",),
        _groups,
        (
            _gauge("consumers", "Members of the group.", "members"),
            _gauge("paused", "1: the group is paused.", lambda each: each.settings.paused),
            _counter("rebalances", "Decisions that gave partitions other owners.", "rebalances"),
            _counter(
                "forced_handovers",
                "Partitions taken from consumers that had not let go in time.",
                "forced_handovers",
            ),
            _counter("stalled_consumers", "Members whose session timed out.", "stalled_members"),
        ),
    ),
    LabelledFamilies(
        ("topic", "partition"),
        _beside("delayed"),
        (
            _gauge("delayed_messages", "Messages that wait until they are due.", "pending"),
            _counter("moved_delayed_messages", "Delayed messages that came to their topic.", "moved"),
            _counter("cancelled_delayed_messages", "Delayed messages that were cancelled.", "cancelled"),
            _counter("lost_delayed_messages", "Delayed messages that are damaged or missing.", "lost"),
        ),
    ),
    LabelledFamilies(
        ("topic", "partition"),
        _beside("outbox"),
        (
            _gauge("outbox_messages", "What acks have published and is not forwarded yet.", "pending"),
            _gauge("held_outbox_targets", "Partitions that take none of it now.", "held"),
            _counter("forwarded_outbox_messages", "What acks have published and was forwarded.", "forwarded"),
            _counter("refused_outbox_acks", "Acks that a full outbox refused.", "refused"),
            _counter("dropped_outbox_messages", "Went with a deleted topic.", "dropped"),
            _counter("lost_outbox_messages", "Damaged or missing.", "lost"),
        ),
    ),
    LabelledFamilies(
        ("topic",),
        _forwarding,
        (
            _counter("forwarded_dead_letters", "Dead letters forwarded to the topic.", "forwarded"),
            _gauge("waiting_dead_letters", "Dead letters that are for the topic and not there yet.", "kept"),
            _gauge(
                "held_dead_letter_topics", "1: the topic takes none now.", lambda each: each.held is not None
            ),
        ),
    ),
    LabelledFamilies(
        ("topic", "schedule"),
        _schedules,
        (
            _counter("fired_schedules", "Recurring publishes.", "fired"),
            _counter("missed_schedules", "Due instants that were passed over.", "passed_over"),
            _gauge(
                "held_schedules", "1: what is due cannot be published.", lambda each: each.problem is not None
            ),
        ),
    ),
    LabelledFamilies(
        ("part",),
        _actors,
        (
            _counter("actor_restarts", "Restarts after failures, by the first part of the path.", "restarts"),
            _gauge("failed_actors", "Actors that stay down.", lambda node: node.state == "failed"),
            _gauge("mailbox_messages", "Messages that wait in mailboxes.", "mailbox_depth"),
        ),
    ),
    LabelledFamilies(
        (),
        _runtime,
        (
            _counter(
                "undelivered_actor_messages", "Messages to actors that none took.", "statistics.dead_letters"
            ),
            _gauge(
                "renewed_messages", "Messages in hand whose leases are renewed.", "statistics.leased_messages"
            ),
            _counter("timers_armed", "Timers that were armed.", "statistics.timers.arms"),
            _gauge("waiting_timers", "Timers that wait.", "statistics.timers.armed"),
            _gauge(
                "lost_catalog_records",
                "Records that the catalog has lost.",
                "statistics.catalog.lost_records",
            ),
            _gauge("refresh_timestamp_seconds", "Of which moment all these are, since 1970.", "wall_s"),
            _gauge("refresh_duration_seconds", "How long it took to ask for them.", "took_s"),
        ),
    ),
)
"""All families but `callboard_build_info`."""
FAMILIES: Final = tuple(family for level in LEVELS for family in level.families)


def bounded(
    rows: Iterable[tuple[tuple[str, ...], float]],
    rows_max: int,
    join: Callable[[Sequence[float]], float] = sum,
) -> dict[tuple[str, ...], float]:
    """Rows with the same labels joined; while there are too many, without the last label, then the one before (MX1)."""
    joined = _joined(rows, join)
    kept = len(next(iter(joined), ()))
    while len(joined) > rows_max and kept:
        kept -= 1
        fewer = [(labels[:kept] + ("",) * len(labels[kept:]), value) for labels, value in joined.items()]
        joined = _joined(fewer, join)
    return joined


def _joined(
    rows: Iterable[tuple[tuple[str, ...], float]], join: Callable[[Sequence[float]], float]
) -> dict[tuple[str, ...], float]:
    joined: dict[tuple[str, ...], float] = {}
    for labels, value in rows:
        joined[labels] = join((joined[labels], value)) if labels in joined else value
    return joined
