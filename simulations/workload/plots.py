"""Plots as inline SVG: text in, text out. No script and nothing from a network.

A plot has *series* of points over one x axis, each drawn as a line, an area of steps, bars, or dots. A count is a bar
or a dot, never part of a line, which would show counts that there are not. Of two series the second is dashed, or has
rings for dots, so that equal ones are both seen. Names stand above the plot, where nothing is drawn.

Colours and fonts come from the page's style sheet (`STYLE`), which also knows dark screens.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Final

import attrs

from callboard.message import from_us

WIDTH: Final = 640
HEIGHT: Final = 240
LEFT: Final = 70
RIGHT: Final = 18
TOP: Final = 26
BOTTOM: Final = 42
TICKS: Final = 6
TICKS_MAX: Final = 14
"""Of those that an axis names itself."""
BAR_LEAST: Final = 3.0
LETTER: Final = 6.2
"""The mean width of a letter."""
POINTS_MAX: Final = 4_000
"""A series with more points is thinned: of each stretch its lowest and its highest are drawn."""

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2433; --paper: #fff; --faint: #d9dee8; --soft: #667085;
  --one: #2563eb; --two: #d9480f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --paper: #14171f; --faint: #333a48; --soft: #98a2b3;
  --one: #7aa2ff; --two: #ff9d5c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1360px; padding: 0 1.25rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 0 0 .2rem; }
p { margin: .2rem 0 .6rem; color: var(--soft); }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 540px), 1fr)); gap: 1.75rem 2rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; font-variant-numeric: tabular-nums; }
td, th { padding: .15rem 1.25rem .15rem 0; text-align: left; } td + td, th + th { text-align: right; }
.wide { overflow-x: auto; } tr.marked td { color: var(--two); font-weight: 600; }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.axis { stroke: var(--soft); } .rule { stroke: var(--faint); }
.line { fill: none; stroke-width: 1.6; } .series0 { stroke: var(--one); } .series1 { stroke: var(--two); }
.line.series1 { stroke-dasharray: 6 4; } .dots { fill: none; stroke-linecap: round; stroke-width: 4; }
.rings { fill: none; stroke-width: 1.2; }
.fill0 { fill: var(--one); } .fill1 { fill: var(--two); } .area { fill-opacity: .18; stroke: none; }
.bar { fill-opacity: .8; } svg text.name { fill: var(--ink); }
"""


class SeriesStyle(enum.Enum):
    """How a series is drawn."""

    LINE = "line"
    STEPS = "steps"
    """Each point holds from its x to the next one's; the area below is filled."""
    BARS = "bars"
    """A bar for each point; those of several series stand beside each other."""
    DOTS = "dots"
    """A dot for each point, where there would be too many bars."""


MARKS: Final = frozenset({SeriesStyle.BARS, SeriesStyle.DOTS})
"""What shows counts."""


@attrs.frozen
class Series:
    """Points with ascending x."""

    name: str
    points: Sequence[tuple[float, float]]
    style: SeriesStyle = SeriesStyle.LINE
    bar_width: float = 1.0
    """Of what a bar counts, in units of x."""


@attrs.frozen
class Axis:
    """One axis: what it shows, whether in powers of ten, and how numbers are written on it."""

    label: str
    is_log: bool = False
    write: Callable[[float], str] | None = None
    ticks: Sequence[float] | None = None
    """Where to write numbers; None chooses."""
    has_floor: bool = False
    """Whether even the smallest value is to be above the axis, as bars and dots need it."""
    is_whole: bool = False
    """Whether it shows whole numbers: there is no number between them."""


