"""The budget: what is taken together stays within the limit, in the order in which it was asked for."""

from __future__ import annotations

from collections import deque
from functools import partial

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from callboard.actors.clients.budget import Budget

LIMIT = 10

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 2 * LIMIT)),
        st.tuples(st.just("give back"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("cancel and give back"), st.integers(0, 5)),
        st.tuples(st.just("interrupt"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_budget_does_what_a_list_of_pieces_does(steps: list[tuple[str, int]]) -> None:
    """Pieces fit within the limit, or alone; those that wait get room in order; a cancelled one has none (B1 to B3)."""
    trio.run(partial(compare, steps))


async def compare(steps: list[tuple[str, int]]) -> None:
    """Take and give back at random, beside a model."""
    budget = Budget(LIMIT)
    held: list[tuple[int, int]] = []
    waiting: deque[tuple[int, int]] = deque()
    scopes: dict[int, trio.CancelScope] = {}
    outcomes: dict[int, bool] = {}

    async def take(number: int, size: int) -> None:
        with trio.CancelScope() as scopes[number]:
            outcomes[number] = await budget.take(size)

    def admit() -> None:
        while waiting and (not held or sum(size for _, size in held) + waiting[0][1] <= LIMIT):
            held.append(waiting.popleft())

    def give_back(place: int) -> None:
        if held:
            _, size = held.pop(place % len(held))
            budget.give_back(size)
            admit()

    async with trio.open_nursery() as nursery:
        for number, (step, value) in enumerate(steps):
            if step == "take":
                nursery.start_soon(take, number, value)
                waiting.append((number, value))
                if len(waiting) == 1:
                    admit()
            elif step == "interrupt":
                budget.interrupt()
                waiting.clear()
            elif step == "give back":
                give_back(value)
            elif waiting:
                chosen = waiting[value % len(waiting)]
                scopes[chosen[0]].cancel()
                waiting.remove(chosen)
                if step == "cancel and give back":  # which may give it room before it has noticed
                    give_back(value)
                admit()
            await wait_all_tasks_blocked()
            assert budget.waiting_bytes == sum(size for _, size in held)
            assert {number for number, taken in outcomes.items() if taken} >= {number for number, _ in held}
            assert budget.has_room(1) == (not waiting and budget.waiting_bytes < LIMIT)
        nursery.cancel_scope.cancel()
