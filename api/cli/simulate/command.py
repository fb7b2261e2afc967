"""`callboard simulate`: the production code under simulated faults, seed by seed; failures are shrunk and shown as
stories.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Final

import click

import callboard
from callboard.cli import exits
from callboard.cli.answers import CommandAnswer
from callboard.cli.files import check_target, code_fingerprint, copy_file, cores, find_file
from callboard.cli.interruption import run
from callboard.cli.options import FiniteFloat, json_option
from callboard.cli.output import print_json, say, show
from callboard.cli.simulate.checks import check_determinism, explore, prove
from callboard.cli.simulate.pool import one_worker
from callboard.cli.simulate.replay import simulate_replay_command
from callboard.cli.simulate.scenarios import find_scenario, packages_of, weight_of
from callboard.cli.simulate.sweep import Search
from callboard.cli.simulate.tables import scenario_table, searched_lines, searched_to_dict
from callboard.cli.streams import check_directory
from callboard.log.errors import InvalidArgument, StorageError
from callboard.simulations.machines import MACHINES
from callboard.simulations.scenarios import registry
from callboard.simulations.scenarios.points import POINTS
from callboard.simulations.scenarios.registry import Weights
from callboard.simulations.search.coverage import STANDARD_SEEDS, CoverageRow, table, uncovered
from callboard.simulations.search.replay import ReplayVerdict
from callboard.simulations.search.shrink import RUNS_MAX
from callboard.simulations.search.stored_failure import StaleFailure
from callboard.simulations.search.sweep import Sweep, shares

SEEDS: Final = 200
SLOW_S: Final = 5.0
"""Scenarios that take longer are only swept when they are named, or in a sweep of standard size."""
STATE: Final = ".callboard-simulate"
VERDICTS: Final = {
    ReplayVerdict.REPRODUCED: exits.VIOLATED,
    ReplayVerdict.OTHER: exits.VIOLATED,
    ReplayVerdict.STALE: exits.STALE,
    ReplayVerdict.FIXED: exits.OK,
}
MODES: Final = ("check_determinism", "prove", "exhaustive", "machines", "repro", "listed")


class _Simulate(click.Command):
    """The command, and one below it: `replay` takes a recording and options of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click's; a first argument that is the name of the other command hands over to it."""
        other = self.below().get(args[0]) if args else None
        if other is None:
            return super().make_context(info_name, args, parent, **extra)
        return other.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def below(self) -> dict[str, click.Command]:
        """The other command, by its name."""
        return {"replay": simulate_replay_command}