@attrs.frozen
class _Scale:
    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high = self._bent(self.low), self._bent(self.high)
        return self.start + (self._bent(value) - low) / (high - low) * (self.end - self.start)

    def _bent(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.axis.is_log else value

    def ticks(self) -> list[float]:
        if self.axis.ticks is not None:
            inside = [tick for tick in self.axis.ticks if self.low <= tick <= self.high]
            return inside[:: math.ceil(len(inside) / TICKS_MAX) or 1]
        if self.axis.is_log:
            decades = range(
                math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1
            )
            step = max(1, math.ceil(len(decades) / TICKS))
            return [10.0**decade for decade in decades[::step]]
        width = _round_step((self.high - self.low) / TICKS)
        if self.axis.is_whole:
            width = max(width, 1.0)
        first = math.ceil(self.low / width - 1e-9)
        return [number * width for number in range(first, math.floor(self.high / width + 1e-9) + 1)]

    def text(self, tick: float) -> str:
        return (self.axis.write or short_number)(tick)


def instant_text(time_us: int) -> str:
    """An instant as pages show it, in UTC."""
    return from_us(time_us).isoformat(sep=" ", timespec="seconds")


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def short_number(number: float) -> str:
    """A number as an axis shows it: 1500 is 1.5k."""
    for least, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= least:
            return f"{number / least:.3g}{letter}"
    return f"{number:.3g}"


def plot(series: Sequence[Series], x: Axis, y: Axis, *, title: str) -> str:
    """One plot. `title` is the text for readers that cannot see it; a series without points is left out."""
    shown = [
        attrs.evolve(each, points=_thinned(_drawable(each.points, x, y))) for each in series if each.points
    ]
    shown = [each for each in shown if each.points]
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
    if not shown:
        return f'{head}<text x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">nothing to show</text></svg>'
    places = [point[0] for each in shown for point in each.points]
    if not x.is_log:
        half = max((each.bar_width / 2 for each in shown if each.style is SeriesStyle.BARS), default=0.0)
        places += [min(places) - half, max(places) + half]
    across = _scale(x, places, LEFT, WIDTH - RIGHT)
    up = _scale(
        attrs.evolve(y, has_floor=not y.is_log or any(each.style in MARKS for each in shown)),
        [point[1] for each in shown for point in each.points],
        HEIGHT - BOTTOM,
        TOP,
    )
    parts = [head, *_axes(across, up)]
    for number, each in enumerate(shown):
        parts += _drawn(each, (number, len(shown)), across, up)
    if len(shown) > 1:
        parts += _names([each.name for each in shown])
    return "".join([*parts, "</svg>"])


def _names(names: Sequence[str]) -> list[str]:
    """What each series is called, from right to left above the plot."""
    parts: list[str] = []
    right = float(WIDTH - RIGHT)
    for number, name in reversed(list(enumerate(names))):
        right -= LETTER * len(name)
        parts.append(f'<text x="{right:.1f}" y="14" class="name">{escape(name)}</text>')
        right -= 16
        parts.append(f'<rect x="{right:.1f}" y="5" width="10" height="10" class="fill{number % 2}"/>')
        right -= 16
    return parts


def _bar_px(series: Series, x: _Scale) -> float:
    """How wide a bar is drawn: as what it counts, and so that it is seen, if the next one is not too near."""
    first = series.points[0][0]
    apart = min((two[0] - one[0] for one, two in pairwise(series.points)), default=math.inf)
    own, room = (0.8 * (x(first + each) - x(first)) for each in (series.bar_width, apart))
    return max(own, min(BAR_LEAST, room), 1)


def _drawable(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[tuple[float, float]]:
    return [
        point
        for point in points
        if (point[0] > 0 or not x.is_log)
        and (point[1] > 0 or not y.is_log)
        and all(map(math.isfinite, point))
    ]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= POINTS_MAX:
        return points
    stretch = math.ceil(2 * len(points) / POINTS_MAX)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept += sorted({min(part, key=_height), max(part, key=_height)})
    return kept


def _height(point: tuple[float, float]) -> float:
    return point[1]


def _scale(axis: Axis, values: list[float], start: float, end: float) -> _Scale:
    low, high = min(values), max(values)
    if axis.ticks and not any(low <= tick <= high for tick in axis.ticks):
        # Reach to the nearest numbers, so that the axis has some.
        low = max((tick for tick in axis.ticks if tick < low), default=low)
        high = min((tick for tick in axis.ticks if tick > high), default=high)
    if axis.is_log:
        decade = 10.0 ** math.floor(math.log10(low))
        low = decade / 2 if axis.has_floor and low == decade else decade
        high = 10.0 ** math.ceil(math.log10(high))
        return _Scale(axis, low, high if high > low else low * 10, start, end)
    if axis.has_floor:
        low, high = min(low, 0.0), high * 1.05
    return _Scale(axis, low, high if high > low else low + 1, start, end)


def _axes(x: _Scale, y: _Scale) -> list[str]:
    parts = []
    for tick in y.ticks():
        at = y(tick)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(y.text(tick))}</text>')
    base = HEIGHT - BOTTOM
    for tick in x.ticks():
        at = x(tick)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{base}" y2="{base + 4}"/>')
        text = x.text(tick)
        room = WIDTH - LETTER * len(text) / 2 - 2
        parts.append(
            f'<text x="{min(at, room):.1f}" y="{base + 16}" text-anchor="middle">{escape(text)}</text>'
        )
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.axis.label)}</text>')
    turned = f'transform="rotate(-90 12 {(TOP + base) / 2})"'
    parts.append(
        f'<text x="12" y="{(TOP + base) / 2}" text-anchor="middle" {turned}>{escape(y.axis.label)}</text>'
    )
    return parts


def _drawn(series: Series, place: tuple[int, int], x: _Scale, y: _Scale) -> list[str]:
    """One series, which is so many of so many."""
    base = HEIGHT - BOTTOM
    number, among = place
    colour = number % 2
    if series.style is SeriesStyle.BARS:
        all_width = _bar_px(series, x)
        width = max(all_width / among, 1)
        left = number * width - max(all_width, width * among) / 2
        return [
            f'<rect class="bar fill{colour}" x="{x(one) + left:.1f}" y="{y(two):.1f}" width="{width:.1f}"'
            f' height="{max(base - y(two), 0.5):.1f}"/>'
            for one, two in series.points
        ]
    if series.style is SeriesStyle.DOTS and not colour:
        path = "".join(f"M{x(one):.1f} {y(two):.1f}h0" for one, two in series.points)
        return [f'<path class="dots series{colour}" d="{path}"/>']
    if series.style is SeriesStyle.DOTS:
        ring = "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0"
        path = "".join(f"M{x(one):.1f} {y(two):.1f}{ring}" for one, two in series.points)
        return [f'<path class="rings series{colour}" d="{path}"/>']
    if series.style is SeriesStyle.LINE:
        path = "L".join(f"{x(one):.1f} {y(two):.1f}" for one, two in series.points)
        if len(series.points) == 1:  # a line of one point has no length, and is not seen
            return _drawn(attrs.evolve(series, style=SeriesStyle.DOTS), place, x, y)
        return [f'<path class="line series{colour}" d="M{path}"/>']
    steps = [f"M{x(series.points[0][0]):.1f} {y(series.points[0][1]):.1f}"]
    for one, two in series.points[1:]:
        steps.append(f"H{x(one):.1f}V{y(two):.1f}")
    first = x(series.points[0][0])
    outline = "".join(steps)
    return [
        f'<path class="area fill{colour}" d="{outline}V{base}H{first:.1f}Z"/>',
        f'<path class="line series{colour}" d="{outline}"/>',
    ]
