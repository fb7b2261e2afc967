"""The sweep of `callboard simulate`: seeds given to worker processes, results counted, failures shrunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio

from callboard.cli.errors import first_error
from callboard.cli.files import find_file, prepare_folder, write_whole
from callboard.cli.output import Advance, counted, progress, say
from callboard.cli.simulate.pool import WorkerGone, WorkerProcess, one_worker, run_all
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
class Search:
    """One run of the command over a sweep: to its end, its first failure or its limit; then what failed is made small.

    State is in `folder`, and is stored on the way and whatever ends this: a sweep that was interrupted continues there.
    """

    sweep: Sweep
    folder: str
    quiet: bool
    jobs: int
    time_limit_s: float
    keep_going: bool
    shrink_runs: int
    shrink_s: float
    sizes: Mapping[str, int]
    """How many seeds of a scenario a worker is given at a time."""
    costs_s: Mapping[str, float]
    """How long a seed of a scenario takes."""
    seconds: float = 0.0
    """What this very process took, and how many seeds were done before it began."""
    done_before: int = 0
    resumed: str = ""
    failures: list[ShrunkFailure] = attrs.field(factory=list)

    @property
    def rate(self) -> float:
        """Seeds per second."""
        return (self.sweep.done - self.done_before) / self.seconds if self.seconds else 0.0

    async def run(self, *, fresh: bool) -> None:
        """Search. `fresh` forgets what was stored."""
        prepare_folder(f"{self.folder}/failures")
        stored = None if fresh else find_file(f"{self.folder}/sweep.json")
        if stored is not None:
            why = self.sweep.resume(stored)
            done = f"{self.sweep.done:,} of {self.sweep.seeds:,}"
            self.resumed = f"begun again: {why}" if why else f"resumed after {done} seeds"
        self.done_before = self.sweep.done
        began = trio.current_time()
        try:
            with first_error(), progress("sweeping", quiet=self.quiet) as advance:
                await self._run_workers(partial(self._show, began, advance))
        finally:
            self.seconds = trio.current_time() - began
            self._save()
        await self._shrink_all()

    def _save(self) -> None:
        write_whole(f"{self.folder}/sweep.json", self.sweep.to_json().encode())

    def _show(self, began: float, advance: Advance) -> None:
        sweep = self.sweep
        self.seconds = trio.current_time() - began
        kinds: Counter[str] = Counter()
        for name, count in sweep.faults.items():
            kind = name.partition(":")[0]
            if " " not in kind:  # else it is what became of unsynced writes: no kind of fault
                kinds[kind] += count
        hits = ", ".join(f"{name} {count:,}" for name, count in kinds.most_common(3))
        failed = f"{len(sweep.failures)} FAILED, " if sweep.failures else ""
        total = sum(sweep.faults.values())
        seeds, faults = f"{sweep.done:,}/{sweep.seeds:,} seeds", counted(total, "fault")
        text = f"{seeds}, {self.rate:,.1f}/s, {failed}{faults} hit ({hits})"
        advance(text, sweep.done, sweep.seeds)

    async def _run_workers(self, show: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._save_now_and_then)
            under_way: list[list[UnderWay]] = [[] for _ in range(self.jobs)]
            with trio.move_on_after(self.time_limit_s) as time:
                async with trio.open_nursery() as workers:
                    for mine in under_way:
                        workers.start_soon(self._work, show, mine)
            if time.cancelled_caught:
                for name, seed, since in (run for mine in under_way for run in mine):
                    ran_s = trio.current_time() - since
                    if ran_s > max(STUCK_AFTER_S, STUCK_AFTER_COSTS * self.costs_s.get(name, 0.0)):
                        words = f"it had run for {ran_s:.0f} s when the time of the sweep was over"
                        self._take_endless(name, seed, words)
            nursery.cancel_scope.cancel()

    async def _save_now_and_then(self) -> None:
        while True:
            await trio.sleep(SAVE_EVERY_S)
            self._save()

    async def _work(self, show: Any, under_way: list[UnderWay]) -> None:
        """Run chunks until there are none; with a new process after one that was lost."""
        while True:
            under_way.clear()
            try:
                async with one_worker() as worker:
                    await self._chunks(worker, show, under_way)
                    return
            except WorkerGone as error:
                if not under_way:
                    raise
                scenario, seed, _ = under_way[-1]
                self._take_endless(scenario, seed, str(error))

    async def _chunks(self, worker: WorkerProcess, show: Any, under_way: list[UnderWay]) -> None:
        while (chunk := self.sweep.next_chunk(self.sizes)) is not None:
            under_way.append((chunk.scenario, chunk.first, trio.current_time()))
            folder = f"{self.folder}/failures"
            await worker.ask(do="run", **attrs.asdict(chunk), folder=folder)
            while not (found := await worker.answer()).get("done"):
                self._take(Result(**found))
                under_way[-1] = (chunk.scenario, found["seed"] + 1, trio.current_time())
                show()
                if self.sweep.stopped:
                    return
            under_way.clear()

    def _take(self, result: Result) -> None:
        self.sweep.add(result)
        if result.promise and not self.keep_going:
            self.sweep.stopped = True

    def _take_endless(self, scenario: str, seed: int, words: str) -> None:
        self._take(Result(scenario=scenario, seed=seed, promise="the run ends", words=words))

    # -- shrinking

    async def _shrink_all(self) -> None:
        """Make the first failure of each broken promise small, several at once."""
        firsts: dict[tuple[str, str], Result] = {}
        for result in self.sweep.failures:
            firsts.setdefault((result.scenario, result.promise), result)
        shrunk: dict[tuple[str, str], ShrunkFailure] = {}

        async def make_small(which: tuple[str, str], advance: Advance) -> None:
            result = firsts[which]
            shrunk[which] = await self._shrink(result, advance) if result.stored_in else _unstored(result)

        for result in firsts.values() if not self.quiet else ():  # before the bar, which would be drawn twice
            say(f"{result.scenario}, seed {result.seed}: broken promise: {result.promise}. Making it small.")
        if firsts:
            with progress("shrinking", quiet=self.quiet) as advance:
                await run_all([partial(make_small, which, advance) for which in firsts], self.jobs)
        self.failures = [shrunk[which] for which in firsts]

    async def _shrink(self, result: Result, advance: Advance) -> ShrunkFailure:
        """Make a stored failure small."""
        runs = self.shrink_runs

        def heard(answer: dict[str, Any]) -> None:
            words = f"{result.scenario}: {answer['shrinking']}, run {answer['runs']} of at most {runs}"
            advance(words, answer["runs"], runs)

        request = {
            "do": "shrink",
            "file": result.stored_in,
            "named": [result.scenario],
            "runs": runs,
            "seconds": self.shrink_s,
        }
        try:
            async with one_worker() as worker:
                return ShrunkFailure(result, **await worker.whole(heard, **request))
        except (InvalidArgument, StaleFailure, WorkerGone) as error:
            note = f"it could not be made small: {error}"
            return attrs.evolve(_unstored(result), note=note, stored_in=result.stored_in)


def _unstored(result: Result) -> ShrunkFailure:
    """A failure that is not stored: the run never ended, or it was one of the pure machines."""
    name = "--machines" if result.scenario == MACHINES else result.scenario
    command = f"callboard simulate {name} --first-seed {result.seed} --seeds 1 --fresh"
    head = f"{result.scenario}, seed {result.seed}: broken promise: {result.promise}"
    return ShrunkFailure(result, f"{head}\n  {result.words}\n\nTo see it again:\n  {command}", command)