@click.command(cls=_Simulate)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--seeds", type=click.IntRange(1, 1 << 40), help=f"How many runs in all. [default: {SEEDS}]")
@click.option("--first-seed", type=click.IntRange(0, 1 << 40), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(1, 256), help="Worker processes. [default: one per core]")
@click.option(
    "--time-limit",
    type=FiniteFloat(0, min_open=True),
    help="Seconds; then it can be resumed.",
)
@click.option("--keep-going", is_flag=True, help="Go on after a broken promise.")
@click.option("--fresh", is_flag=True, help="Do not resume what was interrupted.")
@click.option("--state", default=STATE, show_default=True, help="Where progress and failures are kept.")
@click.option("--shrink-runs", type=click.IntRange(0, 100_000), default=RUNS_MAX, show_default=True)
@click.option(
    "--shrink-seconds",
    type=FiniteFloat(0),
    default=60.0,
    show_default=True,
)
@click.option("--check-determinism", is_flag=True, help="Run each seed twice and compare whole traces.")
@click.option("--prove", is_flag=False, flag_value="all", metavar="[NAMES]", help="Switch safeguards off.")
@click.option("--exhaustive", type=click.IntRange(0, 3), help="Every short history of the log.")
@click.option("--machines", is_flag=True, help="The pure state machines alone, very fast.")
@click.option("--repro", metavar="FILE", help="Run a stored failure again.")
@click.option("--report", metavar="FILE.html", help="Draw the (first) failure there.")
@click.option("--adopt", metavar="FILE.json", help="With --repro, when fixed: keep it as a regression.")
@click.option("--verbose", is_flag=True, help="Count each kind of fault and each point.")
@click.option("--list", "listed", is_flag=True, help="Name the scenarios.")
@json_option
def simulate(scenarios: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Run production code under simulated faults. Each seed is a workload, a fault plan and a schedule.

    Without SCENARIO all are swept, in shares by their weights; one of your own is named package.module:Scenario. A
    sweep stops at its first broken promise, stores and shrinks it, tells its story, and names the one command that runs
    it again. Interrupted, it continues where it was.

    `callboard simulate replay RECORDING` replays a recording in the simulated world: see its own --help.

    Exits with 6 when a promise was broken, 7 when a sweep of standard size left a fault or a point unmet, 8 for a
    stored failure that no longer fits, 9 when runs of one seed differ, 10 when a safeguard is not missed, 11 when
    no seed ended within the time limit.
    """
    _check(scenarios, given)
    jobs = given["jobs"] or cores()
    if given["listed"]:
        return _list().print(as_json=as_json)
    if given["repro"] is not None:
        names = _check_names(scenarios) if scenarios else []
        return _reproduce(names, given["repro"], given["report"], given["adopt"], as_json)
    if given["check_determinism"]:
        known = _weights().scenarios
        quick = [name for name, weight in known.items() if weight.cost_s <= SLOW_S]
        names = _check_names(scenarios) if scenarios else quick
        seeds = range(given["first_seed"], given["first_seed"] + (given["seeds"] or 1))
        return check_determinism(names, seeds, jobs, given["state"], quiet=as_json).print(as_json=as_json)
    if given["exhaustive"] is not None:
        return explore(given["exhaustive"], jobs, quiet=as_json).print(as_json=as_json)
    if given["prove"] is not None:
        return prove(given["prove"], jobs, quiet=as_json).print(as_json=as_json)
    return _sweep(scenarios, jobs, as_json, given)


def _check(scenarios: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` for options that do not go together, `StorageError` for files that cannot be written."""
    chosen = [mode for mode in MODES if given[mode] not in (None, False)]
    if len(chosen) > 1:
        raise InvalidArgument(
            f"--{' and --'.join(name.replace('_', '-') for name in chosen)} exclude each other."
        )
    if given["adopt"] is not None and given["repro"] is None:
        raise InvalidArgument("--adopt goes with --repro. Nothing was run.")
    if given["report"] is not None and not set(chosen) <= {"repro", "machines"}:
        raise InvalidArgument("--report goes with a sweep, or with --repro. Nothing was run.")
    alone = next((mode for mode in ("prove", "exhaustive", "listed") if mode in chosen), None)
    beside = [
        *(["SCENARIO"] if scenarios else []),
        *(["--seeds"] if given["seeds"] is not None else []),
        *(["--first-seed"] if given["first_seed"] else []),
    ]
    if alone is not None and beside:
        name = "list" if alone == "listed" else alone
        raise InvalidArgument(f"--{name} takes no {' and no '.join(beside)}. Nothing was run.")
    if given["repro"] is not None and beside[bool(scenarios) :]:
        raise InvalidArgument(
            "--repro runs the seed of its file: leave out --seeds and --first-seed. Nothing was run."
        )
    check_directory(given["state"])
    for target in (given["report"], given["adopt"]):
        if target is not None:
            check_target(target)
    if given["adopt"] is not None and find_file(given["adopt"]) is not None:
        raise InvalidArgument(
            f"--adopt {given['adopt']}: the file is there already, and is not written over. Nothing was run."
            " Name another one, or remove it."
        )


@cache
def _weights() -> Weights:
    """What `weights.toml` says."""
    return registry.load_weights()


def _check_names(names: Iterable[str]) -> list[str]:
    """The names, each once; of all scenarios without any. Raises `InvalidArgument` for unknown ones."""
    known = registry.SCENARIOS
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if find_scenario(name) is None]
    if unknown:
        near = list(dict.fromkeys(each for name in unknown for each in get_close_matches(name, known, n=1)))
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise InvalidArgument(
            f"there is no scenario {', '.join(map(repr, unknown)):.200}.{hint} Nothing was run. There are"
            f" {', '.join(known)}."
            " One of your own is named package.module:Scenario."
        )
    return wanted or list(known)


def _expected_faults(names: Iterable[str]) -> set[str]:
    """The labels of all faults that these scenarios can draw."""
    found = (find_scenario(name) for name in names if name != MACHINES)
    return {label for scenario in found if scenario is not None for label in scenario.space.labels()}


def _list() -> CommandAnswer:
    found = {}
    for name in _check_names(()):
        weight, faults = _weights().scenarios[name], len(_expected_faults([name]))
        found[name] = {
            "share": weight.share,
            "seconds": weight.cost_s,
            "least": weight.least,
            "faults": faults,
        }
    return CommandAnswer(found, [scenario_table(found)])


# -- sweeping


