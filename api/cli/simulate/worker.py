"""The process that runs simulations: `callboard simulate-worker`, started by `callboard simulate` alone.

It takes one request per line of standard input, as JSON, and answers in lines of JSON on standard output; the last one
of an answer has `done`. What simulated code prints goes to standard error. Runs are in processes of their own so that
one that never ends can be killed, and so that every run has the same surroundings.

Requests: `run` (seeds of a scenario), `shrink` and `repro` (a stored failure), `trace` (one seed with its whole trace),
`explore` (a share of the exhaustive mode), `prove` (one safeguard).
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import attrs
import click

import callboard
from callboard.cli.files import TraceFile, read_whole, seconds_now, write_whole
from callboard.cli.output import to_json
from callboard.cli.processes import end_after_computing, live_as_long_as_parent
from callboard.cli.simulate.scenarios import file_name, find_scenario, is_of_a_program, words_with_line
from callboard.cli.streams import input_lines
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.host.entropy import HostEntropy
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.exhaustive.exploring import Exploration, explore
from callboard.simulations.machines import MACHINES, drive
from callboard.simulations.proof import prove
from callboard.simulations.scenarios.registry import load_weights
from callboard.simulations.scenarios.scenario import Scenario, draw, run_scenario
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.replay import (
    ReplayVerdict,
    RunCase,
    case_of,
    judge,
    promise_of,
    remarks,
    stored_failure_of,
    trial_of,
    words_of,
)
from callboard.simulations.search.report_html import report_page
from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.search.stored_failure import (
    STORED_BYTES_MAX,
    StaleFailure,
    StoredFailure,
    read_stored_failure,
)
from callboard.simulations.search.story import Story, tell
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run, Settings, SimulationStuck

TRACEBACK_LINES_MAX: Final = 40
SILENT_S: Final = 120.0
"""A run that computes for this long and says nothing never waits: the process reports where it is, and ends."""
SILENT_COSTS: Final = 20.0
"""The same for a scenario of which `weights.toml` says what a seed costs, in these costs: machines differ in speed."""
HEAP_OBJECTS: Final = 20_000
LEAST_TICKS: Final = 100_000
QUIET: Final = Settings(trace="off")

Answer = Callable[..., None]
Found = dict[str, Any]
"""The last answer to a request."""
_kept: list[Any] = []


@click.command("simulate-worker", hidden=True)
@click.option("--perturb", is_flag=True, help="Fill the heap at random first.")
def simulate_worker(perturb: bool) -> None:
    """Run simulations for `callboard simulate`."""
    live_as_long_as_parent()
    if perturb:
        perturb_heap()
    out, silent_s = sys.stdout, SILENT_S
    costs_s = {name: weight.cost_s for name, weight in load_weights().scenarios.items()}

    def answer(**fields: Any) -> None:
        end_after_computing(silent_s)
        out.write(f"{to_json(fields)}\n")
        out.flush()

    for line in input_lines():
        request = json.loads(line)
        silent_s = max(SILENT_S, SILENT_COSTS * costs_s.get(request.get("scenario", ""), 0.0))
        end_after_computing(silent_s)
        with contextlib.redirect_stdout(sys.stderr):
            try:
                answer(done=True, **WORK[request.pop("do")](answer, **request))
            except CallboardError as error:
                answer(done=True, error=type(error).__name__, message=str(error))
        end_after_computing(0.0)


def perturb_heap() -> None:
    """Objects of all sizes, some of them freed again: addresses and their order are like those of no other process."""
    entropy = HostEntropy()
    for _ in range(HEAP_OBJECTS):
        size = 1 << (1 + int(entropy.random() * 10))
        _kept.append(bytearray(size) if entropy.random() < 0.5 else [object()] * (size >> 3))
        if entropy.random() < 0.4:
            _kept.pop(int(entropy.random() * len(_kept)))


# -- seeds


def _find_scenario(name: str) -> Scenario:
    """The scenario of that name. Raises `StaleFailure`: names come from checked arguments and stored failures."""
    found = find_scenario(name)
    if found is None:
        raise StaleFailure(
            f"there is no scenario {name!r:.60} in this version. Nothing was run."
            " `callboard simulate --list` names them."
        )
    return found


def run_seeds(answer: Answer, *, scenario: str, first: int, count: int, folder: str) -> Found:
    """Run `count` seeds from `first` on, an answer each; failures are stored in `folder`."""
    found = None if scenario == MACHINES else _find_scenario(scenario)
    for seed in range(first, first + count):
        answer(**(_drive_machines(seed) if found is None else _run_seed(found, seed, folder)))
    return {}


def _drive_machines(seed: int) -> dict[str, Any]:
    """One seed of the pure state machines, as the result of a seed."""
    driven = drive(seed)
    found: dict[str, Any] = {
        "scenario": MACHINES,
        "seed": seed,
        "virtual_s": driven.virtual_s,
        "events": driven.events,
        "boots": 1,
        "faults": Counter(),
        "probes": {"crashes of machines": driven.crashes, "messages settled": driven.settled},
    }
    if driven.violation is not None:
        tale = "\n".join(driven.tale)
        found |= {
            "promise": driven.violation.promise,
            "words": f"{driven.violation.words}\nThe last operations:\n{tale}",
        }
    return found


def _run_seed(scenario: Scenario, seed: int, folder: str) -> dict[str, Any]:
    try:
        workload, plan = draw(scenario, seed)
    except Exception as error:  # noqa: BLE001 - the scenario's: whatever it raises, the seed has no workload
        return {
            "scenario": scenario.name,
            "seed": seed,
            "promise": "the workload can be drawn",
            "words": words_with_line(error),
        }
    case = Case(workload, plan)
    run = _runner(scenario, seed)(case, QUIET)
    found: dict[str, Any] = {
        "scenario": scenario.name,
        "seed": seed,
        "faults": {name: count for name, count in run.fault_counts.items() if count},
        "probes": dict(run.probes),
        "virtual_s": run.virtual_s,
        "ticks": run.ticks,
        "boots": run.boots,
    }
    if run.failure is not None:
        found |= _store_failure(scenario, seed, case, run, run.failure, folder)
    return found


def _store_failure(
    scenario: Scenario, seed: int, case: Case, run: Run, failure: BaseException, folder: str
) -> dict[str, Any]:
    """Run the seed again with its schedule recorded, and store what is needed to meet the failure again."""
    promise, words = promise_of(failure), words_of(failure)
    computes = getattr(failure, "computes", False)  # as a second run would, for as long
    again = run if computes else _runner(scenario, seed)(case, attrs.evolve(QUIET, record_schedule=True))
    note = f"as a sweep found it, under the scheduler {run.scheduler}"
    if again.failure is None or promise_of(again.failure) != promise:
        note = "a second run of the same seed went otherwise: run --check-determinism on it"
        words = f"{words} ({note})"
    else:
        case = attrs.evolve(case, tape=again.tape)
    stored = stored_failure_of(scenario.name, case, run, version=callboard.__version__, note=note)
    path = f"{folder}/{file_name(scenario.name)}-{seed}.found.failure"
    write_whole(path, stored.to_cbor())
    return {"promise": promise[:200], "words": words[:4_000], "stored_in": path}


def _runner(scenario: Scenario, seed: int) -> RunCase:
    def run_case(case: Case, settings: Settings) -> Run:
        chosen = attrs.evolve(settings, scheduler=case.scheduler)
        return run_scenario(
            scenario, seed, plan=case.plan, workload=case.workload, tape=case.tape, settings=chosen
        )

    return run_case


# -- stored failures


def _settings_to_tell(stored: StoredFailure) -> Settings:
    """How a run goes, for its story. Scenarios of Callboard say themselves what their clients do."""
    return attrs.evolve(QUIET, watched=is_of_a_program(stored.scenario))


def _read(file: str, named: list[str]) -> tuple[StoredFailure, Drawing, RunCase, Case]:
    """A stored failure: how its workload was drawn, how its seed is run, and its case."""
    stored = read_stored_failure(read_whole(file, STORED_BYTES_MAX))
    if (
        is_of_a_program(stored.scenario) and stored.scenario not in named
    ):  # a file must not say what is imported
        raise InvalidArgument(
            f"{file} is of the scenario {stored.scenario!r}, which is not Callboard's. Nothing was run. "
            f"If you trust it, name it: {reproduction(file, stored.scenario)}"
        )
    scenario = _find_scenario(stored.scenario)
    entropy = SeededEntropy(stored.seed)
    case = case_of(stored, type(scenario.workload(entropy.fork("workload"))))
    drawing = Drawing(scenario.workload, entropy.fork("workload"))
    return stored, drawing, _runner(scenario, stored.seed), case


def shrink_stored(answer: Answer, *, file: str, named: list[str], runs: int, seconds: float) -> Found:
    """Make a stored failure small, store it beside with its story and report, and tell the story."""
    stored, drawing, run_case, case = _read(file, named)
    end = seconds_now() + seconds
    first = run_case(case, QUIET)
    computes = getattr(first.failure, "computes", False)  # as each attempt would, for as long
    budget = RunBudget(0 if computes else runs, lambda: seconds_now() > end)
    if first.failure is None or promise_of(first.failure) != stored.promise:
        raise StaleFailure(
            f"{file} does not break its promise again. `callboard simulate {stored.scenario} --check-determinism"
            f" --first-seed {stored.seed}` says whether runs of this seed differ."
        )
    # A case that takes much longer is no simpler one; only what is stuck may take as long as there is.
    stuck = isinstance(first.failure, SimulationStuck)
    ticks = QUIET.tick_limit if stuck else 4 * first.ticks + LEAST_TICKS
    trial = trial_of(run_case, first.failure, ticks)
    shrunk = shrink(case, trial, budget, lambda what, spent: answer(shrinking=what, runs=spent), drawing)
    run = run_case(shrunk.case, _settings_to_tell(stored))
    note = f"made small in {shrunk.runs} runs" + ("" if shrunk.complete else "; there was more to try")
    small = stored_failure_of(stored.scenario, shrunk.case, run, version=callboard.__version__, note=note)
    base = file.removesuffix(".found.failure")
    write_whole(f"{base}.failure", small.to_cbor())
    write_whole(f"{base}.json", small.to_json().encode("utf-8", "surrogatepass"))
    command = reproduction(f"{base}.failure", stored.scenario)
    about = [*remarks(shrunk.case), f"Seed {stored.seed}, {note}."]
    story = tell(run, command, stored.scenario, about)
    text = _text(run, story)
    write_whole(f"{base}.txt", f"{text}\n".encode("utf-8", "replace"))
    write_whole(f"{base}.html", report_page(run, story).encode("utf-8", "replace"))
    where = {"stored_in": f"{base}.failure", "report": f"{base}.html"}
    return {**where, "command": command, "story": text, "note": note}


def reproduction(path: str, scenario: str) -> str:
    """The command that runs a stored failure again."""
    named = f"{shlex.quote(scenario)} " if is_of_a_program(scenario) else ""
    return f"callboard simulate {named}--repro {shlex.quote(path)}"


def repro(answer: Answer, *, file: str, named: list[str], report: str | None, adopt: str | None) -> Found:
    """Run a stored failure again, and say what it says about this version."""
    stored, _, run_case, case = _read(file, named)
    run = run_case(case, _settings_to_tell(stored))
    found = judge(stored, run)
    is_stale = found.verdict is ReplayVerdict.STALE
    story = tell(run, reproduction(file, stored.scenario), stored.scenario, remarks(case))
    if report is not None and not is_stale:
        write_whole(report, report_page(run, story).encode("utf-8", "replace"))
    if adopt is not None and found.verdict is ReplayVerdict.FIXED:
        kept = stored_failure_of(stored.scenario, case, run, version=callboard.__version__, note=stored.note)
        kept = attrs.evolve(kept, promise=stored.promise, words=stored.words)
        write_whole(adopt, kept.to_json().encode("utf-8", "surrogatepass"))
    return {
        "verdict": found.verdict.value,
        "words": found.words,
        "scenario": stored.scenario,
        "seed": stored.seed,
        "story": "" if run.failure is None or is_stale else _text(run, story),
    }


def _text(run: Run, story: Story) -> str:
    text = story.text()
    if run.failure is None or isinstance(run.failure, Violation):
        return text
    lines = "".join(traceback.format_exception(run.failure)).splitlines()
    return "\n".join([text, "", "Where it was raised:", *lines[-TRACEBACK_LINES_MAX:]])


# -- traces


def trace_seed(answer: Answer, *, scenario: str, seed: int, path: str) -> Found:
    """Run one seed, its whole trace into a file."""
    found = _find_scenario(scenario)
    with TraceFile(path) as file:
        run_scenario(found, seed, settings=Settings(trace="full", sink=file.write))
    return {}


# -- the log alone


def explore_share(answer: Answer, *, length: int, share: list[int]) -> Found:
    """This process's share of all short histories of the log."""

    def tell(at: Exploration) -> None:
        answer(sequences=at.done, of=at.sequences, states=at.states)

    found = explore(length, tell, share=(share[0], share[1]))
    return {
        "sequences": found.done,
        "of": found.done,
        "states": found.states,
        "points": found.points,
        "sampled_points": found.sampled_points,
        "failures": [str(failure) for failure in found.failures],
    }


# -- safeguards


def prove_safeguard(answer: Answer, *, name: str) -> Found:
    """Switch one safeguard off, and search the seed that notices."""
    return attrs.asdict(prove(name, now=seconds_now))


WORK: Final[dict[str, Callable[..., Found]]] = {
    "run": run_seeds,
    "shrink": shrink_stored,
    "repro": repro,
    "trace": trace_seed,
    "explore": explore_share,
    "prove": prove_safeguard,
}
