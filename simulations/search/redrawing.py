"""Simpler workloads that the drawing function can make: what it draws is made simpler, not what it makes of that.

A drawing function makes a workload of random numbers. Called again with smaller numbers, and with fewer where it asks
for fewer, it makes another one, usually a simpler one; and never one that no seed could have made.

Vocabulary
----------
place    the names of the forks by which a source was reached: empty for the first one
draws    what was drawn at each place, in order

Invariants
----------
W1  Every workload is what the drawing function returned.
W2  Every step is strictly simpler: the workload has fewer items, or fewer numbers were drawn, or the first that differs
    is smaller. So stepping ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import attrs

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.world.computing import limited_drawing

Drawn = float | bytes
Draws = tuple[tuple[str, tuple[Drawn, ...]], ...]
D = TypeVar("D", float, int, bytes)
Weight = tuple[int, int, tuple[float, ...]]

ALMOST_ONE: Final = 1.0 - 2.0**-53
"""The largest number that `random()` gives: where a choice is made by "less than", it makes the other one."""
FINE: Final = 1 / 128


@attrs.frozen
class DrawnWorkload:
    """A workload, and the draws of which it was made."""

    draws: Draws
    workload: Any = attrs.field(eq=False)


class Drawing:
    """How a seed's workload was drawn: the function, and the source that it was given."""

    def __init__(self, function: Callable[[Any], Any], entropy: SeededEntropy) -> None:
        self._function = function
        self._seed = entropy.seed

    def draw(self, draws: Draws = ()) -> DrawnWorkload:
        """What the function makes of `draws`, and of the seed's own numbers where these do not fit, or are too few."""
        taken: dict[str, list[Drawn]] = {}
        with limited_drawing("the function that draws the workload"):
            workload = self._function(_Redrawing(self._seed, dict(draws), taken))
        return DrawnWorkload(tuple((place, tuple(values)) for place, values in taken.items()), workload)

    def simpler(
        self, drawn: DrawnWorkload, check_time: Callable[[], object] = lambda: None
    ) -> Iterator[DrawnWorkload]:
        """Other workloads that are one step simpler (W1, W2), the boldest first.

        Between two of them many may be drawn that are not: before each `check_time()` is called, and may raise.
        """
        weight = _weight(drawn)
        for place, values in drawn.draws:
            for at, value in enumerate(values):
                for smaller in _smaller(value):
                    check_time()
                    changed = (*values[:at], smaller, *values[at + 1 :])
                    found = self._tried(_with(drawn.draws, place, changed))
                    if found is None or found.draws == drawn.draws:
                        continue
                    if _weight(found) < weight and found.workload != drawn.workload:
                        yield found
                    fewer = len(values) - len(dict(found.draws).get(place, ()))
                    for first in range(at + 1, len(values) - fewer + 1 if fewer > 0 else 0):
                        check_time()
                        left = (*changed[:first], *changed[first + fewer :])
                        other = self._tried(_with(drawn.draws, place, left))
                        if other is not None and _weight(other) < weight:
                            yield other

    def _tried(self, draws: Draws) -> DrawnWorkload | None:
        """None when the function cannot make anything of these draws."""
        try:
            return self.draw(draws)
        except Exception:  # noqa: BLE001 - the function is the user's: whatever it raises, this is no workload
            return None


class _Redrawing(SeededEntropy):
    """Gives the draws that it was made with, and notes what it gave."""

    __slots__ = ("_at", "_given", "_place", "_taken")

    def __init__(
        self,
        seed: int,
        given: Mapping[str, tuple[Drawn, ...]],
        taken: dict[str, list[Drawn]],
        place: str = "",
    ) -> None:
        super().__init__(seed)
        self._given, self._taken, self._place = given, taken, place
        self._at = 0

    def random(self) -> float:
        return self._take(super().random(), lambda given: isinstance(given, float))

    def integer(self, bits: int) -> int:
        return self._take(
            super().integer(bits), lambda given: isinstance(given, int) and given.bit_length() <= bits
        )

    def bytes(self, count: int) -> bytes:
        return self._take(
            super().bytes(count), lambda given: isinstance(given, bytes) and len(given) == count
        )

    def fork(self, name: str) -> SeededEntropy:
        seed = super().fork(name).seed
        return _Redrawing(seed, self._given, self._taken, f"{self._place}/{name}")

    def _take(self, own: D, fits: Callable[[Any], bool]) -> D:
        """The next of the given draws if it fits, else `own`; two sources at one place give the same."""
        given = self._given.get(self._place, ())
        if self._at < len(given) and fits(given[self._at]):
            own = cast(D, given[self._at])
        taken = self._taken.setdefault(self._place, [])
        if self._at == len(taken):
            taken.append(own)
        self._at += 1
        return own


def _with(draws: Draws, place: str, values: tuple[Drawn, ...]) -> Draws:
    return tuple((where, values if where == place else others) for where, others in draws)


def _smaller(value: Drawn) -> list[Drawn]:
    """Draws to try for one, the boldest first."""
    if isinstance(value, bytes):
        return [zeros] if value != (zeros := bytes(len(value))) else []
    if isinstance(value, int):
        smaller: tuple[float, ...] = (0, value // 2, value - value // 4, value - 1)
        return [one for one in dict.fromkeys(smaller) if 0 <= one < value]
    near = (0.0, value / 2, value * 0.75, value - FINE)
    return [*(one for one in near if 0.0 <= one < value), *([ALMOST_ONE] if value < ALMOST_ONE else [])]


def _weight(drawn: DrawnWorkload) -> Weight:
    values = [value for _, values in drawn.draws for value in values]
    numbers = (int.from_bytes(value) if isinstance(value, bytes) else value for value in values)
    return _items(drawn.workload), len(values), tuple(numbers)


def _items(value: Any) -> int:
    """How many values a workload is made of."""
    if isinstance(value, tuple | list):
        return 1 + sum(map(_items, value))
    if attrs.has(type(value)):
        return sum(_items(getattr(value, field.name)) for field in attrs.fields(type(value)))
    return 1
