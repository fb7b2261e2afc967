"""Worker processes as `callboard simulate` sees them: a request, the answers to it, and limited patience."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from callboard.cli.errors import first_error
from callboard.cli.output import to_json
from callboard.cli.processes import ChildProcess, spawn_callboard
from callboard.log.errors import CallboardError, InvalidArgument, StorageError
from callboard.log.limits import MIB
from callboard.simulations.search.stored_failure import StaleFailure

LINE_BYTES_MAX: Final = 8 * MIB
PATIENCE_S: Final = 1_200.0
"""How long a worker may be silent: one that computes ends itself much earlier, so this one waits for something."""
FIXED_HASHES: Final = {"PYTHONHASHSEED": "0"}


class SimulationFailed(CallboardError):
    """The simulator itself could not continue; the message says why."""


class WorkerGone(CallboardError):
    """A worker process ended, or was silent for so long that it was killed."""


class WorkerProcess:
    """One worker process. One request at a time."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    async def ask(self, **request: Any) -> None:
        """Send a request. Its answers come from `answer`, up to one that has `done`."""
        try:
            await self._child.write_line(to_json(request))
        except trio.BrokenResourceError:
            raise await self._gone() from None

    async def answer(self) -> dict[str, Any]:
        """The next answer. Raises `WorkerGone`, or the error that the request came to."""
        with trio.move_on_after(PATIENCE_S) as patience:
            line = await self._child.read_line()
        if patience.cancelled_caught:
            await self._child.kill()
            errors = self._child.errors.strip()[-2_000:]
            raise WorkerGone(f"a worker process was silent for {PATIENCE_S:g} s and was killed: {errors}")
        if line is None:
            raise await self._gone()
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise ERRORS.get(found["error"], SimulationFailed)(found["message"])
        return found

    async def whole(
        self, hear: Callable[[dict[str, Any]], object] = lambda answer: None, /, **request: Any
    ) -> dict[str, Any]:
        """The last answer to a request, without saying that it is the last; `hear` gets the others."""
        await self.ask(**request)
        while not (found := await self.answer()).pop("done", False):
            hear(found)
        return found

    async def _gone(self) -> WorkerGone:
        status = await self._child.kill()
        return WorkerGone(
            f"a worker process ended with status {status}: {self._child.errors.strip()[-2_000:]}"
        )


ERRORS: Final[dict[str, type[CallboardError]]] = {
    "StaleFailure": StaleFailure,
    "InvalidArgument": InvalidArgument,
    "StorageError": StorageError,
    "PlanError": InvalidArgument,
}


@asynccontextmanager
async def one_worker(
    *, environment: Mapping[str, str] = FIXED_HASHES, perturb: bool = False
) -> AsyncIterator[WorkerProcess]:
    """A new worker process, killed at the end of the body."""
    with first_error():
        async with trio.open_nursery() as nursery:
            arguments = ["simulate-worker", *(["--perturb"] if perturb else [])]
            child = await spawn_callboard(
                nursery, arguments, environment=environment, line_bytes_max=LINE_BYTES_MAX
            )
            try:
                yield WorkerProcess(child)
            finally:
                with trio.CancelScope(shield=True):
                    await child.kill()


async def run_all(jobs: Iterable[Callable[[], Awaitable[object]]], at_once: int) -> None:
    """Run all, this many at once. The first of our errors ends it, and is raised as itself."""
    waiting = iter(jobs)

    async def take() -> None:
        for job in waiting:
            await job()

    with first_error():
        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(take)
