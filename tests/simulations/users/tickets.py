"""A box office in plain trio: a seat is sold once, connections are shared, prices are kept until they change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from callboard.testing import World, always, simulate, sometimes

SEATS = ("front", "middle", "back")


class Pool:
    """This many connections to the bank, each lent to one customer at a time; a customer that finds none waits."""

    def __init__(self, size: int) -> None:
        self.free = [f"connection {number}" for number in range(size)]
        self.returned = trio.Event()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        while not self.free:
            await self.returned.wait()
        connection = self.free.pop()
        try:
            yield connection
        finally:
            self.free.append(connection)
            self.returned.set()
            self.returned = trio.Event()


class Prices:
    """Asks for each price once, and again after it has changed."""

    def __init__(self, fetch: Callable[[str], Awaitable[int]]) -> None:
        self.fetch = fetch
        self.known: dict[str, int] = {}
        self.changes = 0

    async def of(self, seat: str) -> int:
        if seat in self.known:
            return self.known[seat]
        changes = self.changes
        price = await self.fetch(seat)
        if changes == self.changes:
            self.known[seat] = price
        return price

    def changed(self) -> None:
        self.changes += 1
        self.known.clear()


class BoxOffice:
    """Sells seats."""

    def __init__(self, pool: Pool, prices: Prices, charge: Callable[[str, int], Awaitable[None]]) -> None:
        self.pool = pool
        self.prices = prices
        self.charge = charge
        self.sold: dict[str, str] = {}
        self.locks: dict[str, trio.Lock] = defaultdict(trio.Lock)

    async def sell(self, seat: str, customer: str) -> bool:
        price = await self.prices.of(seat)
        async with self.locks[seat]:
            if seat in self.sold:
                return False
            async with self.pool.connection():
                await self.charge(customer, price)
            self.sold[seat] = customer
            return True


@simulate
async def test_an_evening(world: World) -> None:
    """Nobody pays for a seat that somebody else has, all who have patience are served, and no old price stays."""
    tariff = dict.fromkeys(SEATS, 20)
    charged: Counter[str] = Counter()
    served = 0

    async def some_time() -> None:
        await trio.sleep(world.entropy.random())

    async def fetch(seat: str) -> int:
        price = tariff[seat]
        await some_time()
        return price

    async def charge(customer: str, price: int) -> None:
        await some_time()
        charged[customer] += price

    async def visit(customer: str, seat: str, patience_s: float) -> None:
        nonlocal served
        await some_time()
        with trio.move_on_after(patience_s) as patience:
            await office.sell(seat, customer)
        sometimes("a customer leaves", patience.cancelled_caught)
        served += 1

    async def raise_prices() -> None:
        await some_time()
        for seat in SEATS:
            tariff[seat] += 5
        office.prices.changed()

    office = BoxOffice(Pool(1), Prices(fetch), charge)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raise_prices)
        for number in range(6):
            patience_s = 1.0 if number % 3 else 100.0
            nursery.start_soon(visit, f"customer {number}", SEATS[number % 3], patience_s)
    always(set(charged) == set(office.sold.values()), f"{dict(charged)} paid, and sold is {office.sold}")
    always(len(office.pool.free) == 1, f"of one connection {len(office.pool.free)} are free")
    for seat in SEATS:
        price = await office.prices.of(seat)
        always(price == tariff[seat], f"the {seat} seat is offered for {price} and costs {tariff[seat]}")
