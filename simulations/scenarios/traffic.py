"""Traffic: what publishers and consumers of a broker scenario do, as plain data that can be stored and shrunk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from callboard.actors.settings import Codec
from callboard.log.limits import KIB, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    BYTES_MAX,
    COUNT_MAX,
    NAMES_MAX,
    DrawnLimits,
    between,
    check_counts,
    draw_limits,
    few,
    limits_of,
    one_of,
    sized,
    uniform,
)

TOPIC: Final = "orders"
FIRST_TIMESTAMP: Final = datetime(2020, 1, 1, tzinfo=UTC)
STYLES: Final = ("one by one", "receive", "batches", "lazy")
"""How a group consumes: iterating and acking each, holding each while a body runs, in batches, or flushing acks."""
IMPATIENT: Final = "impatient"
"""Another way: asking again and again, and giving up after a moment."""

NACK_DELAY_S: Final = 0.1
EXTENDED: Final = 1.5
"""A message whose lease was extended is handled for this many visibility timeouts."""
LEVELS: Final = (
    ("all",),
    ("all",),
    ("all", "leader"),
    ("all", "leader", "none"),
    ("leader", "none", "none", "none", "none", "all"),
)
"""Levels of acknowledgement, in turns: with several publishers they meet in one commit."""


@attrs.frozen(kw_only=True)
class Traffic:
    """A workload. Numbers may be anything up to a bound: nonsense is read as the least that makes sense."""

    messages: int = 200
    topics: int = 1
    """How many there are: publishers take them in turns, and consumers read them together."""
    partitions: int = 2
    """Of each topic."""
    publishers: int = 3
    batch: int = 1
    """Messages per publish."""
    keys: int = 5
    """Keys to publish under; 0 for none."""
    chosen_every: int = 0
    """Every n-th message has no key, and its publisher chooses the partition; 0 for none."""
    value_bytes: int = 40
    noise_every: int = 0
    """Every n-th message has a value that no compression shortens; 0 for none."""
    keyless_every: int = 0
    """Every n-th message has no key, where the others have one; 0 for none."""
    annotate_every: int = 0
    """Every n-th message has headers and a time of its own; 0 for none."""
    compression: Codec = "none"
    """Of all topics."""
    pause_s: float = 0.02
    """Between two publishes of a publisher."""
    acks: tuple[str, ...] = ("all",)
    """Levels, in turns."""
    flush_every: int = 0
    """After this many publishes a publisher has everything synced; 0: only in the end, and for level `none`."""
    closings: int = 0
    """How often the runtime is closed in good order under way, and opened again."""
    close_after_s: float = 0.1
    """How long it was open then."""
    patience_s: float = 0.0
    """How long a publisher waits for each publish before it gives up and goes on; 0: for ever."""
    refused_s: float = 1.0
    """How long a publisher that was refused waits before it tries again."""
    segment_bytes: int = SEGMENT_BYTES_MIN
    styles: tuple[str, ...] = ("one by one", "batches")
    """A group each; none, and nobody consumes, so that nothing is synced for an ack's sake."""
    consumers: int = 2
    """Per group."""
    ordering: str = "none"
    """Of all groups."""
    visibility_s: float = 5.0
    altered_visibility_s: float = 0.0
    """What the visibility timeout is shortened to under way; 0: never."""
    handling_s: float = 0.0
    """How long a consumer handles a message, or a batch."""
    max_in_flight: int = 0
    """Of each consumer; 0: as usual."""
    nack_delay_s: float = NACK_DELAY_S
    """How long what is nacked is to wait; below 0: the group's backoff."""
    nack_every: int = 0
    """Every n-th offset is nacked at first; 0 for none."""
    forget_every: int = 0
    """Every n-th offset is forgotten at first: its lease runs out; 0 for none."""
    release_every: int = 0
    """Every n-th offset is given back at first; 0 for none."""
    failures: int = 1
    """How often a message of these may fail before it is acked; each time as the next offset does at first."""
    extended_offset: int = -1
    """The offset in each partition whose lease is extended, to be handled for longer than it lasted; -1 for none."""
    readers: int = 0
    """How many follow partitions without a group."""
    alterations: int = 0
    """How often a topic beside the others is filled, altered and emptied."""
    recreations: int = 0
    """How often a topic and a group of one name are made, used and deleted beside the others."""
    mistakes: int = 0
    """How many wrong calls somebody makes, beside all others."""
    lag_s: float = 0.0
    """How long, in each life, consumers do nothing after they have joined."""
    cut_at_end: bool = False
    """Whether the power is cut when everything is settled, before the runtime is closed."""
    poll_s: float = 0.2
    moments: int = 0
    """At how many moments a copy of the disk is taken, to see what an end of the machine would have left there."""
    retries: int = 0
    """How many publishes, in all, are repeated after an indefinite error."""
    latency_s: float = 0.0
    """How long the disk takes for each plan and each read: commits are shared, and what happens at a moment of time
    happens amid them."""
    limits: DrawnLimits = ()
    """Limits of the runtime that are not the usual ones."""

    def __attrs_post_init__(self) -> None:
        check_counts(type(self).__name__, self._counts())
        limits_of(self.limits)

    def _counts(self) -> dict[str, tuple[int, int]]:
        """What is counted, and the bound of each."""
        return {
            "messages": (self.messages, COUNT_MAX),
            "topics": (self.topics, NAMES_MAX),
            "partitions": (self.partitions, ACTORS_MAX),
            "partitions of all topics": (max(1, self.topics) * max(1, self.partitions), ACTORS_MAX),
            "publishers": (self.publishers, ACTORS_MAX),
            "batch": (self.batch, COUNT_MAX),
            "keys": (self.keys, COUNT_MAX),
            "value_bytes": (self.value_bytes, BYTES_MAX),
            "messages x value_bytes": (max(0, self.messages) * max(0, self.value_bytes), BYTES_MAX),
            "acks, in turns": (len(self.acks), NAMES_MAX),
            "segment_bytes": (self.segment_bytes, SEGMENT_BYTES_MAX),
            "styles, a group each,": (len(self.styles), NAMES_MAX),
            "consumers": (self.consumers, ACTORS_MAX),
            "readers": (self.readers, ACTORS_MAX),
            "max_in_flight": (self.max_in_flight, COUNT_MAX),
            "failures": (self.failures, COUNT_MAX),
            "alterations": (self.alterations, COUNT_MAX),
            "recreations": (self.recreations, COUNT_MAX),
            "mistakes": (self.mistakes, COUNT_MAX),
            "consumers of all groups": (max(1, self.consumers) * len(self.styles), ACTORS_MAX),
            "closings": (self.closings, COUNT_MAX),
            "moments": (self.moments, NAMES_MAX),
            "retries": (self.retries, COUNT_MAX),
        }

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Names of the topics."""
        return (TOPIC, *(f"{TOPIC}-{number}" for number in range(1, self.topics)))

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(f"group-{index}" for index in range(len(self.styles)))

    @property
    def work_s(self) -> float:
        """How long clients take at most, in virtual seconds, when nothing fails and nobody waits for others."""
        return self.usual_work_s

    @property
    def usual_work_s(self) -> float:
        """The same, of what all broker workloads do."""
        publishes = -(-self.messages // (max(1, self.publishers) * max(1, self.batch)))
        return (
            publishes * max(0.0, self.pause_s)
            + self.messages * max(0.0, self.handling_s)
            + (
                self.topics * self.partitions * EXTENDED * self.visibility_s
                if self.extended_offset >= 0
                else 0.0
            )
            + self._in_turn_s
            + max(0.0, self.lag_s)
            + 20.0 * self.messages * (1 + len(self.styles)) * max(0.0, self.latency_s)
            + 10.0 * max(0, self.alterations)
            + 2.0 * max(0.05, self.poll_s)
        )

    @property
    def _in_turn_s(self) -> float:
        """How long leases that are forgotten take at most when those of one key run out one after the other."""
        if self.ordering != "key" or self.forget_every <= 0:
            return 0.0
        return self.messages // self.forget_every * self.visibility_s

    def value(self, number: int) -> bytes:
        """The payload of a message: nobody else's."""
        text = b"message %d " % number
        left = max(0, self.value_bytes - len(text))
        return text + (
            SeededEntropy(number).bytes(left) if _is_nth(number, self.noise_every) else b"." * left
        )

    def key(self, number: int) -> bytes | None:
        """The key of a message."""
        if self.keys <= 0 or _is_nth(number, self.keyless_every) or self.chosen(number) is not None:
            return None
        return b"key %d" % (number % self.keys)

    def chosen(self, number: int) -> int | None:
        """The partition that the publisher of a message chooses; None when it does not."""
        if not _is_nth(number, self.chosen_every):
            return None
        return number // self.chosen_every % max(1, self.partitions)

    def headers(self, number: int) -> dict[str, bytes] | None:
        """The headers of a message."""
        return (
            {"number": b"%d" % number, "of": TOPIC.encode()} if _is_nth(number, self.annotate_every) else None
        )

    def timestamp(self, number: int) -> datetime | None:
        """The own time of a message."""
        return FIRST_TIMESTAMP + timedelta(seconds=number) if _is_nth(number, self.annotate_every) else None


