"""Shrinking when a fault comes at a count: with a smaller workload the same count means another moment, or none."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
import trio

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import After, At, CrashOnMessage, Fault, Plan, PowerCut
from callboard.simulations.faults.passings import Passings
from callboard.simulations.faults.when import AWAIT
from callboard.simulations.search.redrawing import Drawing
from callboard.simulations.search.replay import trial_of
from callboard.simulations.search.shrink import Attempt, Case, RunBudget, shrink
from callboard.simulations.search.sooner import moved, nearer, smaller_counts, sooner
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, Run, Settings, Tape, World, run

PROMISE = "every order is shipped"
RUNS_MAX = 60


@attrs.frozen
class Orders:
    """How many, and how many customers have more than one wish at a time."""

    count: int
    customers: int


def draw_orders(entropy: SeededEntropy) -> Orders:
    """From one order of one customer to many of several."""
    return Orders(count=1 + entropy.integer(4), customers=1 + entropy.integer(2))


async def service(world: World, orders: Orders) -> None:
    """A shipper acks an order one step before it is shipped; customers meanwhile look on, in many steps."""
    shipped: set[bytes] = set()
    todo = [b"order %d" % number for number in range(orders.count)]

    async def look_on() -> None:
        for _ in range(50):
            await trio.sleep(0.01)

    async def day(machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders")
            if todo:
                await topic.publish_batch(todo)
                todo.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(orders.customers):
                    nursery.start_soon(look_on)
                async with topic.subscribe("shipping") as consumer:
                    while (message := await consumer.get(timeout=5)) is not None:
                        for _ in range(3):
                            await trio.sleep(0.01)
                        await message.ack()
                        await trio.lowlevel.checkpoint()
                        shipped.add(message.value)
                nursery.cancel_scope.cancel()

    await world.machine_until_done(day)
    if len(shipped) < orders.count:
        raise Violation(PROMISE, "one was never shipped")


def run_service(case: Case, settings: Settings) -> Run:
    """One run of the service."""
    return run(
        lambda world: service(world, case.workload), seed=1, plan=case.plan, tape=case.tape, settings=settings
    )


def seed_of_many_orders() -> int:
    """A seed that draws many."""
    return next(seed for seed in range(1_000) if draw_orders(SeededEntropy(seed)) == Orders(14, 4))


def test_a_failure_at_a_count_shrinks_to_one_order() -> None:
    """A power cut late among many orders is one early in a run of one; it takes few runs to find that."""
    entropy = SeededEntropy(seed_of_many_orders())
    orders = draw_orders(entropy)
    plans = (Plan((PowerCut(After(AWAIT, count)),)) for count in range(100, 200))
    case, failure = next(
        (case, failure)
        for plan in plans
        if (failure := run_service(case := Case(orders, plan), Settings()).failure) is not None
    )
    assert isinstance(failure, Violation)
    small = shrink(
        case,
        trial_of(run_service, failure),
        RunBudget(RUNS_MAX),
        drawing=Drawing(draw_orders, SeededEntropy(entropy.seed)),
    )
    assert small.complete
    assert small.case.workload == Orders(1, 1)
    (cut,) = small.case.plan.faults
    assert isinstance(cut.when, After)
    assert cut.when.count <= 15


def passings(*subjects: str) -> Passings:
    """What a fault counted that saw these."""
    return Passings(Counter(subjects), subjects[-1] if subjects else "")


def after(count: int, about: str = "") -> PowerCut:
    """A fault at so many writes."""
    return PowerCut(After("disk.write", count, about))


def test_a_moment_is_counted_by_what_it_is_about() -> None:
    """The fourth write of all is the second write of that file: fewer other things decide when that is."""
    seen = {0: passings("a", "log", "b", "log"), 1: passings("log", "log"), 2: passings("a")}
    assert nearer(Plan((after(4), after(2), after(9), PowerCut(At(1.0)))), seen) == Plan(
        (after(2, "log"), after(2), after(9), PowerCut(At(1.0)))
    )


@pytest.mark.parametrize("subject", ["x" * 300, "a\nb", ""])
def test_what_no_plan_may_name_is_not_named(subject: str) -> None:
    """A subject that is too long, cannot be printed, or is empty leaves the count as it is."""
    assert nearer(Plan((after(2),)), {0: passings("a", subject)}) == Plan((after(2),))


def test_a_moment_that_did_not_come_is_moved_to_the_last_passings() -> None:
    """Where a smaller workload passes the point three times, the 57th is tried as the third, second and first."""
    plan = Plan((after(57), PowerCut(At(1.0)), after(1)))
    seen = {0: passings("a", "b", "a"), 2: passings("a")}
    assert [other.faults[0] for other in moved(plan, seen)] == [after(3), after(2), after(1)]
    assert {other.faults[1:] for other in moved(plan, seen)} == {plan.faults[1:]}


def test_a_point_that_is_never_passed_about_a_file_is_waited_for_about_any() -> None:
    """A file of a topic that a smaller workload does not have stands for another one."""
    assert next(moved(Plan((after(2, "orders/3"),)), {0: passings()})) == Plan((after(2),))


@pytest.mark.parametrize("fault", [after(1_000), PowerCut(At(3.0)), CrashOnMessage(At(0.0), "actor", "", 57)])
def test_a_fault_is_tried_sooner(fault: Fault) -> None:
    """Each of the faults tried comes sooner, so trying ends."""
    for choose in (0, -1):
        found, steps = fault, 0
        while others := list(sooner(found)):
            found, steps = others[choose], steps + 1
            assert steps < 1_000
        assert sooner_key(found) < sooner_key(fault)


def sooner_key(fault: Fault) -> tuple[float, int]:
    """What becomes smaller."""
    moment = fault.when.seconds if isinstance(fault.when, At) else fault.when.count
    return moment, getattr(fault, "count", 0)


def test_few_smaller_counts_are_tried() -> None:
    """Of a small count all, of a large one some."""
    assert smaller_counts(1) == ()
    assert smaller_counts(5) == (1, 2, 3, 4)
    assert smaller_counts(100) == (1, 2, 3, 50, 49, 51, 48, 52, 99, 98, 97)


def test_no_case_is_run_twice() -> None:
    """K3: a round that finds nothing smaller costs only runs of what was not tried before."""
    tried = []

    def trial(case: Case, /, *, record: bool) -> Attempt:
        if not record:
            tried.append(repr(case))
        return Attempt(Tape() if after(7) in case.plan.faults else None)

    shrink(Case(None, Plan((after(3), after(7), PowerCut(At(2.5))))), trial, RunBudget())
    assert len(tried) == len(set(tried))
