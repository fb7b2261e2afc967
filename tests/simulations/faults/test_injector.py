"""The injector: moments, targets that are not there, what lasts and ends, and the healing after the last fault."""

from __future__ import annotations

from typing import Any

import trio

from callboard.actors.kernel import Actor
from callboard.simulations.faults import After, At, Fault, Plan
from callboard.simulations.faults import kinds as k
from callboard.simulations.faults.injector import AFTER_S, AWAIT_S
from callboard.simulations.world import Machine, Run, Settings, World, run
from callboard.supervision import ChildSpec


def under(*faults: Fault, main: Any) -> Run:
    """Run `main` under these faults; it must end well."""
    went = run(main, seed=3, plan=Plan(faults), settings=Settings(scheduler="fifo"))
    if went.failure is not None:
        raise went.failure
    return went


async def wait_for_healing(world: World) -> None:
    """Nothing but time passes."""
    await world.healed.wait()


def office(actor: Any, work: Any, **child: Any) -> Any:
    """A main: a runtime with one actor of the user's, and `work(world, ref)` in it."""

    async def main(world: World) -> None:
        async def boot(machine: Machine) -> None:
            async with machine.open_runtime() as runtime:
                spec = ChildSpec(name="clerk", start=actor, significant=False, **child)
                await work(world, await runtime.spawn(spec))

        await world.machine_until_done(boot)

    return main


class Clerk(Actor[int]):
    """Writes down what it handled."""

    seen: list[int]

    async def receive(self, message: int) -> None:
        self.seen.append(message)


def test_a_plan_without_faults_is_healed_from_the_beginning() -> None:
    """Who waits for healing need not know whether there is a plan."""
    assert under(main=wait_for_healing).virtual_s == 0.0


def test_a_fault_without_a_target_has_no_effect_and_is_given_up() -> None:
    """Nobody is there to be crashed: no hit, and the world is healed when the waiting is over."""
    plan = (
        k.CrashActor(At(1.0), "nobody"),
        k.PowerCut(At(2.0)),
        k.CrashConsumer(At(0.0), "ann"),
        k.Rot(At(0.0)),
    )
    went = under(*plan, main=wait_for_healing)
    assert went.hits == {}
    assert went.virtual_s == 2.0 + AWAIT_S


def test_a_passing_that_never_comes_is_given_up() -> None:
    """Otherwise a run would never be healed."""
    assert under(k.KillProcess(After("publish")), main=wait_for_healing).virtual_s == AFTER_S
    late = under(k.KillProcess(After("publish")), k.JumpClock(At(500.0), 1.0), main=wait_for_healing)
    assert late.virtual_s == 1_000.0


