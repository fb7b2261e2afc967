"""The partition's core alone: groups that are paused."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.group_states import GroupStates
from callboard.log.errors import TopicReadOnly
from callboard.log.format.columns import Columns

USUAL = c.DeliverySettings(visibility_timeout=5.0, retry=(1.0,))
VERBS = ("publish", "fetch", "wait", "ack", "nack", "release", "extend", "pass", "pause", "resume", "crash")
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 2)), max_size=60)


class Driven:
    """A core, its consumers, and the time."""

    def __init__(self, ordering: str, *, is_exclusive: bool) -> None:
        self.settings = attrs.evolve(USUAL, ordering=ordering, is_exclusive=is_exclusive)
        self.carried, self.states = Carried(), GroupStates()
        self.now, self.end, self.number = 0.0, 0, 0
        self.held: list[Any] = []
        self.waiting: set[str] = set()
        self.acked: set[int] = set()
        self.core = self._core()
        self.core.group_openings.open_group(c.OpenGroup(1, True, "beginning", self.settings), "opens", 0.0)
        if is_exclusive:
            self.core.members.assign_partition(c.AssignPartition(1, 0, 1), "assigns", 0.0)
        self.perform()

    def _core(self) -> PartitionCore:
        return PartitionCore(self.states, self.carried, CoreOptions(label="orders/0"), visible_end=self.end)

    def perform(self) -> None:
        """Commit, and hand over what was leased."""
        core = self.core
        if (work := core.journal.take(self.now)) is not None:
            core.journalled(work)
            for pending in work.leases:
                core.delivered(pending)
                self.held.append(pending.lease)
        for effect in core.deliveries.take_effects():
            if isinstance(effect, e.Notify):
                assert not self.settings.paused
                self.waiting.discard(effect.token)

    def do(self, verb: str, number: int) -> None:
        """One step."""
        core, lease = self.core, self.held[number % len(self.held)] if self.held else None
        ranges = [] if lease is None else [(start, stop) for start, stop, _ in lease.ranges]
        self.number += 1
        if verb == "publish":
            self.end += 1 + number
            core.log_moved(0, self.end, self.end, self.now)
        elif verb == "fetch":
            found = core.fetch(c.Fetch(1, number, 2, 1 << 20, 1, None), f"fetch {self.number}", self.now)
            assert found is None or not self.settings.paused
        elif verb == "wait":
            token = f"wait {self.number}"
            self.waiting.add(token)
            core.wait_for_ready(c.WaitForReady(1, number), token, self.now)
        elif verb in ("pause", "resume"):
            self.settings = attrs.evolve(
                self.settings, paused=verb == "pause", version=self.settings.version + 1
            )
            core.settings.alter_delivery(c.AlterDelivery(1, self.settings), None, self.now)
        elif verb == "pass":
            self.now += 2.0 * (1 + number)
            core.time_has_come(self.now)
        elif verb == "crash":
            core.end()
            self.core = self._core()
            self.core.begin(self.now, restarted=True)
            self.held, self.waiting = self.held, set()
        elif lease is not None and verb == "extend":
            core.extend(c.Extend(1, lease.lease_id, 9.0), None, self.now)
        elif lease is not None:
            self.held.remove(lease)
            if verb == "ack":
                settled = core.ack(c.Ack(1, lease.lease_id, ranges, False), None, self.now)
                assert settled is not None
                self.acked |= {offset for start, stop in settled.accepted for offset in range(start, stop)}
            elif verb == "nack":
                core.nack(c.Nack(1, lease.lease_id, ranges, None, None), None, self.now)
            else:
                core.release(c.Release(1, lease.lease_id, ranges), None, self.now)
        self.perform()


@given(STEPS, st.booleans())
def test_a_paused_group_is_leased_nothing_and_loses_nothing(
    steps: list[tuple[str, int]], is_exclusive: bool
) -> None:
    """Whatever is settled, runs out or crashes meanwhile; when it is resumed all the rest is delivered."""
    driven = Driven("none", is_exclusive=is_exclusive)
    for verb, number in steps:
        driven.do(verb, number)
    driven.do("resume", 0)
    for _ in range(2 * driven.end + 10):
        driven.do("fetch", 0)
        while driven.held:
            driven.do("ack", 0)
        driven.do("pass", 2)
    assert driven.acked == set(range(driven.end))


def test_who_waits_is_notified_when_the_group_is_resumed() -> None:
    """Nothing else has to happen; an older version of the settings changes nothing."""
    driven = Driven("none", is_exclusive=False)
    driven.do("wait", 0)
    driven.do("pause", 0)
    driven.do("publish", 0)
    assert driven.waiting
    older = c.AlterDelivery(1, USUAL)
    driven.core.settings.alter_delivery(older, None, driven.now)
    driven.perform()
    assert driven.waiting
    driven.do("resume", 0)
    assert not driven.waiting


def test_a_paused_group_hands_its_partition_over() -> None:
    """The old owner gives back what it holds; the new one is leased nothing before the group is resumed."""
    driven = Driven("none", is_exclusive=True)
    driven.do("publish", 0)
    driven.do("fetch", 0)
    driven.do("pause", 0)
    core = driven.core
    core.members.assign_partition(c.AssignPartition(1, 1, 2), "new owner", driven.now)
    assert not any(isinstance(effect, e.Answer) and effect.answers for effect in core.effects)
    driven.do("release", 0)
    group = core.states.groups[1]
    assert group.handing_over is None
    assert core.fetch(c.Fetch(1, 1, 2, 1 << 20, 1, None), "fetch", driven.now) is None
    driven.do("resume", 0)
    assert core.fetch(c.Fetch(1, 1, 2, 1 << 20, 1, None), "fetch", driven.now) is not None


def test_publishes_are_refused_and_what_waits_for_a_commit_is_stored() -> None:
    """Each of its own, with its size returned; until they are taken again."""
    core = PartitionCore(GroupStates(), Carried(), CoreOptions(label="orders/0"))
    one = c.PublishOne(b"tea", None, None, c.Level.ALL, 3, 7)
    many = c.PublishMany(Columns.build([b"tea", b"cake"]), c.Level.NONE, 7, None, 7)
    core.publish_one(one, "stored", 0.0)
    error = TopicReadOnly("no", topic="orders")
    core.refuse_publishes(error)
    core.publish_one(one, "refused", 0.0)
    core.publish_many(many, None, 0.0)
    failed = [each for each in core.deliveries.take_effects() if isinstance(each, e.AppendsFailed)]
    assert [(each.appends.sizes, each.appends.unawaited, each.error) for each in failed] == [
        ({7: 3}, {}, error),
        ({7: 7}, {7: (2, 7)}, error),
    ]
    core.refuse_publishes(None)
    core.publish_one(one, "stored too", 0.0)
    appends = core.sequencer.take()
    assert appends is not None
    assert [token for part in appends.parts for token in part.tokens] == ["stored", "stored too"]
