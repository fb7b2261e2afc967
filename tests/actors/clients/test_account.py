"""Accounts: what clients know of a partition, and the credit that it grants each of them."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import callboard
from callboard.actors.clients.account import Account
from callboard.actors.clients.calls import PartitionCalls
from callboard.actors.partition.commands import Level, PublishMany
from callboard.actors.partition.queues import Sequencer
from callboard.actors.timing import Timers
from callboard.log.format.columns import Columns
from callboard.log.limits import Limits


def clients(port: Any) -> list[Account]:
    """The accounts with a partition."""
    return [peer.party for peer in port.ref._cell.peers.values() if isinstance(peer.party, Account)]


async def test_a_crash_in_a_commit_grants_its_credit_anew(autojump_clock: Any, world: Any) -> None:
    """What the incarnation had taken is granted again; what waited in the mailbox, when the next one has stored it."""
    async with world.open(limits=Limits(pending_bytes=100)) as runtime:
        topic = await runtime.create_topic("orders")
        (account,) = topic._publisher.accounts()
        for _ in range(3):
            world.disk.latency_s = 1.0
            await topic.publish(bytes(60), acks="none")
            await trio.sleep(0.1)
            await topic.publish(bytes(30), acks="none")
            assert account.credit.waiting_bytes == 90
            runtime.crash("topics/orders/0", RuntimeError("a drill"))
            await topic.publish(bytes(80), acks="none")
            assert account.credit.waiting_bytes == 80
            world.disk.latency_s = 0.0
            await trio.sleep(60.0)
            assert account.credit.waiting_bytes == 0
            with pytest.raises(callboard.PublishFailed):
                await topic.flush()


async def test_what_is_not_awaited_keeps_its_credit_when_the_partition_fails(
    autojump_clock: Any, world: Any
) -> None:
    """It stays in the mailbox until the partition is restarted by hand; what is awaited is refused, and returned."""
    async with world.open(limits=Limits(pending_bytes=100)) as runtime:
        topic = await runtime.create_topic("orders")
        (account,) = topic._publisher.accounts()
        await wait_all_tasks_blocked()
        await topic.publish(b"a")
        await wait_all_tasks_blocked()
        world.disk.fail_next("read", "EIO", path_contains="topics/", times=99)
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(0.01)
        await topic.publish(bytes(60), acks="none")
        with pytest.raises(callboard.PartitionUnavailable):
            await topic.publish(bytes(20))
        assert account.state == "failed"
        assert (account.unawaited_waiting, account.credit.waiting_bytes) == (1, 60)
        world.disk.heal()
        await runtime.restart("topics/orders/0")
        await topic.flush()
        assert (account.unawaited_waiting, account.credit.waiting_bytes) == (0, 0)
        (statistics,) = await topic.describe()
        assert statistics.next_offset == 2


async def test_what_the_partition_cannot_handle_is_counted(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is not awaited has failed then, and its credit is free."""
    monkeypatch.setattr(Sequencer, "add_one", lambda *_: 1 / 0)
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        (account,) = topic._publisher.accounts()
        await topic.publish(b"x", acks="none")
        await wait_all_tasks_blocked()
        assert (account.unawaited_waiting, account.unawaited_bytes, account.credit.waiting_bytes) == (0, 0, 0)
        with pytest.raises(callboard.PublishFailed) as caught:
            await topic.flush()
        assert caught.value.failed == 1


async def test_each_client_has_credit_of_its_own(autojump_clock: Any, world: Any) -> None:
    """One that has taken all of its credit keeps no other waiting, and gets back what it has taken itself."""
    async with world.open(limits=Limits(pending_bytes=100)) as runtime:
        topic = await runtime.create_topic("orders")
        port = runtime._session.mirror.find("orders").ports[0]
        world.disk.latency_s = 1.0
        await topic.publish(bytes(100), acks="none")
        other = Account(port)
        assert other.credit.take_nowait(70)
        columns = Columns.build([bytes(70)])
        await port.ref.ask(PublishMany(columns, Level.ALL, 70, client=other.number))
        assert [account.credit.waiting_bytes for account in clients(port)] == [0, 0]
        other.close()


async def test_a_client_that_ends_leaves_nothing(autojump_clock: Any, world: Any) -> None:
    """An actor that stores records of others has an account while it does, also when it is cancelled meanwhile."""
    async with world.open() as runtime:
        await runtime.create_topic("orders")
        port = runtime._session.mirror.find("orders").ports[0]
        calls = PartitionCalls(Timers(runtime._session.wheel), runtime._session.mirror.refusal)
        world.disk.latency_s = 1.0
        batches = [Columns.build([b"x"], producers=[(1, number + 7, 1, 0)]) for number in range(3)]
        with trio.move_on_after(0.5):
            async with trio.open_nursery() as nursery:
                for batch in batches:
                    nursery.start_soon(calls.store, port, batch)
                await trio.sleep(0.1)
                assert len(clients(port)) == 2
        assert len(clients(port)) == 1
        await calls.store(port, Columns.build([b"y"], producers=[(1, 5, 1, 0)]))
        assert len(clients(port)) == 1


async def test_a_client_knows_the_state_of_a_partition(autojump_clock: Any, world: Any) -> None:
    """Also one that comes when the disk hangs already, or when the partition has failed."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        port = runtime._session.mirror.find("orders").ports[0]
        (account,) = topic._publisher.accounts()
        await wait_all_tasks_blocked()
        states = [account.state]
        world.disk.hang("topics/")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(topic.publish, b"x")
            await trio.sleep(10.0)
            late = Account(port)
            await wait_all_tasks_blocked()
            states += account.state, late.state
            world.disk.unhang()
        await trio.sleep(1.0)
        states += account.state, late.state
        while account.state != "failed":
            runtime.crash("topics/orders/0", RuntimeError("a drill"))
            await trio.sleep(0.1)
        last = Account(port)
        states += late.state, last.state
        with pytest.raises(callboard.PartitionUnavailable, match="a drill"):
            await topic.publish(b"y")
    assert states == ["running", "stuck", "stuck", "running", "running", "failed", "failed"]


async def test_a_partition_that_is_wanted_opens_first(autojump_clock: Any, world: Any) -> None:
    """Of many that wait for their turn, the one for which a publish waits comes next."""
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=64)
    world.disk.latency_s = 1.0
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        await topic.publish(b"x", partition=63)
        ports = runtime._session.mirror.find("orders").ports
        assert sum(runtime._session.mirror.state_of(port) == "running" for port in ports) < 32
        world.disk.latency_s = 0.0


async def test_a_client_knows_which_leases_have_ended_until_the_group_is_gone(
    autojump_clock: Any, world: Any
) -> None:
    """A seek ends the leases that were given before it: a client that comes later has none of those."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        (account,) = topic._publisher.accounts()
        async with topic.subscribe("group") as consumer:
            lease, group_id = (await consumer.get()).lease, consumer._fetcher.leases.group_id
            assert not account.ended_some
            await runtime.group("group").seek(0)
            assert account.was_sought(group_id, lease.lease_id)
            assert not Account(account.port).was_sought(group_id, lease.lease_id)
            assert lease.is_outdated(group_id)
            again = (await consumer.get()).lease
            assert not account.was_sought(group_id, again.lease_id)
        await runtime.group("group").delete()
        await trio.sleep(1.0)
        assert not account.was_sought(group_id, lease.lease_id)
        assert not account.ended_some