def test_a_fault_waits_for_the_passing_that_it_names() -> None:
    """The third passing about the right subject, and there, between two statements."""
    shifts = []

    async def main(world: World) -> None:
        begun = world.clock.wall_us()
        for about in ("apples", "pears", "apples", "apples", "apples"):
            world.probe("picked", about)
            shifts.append((world.clock.wall_us() - begun) // 1_000_000)

    assert under(k.JumpClock(After("picked", 3, "apple"), 60.0), main=main).hits == {0: 1}
    assert shifts == [0, 0, 0, 60, 60]


def test_a_target_may_come_later() -> None:
    """A machine that is down, and an actor that starts late, are struck once they are there."""

    async def main(world: World) -> None:
        async def boot(machine: Machine) -> None:
            await trio.sleep(5.0)

        await trio.sleep(4.0)
        await world.machine_until_done(boot)

    went = under(k.KillProcess(At(0.0), down_s=1.0), main=main)
    assert went.boots == 2
    assert went.hits == {0: 1}

    async def work(world: World, clerk: Any) -> None:
        await world.healed.wait()

    Clerk.seen = []
    went = under(k.CrashActor(At(0.0), "user/clerk"), main=office(Clerk, work))
    assert went.hits == {0: 1}
    assert [entry.who for entry in went.history.of("IncarnationCrashed")] == ["user/clerk"]


def test_healing_ends_what_lasts_and_stops_what_would_come() -> None:
    """Mailboxes are as wide as before, actors go on, and no later fault happens."""
    seen = Clerk.seen = []
    widths = []

    async def work(world: World, clerk: Any) -> None:
        await trio.sleep(1.0)
        for number in range(5):
            with trio.move_on_after(0.1):
                await clerk.tell(number)
        widths.append(clerk.statistics().mailbox_capacity)
        assert seen == []
        world.heal()
        widths.append(clerk.statistics().mailbox_capacity)
        await trio.sleep(100.0)

    plan = (
        k.FillMailbox(At(0.5), "user/clerk", for_s=50.0, capacity=2),
        k.PauseActor(At(0.6), "user/clerk", for_s=60.0),
        k.KillProcess(At(20.0)),
    )
    went = under(*plan, main=office(Clerk, work))
    assert widths == [2, 1024]
    assert seen == [0, 1]
    assert set(went.hits) == {0, 1}
    assert went.boots == 1
    assert [round(entry.time, 6) for entry in went.history.of("healed")] == [1.3]


def test_grips_on_one_actor_overlap() -> None:
    """The end of the later fault leaves the earlier one in force, and the end of both lets the actor go."""
    seen = Clerk.seen = []
    counts = []

    async def work(world: World, clerk: Any) -> None:
        for number in range(4):
            await trio.sleep_until(number + 0.5)
            clerk.tell_nowait(number)
            await trio.sleep(0.3)
            counts.append(len(seen))

    plan = (
        k.PauseActor(At(1.0), "user/clerk", for_s=2.0),
        k.SlowActor(At(1.2), "user/clerk", delay_s=0.01, for_s=0.1),
    )
    under(*plan, main=office(Clerk, work))
    assert counts == [1, 1, 1, 4]


def test_a_crash_in_a_batch_comes_between_two_messages() -> None:
    """The first message of the batch was handled, the second was not lost: the next incarnation has it."""
    seen = Clerk.seen = []

    async def work(world: World, clerk: Any) -> None:
        await trio.sleep(1.0)
        for number in range(3):
            clerk.tell_nowait(number)
        await world.healed.wait()
        await trio.sleep(5.0)

    went = under(k.CrashInBatch(At(0.5), "user/clerk"), main=office(Clerk, work))
    assert went.hits == {0: 1}
    assert seen == [0, 1, 2]
    assert len(went.history.of("IncarnationCrashed")) == 1


def test_a_crash_in_a_batch_comes_in_the_middle_of_a_slow_message() -> None:
    """An actor that waits while it has a message in hand is crashed there, and the message tried again if it may be."""
    begun = []

    class Slow(Actor[int]):
        async def receive(self, message: int) -> None:
            begun.append((message, trio.current_time()))
            await trio.sleep(1.0)

    async def work(world: World, clerk: Any) -> None:
        await trio.sleep(1.0)
        clerk.tell_nowait(7)
        await trio.sleep(9.0)

    went = under(k.CrashInBatch(At(0.5), "user/clerk"), main=office(Slow, work, retry_in_hand=1))
    assert went.hits == {0: 1}
    assert [message for message, _ in begun] == [7, 7]


def test_hits_belong_to_the_fault_that_struck() -> None:
    """Of two faults of one kind, the one whose path is met is counted; the other is given up."""

    async def work(world: World, clerk: Any) -> None:
        await world.healed.wait()

    Clerk.seen = []
    plan = (
        k.FailRead(At(0.0), "no such file"),
        k.SlowDisk(At(0.0), "catalog", 0.1, 5.0),
        k.Stall(At(0.0), "moon", 5.0),
    )
    went = under(*plan, main=office(Clerk, work))
    assert set(went.hits) == {1}
    assert went.fault_counts["SlowDisk"] == went.hits[1]


def test_a_power_cut_ends_in_the_middle_of_a_plan() -> None:
    """A cut at a verb of the disk keeps that verb from running."""

    async def main(world: World) -> None:
        async def boot(machine: Machine) -> None:
            async with machine.open_runtime() as runtime:
                await runtime.create_topic("orders")

        await world.machine_until_done(boot)

    went = under(k.PowerCut(After("disk.sync", 2), down_s=0.5), main=main)
    assert (went.boots, went.hits) == (2, {0: 1})
    assert [entry.kind for entry in went.history.entries][-1] == "closed"
