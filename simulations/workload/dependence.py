"""What joins the events of a recording, as integers: the field `dependence` of a profile. Pure.

The other fields of a profile say how many events there are of each kind; these say which come together. A generated
recording has the queues of the recorded one because of them: bursts at every scale of time, keys that come and go, and
come several times in a row, and sizes that are alike within a key.

Vocabulary
----------
window    a run of buckets with about a fiftieth of the events (`windows_of`)
cell      a second of a bucket; where the clock's step is longer than a second, a step
split     how the events of an interval divide between its halves (`cascade`)
run       neighbours with one key; events without a key count as those of one key more
class     of a size: `size_classes` of the profile's `value_bytes`; of a number: `fine_class`

    clock_us        the longest of `CLOCKS_US` that divides the time since the first event of all events
    parts           events of each bucket's parts (`Grid.part_bits`), one bucket after the other
    second_splits   for each depth below these parts, counts [row, column, many]; from the bucket to the cell
    step_splits     the same from the cell to the clock's step
    hot             {"windows": [[window, events], ...], "sizes": [[class, events], ...], "again": n}, first for all
                    events without a key, then for the most frequent keys, as many as have 20,000 pairs of `windows`.
                    A size has the class of the key's event before in `again` of 65,536 cases, else one of `sizes`
    others          [first window, last window, length of a key's events in bits, keys, events]: all other keys
    starts          [class of a key's events in the window, part of the window, many]: in which of 32 parts its first
                    run begins
    runs            [class of a key's events left in the window, class of a run's events, many]
    returns         [class of a key's events in the window, class of the events between two of its runs, many]
    paces           [class of a key's events in the window, class of its pace, keys]: the pace of a key with two runs is
                    the mean of the events between them. Missing in profiles of earlier versions, and so is the next one
    pace_returns    [class of a key's pace, class of the events between two of its runs, many]
    size_first      [0, class, many]: of the first event of keys with at most `RARE_MAX` events
    size_next       [class, class of the same key's next event, many]: of these keys
    size_stays      in how many of 65,536 cases where an event has the class of the key's event before, its size lies in
                    the same 16 bytes too, beyond chance
    size_same       in how many of these cases it is the very same size, beyond chance. Null in old profiles
    window_sizes    [window, class, events]

All counts `[row, column, many]` are in ascending order, `many` at least 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

import attrs

SECOND_US: Final = 1_000_000
CLOCKS_US: Final = (
    *(seconds * SECOND_US for seconds in (86_400, 3_600, 1_800, 900, 600, 300, 60, 30, 20, 15, 10, 5, 1)),
    *(100_000, 10_000, 1_000, 100, 10, 1),
)
WINDOWS: Final = 50
WINDOW_EVENTS: Final = 200
"""A recording has no more windows than this many events each allow."""
HOT_PAIRS: Final = 20_000
HOT_MAX: Final = 2_001
RARE_MAX: Final = 256
SIZE_QUANTILES: Final = 8
PART_BITS: Final = 2
START_COLUMNS: Final = 32
AGAIN_ONE: Final = 65_536
COUNTS_MAX: Final = 100_000
"""Of one table; all tables of a recording have about 10,000."""
ROWS_MAX: Final = 10_000
COLUMNS_MAX: Final = 256

Counts = tuple[tuple[int, int, int], ...]


def fine_class(number: int) -> int:
    """The class of a number from 0 on: exact below 8, then by its first three bits."""
    shift = max(number.bit_length() - 3, 0)
    return number if number < 8 else 4 * shift + (number >> shift)


def fine_low(found: int) -> int:
    """The least number of a class."""
    shift = max(found // 4 - 1, 0)
    return found if found < 8 else (found - 4 * shift) << shift


def windows_of(bucket_counts: Sequence[int]) -> tuple[int, ...]:
    """Where each window ends, in buckets."""
    events = sum(bucket_counts)
    windows = min(WINDOWS, max(1, events // WINDOW_EVENTS))
    ends, inside = [], 0
    for bucket, count in enumerate(bucket_counts, 1):
        inside += count
        if inside * windows >= events:
            ends.append(bucket)
            inside = 0
    if bucket_counts and (not ends or ends[-1] != len(bucket_counts)):
        ends.append(len(bucket_counts))
    return tuple(ends)


def size_classes(value_bytes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The bins at which a new class of sizes begins: quantiles of the events, of their bytes, and of these squared.

    So a few large values, which most bytes lie in, have classes of their own.
    """
    borders: set[int] = set()
    for power in (0, 1, 2):
        weights = [many * (what + 1) ** power for what, many in value_bytes]
        sums = list(accumulate(weights))
        at = 0
        for step in range(1, SIZE_QUANTILES + 1):
            while at < len(sums) and sums[at] * (SIZE_QUANTILES + 1) <= sums[-1] * step:
                at += 1
            if at < len(value_bytes):
                borders.add(value_bytes[at][0])
    return tuple(sorted(borders - {value_bytes[0][0]})) if value_bytes else ()


