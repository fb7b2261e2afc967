"""An analysis of deliveries: its numbers, and its JSON. Pure.

Latencies are counted in *bins*: up to 63 microseconds one each, from there on 32 in each power of two, so a quantile is
too high by 1/32 at most. The least of a bin's numbers is its bottom, the greatest its top.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import attrs

from callboard.simulations.workload.delivery_history import FactKind, Opening
from callboard.simulations.workload.profile_format import SECOND_US

FORMAT: Final = "callboard-analysis"
VERSION: Final = 1
BIN_BITS: Final = 6
BUCKETS: Final = 200
BUCKETS_MAX: Final = 10_000
ROUND_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
QUANTILES: Final = {"p50_us": (1, 2), "p90_us": (9, 10), "p99_us": (99, 100)}

PENDING: Final = 0
LEFT_BEHIND: Final = 8
GONE: Final = 9
FATES: Final = {
    int(FactKind.ACKED): "acked",
    int(FactKind.SKIPPED): "skipped",
    int(FactKind.UNTIMED): "untimed",
    PENDING: "pending",
    LEFT_BEHIND: "left_behind",
    GONE: "gone",
}
"""What became of records: acked or skipped at a known time, settled at an unknown one, pending, left behind when their
group was closed, or settled and no longer in the log."""


@attrs.frozen(kw_only=True)
class JournalRead:
    """What reading one journal found, besides facts about records."""

    first_us: int | None
    last_us: int | None
    lost: tuple[tuple[int, int], ...]
    openings: tuple[Opening, ...]

    @classmethod
    def from_json(cls, text: str) -> JournalRead:
        """The inverse of `json.dumps(attrs.asdict(...))`."""
        found = json.loads(text)
        return cls(
            first_us=found["first_us"],
            last_us=found["last_us"],
            lost=tuple((first, last) for first, last in found["lost"]),
            openings=tuple(Opening(**opening) for opening in found["openings"]),
        )


class Counted(NamedTuple):
    """A number of records of one opening, with the sum and the greatest of their times."""

    name: str
    key: tuple[int, int, int]
    """Place, group and opening."""
    bucket: int | None
    what: int | None
    many: int
    sum_us: int = 0
    most_us: int = 0


@attrs.frozen(kw_only=True)
class Latency:
    """How long records took. Quantiles are tops of bins."""

    count: int
    mean_us: int
    most_us: int
    bins: tuple[tuple[int, int], ...]

    def quantile(self, part: int, of: int) -> int:
        """No more than this many parts of all records took longer."""
        wanted, so_far = -(-self.count * part // of), 0
        for number, many in self.bins:
            so_far += many
            if so_far >= wanted:
                return min(bin_top(number), self.most_us)
        return self.most_us

    def document(self) -> dict[str, int]:
        """For JSON."""
        quantiles = {name: self.quantile(*part) for name, part in QUANTILES.items()}
        return {"count": self.count, "mean_us": self.mean_us, **quantiles, "max_us": self.most_us}


@attrs.frozen(kw_only=True)
class Deliveries:
    """How records were delivered to one group: those of a partition, or with `partition` None of a topic."""

    topic: str
    partition: int | None
    group: str
    since_us: int
    """From here on the lag is known."""
    is_whole: bool
    """Whether the history reaches back to the group's beginning."""
    fates: Mapping[str, int]
    """By the values of `FATES`: records that the log still has, and those `gone`."""
    deliveries: int
    """Of these records, leases after another counted."""
    attempts: tuple[tuple[int, int], ...]
    """Histogram: [attempts of a record, records]."""
    counts: Mapping[str, int]
    """Since the group began, also where the history does not reach: offsets that met each fate."""
    backwards: int
    """Records that were acked before they were published, by a clock that was set back."""
    latency: Latency | None
    """From publishing to the ack."""
    wait: Latency | None
    """From publishing to the first delivery."""
    published: tuple[int, ...]
    settled: tuple[int, ...]
    lag: tuple[int | None, ...]
    """At the end of each bucket; None where it is not known."""
    latency_by_bucket: tuple[Latency | None, ...]

    @property
    def delivered(self) -> int:
        """Records that were delivered at least once, in the history."""
        return sum(many for _, many in self.attempts)

    @property
    def redelivered(self) -> int:
        """Records that were delivered again because an attempt had failed."""
        return sum(many for attempts, many in self.attempts if attempts > 1)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "group": self.group,
            "since_us": self.since_us,
            "is_whole": self.is_whole,
            "records": dict(self.fates),
            "deliveries": self.deliveries,
            "delivered": self.delivered,
            "redelivered": self.redelivered,
            "redelivery_ratio": self.redelivered / self.delivered if self.delivered else None,
            "attempts": self.attempts,
            "counts": dict(self.counts),
            "backwards": self.backwards,
            "latency": None if self.latency is None else self.latency.document(),
            "wait": None if self.wait is None else self.wait.document(),
            "published": self.published,
            "settled": self.settled,
            "lag": self.lag,
            "p99_us_by_bucket": [
                None if each is None else each.quantile(99, 100) for each in self.latency_by_bucket
            ],
        }


@attrs.frozen(kw_only=True)
class Analysis:
    """How records were delivered."""

    directory: str
    from_us: int
    to_us: int
    bucket_us: int
    journals: tuple[dict[str, Any], ...]
    """By partition: what is in the log and how far the journal reaches back."""
    topics: tuple[Deliveries, ...]
    """By topic and group."""
    partitions: tuple[Deliveries, ...]
    """By topic, partition and group."""
    notes: tuple[str, ...]
    """What cannot be said, and why."""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "directory": self.directory,
            "from_us": self.from_us,
            "to_us": self.to_us,
            "bucket_us": self.bucket_us,
            "journals": self.journals,
            "topics": [each.document() for each in self.topics],
            "partitions": [each.document() for each in self.partitions],
            "notes": self.notes,
        }

    def to_json(self) -> str:
        """The text of the file, a newline at the end."""
        return json.dumps(self.document(), sort_keys=True) + "\n"


def bin_of(number: int) -> int:
    """The bin of a number from 0 on."""
    shift = max(number.bit_length() - BIN_BITS, 0)
    return shift * (1 << BIN_BITS - 1) + (number >> shift)


def bin_top(number: int) -> int:
    """The greatest number in a bin."""
    half = 1 << BIN_BITS - 1
    if number < 2 * half:
        return number
    shift = number // half - 1
    return ((number - shift * half + 1) << shift) - 1


def bucket_for(span_us: int) -> int:
    """A round length that cuts the span into at most `BUCKETS`."""
    for seconds in ROUND_S:
        if span_us // (seconds * SECOND_US) < BUCKETS:
            return seconds * SECOND_US
    return (span_us // (BUCKETS * ROUND_S[-1] * SECOND_US) + 1) * ROUND_S[-1] * SECOND_US
