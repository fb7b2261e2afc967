"""The page of a profile: whole, safe, and drawn by a browser without a network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import attrs
import pytest

from callboard.simulations.workload.plots import (
    BOTTOM,
    HEIGHT,
    POINTS_MAX,
    TOP,
    WIDTH,
    Axis,
    Series,
    SeriesStyle,
    plot,
)
from callboard.simulations.workload.profile_format import profile_from_json
from callboard.simulations.workload.report import key_plot, profile_page, rate_plot, value_plot

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


def drawn_hours(text: str, hour: int) -> ElementTree.Element:
    """The plot of hours of a recording of one hour."""
    small = attrs.evolve(profile_from_json(text), start_us=hour * 3_600_000_000, week_hours=((72 + hour, 8),))
    (hours,) = [
        drawing
        for drawing in drawings(profile_page(small, title="short"))
        if drawing.get("aria-label") == "Rate by hour of day"
    ]
    return hours


def test_an_axis_of_a_short_recording_has_numbers(small_profile_text: str) -> None:
    """Below the bar of one hour its number stands, whether it is even or odd."""
    for hour in (10, 15):
        texts = {text.text for text in drawn_hours(small_profile_text, hour).iter("text")}
        assert str(hour) in texts


def test_an_axis_reaches_to_the_nearest_of_its_own_numbers() -> None:
    """An axis whose numbers lie outside of what is drawn has one all the same."""
    x = Axis("x", ticks=(0, 10, 20))
    for points in ([(12.0, 1.0)], [(12.0, 1.0), (13.0, 2.0)]):
        found = ElementTree.fromstring(plot([Series("s", points)], x, Axis("y"), title="t"))
        assert {"10", "20"} <= {text.text for text in found.iter("text")}


def test_counts_that_did_not_occur_are_not_drawn(small_profile_text: str) -> None:
    """A histogram has a mark for each count, and no line that passes through others."""
    counts = tuple((number, 1) for number in range(1, 400) if number % 3)
    small = attrs.evolve(
        profile_from_json(small_profile_text),
        value_bytes=tuple((number, 1) for number in range(0, 16, 2)),
        value_total_bytes=900,
    )
    for text, marks in (
        (value_plot([("one", small)]), 8),
        (value_plot([("one", small), ("two", small)]), 16),
    ):
        assert len(ElementTree.fromstring(text).findall("rect")) - 2 * (marks == 16) == marks
        assert "line series" not in text
    text = plot([Series("s", counts, SeriesStyle.DOTS)], Axis("x"), Axis("y"), title="t")
    assert text.count("h0") == len(counts)
    assert "L" not in text.partition('d="')[2]


def bars(drawing: str) -> list[tuple[float, float]]:
    """Left and right of each bar."""
    found = [
        each for each in ElementTree.fromstring(drawing).findall("rect") if "bar" in each.get("class", "")
    ]
    return [
        (float(each.get("x", 0)), float(each.get("x", 0)) + float(each.get("width", 0))) for each in found
    ]


def test_a_bar_is_as_wide_as_what_it_counts(small_profile_text: str) -> None:
    """Not as far as the next bar: where few values occur it would cover numbers that do not."""
    points = [(0.0, 3.0), (20.0, 1.0)]
    found = bars(plot([Series("s", points, SeriesStyle.BARS)], Axis("x"), Axis("y"), title="t"))
    assert all(right - left < WIDTH / 21 for left, right in found)
    found = bars(value_plot([("one", profile_from_json(small_profile_text))]))
    assert [round((right - left) / (found[-1][1] - found[0][0]), 2) for left, right in found] == [0.17, 0.17]
    many = [(0.0, 3.0), (9_000.0, 1.0)]
    found = bars(plot([Series("s", many, SeriesStyle.BARS)], Axis("x"), Axis("y"), title="t"))
    assert all(right - left >= 3 for left, right in found)


def test_an_axis_of_counts_has_whole_numbers() -> None:
    """There is no half event."""
    points = [(1.0, 1.0), (2.0, 2.0)]
    x, y = Axis("x", is_whole=True), Axis("y", is_whole=True)
    found = ElementTree.fromstring(plot([Series("s", points, SeriesStyle.BARS)], x, y, title="t"))
    assert [text.text for text in found.iter("text")] == ["0", "1", "2", "1", "2", "x", "y"]


def test_few_keys_are_dots(small_profile_text: str) -> None:
    """A line would show ranks between them; a key with one event is above the axis."""
    small = profile_from_json(small_profile_text)
    assert small.distinct_keys == 3
    (path,) = ElementTree.fromstring(key_plot([("keys", small)])).findall("path")
    assert path.get("class") == "dots series0"
    places = re.findall(r"M([\d.]+) ([\d.]+)h0", path.get("d", ""))
    assert len(places) == 3
    assert all(float(height) < HEIGHT - BOTTOM for _, height in places)


def test_equal_series_are_both_seen(small_profile_text: str) -> None:
    """Bars stand beside each other, the second line is dashed, and the second dots are rings."""
    points = [(1.0, 3.0), (2.0, 5.0)]
    for style in SeriesStyle:
        found = plot(
            [Series(name, points, style) for name in ("one", "two")], Axis("x"), Axis("y"), title="t"
        )
        marks = [
            re.sub(r"(series|fill)\d", "", ElementTree.tostring(each).decode())
            for each in ElementTree.fromstring(found)
            if re.search(r"(series|bar fill)\d", each.get("class", ""))
        ]
        if style in {SeriesStyle.BARS, SeriesStyle.DOTS}:
            assert len(marks) == len(set(marks))
    assert "stroke-dasharray" in profile_page(profile_from_json(small_profile_text), title="small")


def test_a_line_of_one_point_is_seen() -> None:
    """It is a dot, and a ring beside another."""
    series = [Series(name, [(2.0, 5.0)]) for name in ("one", "two")]
    found = ElementTree.fromstring(plot(series, Axis("x"), Axis("y"), title="t"))
    assert [each.get("class") for each in found.findall("path")] == ["dots series0", "rings series1"]


def test_names_are_whole_and_above_what_is_drawn() -> None:
    """The longest names that pages give end before the right border, and nothing of the plot is behind them."""
    names = ["A: " + "W" * 21, "B: " + "W" * 21]
    points = [(0.0, 1.0), (1.0, 2.0)]
    found = ElementTree.fromstring(
        plot([Series(name, points) for name in names], Axis("x"), Axis("y"), title="t")
    )
    for text in found.findall("text[@class='name']"):
        assert float(text.get("x", 0)) >= 0
        assert float(text.get("x", 0)) + 6 * len(text.text or "") <= WIDTH
        assert float(text.get("y", 0)) < TOP


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
