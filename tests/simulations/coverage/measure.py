"""Measure which lines and branches of the product a sweep reaches: `python tests/simulations/coverage/measure.py`.

The seeds are those of the standard sweep, 2,000 unless told, divided among processes. `unreached.toml` names the files
that no simulated run can reach, and the branches that none need reach, each with the reason. What is printed are, by
file, how much was reached, and the branches that were not and are not in that list.

Exits with 1 when less than 95 % of the branches were reached, and when the list is wrong: when it names a branch that
was reached, or one that is not there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "mutations"))
sys.path.insert(0, str(Path(__file__).parent))

import coverage
from branches import ROOMS, ROOT, FileReached, Unreached, is_measured, load_unreached, read_report
from planting import standard

SEEDS = 2_000
LEAST_PERCENT = 95.0


def main() -> int:
    """Run the seeds, add up what they reached, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    unreached = load_unreached()
    with tempfile.TemporaryDirectory() as folder:
        reached = measure(options.seeds, options.first_seed, options.jobs, Path(folder), unreached)
    return judge(reached, unreached)


def measure(seeds: int, first_seed: int, jobs: int, folder: Path, unreached: Unreached) -> list[FileReached]:
    """What the seeds of a standard sweep reach, in this many processes."""
    parts = [folder / f"part-{number}" for number in range(jobs)]
    children = [fork(seeds, first_seed, number, jobs, part) for number, part in enumerate(parts)]
    if any(os.waitpid(child, 0)[1] for child in children):
        raise SystemExit("a process that ran seeds failed: what it said stands above")
    whole = recorder(folder / "whole")
    whole.combine(map(str, parts))
    report = folder / "report.json"
    whole.json_report(outfile=str(report))
    return [file for file in read_report(report) if is_measured(file.file, unreached)]


def recorder(path: Path) -> coverage.Coverage:
    """What records the branches of the product into a file."""
    rooms = [f"{ROOT}/{room}/*" for room in ROOMS]
    return coverage.Coverage(data_file=str(path), branch=True, config_file=False, include=rooms)


def fork(seeds: int, first_seed: int, number: int, jobs: int, part: Path) -> int:
    """Run every `jobs`-th seed in a process of its own, which imports the product while that is recorded."""
    assert "callboard" not in sys.modules, "fork from a process that has not imported the product"
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        recording = recorder(part)
        recording.start()
        run_seeds(seeds, first_seed, number, jobs)
        recording.stop()
        recording.save()
        status = 0
    except BaseException:  # noqa: BLE001 - told here, and the process ends
        traceback.print_exc()
    finally:
        os._exit(status)


def run_seeds(seeds: int, first_seed: int, number: int, jobs: int) -> None:
    """The seeds of one process; one that breaks a promise is told."""
    from callboard.simulations.scenarios import SCENARIOS, run_scenario
    from callboard.simulations.world import Settings

    for place, (scenario, seed) in enumerate(standard(seeds)):
        if place % jobs == number:
            run = run_scenario(SCENARIOS[scenario], first_seed + seed, settings=Settings(trace="off"))
            if run.failure is not None:
                print(f"{scenario}, seed {first_seed + seed}: {run.failure}", flush=True)


def judge(reached: list[FileReached], unreached: Unreached) -> int:
    """Print it all, and return what to exit with."""
    for file in sorted(reached, key=lambda file: file.file):
        unlisted = [branch for branch in file.missed if branch not in unreached.branches]
        share = percent(len(file.reached), file.branches)
        lines = percent(file.lines_reached, file.lines)
        print(
            f"{share:6.1f} % of {file.branches:4} branches, {lines:5.1f} % of {file.lines:4} lines  {file.file}"
        )
        for branch in unlisted:
            print(f"          {branch.partition(' ')[2]}")
    missed = {branch for file in reached for branch in file.missed}
    known = missed | {branch for file in reached for branch in file.reached}
    wrong = [f"is reached: {branch}" for branch in unreached.branches if branch in known - missed]
    wrong += [f"is no branch of the code: {branch}" for branch in unreached.branches if branch not in known]
    total, count = sum(file.branches for file in reached), sum(len(file.reached) for file in reached)
    excepted = sum(branch in unreached.branches for file in reached for branch in file.missed)
    lines = sum(file.lines for file in reached)
    lines_reached = sum(file.lines_reached for file in reached)
    share = percent(count, total - excepted)
    print(f"\nlines:    {lines_reached:,} of {lines:,} ({percent(lines_reached, lines):.1f} %)")
    print(
        f"branches: {count:,} of {total:,} ({percent(count, total):.1f} %); without the {excepted:,} that need not be"
        f" reached {share:.1f} %, where {LEAST_PERCENT:g} % are asked"
    )
    for words in wrong:
        print(f"unreached.toml names what {words}")
    return int(bool(wrong) or share < LEAST_PERCENT)


def percent(part: int, whole: int) -> float:
    """A count out of a total."""
    return 100.0 * part / whole if whole else 100.0


if __name__ == "__main__":
    sys.exit(main())