def _sweep(scenarios: tuple[str, ...], jobs: int, as_json: bool, given: dict[str, Any]) -> int:
    if given["machines"] and scenarios:
        raise InvalidArgument("--machines takes no scenario. Nothing was run.")
    seeds = given["seeds"] or SEEDS
    is_standard = not scenarios and not given["machines"] and seeds >= STANDARD_SEEDS
    search = _search(scenarios, seeds, jobs, given, is_standard=is_standard, quiet=as_json)
    sweep = search.sweep
    try:
        run(partial(search.run, fresh=given["fresh"]))
    except SystemExit:  # a signal
        same = "the same command without --fresh" if given["fresh"] else "the same command"
        with suppress(OSError):  # a closed pipe does not change the exit code
            say(
                f"callboard: interrupted after {sweep.done:,} of {sweep.seeds:,} seeds: {same} continues there."
            )
        raise
    rows = _coverage(sweep)
    lines = searched_lines(search, rows, verbose=given["verbose"])
    CommandAnswer(searched_to_dict(search, rows), lines).print(as_json=as_json)
    if given["report"] is not None and search.failures and search.failures[0].report:
        _copy_report(search.failures[0].report, given["report"])
    if search.failures or sweep.failures:
        return exits.VIOLATED
    if not sweep.done:
        say(
            f"callboard: no seed ended within {given['time_limit']:g} s: nothing is known. Give it more time."
        )
        return exits.UNFINISHED
    missing = uncovered(rows) if sweep.is_complete and is_standard else []
    for row in missing:
        say(
            f"callboard: a whole sweep never met the {row.kind} {row.name!r}: correct the scenarios, or call it rare."
        )
    return exits.UNCOVERED if missing else exits.OK


def _search(
    scenarios: tuple[str, ...],
    seeds: int,
    jobs: int,
    given: dict[str, Any],
    *,
    is_standard: bool,
    quiet: bool,
) -> Search:
    """What is searched: how many seeds of which scenarios, and how."""
    known = _weights().scenarios
    if given["machines"]:
        dealt, sizes = {MACHINES: seeds}, {MACHINES: 20}
    else:
        names = _check_names(scenarios)
        known = {name: weight_of(name, known) for name in names} | known
        shared = {name: known[name].share for name in names}
        if scenarios:
            shared = {name: share or 1.0 for name, share in shared.items()}
        elif not is_standard:
            shared = {name: share for name, share in shared.items() if known[name].cost_s <= SLOW_S}
        dealt = shares(seeds, shared, {name: known[name].least for name in names} if is_standard else None)
        # This many seeds of a scenario take about a second.
        sizes = {name: min(50, max(1, round(1.0 / max(known[name].cost_s, 0.01)))) for name in names}
    code = code_fingerprint(packages_of(scenarios))
    sweep = Sweep(dealt, given["first_seed"], f"{callboard.__version__} {code}")
    return Search(
        sweep=sweep,
        folder=given["state"],
        quiet=quiet,
        jobs=min(jobs, sweep.seeds),
        time_limit_s=given["time_limit"] or math.inf,
        keep_going=given["keep_going"],
        shrink_runs=given["shrink_runs"],
        shrink_s=given["shrink_seconds"],
        sizes=sizes,
        costs_s={name: weight.cost_s for name, weight in known.items()},
    )


def _coverage(sweep: Sweep) -> Sequence[CoverageRow]:
    """Which faults and points were met, of all that these scenarios can meet."""
    names = list(sweep.tallies)
    rare = {rare.point: rare.reason for rare in _weights().rare}
    points = {point for name in names for point in POINTS.get(name, ())}
    return table(_expected_faults(names), sweep.faults, sweep.probes, rare, points)


def _copy_report(report: str, target: str) -> None:
    try:
        copy_file(report, target)
    except StorageError as error:  # it must not hide what the sweep found
        say(f"callboard: {error} The report is in {report}.")
    else:
        say(f"report: {target}")


# -- stored failures


def _reproduce(names: list[str], file: str, report: str | None, adopt: str | None, as_json: bool) -> int:
    async def work() -> dict[str, Any]:
        async with one_worker() as worker:
            return await worker.whole(do="repro", file=file, named=names, report=report, adopt=adopt)

    try:
        found = run(work)
    except StaleFailure as error:
        found = {"verdict": ReplayVerdict.STALE.value, "words": str(error), "story": ""}
    verdict = ReplayVerdict(found["verdict"])
    if as_json:
        print_json(found)
    else:
        if found["story"]:
            show(found["story"], "")
        show(f"{verdict.value}: {found['words']}")
        if report is not None and verdict is not ReplayVerdict.STALE:
            say(f"report: {report}")
    if verdict is ReplayVerdict.STALE:
        say(f"callboard: {file} is stale: it says nothing about this version.")
    if adopt is not None and verdict is not ReplayVerdict.FIXED:
        say("callboard: nothing was adopted: only a failure that is fixed can be a regression.")
    elif adopt is not None:
        say(f"adopted: {adopt}")
    return VERDICTS[verdict]
