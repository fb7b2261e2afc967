"""Every kind of fault is seen to strike: in a small broker of one topic, one publisher, one consumer and one actor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard.actors.kernel import Actor
from callboard.log.errors import CallboardError
from callboard.simulations.faults import KINDS, After, At, Fault, Plan, Survival
from callboard.simulations.faults import kinds as k
from callboard.simulations.faults.shapes import shapes_of
from callboard.simulations.history.clients import ObservedTopic, consume
from callboard.simulations.world import Machine, Run, Settings, World, run

HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-a-fault-plan.md"
PARTITION = "topics/orders/0"
NOON = At(0.5)

CASES: dict[str, Fault] = {
    "CrashActor": k.CrashActor(NOON, PARTITION),
    "CrashInBatch": k.CrashInBatch(NOON, "user/clerk"),
    "CrashInRecovery": k.CrashInRecovery(NOON, PARTITION, verbs=3),
    "CrashOnMessage": k.CrashOnMessage(NOON, PARTITION, "PublishOne", count=2),
    "CrashUntilDown": k.CrashUntilDown(NOON, PARTITION),
    "PauseActor": k.PauseActor(NOON, PARTITION, for_s=0.4),
    "SlowActor": k.SlowActor(NOON, PARTITION, delay_s=0.01, for_s=0.4),
    "DelayMailbox": k.DelayMailbox(NOON, PARTITION, delay_s=0.1, for_s=0.4),
    "FillMailbox": k.FillMailbox(NOON, "user/clerk", for_s=0.4, capacity=2),
    "PowerCut": k.PowerCut(NOON, Survival(7, applied=0.5, torn=0.5, names=0.5), down_s=0.3),
    "KillProcess": k.KillProcess(NOON, down_s=0.3),
    "JumpClock": k.JumpClock(NOON, seconds=-3600.0),
    "CrashConsumer": k.CrashConsumer(NOON, "ann"),
    "RetryIndefinite": k.RetryIndefinite(At(0.0), times=2),
    "CancelTask": k.CancelTask(NOON, "pass_the_time"),
    "PauseTask": k.PauseTask(NOON, "pass_the_time", for_s=0.4),
    "BusyLoop": k.BusyLoop(NOON, for_s=0.03),
    "FailVerb": k.FailVerb(NOON, verb="sync", errno="EIO", path="topics/"),
    "FailRead": k.FailRead(At(0.0), "topics/"),
    "ShortRead": k.ShortRead(At(0.0), "topics/"),
    "ShortWrite": k.ShortWrite(NOON, "topics/", draw=5),
    "FullDisk": k.FullDisk(NOON, for_s=0.4, slack_bytes=1_000),
    "Rot": k.Rot(NOON, "topics/", draw=3),
    "Misdirect": k.Misdirect(NOON, "topics/", draw=4),
    "SlowDisk": k.SlowDisk(NOON, "topics/", latency_s=0.02, for_s=0.4),
    "Stall": k.Stall(NOON, "topics/", for_s=0.4),
}
"""One of each kind, such that it must strike there."""


class Clerk(Actor[Any]):
    """Takes a moment for each message."""

    async def receive(self, message: Any) -> None:
        await trio.sleep(0.01)


async def clients(world: World) -> None:
    """Two seconds of traffic, with a reopening for those who read at recovery; the world is healed at its end."""
    world.disk.damage_budget.beyond = True
    await world.machine_until_done(lambda machine: open_shop(world, machine, 1.0))
    for _ in range(2):  # what was damaged may need a second look
        try:
            await world.machine_until_done(lambda machine: open_shop(world, machine, 1.0))
        except* CallboardError as refused:
            world.note(f"refused: {refused.exceptions}")
    await world.healed.wait()


async def open_shop(world: World, machine: Machine, for_s: float) -> None:
    """One opening."""
    async with machine.open_runtime() as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=65_536)
        clerk = await runtime.spawn(Clerk, name="clerk")
        seller = ObservedTopic(world, machine.number, topic, "sam")

        async def use_topic() -> None:
            end = trio.current_time() + for_s
            while trio.current_time() < end:
                await seller.publish(b"sold at %r" % trio.current_time() + bytes(1_000))
                with trio.move_on_after(0.01):
                    await clerk.tell("pack it")
                await trio.sleep(0.01)

        async def pass_the_time() -> None:
            for _ in range(1_000):
                await trio.sleep(0.02)

        async def work(consumer: Any) -> None:
            async for message in consumer:
                await consumer.ack(message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume, world, machine.number, topic, "shoppers", "ann", work)
            nursery.start_soon(pass_the_time)
            await use_topic()
            nursery.cancel_scope.cancel()


def strike(*faults: Fault, main: Callable[[World], Any] = clients, seed: int = 1) -> Run:
    """Run the clients under these faults, in plain order."""
    found = run(main, seed=seed, plan=Plan(faults), settings=Settings(scheduler="fifo", trace="full"))
    if found.failure is not None and not isinstance(found.failure, CallboardError):
        raise found.failure
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_every_kind_has_an_effect(kind: str) -> None:
    """It is counted for its index and under its label, and the history tells of it."""
    fault = CASES[kind]
    others = [k.FailVerb(At(0.2), "sync", "EIO", "topics/", times=2)] if kind == "RetryIndefinite" else []
    went = strike(fault, *others)
    assert went.hits.get(0, 0) >= 1
    assert went.fault_counts[fault.label] == went.hits[0]
    told = [entry for entry in went.history.of("fault") if entry.who == fault.label]
    assert told[0].detail.startswith(fault.happening())
    assert told[0].time >= 0.5 or kind in {"RetryIndefinite", "FailRead", "ShortRead"}
    assert went.history.of("healed")


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_every_kind_may_come_before_a_step_of_the_program(kind: str) -> None:
    """Outside of all tasks, between two awaits: it begins there as it does at a moment, and twice the same run."""
    fault = attrs.evolve(CASES[kind], when=After("await", 5))
    others = [k.FailVerb(At(0.2), "sync", "EIO", "topics/", times=2)] if kind == "RetryIndefinite" else []
    went = strike(fault, *others)
    assert went.hits.get(0, 0) >= 1
    assert went.history.of("healed")
    assert went.trace.lines == strike(fault, *others).trace.lines


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_strikes_in_the_same_way_each_time(kind: str) -> None:
    """Two runs of one seed and plan have the same trace."""
    assert strike(CASES[kind]).trace.lines == strike(CASES[kind]).trace.lines


@pytest.mark.parametrize("fault", [k.PowerCut(At(0.0)), k.KillProcess(At(0.0), down_s=0.0)])
def test_a_machine_may_end_at_the_very_beginning(fault: Fault) -> None:
    """Before it has locked its directory: the next life does not find it locked by the dead."""
    for seed in range(10):
        went = run(
            clients, seed=seed, plan=Plan((fault,)), settings=Settings(scheduler="shuffle", trace="off")
        )
        assert went.failure is None
        assert went.boots == 4


@pytest.mark.parametrize("kind", [k.SlowActor, k.DelayMailbox])
@pytest.mark.parametrize("delay_s", [0.0, 1e-15])
def test_a_delay_of_nothing_ends(kind: Any, delay_s: float) -> None:
    """The shrinker tries it: virtual time goes on, however little it is."""
    settings = Settings(scheduler="fifo", trace="off", tick_limit=100_000)
    plan = Plan((kind(NOON, PARTITION, delay_s=delay_s, for_s=0.4),))
    went = run(clients, seed=1, plan=plan, settings=settings)
    assert went.failure is None
    assert went.hits[0] >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_guide_names_every_kind_and_its_fields(kind: str) -> None:
    """A row of the table in the how-to guide holds the kind's name and those of its fields."""
    rows = [row for row in HOW_TO.read_text(encoding="utf-8").splitlines() if row.startswith(f"| `{kind}` |")]
    assert len(rows) == 1
    fields = rows[0].split("|")[2]
    named = [part.split()[0] for part in fields.replace('"', "").split(",")]
    assert named == list(shapes_of(KINDS[kind]))
