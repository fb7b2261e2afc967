"""The page of a profile: whole, safe, and drawn by a browser without a network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import attrs
import pytest

from callboard.simulations.workload.plots import POINTS_MAX, Axis, Series, SeriesStyle, plot
from callboard.simulations.workload.profile_format import profile_from_json
from callboard.simulations.workload.report import key_plot, profile_page, rate_plot

DRAWINGS = 10
MANY = [(number, number % 7) for number in range(9_999)]


def drawings(page: str) -> list[ElementTree.Element]:
    """The plots of a page, each of which is well-formed."""
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_page_shows_every_part_of_a_profile(small_profile_text: str) -> None:
    """There is a plot for each kind of number, and each has something drawn."""
    found = drawings(profile_page(profile_from_json(small_profile_text), title="small"))
    assert len(found) == DRAWINGS
    assert all(drawing.find("path") is not None or drawing.find("rect") is not None for drawing in found)


def test_events_are_drawn_in_the_hour_in_which_they_came(small_profile_text: str) -> None:
    """However long the buckets are: seven days from 08:00 on with an event daily at 10:00 have two bars."""
    hour_us = 3_600_000_000
    daily = attrs.evolve(
        profile_from_json(small_profile_text),
        start_us=8 * hour_us,
        span_us=(6 * 24 + 2) * hour_us,
        bucket_us=365 * 24 * hour_us,
        bucket_counts=(8,),
        sub_buckets=(((1, 8),),),
        burst=((1, 8),),
        week_hours=tuple((hour, 1) for hour in (10, 34, 58, 80, 82, 106, 130, 154)),
    )
    (hours,) = [
        drawing
        for drawing in drawings(profile_page(daily, title="daily"))
        if drawing.get("aria-label") == "Rate by hour of day"
    ]
    eight, ten = [float(bar.get("height", 0)) for bar in hours.iter("rect")]
    assert ten / eight == pytest.approx((7 / 6) / (1 / 7), rel=0.05)


def test_nothing_on_the_page_comes_from_elsewhere(small_profile_text: str) -> None:
    """The page has no script and names no address, and a title is text whatever it holds."""
    page = profile_page(profile_from_json(small_profile_text), title="<script>alert(1)</script>")
    assert "<script" not in page
    assert re.findall(r"https?:|src=|href=|url\(|@import", page) == []
    assert "&lt;script&gt;" in page


def test_an_empty_profile_has_a_page(small_profile_text: str) -> None:
    """Where there is nothing to show, the page says so."""
    small = profile_from_json(small_profile_text)
    counts = dict.fromkeys(["events", "start_us", "span_us", "keyless", "value_total_bytes"], 0)
    lists = {
        name: () for name, value in attrs.asdict(small, recurse=False).items() if isinstance(value, tuple)
    }
    nothing = attrs.evolve(small, **counts, **lists, key_tail=attrs.evolve(small.key_tail, keys=0, events=0))
    page = profile_page(nothing, title="nothing")
    assert "holds no events" in page
    assert page.count("nothing to show") == DRAWINGS


def test_two_profiles_share_a_plot(small_profile_text: str) -> None:
    """Plots that compare name their series."""
    small = profile_from_json(small_profile_text)
    for drawing in (rate_plot, key_plot):
        texts = [
            text.text for text in ElementTree.fromstring(drawing([("a<b", small), ("c", small)])).iter("text")
        ]
        assert {"a<b", "c"} <= set(texts)


@pytest.mark.parametrize("style", list(SeriesStyle))
@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0, 0)],
        [(1, 1)],
        [(5, 7), (6, 7)],
        [(1, 1e-9), (2, 1e12)],
        [(number, number % 7) for number in range(9_999)],
    ],
)
def test_every_series_can_be_drawn(
    points: list[tuple[float, float]], is_log: bool, style: SeriesStyle
) -> None:
    """No points, one point, flat and steep ones, and very many: the drawing is well-formed and of bounded size."""
    text = plot([Series("s", points, style)], Axis("x", is_log), Axis("y", is_log), title="t")
    ElementTree.fromstring(text)
    assert "nan" not in text.lower().replace("<", " ").split()
    assert len(text) < 130 * POINTS_MAX


def test_a_browser_draws_the_page(small_profile_text: str, browse: Callable[..., str]) -> None:
    """A browser without a network lays the page out and keeps all plots."""
    document = browse(profile_page(profile_from_json(small_profile_text), title="small profile"))
    assert document.count("<svg") == DRAWINGS
    assert "small profile" in document
