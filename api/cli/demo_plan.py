"""What goes wrong in the demo, decided beforehand from the seed: which events, which partitions, at which moments."""

from __future__ import annotations

import enum

import attrs

from callboard.log.seams.entropy import Entropy

__all__ = ["Failure", "FailurePlan", "plan_failures"]

_RAISES_PER_EVENT = 0.004
_CANCELS_PER_EVENT = 0.002
_EVENTS_PER_HANG = 10_000
_CRASHES_PER_ACT = 4


class Failure(enum.Enum):
    """How a worker fails on the first delivery of an event."""

    RAISE = "raise"
    """The handler raises: the message is nacked and delivered again."""
    CANCEL = "cancel"
    """The handler is cancelled: the message is released and delivered again."""
    HANG = "hang"
    """The handler hangs for longer than its lease: another worker leases the message."""


@attrs.frozen
class FailurePlan:
    """The faults of one act over the events `first` to `last` (exclusive).

    `crashes` holds (after so many events of this act were acknowledged, partition), in order. `kill_after` is the
    number of acknowledged events of the act after which its process is killed, where it is to be killed.
    """

    first: int
    last: int
    failures: dict[int, Failure]
    crashes: tuple[tuple[int, int], ...]
    kill_after: int


def plan_failures(entropy: Entropy, *, first: int, last: int, partitions: int) -> FailurePlan:
    """The plan for the events from `first` to `last` (exclusive); the same for the same entropy."""
    events = last - first
    failures: dict[int, Failure] = {}
    wanted = {
        Failure.RAISE: max(2, round(events * _RAISES_PER_EVENT)),
        Failure.CANCEL: max(1, round(events * _CANCELS_PER_EVENT)),
        Failure.HANG: max(1, round(events / _EVENTS_PER_HANG)),
    }
    for failure, count in wanted.items():
        for _ in range(min(count, events)):
            failures[first + _below(entropy, events)] = failure
    moments = sorted(_between(entropy, events, 0.1, 0.9) for _ in range(_CRASHES_PER_ACT))
    crashes = tuple((moment, _below(entropy, partitions)) for moment in moments)
    return FailurePlan(first, last, failures, crashes, _between(entropy, events, 0.3, 0.6))


def _below(entropy: Entropy, limit: int) -> int:
    return int(entropy.random() * limit)


def _between(entropy: Entropy, events: int, low: float, high: float) -> int:
    return int(events * (low + entropy.random() * (high - low)))