@attrs.frozen
class Grid:
    """How a recording's time divides into buckets, cells and steps of its clock."""

    bucket_us: int
    clock_us: int

    @property
    def cell_us(self) -> int:
        """Length of a cell."""
        return max(self.clock_us, SECOND_US)

    @property
    def cells(self) -> int:
        """Cells of a bucket, at most."""
        return -(-self.bucket_us // self.cell_us)

    @property
    def cell_bits(self) -> int:
        """Depth of the splits from a bucket to its cells."""
        return (self.cells - 1).bit_length()

    @property
    def part_bits(self) -> int:
        """Depth to which the splits are known one by one."""
        return min(PART_BITS, self.cell_bits)

    @property
    def steps(self) -> int:
        """Steps of the clock in a cell."""
        return self.cell_us // self.clock_us

    @property
    def step_bits(self) -> int:
        """Depth of the splits from a cell to its steps."""
        return (self.steps - 1).bit_length()


@attrs.frozen
class HotKey:
    """One of the most frequent keys."""

    windows: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[int, int], ...]
    again: int


@attrs.frozen(kw_only=True)
class Dependence:
    """What joins the events of a recording; for the fields see the module."""

    clock_us: int
    parts: tuple[int, ...]
    second_splits: tuple[Counts, ...]
    step_splits: tuple[Counts, ...]
    hot: tuple[HotKey, ...]
    others: tuple[tuple[int, int, int, int, int], ...]
    starts: Counts
    runs: Counts
    returns: Counts
    size_first: Counts
    size_next: Counts
    size_stays: int
    window_sizes: Counts
    paces: Counts = ()
    pace_returns: Counts = ()
    size_same: int | None = None


