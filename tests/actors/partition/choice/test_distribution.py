"""Who of those that wait is told of a message: the three orders, and the partition that keeps to one of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.choice.distribution import DISTRIBUTIONS, load_of
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.settings import GROUP_FIELDS, GroupSettings

NAMES = sorted(DISTRIBUTIONS)
WAITING = st.dictionaries(st.integers(1, 50), st.integers(0, 9), max_size=12)
DRAWS = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12)


def drawn(numbers: list[float]) -> Any:
    """Draws these numbers, again and again."""
    found = list(numbers)

    def draw() -> float:
        found.append(found.pop(0))
        return found[-1]

    return draw


def test_the_setting_names_what_there_is() -> None:
    """The choices of the setting are the orders that partitions know; the first is the default."""
    assert set(GROUP_FIELDS["distribution"].choices) == set(DISTRIBUTIONS)
    assert GroupSettings().distribution == c.DeliverySettings().distribution == "round-robin"


@pytest.mark.parametrize("name", NAMES)
@given(waiting=WAITING, numbers=DRAWS)
def test_each_names_everybody_once(name: str, waiting: dict[int, int], numbers: list[float]) -> None:
    """DT1: whoever waits has a turn, whatever is drawn and however busy the others are."""
    told = list(DISTRIBUTIONS[name](waiting, int, drawn(numbers)))
    assert sorted(told) == sorted(waiting)


@given(waiting=WAITING)
def test_least_busy_is_by_load_then_by_waiting(waiting: dict[int, int]) -> None:
    """DT3: fewer in flight come first, and of equals who waits longest."""
    places = {consumer: place for place, consumer in enumerate(waiting)}
    told = list(DISTRIBUTIONS["least-busy"](waiting, int, drawn([0.5])))
    assert told == sorted(waiting, key=lambda consumer: (waiting[consumer], places[consumer]))


@given(
    waits=st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True),
    comes=st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(1, 6), max_size=3)), max_size=20),
)
def test_round_robin_passes_over_nobody(waits: list[int], comes: list[tuple[int, list[int]]]) -> None:
    """DT2: between two turns of a consumer everybody has a turn that waits all the time; others come and go."""
    waiting = dict.fromkeys(waits)
    passed: dict[int, set[int]] = {}
    for messages, come in comes:
        told = list(DISTRIBUTIONS["round-robin"](waiting, int, drawn([0.5])))[:messages]
        for consumer in told:
            del waiting[consumer]
            for other in waiting:
                assert consumer not in passed.setdefault(other, set())
                passed[other].add(consumer)
            passed.pop(consumer, None)
        waiting.update(dict.fromkeys([*told, *come]))  # they ask again, and others do


@pytest.mark.parametrize("count", [2, 3, 7])
def test_at_random_each_is_first_equally_often(count: int) -> None:
    """DT4: over numbers that are spread evenly, everybody is first as often as anybody else."""
    firsts = [0] * count
    for step in range(100 * count):
        number = step / (100 * count)
        firsts[next(DISTRIBUTIONS["random"](dict.fromkeys(range(count)), int, lambda: number))] += 1  # noqa: B023
    assert firsts == [100] * count


def test_who_says_nothing_is_not_busy() -> None:
    """A token that knows no load counts as one with nothing in flight."""
    assert load_of("a token") == 0
    assert load_of(None) == 0


def waiting_core(distribution: str, draw: Any = lambda: 0.0, *, consumers: int = 4) -> PartitionCore:
    """A core with a group of that distribution, and consumers 1, 2, ... that wait and are ten times as busy."""
    core = PartitionCore(
        GroupStates(), Carried(), CoreOptions(label="orders/0", load=lambda token: int(token[1:]), draw=draw)
    )
    settings = c.DeliverySettings(distribution=distribution)
    core.group_openings.open_group(c.OpenGroup(1, True, "beginning", settings), "opens", 0.0)
    for consumer in range(1, consumers + 1):
        core.wait_for_ready(c.WaitForReady(1, consumer), f"t{10 * (consumers - consumer)}", 0.0)
    core.deliveries.take_effects()
    return core


def told_of(core: PartitionCore, messages: int) -> list[int]:
    """Who hears that so many messages have come."""
    core.log_moved(0, core.visible_end + messages, core.visible_end + messages, 1.0)
    effects = core.deliveries.take_effects()
    return [effect.consumer for effect in effects if isinstance(effect, e.Notify)]


def test_a_partition_keeps_to_the_order_of_its_group() -> None:
    """As many are told as messages came: the first that waited, the least busy, or those that are drawn."""
    assert told_of(waiting_core("round-robin"), 2) == [1, 2]
    assert told_of(waiting_core("least-busy"), 2) == [4, 3]
    assert told_of(waiting_core("random", lambda: 0.5), 2) == [3, 2]
    for name in NAMES:
        assert sorted(told_of(waiting_core(name), 9)) == [1, 2, 3, 4]


def test_who_does_not_wait_any_more_passes_the_turn_on() -> None:
    """When the one whose turn it was is busy elsewhere, the next of the same order is told."""
    core = waiting_core("least-busy")
    assert told_of(core, 1) == [4]
    core.not_notified(1, 4, 1.0)
    assert [effect.consumer for effect in core.effects if isinstance(effect, e.Notify)] == [3]


def test_an_altered_order_holds_for_those_who_wait() -> None:
    """The setting can be changed while consumers wait."""
    core = waiting_core("round-robin")
    core.settings.alter_delivery(
        c.AlterDelivery(1, c.DeliverySettings(version=1, distribution="least-busy")), None, 0.0
    )
    assert told_of(core, 1) == [4]
