"""Turns at recovering: how many, how much memory, whose is next; and the actor that gives them."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.partition.opening_turn import OpeningTurn
from callboard.actors.partition.openings import Openings, Turn, TurnGiver
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, open_system


@attrs.define
class Bench:
    """Turns by name, whose first letter is their topic; `told` is what they were told, in order."""

    openings: Openings
    told: list[str] = attrs.Factory(list)
    turns: dict[str, Turn] = attrs.Factory(dict)

    def add(self, *names: str, is_needed: bool = False) -> None:
        """These are to begin."""
        for name in names:
            told = partial(self.told.append, name), partial(self.told.append, f"{name} holds")
            self.turns[name] = Turn(name[0], *told)
            self.openings.add(self.turns[name], is_needed=is_needed)

    def end(self, *names: str) -> None:
        """These are over."""
        for name in names:
            self.openings.end(self.turns.pop(name))

    def is_idle(self) -> bool:
        """Nothing counts."""
        return (self.openings.counted, self.openings.held_bytes) == (0, 0)


def test_topics_take_turns() -> None:
    """A topic of many partitions does not keep another's waiting until all of its own are done."""
    bench = Bench(Openings(count_max=1))
    bench.add("a0", "a1", "a2", "a3", "b0", "b1")
    for count in range(6):
        bench.end(bench.told[count])
    assert bench.told == ["a0", "a1", "b0", "a2", "b1", "a3"]
    assert bench.is_idle()


def test_a_needed_turn_comes_before_those_that_nobody_needs() -> None:
    """Whoever publishes meanwhile, or has published before the turn is asked for, waits only for needed ones (O3)."""
    bench = Bench(Openings(count_max=1))
    bench.add("a0", "a1", "a2", "a3")
    bench.add("b0", is_needed=True)
    bench.openings.need(bench.turns["a3"])
    bench.openings.need(bench.turns["a3"])
    for count in range(5):
        bench.end(bench.told[count])
    assert bench.told == ["a0", "b0", "a3", "a1", "a2"]
    assert bench.is_idle()


def test_memory_is_held_within_the_budget() -> None:
    """Recoveries wait until what they may hold fits; one that never would fits when nobody else holds any."""
    bench = Bench(Openings(count_max=16, bytes_max=100))
    sizes = {"a": 40, "b": 40, "c": 40, "d": 500, "e": 10, "f": 90, "g": 30}
    bench.add(*sizes)
    for name, size_bytes in sizes.items():
        bench.openings.hold(bench.turns[name], size_bytes)
        bench.openings.hold(bench.turns[name], size_bytes)
    done = 0
    while bench.turns:
        holding = [told[0] for told in bench.told if told.endswith("holds")][done:]
        assert bench.openings.held_bytes == sum(sizes[name] for name in holding)
        assert bench.openings.held_bytes <= 100 or holding == ["d"]
        bench.end(holding[0])
        done += 1
    assert bench.told[7:] == [f"{name} holds" for name in sizes]
    assert bench.is_idle()


def test_what_gives_up_leaves_nothing_behind() -> None:
    """Ended while it waits for a turn, or for memory, it stands in no other's way."""
    bench = Bench(Openings(count_max=2, bytes_max=100))
    bench.add("a", "c")
    bench.openings.hold(bench.turns["a"], 100)
    bench.openings.hold(bench.turns["c"], 50)
    bench.add("b")
    bench.end("b", "c")
    bench.add("b")
    bench.openings.hold(bench.turns["b"], 100)
    bench.end("a")
    assert bench.told == ["a", "c", "a holds", "b", "b holds"]
    bench.end("b")
    assert bench.is_idle()


def test_a_hung_topic_keeps_half_of_its_turns_and_no_others() -> None:
    """Its overdue recoveries make room for others, and not for more of its own. An overdue one waits for no memory."""
    bench = Bench(Openings(count_max=4, bytes_max=100))
    bench.add("h0", "h1", "h2", "h3", "a0", "a1", "a2", "f0")
    assert bench.told == ["h0", "h1", "a0", "a1"]
    bench.openings.hold(bench.turns["a0"], 100)
    bench.openings.hold(bench.turns["h0"], 100)
    for name in ("h0", "h1"):
        bench.openings.overdue(bench.turns[name])
    assert bench.told[4:] == ["a0 holds", "h0 holds", "f0"]
    assert (bench.openings.counted, bench.openings.held_bytes) == (3, 100)


async def test_turns_outlive_a_crash_of_their_giver(autojump_clock: Any) -> None:
    """What had begun goes on, and counts; what waits gets its turn of the next incarnation."""
    spec = SupervisorSpec(
        name="root", children=[ChildSpec(name="openings", start=lambda: TurnGiver(2, 100, 0))]
    )
    async with open_system(spec, clock=VirtualClock(), entropy=SeededEntropy(1)) as system:
        ref, begun = system.actor("openings"), list[str]()

        async def opens(name: str, turn: OpeningTurn) -> None:
            await turn.wait()
            begun.append(name)

        async with trio.open_nursery() as nursery:
            turns = {name: OpeningTurn(ref, name) for name in ("a", "b", "c")}
            for name, turn in turns.items():
                nursery.start_soon(opens, name, turn)
            await wait_all_tasks_blocked()
            await turns["a"].hold(80)
            ref.crash(ValueError("a drill"))
            await trio.sleep(1)
            assert sorted(begun) == ["a", "b"]
            nursery.start_soon(turns["b"].hold, 80)
            turns["b"].overdue()
            await trio.sleep(1)
            assert sorted(begun) == ["a", "b", "c"]
            turns["c"].need()
            ref.crash(ValueError("another drill"))
            await trio.sleep(1)
            for turn in turns.values():
                turn.end()
            await trio.sleep(1)
        giver: Any = ref._cell.incarnation._actor  # type: ignore[union-attr]
        assert (giver.openings.counted, giver.openings.held_bytes, giver._turns) == (0, 0, {})


async def test_a_turn_that_is_cancelled_has_ended(autojump_clock: Any) -> None:
    """Cancelled while it waits, it keeps no other waiting."""
    spec = SupervisorSpec(
        name="root", children=[ChildSpec(name="openings", start=lambda: TurnGiver(1, 100, 0))]
    )
    async with open_system(spec, clock=VirtualClock(), entropy=SeededEntropy(1)) as system:
        first, second, third = [OpeningTurn(system.actor("openings"), name) for name in ("a", "b", "c")]
        await first.wait()
        with trio.move_on_after(1):
            await second.wait()
        first.end()
        await third.wait()
        third.end()
