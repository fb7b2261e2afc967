"""`simulate`: makes a plain pytest test out of `async def test_x(world)`.

For pytest the test is an ordinary function: plugins for async tests (pytest-trio, anyio) ignore it, and `@given` can
be above it. Its arguments are those of the body without `world` (and `workload`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from typing import Any, overload

import attrs

from callboard.log.errors import ConfigurationError
from callboard.simulations.faults import FaultSpace, Plan
from callboard.simulations.world import World
from callboard.testing.crashes import CRASHES
from callboard.testing.search import search
from callboard.testing.session import current_call
from callboard.testing.trial import SEEDS, Escapes, Trial, TrialSettings, Workload

AsyncTest = Callable[..., Awaitable[object]]
Test = Callable[..., None]


@overload
def simulate(body: AsyncTest, /) -> Test: ...


@overload
def simulate(
    *,
    seeds: int = SEEDS,
    faults: FaultSpace | Plan | None = CRASHES,
    scheduler: str | None = None,
    within: float | None = None,
    workload: Workload | None = None,
    escapes: Escapes = "refuse",
) -> Callable[[AsyncTest], Test]: ...


def simulate(
    body: AsyncTest | None = None,
    /,
    *,
    seeds: int = SEEDS,
    faults: FaultSpace | Plan | None = CRASHES,
    scheduler: str | None = None,
    within: float | None = None,
    workload: Workload | None = None,
    escapes: Escapes = "refuse",
) -> Test | Callable[[AsyncTest], Test]:
    """Run the test `async def test_x(world, ...)` in a simulated world, once for each of `seeds` seeds: 0, 1, 2, ...

    - `faults`: what may go wrong. By default the power of each machine that the test boots may be cut, or its process
      killed, up to three times, before any step of its tasks; a test that boots none meets only schedules. A
      `FaultSpace`, from which each seed draws a plan, or a `Plan`, the same for all seeds. None: nothing goes wrong. If
      the test has an argument `plan` (for example from Hypothesis), that plan is used instead.
    - `scheduler`: "fifo", "shuffle", "walk", "pct:3" or "starve:<actor path>". None: each seed draws its own.
    - `within`: virtual seconds after which a run that has not ended fails. None: 30 days.
    - `escapes`: what to do about calls that no seed decides, such as `time.time()`: "refuse" fails the test and
      names the call and its line; "control" gives virtual time and seeded randomness, and lets files be read.
      Threads, processes, sockets and changes of files are refused in both cases.
    - `workload`: a function `f(entropy)` that draws what the test does, as numbers, strings, tuples and frozen attrs
      classes. The test gets it as its argument `workload`, and it is shrunk when the test fails.

    Other arguments of the test are pytest's: parameters, and fixtures that are not async. All seeds share their
    values.

    The first seed that fails is shrunk: fewer faults, a smaller workload, a simpler schedule. The test then fails
    with the exception of its body; a note contains the story, the seed and the command that runs this seed again.
    Importing the module raises `ConfigurationError` with every problem of the decorator.
    """

    settings = TrialSettings(
        faults=faults, scheduler=scheduler, within=within, workload=workload, escapes=escapes
    )

    def decorate(body: AsyncTest) -> Test:
        problems = _body_problems(body, workload) + settings.problems(seeds)
        if problems:
            raise ConfigurationError(
                f"@simulate on {getattr(body, '__qualname__', body)!s}: {'; '.join(problems)}.",
                problems=tuple(problems),
            )
        return _test(body, seeds, settings)

    return decorate if body is None else decorate(body)


def _test(body: AsyncTest, seeds: int, settings: TrialSettings) -> Test:
    signature = inspect.signature(body)
    ours = {"world", "workload"} if settings.workload is not None else {"world"}
    theirs = [parameter for name, parameter in signature.parameters.items() if name not in ours]
    signature = signature.replace(parameters=theirs)

    @functools.wraps(body)
    def test(*given: Any, **named: Any) -> None:
        __tracebackhide__ = True
        arguments = signature.bind(*given, **named).arguments

        async def run_body(world: World, drawn: Any) -> None:
            own = {"world": world, "workload": drawn}
            await body(**{name: own[name] for name in ours}, **arguments)

        plan = arguments.get("plan")
        is_argument = isinstance(plan, Plan)
        trial = Trial(
            name=body.__name__,
            file=body.__code__.co_filename,
            body=run_body,
            settings=attrs.evolve(settings, faults=plan) if is_argument else settings,
        )
        options, hits = current_call()
        found = search(trial, options.seeds_to_run(seeds), options)
        if is_argument:  # one plan of many: others may meet what this does not
            found.planned_faults.clear()
        hits.points.update(dict.fromkeys(_points_in(body), 0))  # listed even if no run came to them
        hits.add(found)

    test.__signature__ = signature  # type: ignore[attr-defined]
    # If a whole module or class is marked for pytest-trio, this says that the test is wrapped already.
    test._trio_test_runner_wrapped = True  # type: ignore[attr-defined]
    return test


def _body_problems(body: Any, workload: Workload | None) -> list[str]:
    if getattr(body, "is_hypothesis_test", False):
        return ["@given is below it: put @given above @simulate, so that it draws before the run"]
    if not inspect.iscoroutinefunction(body):
        return ["the test is not an `async def` function"]
    parameters = inspect.signature(body).parameters
    problems = []
    if "world" not in parameters:
        problems.append("the test has no argument `world`")
    if workload is not None and "workload" not in parameters:
        problems.append("the test has no argument `workload`")
    return problems


def _points_in(body: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the points in the source of `body` that are plain strings; none when there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(body)))
    except (OSError, SyntaxError, TypeError):
        return ()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    names = [call.args[0] for call in calls if _called(call) == "sometimes"]
    return tuple(
        name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)
    )


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
