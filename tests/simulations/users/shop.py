"""A shop and its warehouse, two durable actors with a topic between them: what was ordered is shipped once."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import cbor2

import callboard
from callboard.testing import Machine, World, always, note, simulate, sometimes


@attrs.frozen
class Order:
    """An item for a customer. A customer who gets no answer orders again, with the same number."""

    number: int
    item: str


class Shop(callboard.DurableActor[Order, list[Any]]):
    """Takes orders, and keeps in an outbox what the warehouse has not been told of."""

    def __init__(self, shipments: callboard.Topic) -> None:
        self.shipments = shipments
        self.orders: dict[int, str] = {}
        self.outbox: list[int] = []

    async def started(self) -> None:
        await super().started()
        await self.send()

    async def receive(self, order: Order) -> str:
        if order.number in self.orders:
            return "ordered before"
        await self.persist(["ordered", order.number, order.item])
        await self.send()
        return "ordered"

    async def send(self) -> None:
        for number in list(self.outbox):
            await self.shipments.publish(cbor2.dumps([number, self.orders[number]]))
            await self.persist(["sent", number])

    def apply(self, event: list[Any]) -> None:
        if event[0] == "sent":
            self.outbox.remove(event[1])
        else:
            self.orders[event[1]] = event[2]
            self.outbox.append(event[1])

    def snapshot(self) -> Any:
        return [self.orders, self.outbox]

    def restore(self, state: Any) -> None:
        self.orders, self.outbox = state


@attrs.frozen
class Count:
    """Ask what was shipped."""


class Warehouse(callboard.DurableActor[Any, list[Any]]):
    """Ships each order once."""

    def __init__(self) -> None:
        self.shipped: list[str] = []
        self.known: set[int] = set()

    async def receive(self, message: list[Any] | Count) -> list[str]:
        if isinstance(message, Count):
            return self.shipped
        number, _ = message
        if number not in self.known:
            note(f"the warehouse ships order {number}")
            await self.persist(message)
        return self.shipped

    def apply(self, event: list[Any]) -> None:
        number, item = event
        self.known.add(number)
        self.shipped.append(item)

    def snapshot(self) -> Any:
        return [self.shipped, sorted(self.known)]

    def restore(self, state: Any) -> None:
        self.shipped, known = state
        self.known = set(known)


async def deliver(shipments: callboard.Topic, warehouse: Any) -> None:
    """Take shipments to the warehouse, until none has come for a while."""
    async with shipments.subscribe("warehouse") as consumer:
        while (message := await consumer.get(timeout=60)) is not None:
            await warehouse.ask(cbor2.loads(message.value))
            await message.ack()


@simulate
async def test_orders_are_shipped_once(world: World) -> None:
    """Whatever stops when, each order that was answered is shipped, and none twice."""
    todo = [Order(number, f"item {number}") for number in range(3)]  # customers remember what they want

    async def day(machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            shipments = await runtime.create_topic("shipments")
            shop = await runtime.spawn(partial(Shop, shipments), name="shop")
            warehouse = await runtime.spawn(Warehouse, name="warehouse")
            while todo:
                answer = await shop.ask(todo[0])
                sometimes("a customer orders again", answer == "ordered before")
                todo.pop(0)
            await deliver(shipments, warehouse)
            shipped = await warehouse.ask(Count())
            always(sorted(shipped) == ["item 0", "item 1", "item 2"], f"shipped are {shipped}")

    await world.machine_until_done(day)