def _is_nth(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def draw_traffic(entropy: SeededEntropy, *, messages: tuple[int, int] = (3, 120)) -> Traffic:
    """Some traffic for a broker: a few publishers, one to three groups, short leases now and then."""
    levels = one_of(entropy, LEVELS)
    partitioning = entropy.fork("partitioning")
    stored = entropy.fork("stored")
    return Traffic(
        messages=few(entropy, *messages),
        partitions=few(entropy, 1, 3),
        publishers=between(entropy, 1, 5),
        batch=one_of(entropy, (1, 2, 5, 20)),
        keys=one_of(entropy, (0, 1, 7)),
        chosen_every=one_of(partitioning, (0, 0, 4)),
        value_bytes=one_of(entropy, (20, 100, 600, 2000)),
        pause_s=one_of(entropy, (0.0, 0.01, 0.05)),
        acks=levels,
        segment_bytes=one_of(entropy, (SEGMENT_BYTES_MIN, 1024 * KIB)),
        styles=tuple(one_of(entropy, STYLES) for _ in range(one_of(entropy, (0, 1, 1, 1, 1, 1, 2, 3)))),
        consumers=sized(entropy, 1, 3),
        visibility_s=one_of(entropy, (0.5, 2.0, 10.0)),
        handling_s=one_of(entropy, (0.0, 0.0, 0.01, 0.05)),
        lag_s=one_of(entropy, (0.0, 0.0, 0.5, 2.0)),
        cut_at_end=one_of(entropy, (False, False, True)),
        nack_every=one_of(entropy, (0, 0, 13)),
        forget_every=one_of(entropy, (0, 0, 29)),
        poll_s=uniform(entropy, 0.2, 1.0),
        compression=one_of(stored, ("none", "none", "gzip", "zstd")),
        retries=one_of(entropy, (0, 0, 5)),
        moments=one_of(stored, (0, 0, 0, 1)),
        noise_every=one_of(stored, (0, 0, 1, 3)),
        keyless_every=one_of(stored, (0, 0, 2, 3)),
        flush_every=one_of(stored, (0, 0, 1, 3)),
        closings=one_of(stored, (0, 0, 0, 1, 1, 2)),
        close_after_s=one_of(stored, (0.02, 0.1, 0.5)),
        limits=draw_limits(entropy.fork("limits")),
    )
