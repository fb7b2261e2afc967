"""What publishers and workers record while the demo runs: one line of text per fact, in the order of facts.

    S n n ...            these events are about to be published
    P partition o n n .. acknowledged: these events are stored from offset o on, one after the other
    E n n ...            the publish ended in an error that leaves open whether they are stored; they are repeated
    D partition ranges   delivered to a worker, the ranges being offsets like 5-9,12
    X partition offset   the delivered message is not what its own checksum says
    H partition ranges   handled: the work is done, its acknowledgement comes next
    K partition ranges   the acknowledgement was awaited, and returned
    C path               an actor was made to crash
    R path               an actor was restarted by its supervisor
    O partition offset   the partition ended there when the directory was opened again
    L us us ...          time from publishing to handled, of events published by this process
    Q us                 time from publishing to acknowledged, one for each call

A line is written before what it announces and after what it reports, so that a kill at any moment leaves a record
that errs on the safe side: what was in flight counts as in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

__all__ = ["Fact", "Recorder", "acknowledged_events", "join_ranges", "parse_line", "split_ranges"]

_TAGS = frozenset("SPEDXHKCROLQ")
_NAMED = frozenset("CR")


@attrs.frozen
class Fact:
    """One parsed line. `partition` is -1 where there is none; `numbers` are events, offsets or microseconds."""

    tag: str
    partition: int = -1
    numbers: Sequence[int] = ()
    path: str = ""


class Recorder:
    """Writes facts as lines."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def numbers(self, tag: str, numbers: Iterable[int]) -> None:
        """A fact about events or times: S, E, L, Q."""
        self._write(f"{tag} {' '.join(map(str, numbers))}")

    def stored(self, partition: int, offset: int, events: Iterable[int]) -> None:
        """P: `events` are stored from `offset` on."""
        self._write(f"P {partition} {offset} {' '.join(map(str, events))}")

    def offsets(self, tag: str, partition: int, offsets: Iterable[int]) -> None:
        """A fact about messages: D, X, H, K, O."""
        self._write(f"{tag} {partition} {join_ranges(offsets)}")

    def path(self, tag: str, path: str) -> None:
        """A fact about an actor: C, R."""
        self._write(f"{tag} {path}")


def join_ranges(offsets: Iterable[int]) -> str:
    """Offsets as text, runs that rise by one joined: `5-9,12`."""
    parts: list[str] = []
    first = last = -2
    for offset in offsets:
        if offset == last + 1:
            last = offset
            continue
        if last >= 0:
            parts.append(f"{first}-{last}" if last > first else str(first))
        first = last = offset
    if last >= 0:
        parts.append(f"{first}-{last}" if last > first else str(first))
    return ",".join(parts)


def split_ranges(text: str, *, limit: int = 10_000_000) -> list[int]:
    """The inverse of `join_ranges`. Raises ValueError for anything else, and for more than `limit` offsets."""
    offsets: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        run = range(int(first), int(last or first) + 1)
        if len(offsets) + len(run) > limit:
            raise ValueError("too many offsets in one line")
        offsets.extend(run)
    return offsets


def parse_line(line: str) -> Fact:
    """The fact on a line. Raises ValueError for a line that is none."""
    tag, _, rest = line.partition(" ")
    if tag not in _TAGS:
        raise ValueError("no such fact")
    if tag in _NAMED:
        return Fact(tag, path=rest)
    if tag in "SELQ":
        return Fact(tag, numbers=_numbers(rest))
    partition, _, rest = rest.partition(" ")
    numbers = _numbers(rest) if tag == "P" else split_ranges(rest)
    if tag == "P" and not numbers:
        raise ValueError("an acknowledgement without an offset")
    return Fact(tag, int(partition), numbers)


def _numbers(text: str) -> list[int]:
    return list(map(int, text.split()))


def acknowledged_events(lines: Iterable[str]) -> Iterator[int]:
    """The events that these lines say were acknowledged to their publisher."""
    for line in lines:
        if line.startswith("P "):
            yield from parse_line(line).numbers[1:]