def read_dependence(value: Any) -> Dependence | None:
    """The field of a profile's document. Raises `ValueError` with the end of a sentence."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    found = {}
    for name, read in _READERS.items():
        if name not in value:
            if name in _OPTIONAL:
                continue
            raise ValueError(f"lacks {name}")
        try:
            found[name] = read(value[name])
        except ValueError as error:
            raise ValueError(f"is wrong: {name} {error}") from None
    return Dependence(**found)


# -- reading one field

_MANY: Final = 2**53 - 1


def _number(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"holds something that is not a whole number from 0 to {most}")
    return value


def _rows(widths: Sequence[int], length_max: int) -> Callable[[Any], tuple[Any, ...]]:
    """A reader of rows of numbers up to `widths`, in ascending order but for the last, which is 1 at least."""

    keys = next((at for at, width in enumerate(widths) if width == _MANY), len(widths) - 1)

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > length_max:
            raise ValueError(f"is not a list of at most {length_max} rows")
        found: list[tuple[int, ...]] = []
        for row in value:
            if not isinstance(row, (list, tuple)) or len(row) != len(widths):
                raise ValueError(f"holds a row that has not {len(widths)} numbers")
            found.append(tuple(map(_number, row, widths)))
            if min(found[-1][keys:]) < 1:
                raise ValueError("counts nothing in a row")
            if len(found) > 1 and found[-2][:keys] >= found[-1][:keys]:
                raise ValueError("is not in ascending order")
        return tuple(found)

    return read


_COUNTS = _rows((ROWS_MAX, COLUMNS_MAX, _MANY), COUNTS_MAX)
_PAIRS = _rows((ROWS_MAX, _MANY), HOT_PAIRS * 2)


def _splits(value: Any) -> tuple[Counts, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > 64:
        raise ValueError("is not a list of at most 64 tables")
    return tuple(map(_COUNTS, value))


def _hot(value: Any) -> tuple[HotKey, ...]:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= HOT_MAX:
        raise ValueError(f"is not a list of 1 to {HOT_MAX} keys")
    found = []
    for key in value:
        if not isinstance(key, dict) or set(key) != {"windows", "sizes", "again"}:
            raise ValueError("holds something that is not an object of `windows`, `sizes` and `again`")
        found.append(HotKey(_PAIRS(key["windows"]), _PAIRS(key["sizes"]), _number(key["again"], AGAIN_ONE)))
    return tuple(found)


def _clock(value: Any) -> int:
    if value not in CLOCKS_US or isinstance(value, bool):
        raise ValueError(f"is none of {', '.join(map(str, CLOCKS_US))}")
    return int(value)


def _parts(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > 400_000:
        raise ValueError("is not a list of at most 400000 numbers")
    return tuple(_number(each, _MANY) for each in value)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "clock_us": _clock,
    "parts": _parts,
    "second_splits": _splits,
    "step_splits": _splits,
    "hot": _hot,
    "others": _rows((WINDOWS, WINDOWS, COLUMNS_MAX, _MANY, _MANY), COUNTS_MAX),
    "starts": _COUNTS,
    "runs": _COUNTS,
    "returns": _COUNTS,
    "size_first": _COUNTS,
    "size_next": _COUNTS,
    "size_stays": lambda value: _number(value, AGAIN_ONE),
    "window_sizes": _COUNTS,
    "paces": _COUNTS,
    "pace_returns": _COUNTS,
    "size_same": lambda value: None if value is None else _number(value, AGAIN_ONE),
}
_OPTIONAL: Final = frozenset({"paces", "pace_returns", "size_same"})


# -- does it fit the rest of a profile?


def contradictions(
    found: Dependence,
    *,
    bucket_us: int,
    bucket_counts: Sequence[int],
    key_top: Sequence[int],
    keys: int,
    keyless: int,
    value_bytes: Sequence[tuple[int, int]],
) -> list[str]:
    """What in it contradicts other fields of its profile."""
    grid = Grid(bucket_us, found.clock_us)
    windows = _window_sums(bucket_counts)
    classes = class_sums(value_bytes)
    counted = [sum(many for _, many in key.windows) for key in found.hot]
    tables = (found.size_first, found.size_next, found.window_sizes)
    in_hot = [(window, many) for key in found.hot for window, many in key.windows]
    if (
        any(window >= len(windows) for window, _ in in_hot)
        or any(not first <= last < len(windows) for first, last, *_ in found.others)
        or any(window >= len(windows) for window, _, _ in found.window_sizes)
        or any(which >= len(classes) for key in found.hot for which, _ in key.sizes)
        or any(which >= len(classes) for table in tables for _, which, _ in table)
    ):
        return ["dependence has a window, or a class of sizes, that there is not"]
    by_window = _sums(((window, many) for window, _, many in found.window_sizes), len(windows))
    by_class = _sums(((which, many) for _, which, many in found.window_sizes), len(classes))
    checks = {
        "dependence has steps of the clock that are longer than a bucket": found.clock_us <= bucket_us,
        "dependence has parts that do not sum up to bucket_counts": _are_parts(found, grid, bucket_counts),
        "dependence has another number of split tables than its clock makes": (
            len(found.second_splits) == grid.cell_bits - grid.part_bits
            and len(found.step_splits) == grid.step_bits
        ),
        "dependence has hot keys with other events than keyless and key_top": (
            counted == [keyless, *key_top[: len(found.hot) - 1]]
        ),
        "dependence has a hot key with other sizes than events": (
            counted == [sum(many for _, many in key.sizes) for key in found.hot]
        ),
        "dependence has more hot events in a window than there are": all(
            one <= two for one, two in zip(_sums(in_hot, len(windows)), windows, strict=True)
        ),
        "dependence does not have all keys": (
            len(found.hot) - 1 + sum(row[3] for row in found.others) == keys
        ),
        "dependence does not have all events": (
            sum(counted) + sum(row[4] for row in found.others) == sum(bucket_counts)
        ),
        "dependence has keys with other events than their class has": _are_classes(found, key_top),
        "dependence has other window_sizes than events, or than value_bytes": (
            by_window == windows and by_class == classes
        ),
        "dependence has more sizes that are the same than sizes that stay": (
            (found.size_same or 0) <= found.size_stays
        ),
        "dependence has paces without pace_returns, or these without paces": (
            bool(found.paces) == bool(found.pace_returns)
        ),
    }
    return [problem for problem, holds in checks.items() if not holds]


def class_sums(value_bytes: Sequence[tuple[int, int]]) -> list[int]:
    """How many values each class of sizes has."""
    borders = size_classes(value_bytes)
    return _sums(((bisect_right(borders, what), many) for what, many in value_bytes), len(borders) + 1)


def _sums(pairs: Iterable[tuple[int, int]], length: int) -> list[int]:
    found = [0] * length
    for which, many in pairs:
        found[which] += many
    return found


def _window_sums(bucket_counts: Sequence[int]) -> list[int]:
    ends = windows_of(bucket_counts)
    return [sum(bucket_counts[start:end]) for start, end in zip((0, *ends), ends, strict=False)]


def _are_parts(found: Dependence, grid: Grid, bucket_counts: Sequence[int]) -> bool:
    width = 1 << grid.part_bits
    starts = range(0, len(found.parts), width)
    return [sum(found.parts[start : start + width]) for start in starts] == list(bucket_counts)


def _are_classes(found: Dependence, key_top: Sequence[int]) -> bool:
    """Whether the other keys, the most frequent of which are known, can have the events that their classes have."""
    keys: dict[int, int] = {}
    events: dict[int, int] = {}
    for _, _, bits, many, sum_of_events in found.others:
        keys[bits] = keys.get(bits, 0) + many
        events[bits] = events.get(bits, 0) + sum_of_events
    for count in key_top[len(found.hot) - 1 :]:
        keys[count.bit_length()] = keys.get(count.bit_length(), 0) - 1
        events[count.bit_length()] = events.get(count.bit_length(), 0) - count
    return all(
        bits > 0
        and keys[bits] >= 0
        and keys[bits] << bits - 1 <= events[bits] <= keys[bits] * ((1 << bits) - 1)
        for bits in keys
    )
