"""`sometimes`, `always`, `eventually` and `note`, in a world and outside."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from callboard.testing import Violation, always, eventually, note, sometimes

pytest_plugins = ["pytester"]

POINTS = """
    def helper(value):
        sometimes("the value is large", value > 1000)

    @simulate(seeds=3)
    async def test_it(world):
        sometimes("hit")
        sometimes("not by every seed", world.seed == 2)
        if world.seed > 1000:
            sometimes("not even reached")
        helper(5)
    """


def test_points_never_hit_are_listed(run_file: Any) -> None:
    """What was hit under no seed is told at the end: reached or not, in the body or in what it calls."""
    result = run_file(POINTS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*sometimes() points hit under no seed*",
            "test_it.py::test_it: 'not even reached'",
            "test_it.py::test_it: 'the value is large'",
        ]
    )
    result.stdout.no_fnmatch_line("*'hit'*")
    result.stdout.no_fnmatch_line("*'not by every seed'*")


def test_points_never_hit_fail_when_strict(run_file: Any) -> None:
    """With --callboard-strict they fail the test."""
    result = run_file(POINTS, "--callboard-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*NeverHit: *'not even reached', 'the value is large'*"])


def test_of_many_points_the_first_are_listed(run_file: Any) -> None:
    """Many points fill no screen, in the summary and in the error: 20, and how many more."""
    lines = [f"    sometimes('point {number}', False)" for number in range(1_500)]
    many = "\n".join(["@simulate(seeds=1)", "async def test_many(world):", *lines])
    result = run_file(many, "--callboard-strict").stdout
    result.fnmatch_lines(["*NeverHit: *'point 0', *'point 19' and 1,480 more.*"])
    result.fnmatch_lines(
        ["test_it.py::test_many: 'point 0'", "test_it.py::test_many: 'point 19'", "... and 1,480 more"]
    )
    result.no_fnmatch_line("*'point 20'*")


def test_one_seed_says_nothing_about_points(run_file: Any) -> None:
    """Where one seed is run again, points that it does not hit are no news."""
    result = run_file(POINTS, "--callboard-strict", "--callboard-seed=0")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*under no seed*")


def test_a_violation_counts_even_if_it_is_caught(run_file: Any) -> None:
    """Code under test that catches everything does not hide a broken promise."""
    result = run_file(
        """
        @simulate(seeds=2)
        async def test_it(world):
            try:
                always(False, "it holds")
            except Exception:
                pass
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Violation: always: it holds*"])


def test_eventually_waits_in_virtual_time(run_file: Any) -> None:
    """It returns when the predicate holds, and fails with its words when the time is up."""
    result = run_file(
        """
        @simulate(seeds=2)
        async def test_it(world):
            async with trio.open_nursery() as nursery:
                done = trio.Event()
                nursery.cancel_scope.deadline = trio.current_time() + 500

                async def work():
                    await trio.sleep(100)
                    done.set()

                nursery.start_soon(work)
                await eventually(done.is_set, within=200, words="the work is done")

        @simulate(seeds=2)
        async def test_never(world):
            await eventually(lambda: False, within=200, words="pigs fly")
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Violation: eventually: pigs fly*"])


async def test_words_outside_of_a_world(autojump_clock: trio.testing.MockClock) -> None:
    """`sometimes` and `note` do nothing; `always` and `eventually` hold one to it all the same."""
    sometimes("nobody counts")
    note("nobody writes this down")
    always(True, "fine")
    await eventually(lambda: True, within=1, words="fine")
    with pytest.raises(Violation) as broken:
        always(False, "two and two are five")
    assert broken.value.promise == "always"
    started = trio.current_time()
    with pytest.raises(Violation) as late:
        await eventually(lambda: False, within=3, words="pigs fly")
    assert late.value.promise == "eventually"
    assert trio.current_time() - started == pytest.approx(3)
