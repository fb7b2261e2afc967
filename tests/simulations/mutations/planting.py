"""Planted bugs: the product with one line wrong, in a process of its own, under the scenarios of a sweep.

A mutation replaces text in one file of the product when that is imported; nothing is written. A process that has
imported nothing of the product yet is forked for each, so that none sees another's code. What the product imports of
others is imported before: that is near half of what importing the product takes.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SEEDS = 500
"""This many seeds of a standard sweep are tried with each mutation."""
OWN_SEEDS = 300
"""When those find nothing: this many seeds of the scenario that the mutation names."""
RUN_S = 60
"""A run that takes this many real seconds does not end: that is a failure too."""
COSTLY = ("recorded-day",)
"""Scenarios whose single seeds take longer than all others together."""


class Mutation(NamedTuple):
    """One planted bug. `file` is named from the project's root; `before` occurs in it exactly once.

    `scenario`: the one that is about its promise, named where a standard sweep has too few seeds of it.
    """

    name: str
    file: str
    before: str
    after: str
    breaks: str
    scenario: str = ""


class Caught(NamedTuple):
    """What found a mutation: which seed, and what it found broken.

    `swept`: how many seeds of a standard sweep were tried before those of the scenario that the mutation names. When
    they were not all, another one of the sweep may find it, too.
    """

    scenario: str
    seed: int
    promise: str
    swept: int = SEEDS


def mutations() -> list[Mutation]:
    """All of them, in the order of the file."""
    rows = tomllib.loads((HERE / "mutations.toml").read_text("utf-8"))["mutation"]
    return [Mutation(**{field: row[field] for field in Mutation._fields if field in row}) for row in rows]


def caught() -> dict[str, Caught]:
    """What found each when it was last measured; those that nothing found are left out."""
    stored = tomllib.loads((HERE / "caught.toml").read_text("utf-8"))
    return {name: Caught(**row) for name, row in stored.items()}


def module_of(file: str) -> str:
    """The module that a file of the project is installed as."""
    room, _, rest = file.removesuffix(".py").partition("/")
    name = rest if room == "api" else f"{room}/{rest}"
    return f"callboard.{name.removesuffix('/__init__').replace('/', '.')}"


def mutated(mutation: Mutation, source: str) -> str:
    """The file with the bug in it. Raises ValueError when the text to replace is not there exactly once."""
    if source.count(mutation.before) != 1:
        raise ValueError(f"{mutation.name!r} does not fit {mutation.file}: write it anew, or leave it out")
    return source.replace(mutation.before, mutation.after)


class _Planter(importlib.abc.MetaPathFinder):
    """Imports one module with a bug in it."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        self._module = module_of(mutation.file)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """Only for that module."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._mutation)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutation: Mutation) -> None:
        super().__init__(fullname, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> Any:
        """The mutated source, compiled; never from or to a cache."""
        source = Path(self.path).read_text("utf-8")
        return compile(mutated(self._mutation, source), self.path, "exec")


def import_others() -> None:
    """Import what the product imports that is not of it, here, where processes will be forked."""
    code = (
        "import callboard.simulations.scenarios, json, sys;"
        "print(json.dumps([name for name in sys.modules if name.partition('.')[0] != 'callboard']))"
    )
    printed = subprocess.run([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, check=True).stdout
    names = json.loads(printed)
    for name in names:
        if name not in sys.modules and importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    gc.freeze()


def fork(mutation: Mutation | None, seeds: Sequence[tuple[str, int]] | int, own: int = OWN_SEEDS) -> int:
    """Run seeds of a sweep with the bug planted, in a child process; returns where its answer can be read.

    `seeds`: scenarios and seeds, or how many of the standard sweep, which `own` of the mutation's own scenario follow.
    The answer is a JSON list: of `Caught`, or empty.
    """
    assert "callboard" not in sys.modules, "fork from a process that has not imported the product"
    answers, answer = os.pipe()
    if os.fork():
        os.close(answer)
        return answers
    os.close(answers)
    try:
        if mutation is not None:
            sys.meta_path.insert(0, _Planter(mutation))
        found = _search(list(standard(seeds)) if isinstance(seeds, int) else seeds)
        if found is None and mutation is not None and mutation.scenario and isinstance(seeds, int):
            own = _search([(mutation.scenario, seed) for seed in range(own)])
            found = None if own is None else own._replace(swept=seeds)
        os.write(answer, json.dumps([] if found is None else list(found)).encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told, and the child ends here
        os.write(answer, json.dumps(["", 0, f"importing raised {error!r:.200}"]).encode())
    finally:
        os._exit(0)


def _search(seeds: Sequence[tuple[str, int]]) -> Caught | None:
    from callboard.simulations.scenarios import SCENARIOS, run_scenario
    from callboard.simulations.search.replay import promise_of
    from callboard.simulations.world import Settings

    settings = Settings(trace="off", tick_limit=200_000)
    for scenario, seed in seeds:
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(RUN_S)
        try:
            failure: BaseException | None = run_scenario(SCENARIOS[scenario], seed, settings=settings).failure
        except TimeoutError as error:
            failure = error
        finally:
            signal.alarm(0)
        if failure is not None:
            return Caught(scenario, seed, promise_of(failure))
    return None


def _too_long(*_: object) -> None:
    raise TimeoutError


def standard(count: int) -> Iterator[tuple[str, int]]:
    """Scenarios and seeds in the order in which a sweep of `count` hands them out."""
    from callboard.simulations.scenarios.registry import load_weights
    from callboard.simulations.search.sweep import Sweep, shares

    weights = {name: weight.share for name, weight in load_weights().scenarios.items() if name not in COSTLY}
    sweep = Sweep(shares(count, weights), 0, "")
    while (chunk := sweep.next_chunk(1)) is not None:
        yield chunk.scenario, chunk.first


def in_sweep(known: dict[str, Caught]) -> dict[str, int]:
    """After how many seeds of a standard sweep, as it is shared out now, each was found; without those of no sweep."""
    places = {where: count for count, where in enumerate(standard(SEEDS), 1)}
    return {
        name: places[found.scenario, found.seed]
        for name, found in known.items()
        if (found.scenario, found.seed) in places
    }


def search_each(
    tasks: Iterable[tuple[str, Mutation | None, Sequence[tuple[str, int]] | int]],
    jobs: int,
    timeout_s: float,
    own: int = OWN_SEEDS,
) -> Iterator[tuple[str, Caught | None]]:
    """Search with each bug (a name, what is planted, the seeds), this many at a time: names and what was found.

    Raises TimeoutError when nothing is answered for `timeout_s` seconds.
    """
    import_others()
    waiting, running = iter(tasks), dict[int, str]()
    while True:
        for name, mutation, seeds in islice(waiting, jobs - len(running)):
            running[fork(mutation, seeds, own)] = name
        if not running:
            return
        yield next(_answers_of(running, timeout_s))


def _answers_of(forked: dict[int, str], timeout_s: float) -> Iterator[tuple[str, Caught | None]]:
    """The answers of forked processes as they come; `forked`: names by what `fork` returned to read from."""
    end = time.monotonic() + timeout_s
    while forked:
        ready, _, _ = select.select(list(forked), [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError(f"no answer in {timeout_s:g} s from {', '.join(forked.values())}")
        for pipe in ready:
            with os.fdopen(pipe, "rb") as file:
                said = file.read()
            row = json.loads(said) if said else ["", 0, "the process died"]
            yield forked.pop(pipe), Caught(*row) if row else None
