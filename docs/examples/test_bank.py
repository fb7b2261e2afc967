"""No money is lost: not by a schedule, and not by a power cut at any moment. Run it: pytest docs/examples."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from bank import OPENING, CarefulTeller, CarelessTeller, Transfer, open_bank

from callboard.testing import FaultSpace, Machine, Simulation, Violation, World, always, simulate, sometimes

CRASHES = FaultSpace(
    weights={"PowerCut": 1, "KillProcess": 1},
    faults=(1, 3),
    probes={"disk.write": 40, "disk.sync": 40},  # at one of the first forty of these
)


def draw_transfers(entropy: Any) -> tuple[Transfer, ...]:
    """What the customers want: some transfers, of which some may be larger than what is left."""
    customers = sorted(OPENING)
    return tuple(
        Transfer(number, customers[entropy.integer(1)], 1 + entropy.integer(6))
        for number in range(1, 2 + entropy.integer(2))
    )


async def business(world: World, transfers: tuple[Transfer, ...], *, teller: Any) -> None:
    """Days of the bank, one per life of its computer, until all customers have been served."""
    todo = list(transfers)  # customers remember, whatever happens to the bank

    async def day(machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            bank = await open_bank(runtime, teller)
            while todo:
                answer = await bank.teller.ask(todo[0])
                sometimes("a customer asks again for what was done", answer == "done before")
                sometimes("a transfer is refused", answer == "refused")
                todo.pop(0)
            await bank.deliver()
            money = await bank.money()
        always(
            money == sum(OPENING.values()), f"no money is lost: {sum(OPENING.values())} at first, now {money}"
        )

    await world.machine_until_done(day)


@simulate(seeds=60, faults=CRASHES, workload=draw_transfers)
async def test_the_careful_bank_loses_nothing(world: World, workload: tuple[Transfer, ...]) -> None:
    """Whatever crashes when, accounts and vault hold together what was there in the morning."""
    await business(world, workload, teller=CarefulTeller)


def test_the_careless_bank_is_caught(simulation: Simulation) -> None:
    """The mistake that was planted in it is found; remove `raises` to see the story."""
    with pytest.raises(Violation, match="no money is lost"):
        simulation.search(
            partial(business, teller=CarelessTeller), seeds=60, faults=CRASHES, workload=draw_transfers
        )
