"""The pages of a comparison and of an analysis: whole, safe, and drawn by a browser without a network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from fractions import Fraction

import attrs

from callboard.simulations.workload.analysis import Analysis, Deliveries, Latency
from callboard.simulations.workload.analysis_page import analysis_page
from callboard.simulations.workload.behaviour import QUEUES, ROWS, Behaviour, QueueFacts
from callboard.simulations.workload.comparison_page import comparison_page
from callboard.simulations.workload.distances import DISTANCES, compare
from callboard.simulations.workload.profile_format import WorkloadProfile, profile_from_json

BAD = "<script>alert(1)</script>"


def drawings(page: str) -> list[ElementTree.Element]:
    """The plots of a page, each of which is well-formed."""
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def check_is_safe(page: str) -> None:
    """No script, and nothing from elsewhere; a name is text whatever it holds."""
    assert "<script" not in page
    assert re.findall(r"https?:|src=|href=|url\(|@import", page) == []
    assert "&lt;script&gt;" in page


def compared(text: str, names: Sequence[str] = ("one", "two")) -> str:
    """The page of a small profile beside another."""
    small = profile_from_json(text)
    other = attrs.evolve(small, value_bytes=((0, 3), (1, 4), (4, 1)), value_total_bytes=150)
    profiles: list[tuple[str, WorkloadProfile]] = [(names[0], small), (names[1], other)]
    return comparison_page(profiles, compare(small, other))


def test_a_comparison_shows_both_curves_of_each_distance(small_profile_text: str) -> None:
    """There is a plot for each distance and some of the recordings as they are, each with two named series."""
    found = drawings(compared(small_profile_text))
    assert len(found) == len(DISTANCES) + 6
    counts = {"Events per second", "Time between events", "Time between events of a key", "Sizes of values"}
    for number, drawing in enumerate(found):
        assert {"A: one", "B: two"} <= {text.text for text in drawing.iter("text")}
        is_count = number >= len(DISTANCES) and drawing.get("aria-label") in counts
        is_few = number >= len(DISTANCES) and drawing.get("aria-label") == "Events by rank of key"
        for series in range(2):
            bars = drawing.findall(f"rect[@class='bar fill{series}']")
            lines = drawing.findall(f"path[@class='line series{series}']")
            dots = drawing.findall(f"path[@class='{('dots', 'rings')[series]} series{series}']")
            assert (len(lines), bool(bars), len(dots)) == (not (is_count or is_few), is_count, is_few)
    check_is_safe(compared(small_profile_text, (BAD, "two")))


def test_a_comparison_of_recordings_shows_rows_and_queues(small_profile_text: str) -> None:
    """There are two tables, in which what is different stands out, and a plot of the waits of each queue."""
    small = profile_from_json(small_profile_text)
    facts = QueueFacts(100, ((0, 5), (200, 3)), ((0, 8),), False)
    other = attrs.evolve(facts, waits=((0, 5), (1_400, 3)))
    behaviours = [
        Behaviour(2_000, Fraction(1), dict.fromkeys(ROWS, value), dict.fromkeys(QUEUES, queue))
        for value, queue in ((Fraction(1, 2), facts), (Fraction(1, 4), other))
    ]
    found = compare(small, small, behaviours=(behaviours[0], behaviours[1]))
    page = comparison_page([(BAD, small), ("two", small)], found)
    assert len(drawings(page)) == len(DISTANCES) + len(QUEUES) + 6
    assert page.count("<tr class=marked>") == len(ROWS) + len(QUEUES)
    for text in ("LRU of 10 % of the keys, hits", "8 workers, order per key, 80 % load", "5 times apart"):
        assert text in page
    check_is_safe(page)


def deliveries(partition: int | None) -> Deliveries:
    """Deliveries of three records in two buckets."""
    latency = Latency(count=3, mean_us=20, most_us=40, bins=((10, 2), (40, 1)))
    return Deliveries(
        topic=BAD,
        partition=partition,
        group="billing",
        since_us=0,
        is_whole=partition != 1,
        fates={"acked": 3, "skipped": 0, "untimed": 0, "pending": 1, "left_behind": 0, "gone": 0},
        deliveries=4,
        attempts=((1, 2), (2, 1)),
        counts={"acked": 3, "nacked": 1},
        backwards=0,
        latency=latency,
        wait=latency,
        published=(4, 0),
        settled=(2, 1),
        lag=(None, 1),
        latency_by_bucket=(None, latency),
    )


def analysed(parts: int) -> Analysis:
    """An analysis of this many partitions."""
    return Analysis(
        directory="data",
        from_us=0,
        to_us=1_500_000,
        bucket_us=1_000_000,
        journals=tuple({"records": 4} for _ in range(parts)),
        topics=(deliveries(None),) if parts else (),
        partitions=tuple(map(deliveries, range(parts))),
        notes=(f"{BAD}/1: The journal reaches back to yesterday.",),
    )


def test_an_analysis_shows_lag_rate_latency_and_attempts() -> None:
    """Each group has its plots, and a table with a row for each partition of the first hundred."""
    page = analysis_page(analysed(2), title="two")
    found = drawings(page)
    assert len(found) == 5
    assert all(drawing.find("path") is not None or drawing.find("rect") is not None for drawing in found)
    assert "What cannot be said" in page
    check_is_safe(page)
    many = analysis_page(analysed(150), title="many")
    assert "50 more partitions" in many
    nothing = analysis_page(analysed(0), title="nothing")
    assert drawings(nothing) == []
    assert "holds no topics" in nothing


def test_a_browser_draws_the_pages(small_profile_text: str, browse: Callable[..., str]) -> None:
    """A browser without a network lays the pages out and keeps all plots."""
    assert browse(compared(small_profile_text)).count("<svg") == len(DISTANCES) + 6
    assert browse(analysis_page(analysed(2), title="two")).count("<svg") == 5
