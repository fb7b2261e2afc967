"""`simulate`: seeds, failures and what they say, arguments, and mistakes in its use."""

from __future__ import annotations

import re
from typing import Any

import pytest

from callboard import ConfigurationError
from callboard.testing import Simulation, simulate

pytest_plugins = ["pytester"]

RACE = """
    class Account:
        def __init__(self):
            self.balance = 100

        async def withdraw(self, amount):
            if self.balance >= amount:
                await trio.sleep(0.01)
                self.balance -= amount
                note("withdrawn", amount=amount)

    def amounts(entropy):
        return tuple(entropy.integer(7) for _ in range(2 + entropy.integer(4)))

    @simulate(workload=amounts)
    async def test_race(world, workload):
        account = Account()
        async with trio.open_nursery() as nursery:
            for amount in workload:
                nursery.start_soon(account.withdraw, amount)
        always(account.balance >= 0, f"the balance is {account.balance}")
"""


def test_each_seed_is_run(run_file: Any) -> None:
    """The body runs once per seed, from 0 on, in virtual time."""
    result = run_file(
        """
        seen = []

        @simulate(seeds=7)
        async def test_it(world):
            seen.append(world.seed)
            await trio.sleep(86_400)

        def test_seeds():
            assert seen == [0, 1, 2, 3, 4, 5, 6]
        """
    )
    result.assert_outcomes(passed=2)


def test_options_choose_the_seeds(run_file: Any) -> None:
    """The command line's number of seeds, or its one seed, take the place of the decorator's."""
    source = """
        @simulate
        async def test_it(world):
            print(f"<{world.seed}>")
        """
    run_file(source, "-s", "--callboard-seeds=2").stdout.fnmatch_lines(["*<0>*", "*<1>*"])
    one = run_file(source, "-s", "--callboard-seed=41")
    one.stdout.fnmatch_lines(["*<41>*"])
    one.stdout.no_fnmatch_line("*<0>*")


def test_a_race_is_found_shrunk_and_told(run_file: Any) -> None:
    """The failure has the smallest workload, the story of notes, the seed and the command that runs it again."""
    result = run_file(RACE)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r".*Violation: always: the balance is -\d+",
            r"E +test_race, seed \d+: broken promise: always",
            r"E +Workload: \(\d+, \d+\)",
            r"E +Found with scheduler '.+'\. Shrunk by \d+ more runs: every task in its turn\.",
            r"E +What happened:",
            r"E .*withdrawn amount=",
            r"E .*withdrawn amount=",
            r"E +To see it again:",
            r"E +pytest test_it.py::test_race --callboard-seed=\d+",
        ],
    )


def test_the_command_leads_back(run_file: Any) -> None:
    """The seed that was named fails again, with the same account."""
    first = run_file(RACE)
    (option,) = {line.rpartition(" ")[2] for line in first.outlines if "--callboard-seed" in line}
    again = run_file(RACE, option)
    again.assert_outcomes(failed=1)
    assert _account(again) == _account(first)


def _account(result: Any) -> list[str]:
    return [line for line in result.outlines if line.startswith("E ")]


def test_assertions_are_shown_as_usual(run_file: Any) -> None:
    """A failing assert in the body shows its values, without a line of the machinery between."""
    result = run_file(
        """
        @simulate(seeds=3)
        async def test_it(world):
            total = 3
            await trio.sleep(1)
            assert total == 4
        """
    )
    result.stdout.fnmatch_lines([">       assert total == 4", "E       assert 3 == 4"])
    result.stdout.no_fnmatch_line("*trio/_core*")


