"""A small bank with an outbox: a teller takes money from accounts, a vault receives it, a topic lies between the two.

There are two tellers. The careless one forgets a transfer that it has debited when it dies at the wrong moment.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import cbor2

import callboard
from callboard.testing import note

OPENING = {"alice": 100, "bob": 100}


@attrs.frozen
class Transfer:
    """Move `amount` from an account into the vault. `number` is the customer's: a repeated transfer has the same."""

    number: int
    source: str
    amount: int


class Count:
    """Ask how much money there is."""


class CarelessTeller(callboard.DurableActor[Transfer | Count, list[Any]]):
    """Debits the account, then publishes the deposit: two steps, and a crash fits between them."""

    def __init__(self, deposits: callboard.Topic) -> None:
        self.deposits = deposits
        self.accounts = dict(OPENING)
        self.known: set[int] = set()

    async def receive(self, message: Transfer | Count) -> Any:
        if isinstance(message, Count):
            return sum(self.accounts.values())
        if message.number in self.known:
            note(f"the teller knows transfer {message.number} already")
            return "done before"
        if self.accounts[message.source] < message.amount:
            return "refused"
        await self.debit(message)
        return "done"

    async def debit(self, transfer: Transfer) -> None:
        note(f"the teller debits transfer {transfer.number}", amount=transfer.amount)
        await self.persist(list(attrs.astuple(transfer)))
        await self.send(list(attrs.astuple(transfer)))

    async def send(self, deposit: list[Any]) -> None:
        number, _source, amount = deposit
        note(f"the teller sends transfer {number}", amount=amount)
        await self.deposits.publish(cbor2.dumps([number, amount]))

    def apply(self, event: list[Any]) -> None:
        number, source, amount = event
        self.known.add(number)
        self.accounts[source] -= amount

    def snapshot(self) -> Any:
        return [self.accounts, sorted(self.known)]

    def restore(self, state: Any) -> None:
        self.accounts, known = state
        self.known = set(known)


class CarefulTeller(CarelessTeller):
    """Keeps an outbox: the event that debits is what must be sent, and it is sent again at every start until it was.

    A deposit may so be published twice; its number lets the vault see that.
    """

    def __init__(self, deposits: callboard.Topic) -> None:
        super().__init__(deposits)
        self.outbox: dict[int, list[Any]] = {}

    async def started(self) -> None:
        await super().started()
        await self.send_outbox()

    async def debit(self, transfer: Transfer) -> None:
        note(f"the teller debits transfer {transfer.number}", amount=transfer.amount)
        await self.persist(list(attrs.astuple(transfer)))
        await self.send_outbox()

    async def send_outbox(self) -> None:
        for number, deposit in list(self.outbox.items()):
            await self.send(deposit)
            await self.persist(["sent", number])

    def apply(self, event: list[Any]) -> None:
        if event[0] == "sent":
            del self.outbox[event[1]]
            return
        super().apply(event)
        self.outbox[event[0]] = event

    def snapshot(self) -> Any:
        return [*super().snapshot(), self.outbox]

    def restore(self, state: Any) -> None:
        *above, self.outbox = state
        super().restore(above)


class Vault(callboard.DurableActor[list[int] | Count, list[int]]):
    """Receives deposits, each number once."""

    def __init__(self) -> None:
        self.deposits: dict[int, int] = {}

    async def receive(self, message: list[int] | Count) -> int:
        if not isinstance(message, Count) and message[0] not in self.deposits:
            note(f"the vault receives transfer {message[0]}", amount=message[1])
            await self.persist(message)
        return sum(self.deposits.values())

    def apply(self, event: list[int]) -> None:
        number, amount = event
        self.deposits[number] = amount

    def snapshot(self) -> Any:
        return self.deposits

    def restore(self, state: Any) -> None:
        self.deposits = state


class Bank:
    """The two actors and the topic between them, in an open runtime."""

    def __init__(self, deposits: callboard.Topic, teller: Any, vault: Any) -> None:
        self.deposits = deposits
        self.teller = teller
        self.vault = vault

    async def deliver(self) -> None:
        """Carry what has been published into the vault, until nothing has come for a while."""
        async with self.deposits.subscribe("vault") as consumer:
            while (message := await consumer.get(timeout=5.0)) is not None:
                await self.vault.ask(cbor2.loads(message.value))
                await message.ack()

    async def money(self) -> int:
        """All the money there is."""
        return await self.teller.ask(Count()) + await self.vault.ask(Count())


async def open_bank(
    runtime: callboard.Runtime, teller: type[CarelessTeller] | type[CarefulTeller] = CarefulTeller
) -> Bank:
    """Start the bank in a runtime, or go on with the one that its directory holds."""
    deposits = await runtime.create_topic("deposits")
    vault = await runtime.spawn(Vault, name="vault")
    return Bank(deposits, await runtime.spawn(partial(teller, deposits), name="teller"), vault)
