"""The table of faults and points, and the first difference of two traces."""

from __future__ import annotations

from callboard.simulations.search.coverage import points, table, uncovered
from callboard.simulations.search.differences import Difference, first_difference


def test_what_was_never_met_is_missing() -> None:
    """An expected fault and a point without hits are named, unless they are marked rare with a reason."""
    rows = table(
        ["PowerCut", "Rot", "Stall"],
        {"PowerCut": 5, "FailVerb:sync:EIO": 2},
        {"sometimes: torn": 0, "sometimes: seen": 3, "sometimes: odd": 0, "disk.sync": 9},
        {"Stall": "only on Tuesdays", "odd": "needs two in one run"},
    )
    assert {row.name: row.hits for row in rows} == {
        "FailVerb:sync:EIO": 2,
        "PowerCut": 5,
        "Rot": 0,
        "Stall": 0,
        "odd": 0,
        "seen": 3,
        "torn": 0,
    }
    assert [row.name for row in uncovered(rows)] == ["Rot", "torn"]


def test_a_kind_is_met_by_any_of_its_variants() -> None:
    """A kind that is counted with details needs no row of its own."""
    rows = table(["FailVerb"], {"FailVerb:sync:EIO": 1}, {}, {})
    assert not uncovered(rows)
    assert [row.name for row in rows] == ["FailVerb:sync:EIO"]


def test_a_declared_point_that_no_run_came_by_is_missing() -> None:
    """It has a row without hits, and fails the sweep unless it is rare; one that was met stands there once."""
    declared = ["never come by", "met", "odd"]
    rows = table([], {}, {"sometimes: met": 2}, {"odd": "needs two in one run"}, declared)
    assert [(row.name, row.hits) for row in rows] == [("met", 2), ("never come by", 0), ("odd", 0)]
    assert [row.name for row in uncovered(rows)] == ["never come by"]


def test_points_are_told_from_other_probes() -> None:
    """Only `sometimes` points, by their own names."""
    assert points({"sometimes: a": 1, "publish": 2}) == {"a": 1}


def test_the_same_lines_do_not_differ() -> None:
    """Then it is known how many there were."""
    assert first_difference(iter(["a", "b"]), iter(["a", "b"])) == 2
    assert first_difference([], []) == 0


def test_the_first_difference_comes_with_its_context() -> None:
    """The lines before it, and both versions; the end of a trace is a difference too."""
    found = first_difference([*map(str, range(20)), "x", "later"], [*map(str, range(20)), "y", "other"])
    assert isinstance(found, Difference)
    assert (found.number, found.one, found.other) == (21, "x", "y")
    assert found.before[-1] == "19"
    assert "A  x" in found.text()
    ended = first_difference(["a"], ["a", "b"])
    assert isinstance(ended, Difference)
    assert "ended" in ended.one


def test_it_reads_no_further_than_needed() -> None:
    """Traces may be long: what lies behind the first difference is not looked at."""
    lines = iter(["a", "b", "c", "d"])
    first_difference(lines, ["a", "x"])
    assert list(lines) == ["c", "d"]