def test_failures_of_several_tasks_are_all_shown(run_file: Any) -> None:
    """A group of errors stays one, each with its own place."""
    result = run_file(
        """
        async def fail(number):
            try:
                await trio.sleep(number)
            finally:
                raise ValueError(f"number {number}")

        @simulate(seeds=3)
        async def test_it(world):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail, 1)
                nursery.start_soon(fail, 2)
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        ["*ValueError: number 1", "*ValueError: number 2", "*--callboard-seed=0"]
    )


def test_an_escape_names_its_call_and_place(run_file: Any) -> None:
    """Real time in a simulated test fails it, by name; on request it is virtual time instead."""
    source = """
        import time

        @simulate(seeds=2{})
        async def test_it(world):
            before = time.monotonic()
            await trio.sleep(5)
            assert time.monotonic() - before == 5
        """
    result = run_file(source.format(""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*EscapedDeterminism: time.monotonic() was called at *test_it.py:*"])
    run_file(source.format(', escapes="control", faults=None')).assert_outcomes(passed=1)


def test_a_stuck_body_fails(run_file: Any) -> None:
    """Waiting for ever, and not being done within the stated virtual time, are failures."""
    result = run_file(
        """
        @simulate(seeds=2)
        async def test_for_ever(world):
            await trio.sleep_forever()

        @simulate(seeds=2, within=60)
        async def test_too_long(world):
            await trio.sleep(61)
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*SimulationStuck: *", "*SimulationStuck: *"])


def test_what_cannot_be_repeated_is_said(run_file: Any) -> None:
    """A failure that depends on what an earlier run left behind is told as such, not as a failure of the seed."""
    result = run_file(
        """
        runs = []

        @simulate(seeds=5)
        async def test_it(world):
            runs.append(world.seed)
            assert len(runs) != 3
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*NotRepeatable: seed 2 failed*"])


def test_pytest_arguments_reach_the_body(run_file: Any) -> None:
    """Parameters, fixtures, classes and skipping work as in any test."""
    result = run_file(
        """
        import pytest

        @pytest.fixture
        def base():
            return 40

        class TestIt:
            @pytest.mark.parametrize("more", [1, 2])
            @simulate(seeds=2)
            async def test_it(self, world, base, more):
                assert base + more in (41, 42)

        @simulate(seeds=2)
        async def test_skipped(world):
            pytest.skip("not today")
        """
    )
    result.assert_outcomes(passed=2, skipped=1)


def test_an_async_fixture_is_refused(run_file: Any) -> None:
    """pytest-trio says itself that its fixtures are for its own tests."""
    result = run_file(
        """
        import pytest

        @pytest.fixture
        async def connection():
            return 1

        @simulate(seeds=2)
        async def test_it(world, connection):
            pass
        """
    )
    result.assert_outcomes(errors=1)


def test_bad_options_are_refused(run_file: Any) -> None:
    """No seeds, and seeds below 0, are mistakes of the command line."""
    for option in ("--callboard-seeds=0", "--callboard-seed=-1", "--callboard-seed=x"):
        assert run_file("def test_it(): pass", option).ret == 4


def test_async_tests_of_others_are_left_to_them(run_file: Any) -> None:
    """pytest-trio takes plain async tests and not simulated ones, even in a module that is marked for it as a whole."""
    result = run_file(
        """
        import pytest

        pytestmark = pytest.mark.trio

        async def test_plain(nursery):
            await trio.sleep(0)

        @simulate(seeds=2)
        async def test_simulated(world):
            await trio.sleep(3600)
        """
    )
    result.assert_outcomes(passed=2)


def test_a_runtime_runs_in_it(run_file: Any) -> None:
    """The whole production runtime runs on the machine of the world."""
    result = run_file(
        """
        @simulate(seeds=3)
        async def test_it(world):
            async def boot(machine):
                async with machine.open_runtime() as runtime:
                    topic = await runtime.create_topic("orders")
                    await topic.publish(b"two teas")
                    async with topic.subscribe("kitchen") as consumer:
                        async with consumer.receive() as message:
                            return message.value

            assert await world.machine_until_done(boot) == b"two teas"
        """
    )
    result.assert_outcomes(passed=1)


def test_mistakes_are_told_at_once() -> None:
    """All that is wrong with a decorator is one error, when the module is imported."""
    with pytest.raises(ConfigurationError) as raised:

        @simulate(seeds=0, scheduler="round robin", within=-1)
        async def test_it() -> None: ...

    assert len(raised.value.problems) == 4
    with pytest.raises(ConfigurationError):

        @simulate  # type: ignore[call-overload]
        def test_plain(world: Any) -> None: ...


async def nothing(world: Any) -> None:
    """A run that ends at once."""


def test_a_search_of_no_seeds_is_refused(simulation: Simulation) -> None:
    """It would end well without having run anything."""
    with pytest.raises(ConfigurationError, match="1 or more"):
        simulation.search(nothing, seeds=0)


def test_what_the_simulator_can_schedule_is_accepted(simulation: Simulation) -> None:
    """Names of schedulers are read by one rule: what there is runs, what there is not is a mistake."""
    assert simulation(nothing, scheduler="pct:12").failure is None
    with pytest.raises(ConfigurationError, match="pct:0"):
        simulation(nothing, scheduler="pct:0")


def test_a_failure_without_words_is_shown_as_itself(run_file: Any) -> None:
    """An exception whose __str__ raises is still the one that is reported, with its place and its seed."""
    result = run_file("""
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        @simulate(seeds=2)
        async def test_mute(world):
            raise Mute()
    """)
    result.stdout.fnmatch_lines(["*raise Mute()*", "*Mute: (its __str__ raised RuntimeError)*"])
    result.stdout.no_fnmatch_line("*RuntimeError: no words*")


def test_what_cannot_be_repeated_is_shown_as_it_was(run_file: Any) -> None:
    """The one traceback that there is of it comes along."""
    result = run_file("""
        runs = []

        @simulate(seeds=2)
        async def test_once(world):
            runs.append(1)
            if len(runs) == 2:
                raise ValueError("only once")
    """)
    result.stdout.fnmatch_lines(['*raise ValueError("only once")*', "*NotRepeatable: seed 1 failed*"])


def test_a_run_that_takes_too_long_is_not_made_smaller(run_file: Any) -> None:
    """One that spins until the simulator stops it takes minutes: it is told as it was found, without another run."""
    result = run_file("""
        import pytest

        runs = []

        @pytest.fixture(autouse=True)
        def less_patience(monkeypatch):
            monkeypatch.setattr("callboard.testing.search.TICKS_MAX", 1_000)

        @simulate(seeds=5)
        async def test_spins(world):
            runs.append(1)
            for _ in range(2_000):
                await trio.lowlevel.checkpoint()
            assert not runs, f"after {len(runs)} runs"
    """)
    result.stdout.fnmatch_lines(
        ["*AssertionError: after 1 runs*", "*Not made smaller: it took 2,0?? scheduler ticks.*"]
    )
    result.stdout.fnmatch_lines(["*test_it.py::test_spins --callboard-seed=0"])


def test_the_command_is_for_the_folder_one_is_in(pytester: pytest.Pytester) -> None:
    """pytest names tests from its root folder; what is to be typed begins where pytest was called."""
    pytester.makeini("[pytest]")
    below = pytester.mkdir("below")
    (below / "test_it.py").write_text(
        "from callboard.testing import simulate\n\n@simulate\nasync def test_it(world): assert False\n"
    )
    pytester.chdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "test_it.py")
    result.stdout.fnmatch_lines(["*  pytest test_it.py::test_it --callboard-seed=0"])


def test_an_attempt_that_never_ends_is_given_up(run_file: Any) -> None:
    """A smaller workload may spin: shrinking goes on elsewhere, and does not wait for the simulator's own limit."""
    result = run_file("""
        import pytest

        @pytest.fixture(autouse=True)
        def less_patience(monkeypatch):
            monkeypatch.setattr("callboard.testing.search.LEAST_TICKS", 1_000)

        @simulate(seeds=1, workload=lambda entropy: (entropy.integer(10),))
        async def test_it(world, workload):
            while workload[0] < 5:
                await trio.lowlevel.checkpoint()
            assert not workload
    """)
    result.stdout.fnmatch_lines(["*Workload: (5,)"])


SWALLOWED = """
    import time

    class Clerk(callboard.Actor[str]):
        async def receive(self, message):
            if message == "now":
                time.time()

    @simulate(seeds=2, faults=None)
    async def test_actor(world):
        async def life(machine):
            async with machine.open_runtime() as runtime:
                clerk = await runtime.spawn(Clerk, name="clerk")
                await clerk.tell("now")
                await trio.sleep(10)

        await world.machine_until_done(life)

    @simulate(seeds=2, faults=None)
    async def test_handler(world):
        async def life(machine):
            async with machine.open_runtime() as runtime:
                topic = await runtime.create_topic("t")
                await topic.publish(b"1")
                async with trio.open_nursery() as nursery:

                    async def handle(message):
                        if message.attempt == 1:
                            time.time()
                        nursery.cancel_scope.cancel()

                    nursery.start_soon(topic.work, handle, "g")

        await world.machine_until_done(life)

    @simulate(seeds=2, faults=None)
    async def test_except(world):
        try:
            time.time()
        except Exception:
            pass
"""


def test_an_escape_counts_even_if_it_is_swallowed(run_file: Any) -> None:
    """A supervisor restarts the actor, a group delivers again, an `except` hides it: the test fails all the same."""
    result = run_file(SWALLOWED)
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    assert len(re.findall(r"^test_it\.py:\d+: EscapedDeterminism$", text, re.MULTILINE)) == 3
    for name in ("test_actor", "test_handler", "test_except"):
        assert f"{name}, seed 0: broken promise: raised: EscapedDeterminism" in text


def test_what_replaces_an_escape_is_told(run_file: Any) -> None:
    """A thread is not told to take time from a clock, and is called what the program called."""
    result = run_file(
        """
        @simulate(seeds=1)
        async def test_it(world):
            await trio.to_thread.run_sync(print)
        """
    )
    text = result.stdout.str()
    assert "trio.to_thread.run_sync() was called at" in text
    assert "There are no threads in a run" in text
    assert "Take time" not in text


def test_a_body_that_never_waits_is_told_with_its_line(
    run_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not shrunk, as each attempt would compute for as long."""
    monkeypatch.setattr("callboard.simulations.world.computing.LIMIT_S", 0.2)
    result = run_file(
        """
        @simulate(seeds=2)
        async def test_it(world):
            while True:
                pass
        """
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert re.search(
        r"SimulationStuck: test_it computes without ever waiting: .* is at \S+test_it\.py:\d+", text
    )
    assert "Not made smaller: every attempt would compute for as long." in text


def test_shrinking_a_large_workload_ends_in_time(run_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while workloads are drawn of which none is run; what is told of it is cut."""
    monkeypatch.setattr("callboard.testing.search.SHRINK_S", 0.5)
    result = run_file(
        """
        def many(entropy):
            return tuple(entropy.integer(7) for _ in range(20_000))

        @simulate(seeds=1, workload=many)
        async def test_it(world, workload):
            assert not workload
        """
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "There was more to try after 0.5 s." in text
    assert "characters left out" in text


def test_the_time_at_which_a_run_was_ended_is_told(run_file: Any) -> None:
    """The limit, and not the moment before the jump past it."""
    text = run_file(
        """
        @simulate(seeds=1, within=100, faults=None)
        async def test_it(world):
            await trio.sleep(150)
        """
    ).stdout.str()
    assert "did not end within 100 virtual seconds. It is at virtual second 100, boot 0" in text


def test_where_two_runs_differ_is_told(run_file: Any) -> None:
    """When a seed cannot be repeated, the first line in which two traces differ."""
    result = run_file(
        """
        runs = []

        @simulate(seeds=5, faults=None)
        async def test_it(world):
            runs.append(world.seed)
            note(f"run {len(runs)}")
            assert len(runs) != 3
        """
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "The first line in which the traces of two more runs of it differ (A, B):" in text
    assert "run 5" in text
    assert "run 6" in text


UNMET = """
    from callboard.testing import FaultSpace

    async def nothing(machine):
        await trio.sleep(5)

    @simulate(seeds=20, faults=FaultSpace(weights={"CancelTask": 1}, tasks=("nobdy",), horizon_s=5.0))
    async def test_nobody(world):
        await trio.sleep(5)

    @simulate(seeds=20, faults=FaultSpace(weights={"PowerCut": 1}, horizon_s=5.0))
    async def test_no_machine(world):
        await trio.sleep(5)

    @simulate(seeds=20, faults=FaultSpace(weights={"PowerCut": 1}, faults=(1, 1), horizon_s=5.0))
    async def test_met(world):
        await world.machine_until_done(nothing)
"""


def test_faults_that_no_seed_met_are_told(run_file: Any) -> None:
    """A warning with the test and the kinds; not for one seed, which says nothing."""
    result = run_file(UNMET, "-W", "default")
    result.assert_outcomes(passed=3, warnings=2)
    text = result.stdout.str()
    assert "no seed met these faults of the test: CancelTask." in text
    assert "no seed met these faults of the test: PowerCut." in text
    run_file(UNMET, "-W", "default", "--callboard-seed=3").assert_outcomes(passed=3, warnings=0)
