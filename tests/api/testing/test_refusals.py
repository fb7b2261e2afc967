"""What simulated tests refuse in words, and what they draw by themselves."""

from __future__ import annotations

import random
from typing import Any

import pytest

from callboard.log.errors import InvalidArgument
from callboard.testing import always, eventually, sometimes
from callboard.testing.trial import SNAPSHOTS, Trial

pytest_plugins = ["pytester"]

INITIAL = random.Random.__init__


def test_asyncio_is_refused_before_there_is_a_loop(run_file: Any) -> None:
    """By name, whichever way; and what is collected afterwards fails no other test."""
    result = run_file("""
        import asyncio, gc
        import pytest

        CALLS = [
            lambda: asyncio.run(None),
            lambda: asyncio.new_event_loop(),
            lambda: asyncio.Runner(),
            lambda: asyncio.get_event_loop_policy().new_event_loop(),
        ]

        @pytest.mark.parametrize("number", range(4))
        @simulate(seeds=1)
        async def test_it(world, number):
            CALLS[number]()

        def test_afterwards():
            gc.collect()
            loop = asyncio.new_event_loop()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
    """)
    result.assert_outcomes(failed=4, passed=1)
    for call in ("run", "new_event_loop", "Runner"):
        result.stdout.fnmatch_lines([f"*EscapedDeterminism: asyncio.{call}() was called at *test_it.py*"])


def test_a_workload_is_drawn_from_its_entropy_only(run_file: Any) -> None:
    """As the body; also when the function swallows the error."""
    source = """
        import random

        def draw(entropy):
            try:
                return random.random()
            except Exception:
                return 1

        @simulate(seeds=2, workload=draw{})
        async def test_it(world, workload):
            assert workload < 1
    """
    result = run_file(source.format(""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*EscapedDeterminism: random.random() was called at *test_it.py*"])
    run_file(source.format(', escapes="control"')).assert_outcomes(passed=1)


def test_a_failure_in_other_words_is_not_repeatable(run_file: Any) -> None:
    """State that one run leaves to the next is told, though the seed fails again."""
    result = run_file("""
        seen = []

        @simulate(seeds=9)
        async def test_it(world):
            seen.append(1)
            always(len(seen) < 5, f"{len(seen)} are one too many")
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*NotRepeatable: seed 4 failed (5 are one too many)*failed in another way (6 are one too many)*"]
    )


@pytest.mark.parametrize("call", [lambda: sometimes(3), lambda: always(True, 3)])  # type: ignore[arg-type]
def test_names_are_text(call: Any) -> None:
    """A number is no name, and no words."""
    with pytest.raises(InvalidArgument, match="wants text"):
        call()


async def _later() -> bool:
    return True


def test_conditions_are_truths() -> None:
    """What is true by itself was meant to be called, or awaited."""
    for condition in (lambda: False, _later, "x".isalpha):
        with pytest.raises(InvalidArgument, match="Call it"):
            always(condition, "x")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="Call it"):
            sometimes("x", condition)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Await it"):
        always(_later(), "x")  # type: ignore[arg-type]


async def test_a_predicate_is_asked_not_awaited() -> None:
    """An async one would be true at once."""
    for predicate in (_later, True):
        with pytest.raises(InvalidArgument, match="plain function"):
            await eventually(predicate, within=1, words="x")  # type: ignore[arg-type]


DURABLE = """
    from callboard.simulations.faults import Plan, PowerCut, After

    class Till(callboard.DurableActor[int, int]):
        {}
        total = 0

        async def receive(self, message):
            await self.persist(message)
            return self.total

        def apply(self, event):
            self.total += event

        def snapshot(self):
            raise RuntimeError("snapshot ran")

        def restore(self, state):
            raise RuntimeError("restore ran")

    @simulate(seeds=12)
    async def test_it(world):
        async def day(machine):
            async with machine.open_runtime() as runtime:
                till = await runtime.spawn(Till, name="till")
                for number in range(9):
                    await till.ask(number)

        await world.machine_until_done(day)
"""


def test_snapshots_run_in_simulated_tests(run_file: Any) -> None:
    """Unless the class says when."""
    result = run_file(DURABLE.format(""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*snapshot ran*"])
    run_file(DURABLE.format("snapshot_every = 500")).assert_outcomes(passed=1)


def test_what_is_drawn_for_snapshots_differs_by_seed() -> None:
    """And seed 0, by which the others aim, has the usual number."""
    assert Trial.snapshot_every(0) is None
    assert {Trial.snapshot_every(seed) for seed in range(30)} == set(SNAPSHOTS)


@pytest.mark.parametrize("options", [(), ("--callboard-strict",)])
def test_a_plan_without_effect_fails_a_strict_run(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """Its moments may be of an earlier program."""
    pytester.makeini("[pytest]\nfilterwarnings = default")
    pytester.makepyfile(
        test_it="""
import trio
from callboard.testing import simulate
from callboard.simulations.faults import At, CancelTask, Plan

@simulate(seeds=2, faults=Plan((CancelTask(At(1.0), "nobody"),)))
async def test_it(world):
    await trio.sleep(2)
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
    result.assert_outcomes(**({"failed": 1} if options else {"passed": 1}), warnings=1)
    if options:
        result.stdout.fnmatch_lines(["*NeverHit: *CancelTask*"])


def test_two_runs_are_compared_on_request(run_file: Any) -> None:
    """Chance that no seed decides shows in a seed that passes; what is decided by seeds is no difference."""
    source = """
        import itertools

        count = itertools.count()

        @simulate(seeds=3)
        async def test_differs(world):
            note(f"number {next(count)}")

        @simulate(seeds=3)
        async def test_is_the_same(world):
            await trio.sleep(world.entropy.random())
            note("the same")
    """
    run_file(source).assert_outcomes(passed=2)
    result = run_file(source, "--callboard-check-determinism")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*NotRepeatable: two runs of seed 0 differ*", "*A *number 2*", "*B *number 3*"]
    )


def test_generators_need_a_seed(run_file: Any) -> None:
    """Those that have one are the program's own affair; in mode "control" all are seeded by the run."""
    source = """
        import random

        SYSTEM = random.SystemRandom()

        @simulate(seeds=2{0})
        async def test_seeded(world):
            assert random.Random(1).random() == random.Random(x=1).random()

        @simulate(seeds=2{0})
        async def test_unseeded(world):
            note(f"{{random.Random().random()}}")

        @simulate(seeds=2{0})
        async def test_system(world):
            note(f"{{random.SystemRandom().random()}}")

        @simulate(seeds=2{0})
        async def test_system_from_before(world):
            note(f"{{SYSTEM.choice([1, 2])}} {{SYSTEM.randbytes(2)}} {{SYSTEM.random()}}")
    """
    result = run_file(source.format(""))
    result.assert_outcomes(passed=1, failed=3)
    for call in ("Random", "SystemRandom", "SystemRandom.getrandbits"):
        result.stdout.fnmatch_lines([f"*EscapedDeterminism: random.{call}() was called at *test_it.py:*"])
    controlled = run_file(source.format(', escapes="control"'), "--callboard-check-determinism")
    controlled.assert_outcomes(passed=4)
    assert random.Random.__init__ is INITIAL
    assert "__init__" not in vars(random.SystemRandom)
