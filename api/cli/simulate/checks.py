"""What `callboard simulate` checks apart from sweeping: that runs are repeatable, that all short histories of the log
are sound, that every safeguard is missed when it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs

from callboard.cli import exits
from callboard.cli.answers import CommandAnswer
from callboard.cli.files import prepare_folder, remove_file, trace_lines
from callboard.cli.interruption import run
from callboard.cli.output import Advance, progress
from callboard.cli.simulate.pool import one_worker, run_all
from callboard.cli.simulate.tables import proof_table
from callboard.log.host.entropy import HostEntropy
from callboard.simulations.proof import SAFEGUARDS
from callboard.simulations.proof.proving import check_names, is_as_stored
from callboard.simulations.search.differences import first_difference

SEEDS_AT_ONCE: Final = 20

# -- determinism


def check_determinism(
    scenarios: Sequence[str], seeds: range, jobs: int, folder: str, *, quiet: bool
) -> CommandAnswer:
    """Run each seed in two new processes with other hashes and other heaps, and compare their whole traces.

    A process runs up to `SEEDS_AT_ONCE` seeds of one scenario, the other one runs them the other way round: what one
    run leaves behind for the next shows too.
    """
    traces = f"{folder}/traces"
    prepare_folder(traces)
    chunks = [
        (name, seeds[at : at + SEEDS_AT_ONCE])
        for name in scenarios
        for at in range(0, len(seeds), SEEDS_AT_ONCE)
    ]
    found: list[dict[str, Any]] = []

    async def compare(name: str, some: range, advance: Advance) -> None:
        found.extend(await _compare(name, some, traces))
        advance(f"{name}, seeds up to {some[-1]}", len(found), len(scenarios) * len(seeds))

    with progress("comparing", quiet=quiet) as advance:
        # Each comparison is two processes at once.
        run(partial(run_all, [partial(compare, *chunk, advance) for chunk in chunks], max(1, jobs // 2)))
    found.sort(key=lambda compared: (scenarios.index(compared["scenario"]), compared["seed"]))
    words = [compared.pop("words") for compared in found]
    is_same = all(compared["same"] for compared in found)
    return CommandAnswer(found, words, code=exits.OK if is_same else exits.NONDETERMINISTIC)


async def _compare(scenario: str, seeds: range, folder: str) -> list[dict[str, Any]]:
    """Two traces of each seed, as they are printed: in `words`, or in JSON by all else."""
    entropy = HostEntropy()
    hashes = (str(entropy.integer(32)), str(entropy.integer(32)))
    orders = (seeds, seeds[::-1])
    sides = zip("ab", orders, hashes, strict=True)
    await run_all([partial(_trace, scenario, *side, folder) for side in sides], 2)
    found = []
    for seed in seeds:
        paths = [_trace_path(folder, scenario, seed, side) for side in "ab"]
        difference = first_difference(trace_lines(paths[0]), trace_lines(paths[1]))
        place = f"{scenario}, seed {seed}"
        if isinstance(difference, int):
            words = f"{place}: the same, {difference:,} lines"
            for path in paths:
                remove_file(path)
        else:
            words = (
                f"{place}: NOT THE SAME from line {difference.number:,} on (PYTHONHASHSEED {' and '.join(hashes)};"
                f" whole traces are kept)\n{difference.text()}"
            )
        compared = {
            "scenario": scenario,
            "seed": seed,
            "same": isinstance(difference, int),
            "lines": difference if isinstance(difference, int) else None,
            "difference": None if isinstance(difference, int) else attrs.asdict(difference),
            "hash_seeds": hashes,
        }
        found.append({**compared, "words": words})
    return found


async def _trace(scenario: str, side: str, seeds: range, hash_seed: str, folder: str) -> None:
    async with one_worker(environment={"PYTHONHASHSEED": hash_seed}, perturb=True) as worker:
        for seed in seeds:
            path = _trace_path(folder, scenario, seed, side)
            await worker.whole(do="trace", scenario=scenario, seed=seed, path=path)


def _trace_path(folder: str, scenario: str, seed: int, side: str) -> str:
    return f"{folder}/{scenario}-{seed}.{side}.txt"


# -- every short history of the log


def explore(length: int, jobs: int, *, quiet: bool) -> CommandAnswer:
    """Every sequence of up to `length` operations of the log, crashed at every verb, shared by processes."""
    shares: list[dict[str, Any]] = [{} for _ in range(jobs)]

    async def work(number: int, advance: Advance) -> None:
        def heard(answer: dict[str, Any]) -> None:
            shares[number] = answer
            begun = [share for share in shares if share]
            done, states = (sum(share[name] for share in begun) for name in ("sequences", "states"))
            # Until each process has reported its share, the whole is not known.
            whole = sum(share["of"] for share in begun) if len(begun) == jobs else None
            advance(f"{done:,} sequences, {states:,} states", done, whole)

        async with one_worker() as worker:
            answer = await worker.whole(heard, do="explore", length=length, share=[number, jobs])
        heard(answer)

    with progress("exploring", quiet=quiet) as advance:
        run(partial(run_all, [partial(work, number, advance) for number in range(jobs)], jobs))
    total = {
        name: sum(share[name] for share in shares)
        for name in ("states", "sequences", "points", "sampled_points")
    }
    failures = [failure for share in shares for failure in share["failures"]]
    words = (
        f"{total['sequences']:,} sequences of up to {length} operations, {total['points']:,} crash points,"
        f" {total['states']:,} states ({total['sampled_points']:,} points had too many unsynced items to try every"
        f" subset): {f'{len(failures)} BROKEN' if failures else 'all sound'}"
    )
    code = exits.VIOLATED if failures else exits.OK
    return CommandAnswer({**total, "failures": failures}, [words, *failures], code=code)


# -- safeguards


def prove(names: str, jobs: int, *, quiet: bool) -> CommandAnswer:
    """Switch safeguards off, one at a time, and search the seed that notices; `names`: with commas, or "all"."""
    wanted = (
        list(SAFEGUARDS) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    )
    check_names(wanted)
    waiting = iter(wanted)
    proofs: list[dict[str, Any]] = []

    async def work(advance: Advance) -> None:
        async with one_worker() as worker:
            for name in waiting:
                proofs.append(await worker.whole(do="prove", name=name))
                advance(name, len(proofs), len(wanted))

    with progress("proving", quiet=quiet) as advance:
        at_once = min(jobs, len(wanted))
        run(partial(run_all, [partial(work, advance)] * at_once, at_once))
    proofs.sort(key=lambda proof: wanted.index(proof["name"]))
    missed = [proof["name"] for proof in proofs if not proof["caught"]]
    stale = [proof["name"] for proof in proofs if proof["caught"] and not is_as_stored(proof)]
    said = []
    if missed:
        said.append(
            f"callboard: no seed failed without {', '.join(missed)}: such a safeguard is unnecessary or untested."
        )
    if stale:
        said.append(
            f"callboard: seeds.toml says otherwise of {', '.join(stale)}: tests/simulations/proof/renew.py."
        )
    return CommandAnswer(
        proofs, [proof_table(proofs)], said=said, code=exits.UNPROVED if missed else exits.OK
    )
