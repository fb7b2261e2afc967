"""Measure which planted bugs a sweep finds, and after how many seeds: `python tests/simulations/mutations/measure.py`.

Each mutation gets the standard sweep's seeds, 500 at most, then 300 of the scenario that it names (`--own`: more, for
what needs a rare coincidence), and stops at the first broken promise. What is printed is also stored in `caught.toml`,
which the suite holds the simulator to. Name mutations to measure those alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import tomllib
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from planting import HERE, OWN_SEEDS, SEEDS, Caught, caught, in_sweep, mutations, search_each, standard

NOTHING = "nothing planted"

HEADER = """\
# Which seed found each planted bug, and what it found broken: the first of a standard sweep, or else of the scenario
# that the bug names. `swept`: before those only so many seeds of the sweep were tried. Written by measure.py. Bugs that
# are missing here were found by none.
"""


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations; all when none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--own", type=int, default=OWN_SEEDS, help="seeds of the scenario that it names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--missed", action="store_true", help="only those that nothing has found yet")
    parser.add_argument("--told", action="store_true", help="only what is stored, in figures")
    parser.add_argument(
        "--check", action="store_true", help="only whether the seeds stored still find theirs"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="with --check: every Nth only")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="with --every: from this one on")
    options = parser.parse_args()
    known = caught()
    if options.check:
        known = dict(islice(known.items(), options.first, None, options.every))
        sys.exit(check(known, options.jobs))
    if options.told:
        report(known, 0.0)
        return
    chosen = [m for m in mutations() if not options.names or m.name in options.names]
    if options.missed:
        chosen = [m for m in chosen if m.name not in known]
    began = time.monotonic()
    tasks = [(mutation.name, mutation, options.seeds) for mutation in chosen]
    for name, found in search_each(tasks, options.jobs, 3600.0, options.own):
        known.pop(name, None)
        if found is not None:
            known[name] = found
        store(known)
        print(f"{'missed' if found is None else 'found':>6}  {name}: {_told(found)}", flush=True)
    report(known, time.monotonic() - began)


def check(known: dict[str, Caught], jobs: int) -> int:
    """Run each stored seed with its bug planted, and all of them without: returns how many went otherwise."""
    everything = sorted({(found.scenario, found.seed) for found in known.values()})
    tasks = [(NOTHING, None, everything)] + [
        (mutation.name, mutation, [(known[mutation.name].scenario, known[mutation.name].seed)])
        for mutation in mutations()
        if mutation.name in known
    ]
    wrong = 0
    for name, found in search_each(tasks, jobs, 600.0):
        if (found is None) == (name != NOTHING):
            wrong += 1
            print(f"{name}: {'not found' if found is None else 'found'} by {_told(found or known[name])}")
    return wrong


def _told(found: Caught | None) -> str:
    return "" if found is None else f"{found.promise} ({found.scenario} {found.seed})"


def report(known: dict[str, Caught], seconds: float) -> None:
    """How many were found, and how fast."""
    everything = mutations()
    found = list(in_sweep(known).values())
    print(
        f"{len(found)} of {len(everything)} found ({100 * len(found) // max(1, len(everything))} %)"
        f", {len(known) - len(found)} more by their own scenarios",
        end="",
    )
    if found:
        print(f"; median after {statistics.median(found):g} seeds, in {seconds:.0f} s", end="")
    print()
    efficiency(known)
    for mutation in everything:
        if mutation.name not in known:
            print(f"missed: {mutation.name} ({mutation.file}): {mutation.breaks}")


def efficiency(known: dict[str, Caught]) -> None:
    """Bugs found per minute of one core: of the whole search, and of the part of each scenario in it.

    A bug that was missed has cost as many seeds as are tried. What a seed costs, `weights.toml` says.
    """
    order = [scenario for scenario, _ in standard(SEEDS)]
    costs = {name: float(row["cost_s"]) for name, row in weights().items()}
    swept = in_sweep(known)
    searched = [order[: swept[m.name]] if m.name in swept else order for m in mutations()]
    ran = Counter(scenario for scenarios in searched for scenario in scenarios)
    first = Counter(known[name].scenario for name in swept)
    minutes = {name: count * costs[name] / 60 for name, count in ran.items()}
    print(f"{len(swept) / sum(minutes.values()):.2f} bugs found per minute of one core")
    for name in sorted(minutes, key=lambda name: -first[name] / minutes[name]):
        print(f"{first[name] / minutes[name]:8.2f}  {name}: {first[name]} in {minutes[name]:.1f} minutes")


def weights() -> dict[str, Any]:
    """The scenarios' rows in `weights.toml`."""
    text = (HERE.parents[2] / "simulations/scenarios/weights.toml").read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text)["scenarios"]
    return found


def store(known: dict[str, Caught]) -> None:
    """Write `caught.toml`, in the order of the mutations."""
    rows = [HEADER]
    for mutation in mutations():
        if mutation.name in known:
            found = known[mutation.name]
            fields = ", ".join(
                f"{name} = {value if isinstance(value, int) else quoted(value)}"
                for name, value in found._asdict().items()
                if name != "swept" or value < SEEDS
            )
            rows.append(f"{quoted(mutation.name)} = {{ {fields} }}")
    (HERE / "caught.toml").write_text("\n".join(rows) + "\n", "utf-8")


def quoted(text: str) -> str:
    """A TOML string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    main()
