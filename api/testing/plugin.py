"""The pytest plugin: options, the fixture `simulation`, and the list of `sometimes` points that were never hit.

pytest loads it in every run wherever Callboard is installed, so it imports almost nothing until a simulated test runs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from callboard.testing.session import CURRENT, Hits, RunOptions, SimulatedCall

if TYPE_CHECKING:
    from callboard.testing.simulation import Simulation

NEVER_HIT = "callboard_never_hit"
"""The property of a report that names a point; reports also travel between processes."""
POINTS_SHOWN = 20
"""How many points that were never hit are listed; the rest are counted."""


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _seed(text: str) -> int:
    return _count(text) if int(text) else 0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("callboard", "simulated tests (callboard.testing)")
    group.addoption(
        "--callboard-seeds",
        type=_count,
        metavar="N",
        help="run every simulated test under N seeds, instead of the number in its decorator",
    )
    group.addoption(
        "--callboard-seed", type=_seed, metavar="S", help="run every simulated test under this one seed only"
    )
    group.addoption(
        "--callboard-strict",
        action="store_true",
        help="fail a simulated test if no seed hit one of its sometimes() points, or the faults of its Plan",
    )
    group.addoption(
        "--callboard-check-determinism",
        action="store_true",
        help="run every seed of a simulated test twice, and fail the test if the two runs differ",
    )
    group.addoption(
        "--callboard-report",
        metavar="DIR",
        help="write the timeline of each simulated test that fails into this folder, as an HTML file",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Pass the options and the test's name to a simulated test, and report what it never hit."""
    __tracebackhide__ = True
    option = item.config.getoption
    options = RunOptions(
        _node(item),
        seeds=option("--callboard-seeds"),
        seed=option("--callboard-seed"),
        report=option("--callboard-report"),
        twice=option("--callboard-check-determinism"),
    )
    hits = Hits()
    token = CURRENT.set(SimulatedCall(options, hits))
    try:
        result = yield
    finally:
        CURRENT.reset(token)
    if options.seed is None:  # one seed alone says nothing about what others hit
        _report_missed(item, hits, is_strict=option("--callboard-strict"))
    return result


def _report_missed(item: pytest.Item, hits: Hits, *, is_strict: bool) -> None:
    """Say what no seed hit: in the summary, by a warning and, in a strict run, by failing the test."""
    __tracebackhide__ = True
    points = _missed(hits.points)
    drawn, planned = sorted(_missed(hits.drawn_faults)), sorted(_missed(hits.planned_faults))
    if drawn or planned:
        item.warn(pytest.PytestWarning(_faults_warning((*drawn, *planned))))
    item.user_properties.extend((NEVER_HIT, name) for name in points)
    if points and is_strict:
        raise _points_error(tuple(points))
    if planned and is_strict:
        raise _plan_error(tuple(planned))


def _missed(hits: Mapping[str, int]) -> list[str]:
    return [name for name, count in hits.items() if not count]


def _faults_warning(kinds: tuple[str, ...]) -> str:
    return (
        f"no seed met these faults of the test: {', '.join(kinds)}. Either what they need is not there (a machine that "
        "boots, actors, tasks or files of the names that the space has), or it takes more seeds, or a longer test"
    )


def _node(item: pytest.Item) -> str:
    """The test's name relative to the folder in which pytest was called, which may not be pytest's root."""
    called_in = item.config.invocation_params.dir
    if called_in == item.config.rootpath or not item.path.is_relative_to(called_in):
        return item.nodeid
    return f"{item.path.relative_to(called_in)}::{item.nodeid.partition('::')[2]}"


def _points_error(points: tuple[str, ...]) -> Exception:
    from callboard.testing.errors import NeverHit

    names = ", ".join(map(repr, points[:POINTS_SHOWN]))
    if len(points) > POINTS_SHOWN:
        names += f" and {len(points) - POINTS_SHOWN:,} more"
    return NeverHit(
        f"sometimes() points were hit under no seed: {names}. "
        "Give the test more seeds, more faults or a longer workload, or take them out.",
        points=points,
    )


def _plan_error(kinds: tuple[str, ...]) -> Exception:
    from callboard.testing.errors import NeverHit

    return NeverHit(
        f"faults of the test's Plan had no effect under any seed: {', '.join(kinds)}. The test may be of an earlier "
        "program: correct the moments and names of its plan, or take the faults out.",
        points=kinds,
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the points that were never hit, by test, at most `POINTS_SHOWN`."""
    missed: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                names = [str(name) for key, name in report.user_properties if key == NEVER_HIT]
                if names:
                    missed[report.nodeid] = names
    if not missed:
        return
    terminalreporter.section("callboard: sometimes() points hit under no seed")
    lines = [f"{node}: {name!r}" for node, names in missed.items() for name in names]
    for line in lines[:POINTS_SHOWN]:
        terminalreporter.line(line, yellow=True)
    if len(lines) > POINTS_SHOWN:
        terminalreporter.line(f"... and {len(lines) - POINTS_SHOWN:,} more", yellow=True)


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    """Runs a function in the simulated world: `run = simulation(main, seed=3)`. See `callboard.testing.Simulation`."""
    from callboard.testing.simulation import Simulation

    return Simulation()
