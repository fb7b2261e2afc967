"""Schedulers: which task is stepped next. Pure, over numbers: no trio here.

trio steps every runnable task once per tick, so merely shuffling a tick never lets one task overtake another by several
steps, and many races need just that. So a scheduler may also hold tasks back until the next tick, and each seed draws
the scheduler itself:

- `fifo`: all, in order of creation. The simplest, and what shrinking tends to.
- `shuffle`: all, in random order.
- `walk`: one random task per tick.
- `pct:D`: one task per tick, by random priorities with D - 1 random moments at which the running task's priority
  drops below all others: finds a bug of depth D with a known probability (Burckhardt et al., ASPLOS 2010).
- `starve:PATH`: all in random order, but tasks of the actor at PATH only when no other can run, or now and then.

A task that is stepped very often while others wait is demoted, so that one that only yields cannot stop the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from callboard.log.errors import InvalidArgument
from callboard.simulations.entropy import Generator
from callboard.simulations.world.tape import FIFO, Decision, StaleTape, Tape

PCT_STEPS: Final = 4_000
"""Over how many steps the moments of PCT are spread; a small broker run has some thousand."""
STARVED_SHARE: Final = 1 / 8
"""Of the seeds, where there is an actor to starve."""
PATIENCE: Final = 200
"""How often in a row one task may be stepped, or be passed over, by a scheduler with priorities."""


class TaskScheduler(Protocol):
    """Takes one decision per tick at which there is a choice."""

    name: str
    looks_at_labels: bool
    """Whether `decide` wants them; else they may be left out."""

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        """Positions in `numbers` (task numbers, ascending) to be stepped now, in order; `FIFO` for all.

        `labels` are the tasks' names, those of actors being their paths. At least one is stepped.
        """
        ...


class Fifo:
    """All, in order of creation."""

    name = "fifo"
    looks_at_labels = False

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        return FIFO


class Shuffle:
    """All, in random order."""

    name = "shuffle"
    looks_at_labels = False

    def __init__(self, source: Generator) -> None:
        self._source = source

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        positions = list(range(len(numbers)))
        self._source.shuffle(positions)
        return tuple(positions)


class Walk:
    """One random task per tick."""

    name = "walk"
    looks_at_labels = False

    def __init__(self, source: Generator) -> None:
        self._source = source

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        return (int(self._source.random() * len(numbers)),)


class Pct:
    """The task with the highest random priority, which drops at `depth - 1` random steps."""

    looks_at_labels = False

    def __init__(self, source: Generator, depth: int) -> None:
        self.name = f"pct:{depth}"
        self._source = source
        self._priorities: dict[int, float] = {}
        self._steps = 0
        self._drops = sorted(source.randrange(PCT_STEPS) for _ in range(depth - 1))
        self._lowest = 0.0
        self._in_a_row = (-1, 0)

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        priorities = self._priorities
        best, best_priority = 0, -float("inf")
        for position, number in enumerate(numbers):
            priority = priorities.get(number)
            if priority is None:
                priority = priorities[number] = self._source.random()
            if priority > best_priority:
                best, best_priority = position, priority
        number = numbers[best]
        self._steps += 1
        if self._drops and self._steps >= self._drops[0]:
            self._drops.pop(0)
            self._demote(number)
        last, times = self._in_a_row
        self._in_a_row = (number, times + 1) if last == number else (number, 1)
        if self._in_a_row[1] > PATIENCE:
            self._demote(number)
        return (best,)

    def _demote(self, number: int) -> None:
        self._lowest -= 1.0
        self._priorities[number] = self._lowest


class Starve:
    """All but the tasks of one actor, in random order; those only now and then."""

    looks_at_labels = True

    def __init__(self, source: Generator, path: str) -> None:
        self.name = f"starve:{path}"
        self._source = source
        self._path = path
        self._prefix = f"{path}:"
        self._passed_over = 0

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        path, prefix = self._path, self._prefix
        positions = [
            position
            for position, label in enumerate(labels)
            if label != path and not label.startswith(prefix)
        ]
        starving = len(positions) < len(numbers)
        if not positions or (starving and self._passed_over >= PATIENCE):
            self._passed_over = 0
            positions = list(range(len(numbers)))
        elif starving:
            self._passed_over += 1
        self._source.shuffle(positions)
        return tuple(positions)


class Player:
    """Replays a tape. After its end, and from a decision that does not fit, it steps all tasks in order.

    `stale` then holds the error. It is not raised here: an error in the middle of a tick would end trio's loop.
    """

    name = "tape"
    looks_at_labels = False

    def __init__(self, tape: Tape) -> None:
        self.stale: StaleTape | None = None
        self._decisions = tape.decisions
        self._at = 0

    def decide(self, numbers: Sequence[int], labels: Sequence[str]) -> Decision:
        if self._at >= len(self._decisions):
            return FIFO
        decision = self._decisions[self._at]
        self._at += 1
        if decision and max(decision) >= len(numbers):
            self.stale = StaleTape(
                f"decision {self._at} of the tape steps task {max(decision) + 1} of {len(numbers)} that can run. It "
                "was recorded with other code, another workload or another plan. Search again with the seed."
            )
            self._at = len(self._decisions)
            return FIFO
        return decision


def draw_name(source: Generator) -> str:
    """The scheduler of a seed in which no actor is starved."""
    kind = source.choice(["fifo", "shuffle", "shuffle", "walk", "walk", "pct", "pct"])
    return f"pct:{source.randint(1, 5)}" if kind == "pct" else kind


def draw_starved(source: Generator, actors: Sequence[str]) -> str | None:
    """The scheduler of a seed in which one of `actors`, paths, is starved; None in most."""
    if not actors or source.random() >= STARVED_SHARE:
        return None
    return f"starve:{source.choice(list(actors))}"


def make(name: str, source: Generator) -> TaskScheduler:
    """The scheduler of that name, drawing from `source`. Raises `InvalidArgument`."""
    kind, _, argument = name.partition(":")
    if kind == "fifo" and not argument:
        return Fifo()
    if kind == "shuffle" and not argument:
        return Shuffle(source)
    if kind == "walk" and not argument:
        return Walk(source)
    if kind == "pct" and argument.isdecimal() and 1 <= int(argument) <= 100:
        return Pct(source, int(argument))
    if kind == "starve" and argument:
        return Starve(source, argument)
    raise InvalidArgument(
        f"there is no scheduler {name!r}. Nothing was run. Use fifo, shuffle, walk, pct:DEPTH or starve:ACTOR."
    )
