"""The sweep of `callboard simulate`: seeds given to worker processes, results counted, failures shrunk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

import attrs
import trio

from callboard.cli.group import first_error
from callboard.cli.output import Advance, progress, say
from callboard.cli.simulate_files import find_file, prepare_folder, write_whole
from callboard.cli.simulate_pool import WorkerGone, WorkerProcess, one_worker, run_all
from callboard.log.errors import InvalidArgument
from callboard.simulations.machines import MACHINES
from callboard.simulations.search.stored_failure import StaleFailure
from callboard.simulations.search.sweep import Result, Sweep

SAVE_EVERY_S: Final = 2.0
STUCK_AFTER_S: Final = 10.0
"""A seed that has run for so long when the time of a sweep is over counts as one that does not end, unless seeds of its
scenario take long; then for so many times what they take:"""
STUCK_AFTER_COSTS: Final = 10.0

UnderWay = tuple[str, int, float]
"""A run: scenario, seed, and when it began."""


@attrs.frozen
class ShrunkFailure:
    """A failure and its story."""

    result: Result
    story: str
    command: str
    stored_in: str = ""
    report: str = ""
    note: str = ""


@attrs.define(kw_only=True)
class Searched:
    """How a sweep went. `seconds` and `done_before` tell what this very process did of it."""

    sweep: Sweep
    seconds: float = 0.0
    done_before: int = 0
    resumed: str = ""
    failures: list[ShrunkFailure] = attrs.field(factory=list)

    @property
    def rate(self) -> float:
        """Seeds per second."""
        return (self.sweep.done - self.done_before) / self.seconds if self.seconds else 0.0


@attrs.frozen(kw_only=True)
class SweepLimits:
    """The limits at which a sweep, and shrinking, end early."""

    jobs: int
    time_limit_s: float | None
    keep_going: bool
    shrink_runs: int
    shrink_s: float
    sizes: Mapping[str, int]
    costs_s: Mapping[str, float] = attrs.Factory(dict)
    """How long a seed of a scenario takes."""


async def search(sweep: Sweep, limits: SweepLimits, folder: str, *, fresh: bool, quiet: bool) -> Searched:
    """Run the sweep to its end, its first failure or its limit; then make what failed small.

    State is in `folder`, and is stored on the way and whatever ends this: a sweep that was interrupted continues there.
    """
    prepare_folder(f"{folder}/failures")
    path = f"{folder}/sweep.json"
    stored = None if fresh else find_file(path)
    found = Searched(sweep=sweep)
    if stored is not None:
        why = sweep.resume(stored)
        found.resumed = (
            f"begun again: {why}" if why else f"resumed after {sweep.done:,} of {sweep.seeds:,} seeds"
        )
    found.done_before = sweep.done
    began = trio.current_time()
    try:
        with first_error(), progress("sweeping", quiet=quiet) as advance:
            await _run_workers(found, limits, folder, partial(_show, found, began, advance))
    finally:
        found.seconds = trio.current_time() - began
        write_whole(path, sweep.to_json().encode())
    await _shrink_all(found, limits, quiet=quiet)
    return found


def _show(found: Searched, began: float, advance: Advance) -> None:
    sweep = found.sweep
    found.seconds = trio.current_time() - began
    counted = sorted(_kinds(sweep.faults).items(), key=lambda item: -item[1])
    hits = " · ".join(f"{name} {count:,}" for name, count in counted[:3])
    failed = f" · {len(sweep.failures)} FAILED" if sweep.failures else ""
    total = sum(sweep.faults.values())
    text = f"{sweep.done:,}/{sweep.seeds:,} · {found.rate:,.1f}/s{failed} · {total:,} faults hit ({hits})"
    advance(text, sweep.done, sweep.seeds)


def _kinds(faults: Mapping[str, int]) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for name, count in faults.items():
        kind = name.partition(":")[0]
        if " " in kind:  # what became of unsynced writes: no kind of fault
            continue
        kinds[kind] = kinds.get(kind, 0) + count
    return kinds


async def _run_workers(found: Searched, limits: SweepLimits, folder: str, show: Any) -> None:
    sweep = found.sweep
    limit_s = float("inf") if limits.time_limit_s is None else limits.time_limit_s
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_save_now_and_then, sweep, f"{folder}/sweep.json")
        under_way: list[list[UnderWay]] = [[] for _ in range(limits.jobs)]
        with trio.move_on_after(limit_s) as time:
            async with trio.open_nursery() as workers:
                for mine in under_way:
                    workers.start_soon(_work, sweep, limits, folder, show, mine)
        if time.cancelled_caught:
            for name, seed, since in chain.from_iterable(under_way):
                ran_s = trio.current_time() - since
                if ran_s > max(STUCK_AFTER_S, STUCK_AFTER_COSTS * limits.costs_s.get(name, 0.0)):
                    words = f"it had run for {ran_s:.0f} s when the time of the sweep was over"
                    _take(
                        sweep, limits, Result(scenario=name, seed=seed, promise="the run ends", words=words)
                    )
        nursery.cancel_scope.cancel()


async def _save_now_and_then(sweep: Sweep, path: str) -> None:
    while True:
        await trio.sleep(SAVE_EVERY_S)
        write_whole(path, sweep.to_json().encode())


async def _work(sweep: Sweep, limits: SweepLimits, folder: str, show: Any, under_way: list[UnderWay]) -> None:
    """Run chunks until there are none; with a new process after one that was lost."""
    while True:
        under_way.clear()
        try:
            async with one_worker() as worker:
                await _chunks(worker, sweep, limits, folder, show, under_way)
                return
        except WorkerGone as error:
            if not under_way:
                raise
            scenario, seed, _ = under_way[-1]
            _take(
                sweep, limits, Result(scenario=scenario, seed=seed, promise="the run ends", words=str(error))
            )


async def _chunks(
    worker: WorkerProcess,
    sweep: Sweep,
    limits: SweepLimits,
    folder: str,
    show: Any,
    under_way: list[UnderWay],
) -> None:
    while (chunk := sweep.next_chunk(limits.sizes)) is not None:
        under_way.append((chunk.scenario, chunk.first, trio.current_time()))
        await worker.ask(
            do="run",
            scenario=chunk.scenario,
            first=chunk.first,
            count=chunk.count,
            folder=f"{folder}/failures",
        )
        while not (found := await worker.answer()).get("done"):
            _take(sweep, limits, Result(**found))
            under_way[-1] = (chunk.scenario, found["seed"] + 1, trio.current_time())
            show()
            if sweep.stopped:
                return
        under_way.clear()


def _take(sweep: Sweep, limits: SweepLimits, result: Result) -> None:
    sweep.add(result)
    if result.promise and not limits.keep_going:
        sweep.stopped = True


async def _shrink_all(found: Searched, limits: SweepLimits, *, quiet: bool) -> None:
    """Make the first failure of each broken promise small, several at once."""
    firsts: dict[tuple[str, str], Result] = {}
    for result in found.sweep.failures:
        firsts.setdefault((result.scenario, result.promise), result)
    shrunk: dict[tuple[str, str], ShrunkFailure] = {}

    async def make_small(which: tuple[str, str], advance: Advance) -> None:
        result = firsts[which]
        if not quiet:
            say(f"{result.scenario}, seed {result.seed}: broken promise: {result.promise}. Making it small.")
        shrunk[which] = await _shrink(result, limits, advance) if result.stored_in else _unstored(result)

    if firsts:
        with progress("shrinking", quiet=quiet) as advance:
            await run_all([partial(make_small, which, advance) for which in firsts], limits.jobs)
    found.failures = [shrunk[which] for which in firsts]


def _unstored(result: Result) -> ShrunkFailure:
    """A failure that is not stored: the run never ended, or it was one of the pure machines."""
    name = "--machines" if result.scenario == MACHINES else result.scenario
    command = f"callboard simulate {name} --first-seed {result.seed} --seeds 1 --fresh"
    head = f"{result.scenario}, seed {result.seed}: broken promise: {result.promise}"
    return ShrunkFailure(result, f"{head}\n  {result.words}\n\nTo see it again:\n  {command}", command)


async def _shrink(result: Result, limits: SweepLimits, advance: Advance) -> ShrunkFailure:
    """Make a stored failure small."""
    runs = limits.shrink_runs

    def heard(answer: dict[str, Any]) -> None:
        words = f"{result.scenario}: {answer['shrinking']}, run {answer['runs']} of at most {runs}"
        advance(words, answer["runs"], runs)

    try:
        async with one_worker() as worker:
            answer = await worker.whole(
                heard, do="shrink", file=result.stored_in, runs=runs, seconds=limits.shrink_s
            )
    except (InvalidArgument, StaleFailure, WorkerGone) as error:
        note = f"it could not be made small: {error}"
        return attrs.evolve(_unstored(result), note=note, stored_in=result.stored_in)
    return ShrunkFailure(
        result, answer["story"], answer["command"], answer["stored_in"], answer["report"], answer["note"]
    )
