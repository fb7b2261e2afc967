"""What the acts of the demo share: where they are played, their traffic, and what goes wrong, decided beforehand."""

from __future__ import annotations

import enum
import itertools
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import attrs

from callboard.actors.catalog.commands import DELAYED_FORWARDER, ROUTER
from callboard.demo.files import read_traffic
from callboard.log.errors import InvalidArgument
from callboard.log.seams.entropy import Entropy
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.entropy import SeededEntropy
from callboard.traffic import (
    Event,
    Format,
    LineColumns,
    Tally,
    load_profile,
    read_events,
    synthesise,
    time_form,
)

ONE, TWO, THREE = "act one", "act two", "act three"
EVENTS_DEFAULT: Final = 30_000
TOPIC, GROUP, DEAD_TOPIC = "traffic", "workers", "traffic.dlq"
DELAY_LEAST_S, DELAY_MOST_S = 0.2, 0.8
BUG_REASON: Final = "the handler has a bug: it cannot read this line"


class WorkFailure(enum.Enum):
    """How a worker fails on an event."""

    RAISE = "the handler raises, the first time"
    CANCEL = "the handler is cancelled, the first time"
    HANG = "the handler hangs for longer than the message is visible to it alone, the first time"
    REJECT = "the handler finds that it can never handle this, and gives it up: until its bug is mended"
    FAIL = "the handler raises each time, until its bug is mended"

    @property
    def is_bug(self) -> bool:
        """Whether it happens each time, until act three mends the handler."""
        return self in {WorkFailure.REJECT, WorkFailure.FAIL}


class ActPlan(NamedTuple):
    """What is special in one act."""

    failures: dict[int, WorkFailure]
    """By event."""
    delays: dict[int, float]
    """By event, the seconds that it is published to wait."""
    crashes: list[tuple[int, str]]
    """(after this many publishes of this act, path of an actor), in order."""
    kill_after: int
    """The number of publishes."""


def plan_act(entropy: Entropy, *, first: int, last: int, partitions: int) -> ActPlan:
    """The plan for the events from `first` to `last` (exclusive); the same for the same entropy."""
    events, random = last - first, entropy.random
    kinds = [WorkFailure.REJECT] * max(1, round(events * 0.002))
    kinds += [WorkFailure.FAIL] * max(1, round(events * 0.001))
    kinds += [WorkFailure.RAISE] * max(2, round(events * 0.004))
    kinds += [WorkFailure.CANCEL] * max(1, round(events * 0.002))
    kinds += [WorkFailure.HANG] * max(1, round(events / 10_000))
    failures: dict[int, WorkFailure] = {}
    for kind in kinds[:events]:
        event = int(events * random())
        while first + event in failures:
            event = (event + 1) % events
        failures[first + event] = kind
    delays = {
        first + int(events * random()): DELAY_LEAST_S + (DELAY_MOST_S - DELAY_LEAST_S) * random()
        for _ in range(max(1, round(events * 0.005)))
    }
    paths = [f"topics/{TOPIC}/{int(partitions * random())}" for _ in range(4)] + [DELAYED_FORWARDER, ROUTER]
    crashes = sorted((int(events * (0.1 + 0.8 * random())), path) for path in paths)
    return ActPlan(failures, delays, crashes, int(events * (0.3 + 0.3 * random())))


@attrs.frozen(kw_only=True)
class Stage:
    """What all acts share. Traffic comes from `path`, or is made from `seed` if it is None."""

    seed: int = 1
    path: str | None = None
    events: int | None = None
    """How many to make, or to take of the file; None takes all."""
    form: str | None = None
    time_column: str | None = None
    key_column: str | None = None
    value_column: str | None = None
    time_format: str = "auto"
    empty_key: str = "null"
    delimiter: str | None = None
    year: int | None = None
    partitions: int = 4
    workers: int = 4
    directory: str = ""
    quiet: bool = True
    total: int = 0
    """How many events there are."""

    def traffic(
        self, *, first: int = 0, last: int | None = None, tally: Tally | None = None
    ) -> Iterator[Event]:
        """The events numbered from `first` to `last` (exclusive): the same whenever they are asked for."""
        if self.path is None:
            entropy = SeededEntropy(self.seed).fork("traffic")
            every = synthesise(load_profile(), self.events or EVENTS_DEFAULT, entropy)
        else:
            columns = LineColumns(
                self.time_column,
                self.key_column,
                self.value_column,
                time_form(self.time_format),
                self.delimiter,
                self.year,
                keeps_empty_keys=self.empty_key == "keep",
            )
            lines = read_traffic(self.path, tally)
            form = None if self.form is None else Format(self.form)
            every = read_events(lines, form=form, columns=columns, tally=tally)
        return itertools.islice(itertools.islice(every, self.events), first, last)

    def digests(self, tally: Tally) -> array[int]:
        """A fingerprint of each event. Raises `InvalidArgument` when there are fewer than two."""
        found = array("Q", (event.digest for event in self.traffic(tally=tally)))
        if len(found) < 2:
            problem = f"{self.path or '--events'} gives {len(found)} events, and the demo needs two at least."
            raise InvalidArgument(f"{problem} {tally.reasons()}".rstrip())
        return found

    def span(self, act: str) -> tuple[int, int]:
        """The events of an act: act one has the first half, the others have the second."""
        middle = self.total // 2
        return (0, middle) if act == ONE else (middle, self.total)

    def plan(self, act: str) -> ActPlan:
        """What is special in an act. Act three plays what act two has left, by the same plan, without crashes."""
        first, last = self.span(act)
        entropy = SeededEntropy(self.seed).fork(TWO if act == THREE else act)
        plan = plan_act(entropy, first=first, last=last, partitions=self.partitions)
        return plan if act != THREE else plan._replace(crashes=[])

    def delayed(self) -> set[int]:
        """The events that are published to wait."""
        return {event for act in (ONE, TWO) for event in self.plan(act).delays}

    def recorded(self, act: str) -> str:
        """The file of what an act wrote down."""
        return f"{self.directory}/records/{act.replace(' ', '-')}.txt"

    def runtime(self) -> Runtime:
        """The runtime in which all acts play."""
        return open_runtime(f"{self.directory}/data")
