"""Cancellation at every step of every operation: nothing hangs, leaks or is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio

from callboard.publishing.sender import TELLS_PER_PASS

STEPS_MAX = 2000


@attrs.define(eq=False)
class Canceller(trio.abc.Instrument):
    """Cancels a scope when `at` steps were taken: by the task that is watched, or by any when that is None."""

    scope: trio.CancelScope
    at: int
    task: trio.lowlevel.Task | None
    steps: int = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """The task gave up control: it waits in an await, or has ended."""
        if self.task is None or task is self.task:
            self.steps += 1
            if self.steps == self.at:
                self.scope.cancel()


@contextmanager
def cancelled_at(step: int, *, own: bool) -> Iterator[trio.CancelScope]:
    """Run the block, cancelled when this task (or, if not `own`, the whole program) has taken `step` steps in it."""
    with trio.CancelScope() as scope:
        canceller = Canceller(scope, step, trio.lowlevel.current_task() if own else None)
        trio.lowlevel.add_instrument(canceller)
        try:
            yield scope
        finally:
            trio.lowlevel.remove_instrument(canceller)


@attrs.define
class Case:
    """An operation under test: `act` is cancelled; `told` gets what it was promised until then."""

    runtime: Any
    topic: Any
    wide: Any
    consumer: Any
    told: dict[int, bytes]
    acked: set[int]

    async def publish(self) -> None:
        """A synced publish."""
        self.told[(await self.topic.publish(b"walked")).offset] = b"walked"

    async def publish_leader(self) -> None:
        """A publish that waits for the system only."""
        await self.topic.publish(b"walked", acks="leader")

    async def publish_nobody(self) -> None:
        """Publishes that wait for nothing, so many that other tasks run in between."""
        for _ in range(TELLS_PER_PASS + 1):
            await self.topic.publish(b"walked", acks="none")

    async def publish_batch(self) -> None:
        """A batch."""
        receipts = await self.topic.publish_batch([b"walked"] * 3)
        self.told.update({receipt.offset: b"walked" for receipt in receipts})

    async def publish_everywhere(self) -> None:
        """A batch over several partitions, synced, and one that nobody waits for."""
        receipts = await self.wide.publish_batch([b"walked"] * 8, keys=[b"%d" % key for key in range(8)])
        assert len({receipt.partition for receipt in receipts}) > 1
        await self.wide.publish_batch([b"walked"] * 8, keys=[b"%d" % key for key in range(8)], acks="none")

    async def flush(self) -> None:
        """A publish nobody waited for, then a flush."""
        await self.topic.publish(b"walked", acks="none")
        await self.topic.flush()

    async def get_and_ack(self) -> None:
        """One by one."""
        message = await self.consumer.get()
        await message.ack()
        self.acked.add(message.offset)

    async def get_with_timeout(self) -> None:
        """With a timeout, which is a scope of its own."""
        message = await self.consumer.get(timeout=5.0)
        await message.ack(wait=False)
        await self.consumer.flush()
        self.acked.add(message.offset)

    async def receive(self) -> None:
        """A body that awaits, then the ack at its exit."""
        async with self.consumer.receive() as message:
            await trio.sleep(1.0)
            await trio.lowlevel.checkpoint()
        self.acked.add(message.offset)

    async def receive_and_fail(self) -> None:
        """A body that raises: the nack at its exit may be cancelled, the exception passes."""
        try:
            async with self.consumer.receive():
                await trio.lowlevel.checkpoint()
                raise ValueError("the body")
        except ValueError:
            await trio.lowlevel.checkpoint()

    async def batches(self) -> None:
        """A batch, acked."""
        async for batch in self.consumer.batches(max_records=2, max_wait=0.5):
            await batch.ack()
            self.acked.update(batch.offsets())
            break

    async def nack_release_extend(self) -> None:
        """The other ways to settle."""
        message = await self.consumer.get()
        await message.extend(10.0)
        await message.nack(delay=0.5)
        await (await self.consumer.get()).release()

    async def subscribe(self) -> None:
        """Joining, getting, leaving, as a second member."""
        async with self.topic.subscribe("group", visibility_timeout=20.0, backoff=0.0) as second:
            message = await second.get()
            await message.ack()
            self.acked.add(message.offset)

    async def read(self) -> None:
        """Reading without a group."""
        async for _ in self.topic.read():
            pass

    async def create_and_delete(self) -> None:
        """A topic comes and goes."""
        await self.runtime.create_topic("passing", partitions=2)
        await self.runtime.delete_topic("passing")

    async def stats(self) -> None:
        """Looking around."""
        await self.runtime.stats()
        await self.topic.describe()
        await self.runtime.groups()

    async def restart(self) -> None:
        """A restart by hand."""
        await self.runtime.restart("topics/orders/0")


Operation = Callable[[Case], Awaitable[None]]
OPERATIONS = [name for name in vars(Case) if not name.startswith("_") and callable(getattr(Case, name))]


async def walk_once(world: Any, name: str, step: int, own: bool) -> bool:
    """One runtime in which the operation is cancelled at `step`; returns whether it was."""
    told: dict[int, bytes] = {}
    acked: set[int] = set()
    what = f"{name} cancelled at step {step} of {'its own task' if own else 'the program'}"
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        wide = await runtime.create_topic("wide", partitions=3)
        for number in range(3):
            told[(await topic.publish(b"%d" % number)).offset] = b"%d" % number
        async with topic.subscribe("group", visibility_timeout=20.0, backoff=0.0) as consumer:
            case = Case(runtime, topic, wide, consumer, told, acked)
            with cancelled_at(step, own=own) as scope:
                await getattr(case, name)()
            told[(await topic.publish(b"after")).offset] = b"after"
            await check_runtime(world, case, what)
        await topic.flush()
        await wide.flush()
        assert len(runtime._session.renewed_leases) == 0, what
        publishers = runtime._session.publishers.values()
        accounts = [account for publisher in publishers for account in publisher.accounts()]
        assert {account.credit.waiting_bytes for account in accounts} == {0}, what
    async with world.open() as runtime:
        log = await world.values(runtime)
        assert {offset: log.get(offset) for offset in told} == told, what
        assert await world.drain(runtime) == {}, what
    return bool(scope.cancel_called)


async def check_runtime(world: Any, case: Case, what: str) -> None:
    """The runtime is as usable as ever: within the visibility timeout everything unacked is delivered, once."""
    log = await world.values(case.runtime)
    assert {offset: log.get(offset) for offset in case.told} == case.told, what
    left = set(log) - case.acked
    before = trio.current_time()
    with trio.move_on_after(45.0):
        while left:
            message = await case.consumer.get()
            assert message.offset not in case.acked, what
            await message.ack()
            left.discard(message.offset)
            (part,) = await case.topic.describe()
            if part.groups[0].pending == 0:
                break
    (part,) = await case.topic.describe()
    (group,) = part.groups
    assert (group.pending, group.leased) == (0, 0), what
    assert trio.current_time() - before <= 20.0 + 5.0, what
    assert part.state == "running", what


async def walk(world: Any, name: str, *, own: bool) -> None:
    """Cancel at the first step, the second, and so on, until the operation is over before it is cancelled."""
    start = world.disk.snapshot()
    for step in range(1, STEPS_MAX):
        world.disk.restore(start)
        with trio.fail_after(600.0):
            if not await walk_once(world, name, step, own):
                assert step > 1, f"{name} awaits nothing"
                return
    raise AssertionError(f"{name} takes more than {STEPS_MAX} steps")


@pytest.mark.parametrize("name", OPERATIONS)
async def test_cancelled_at_every_await(autojump_clock: Any, world: Any, name: str) -> None:
    """Cancelled in any of its awaits, an operation leaves no lease, no task and no doubt behind."""
    await walk(world, name, own=True)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_cancelled_at_every_moment(autojump_clock: Any, world: Any, name: str) -> None:
    """The same at every step that any task takes meanwhile: the answer may be on its way already."""
    await walk(world, name, own=False)


async def live_once(world: Any, step: int, own: bool) -> bool:
    """A whole life of a runtime, from opening to closing, cancelled at `step`; returns whether it was."""
    told: dict[int, bytes] = {}
    acked: set[int] = set()
    with cancelled_at(step, own=own) as scope:
        async with world.open() as runtime:
            topic = await runtime.create_topic("orders")
            for value in (b"0", b"1"):
                told[(await topic.publish(value)).offset] = value
            async with topic.subscribe("group") as consumer:
                message = await consumer.get()
                await message.ack()
                acked.add(message.offset)
                await consumer.get()
            await topic.publish(b"2", acks="none")
    what = f"cancelled at step {step}"
    async with world.open() as runtime:
        await runtime.create_topic("orders")
        log = await world.values(runtime)
        assert {offset: log.get(offset) for offset in told} == told, what
        left = await world.drain(runtime)
        assert acked.isdisjoint(left), what
        assert set(log) - {0} <= set(left), what
        if not scope.cancel_called:
            assert log == {0: b"0", 1: b"1", 2: b"2"}
    return bool(scope.cancel_called)


@pytest.mark.parametrize("own", [True, False], ids=["at every await", "at every moment"])
async def test_opening_and_closing_cancelled(autojump_clock: Any, world: Any, own: bool) -> None:
    """Cancelled anywhere, a runtime ends, lets go of the directory, and has kept what it promised."""
    start = world.disk.snapshot()
    for step in range(1, STEPS_MAX):
        world.disk.restore(start)
        with trio.fail_after(600.0):
            if not await live_once(world, step, own):
                return
    raise AssertionError("the life never ends")
