"""Sessions of an exclusive group: who lets messages wait for too long loses its partitions, and nobody else does."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.groups.sessions import Stalling


def test_only_waiting_messages_count() -> None:
    """Stalled is who has done nothing while messages waited; whatever it does, or an empty partition, begins anew."""
    stalling = Stalling((1, 0))
    assert stalling.look((1, 0), True, 10.0) == 0.0
    assert stalling.look((1, 0), True, 13.0) == 3.0
    assert stalling.look((2, 0), True, 14.0) == 0.0
    assert stalling.look((2, 0), True, 15.0) == 0.0
    assert stalling.look((2, 0), False, 18.0) == 0.0
    assert stalling.look((2, 0), True, 19.0) == 0.0
    assert stalling.look(None, True, 30.0) == 0.0
    assert stalling.look((2, 0), True, 31.0) == 0.0
    assert stalling.look((2, 0), True, 33.0) == 2.0


async def test_who_stalls_loses_its_partitions_until_it_asks_again(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Others get its messages; what it holds is lost; when it asks again it is a member like any other."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish_batch([b"x"] * 10, partition=partition)
        settings: Any = {"mode": "exclusive", "session_timeout": 4.0, "max_in_flight": 1}
        stalls: list[Any] = []
        runtime.subscribe_events(
            lambda event: stalls.append(event) if isinstance(event, callboard.events.MemberStalled) else None
        )
        async with topic.subscribe("group", name="idler", **settings) as idler:
            held = await idler.get()
            async with topic.subscribe("group") as busy:
                handled = 0
                with trio.move_on_after(12.0):
                    while True:
                        await (await busy.get()).ack()
                        handled += 1
                assert handled == 20
                assert [event.name for event in stalls] == ["idler"]
                assert idler.assigned == ()
                assert len(busy.assigned) == 2
                with pytest.raises(callboard.LeaseLost):
                    await held.ack()
                with trio.move_on_after(5.0):
                    await idler.get()
                assert len(idler.assigned) == len(busy.assigned) == 1


async def test_who_is_busy_or_waits_is_alive(autojump_clock: Any, in_memory: Any) -> None:
    """A body that runs, a call that waits, and a member without messages are no stalled members."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        stalls: list[Any] = []
        runtime.subscribe_events(
            lambda event: stalls.append(event) if isinstance(event, callboard.events.MemberStalled) else None
        )
        settings: Any = {"mode": "exclusive", "session_timeout": 1.0, "max_in_flight": 1}
        async with topic.subscribe("group", **settings) as one, topic.subscribe("group") as two:
            await trio.sleep(10.0)  # nothing waits
            for partition in range(2):
                await topic.publish_batch([b"x"] * 3, partition=partition)
            async with one.receive():
                async with two.receive():
                    await trio.sleep(10.0)
                for _ in range(2):
                    await trio.sleep(0.5)
                    await (await two.get()).ack()
                assert await two.get(timeout=10.0) is None
            assert len(one.assigned) == len(two.assigned) == 1
        assert stalls == []


async def test_members_that_stall_survive_crashes(autojump_clock: Any, in_memory: Any) -> None:
    """A coordinator that was restarted knows who is suspended, and finds out anew who is stalled."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"x"] * 10)
        async with topic.subscribe("group", mode="exclusive", session_timeout=4.0) as idler:
            async with topic.subscribe("group") as busy:
                await trio.sleep(3.0)
                runtime.crash("groups/group", RuntimeError("a drill"))
                assert (await busy.get(timeout=20.0)) is not None
                runtime.crash("groups/group", RuntimeError("a drill"))
                await trio.sleep(1.0)
                assert (idler.assigned, busy.assigned) == ((), (("orders", 0),))
