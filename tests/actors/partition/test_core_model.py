"""The partition's core under every order of inputs that Hypothesis thinks of, held to what it promises."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.delivery.invariants import check_all
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.choice.lease_reading import LeaseReading
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import NOTICE_LASTS_S, CoreOptions
from callboard.actors.partition.group_state import PendingLease
from callboard.actors.partition.group_states import GroupStates
from callboard.log.errors import PublishFailed, StorageError
from callboard.log.format.columns import Columns

GROUPS = (1, 2)
CONSUMERS = (1, 2, 3)
TIMEOUT_S = 10.0


@attrs.define(eq=False)
class Asker:
    """Whoever asked; it may stop listening."""

    what: str
    about: Any = None
    listens: bool = True
    heard: list[object] = attrs.field(factory=list)


class CoreModel(RuleBasedStateMachine):
    """The model knows the records that are stored, what each group acked durably, and who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.next_value = 0
        self.log: list[bytes | None] = []
        """By offset; None where the disk lost the record."""
        self.acked: dict[int, set[int]] = {group: set() for group in GROUPS}
        self.leased: dict[tuple[int, int], tuple[int, set[int]]] = {}
        """What consumers were delivered and did not settle: offsets by group and lease, with the consumer."""
        self.askers: list[Asker] = []
        self.carried = Carried()
        self.journal: list[bytes] = []
        self.work: Any = None
        self.appends: Any = None
        self.core = self._core(GroupStates())
        for group in GROUPS:
            self.core.group_openings.open_group(
                c.OpenGroup(group, True, "beginning", c.DeliverySettings(TIMEOUT_S, 1.0, 4.0)),
                self._asker("open"),
                self.now,
            )
        self._commit(log_fails=False, journal_fails=False)

    def _core(self, states: GroupStates) -> PartitionCore:
        return PartitionCore(
            states,
            self.carried,
            CoreOptions(label="orders/0", is_abandoned=lambda token: not token.listens),
            visible_end=len(self.log),
        )

    def _asker(self, what: str, about: Any = None) -> Asker:
        asker = Asker(what, about)
        self.askers.append(asker)
        return asker

    # -- inputs

    @rule(count=st.integers(1, 5), batch=st.booleans())
    def publish(self, count: int, batch: bool) -> None:
        """Some records, one by one or as a batch."""
        values = [b"%d" % (self.next_value + number) for number in range(count)]
        self.next_value += count
        if batch:
            message = c.PublishMany(Columns.build(values), c.Level.ALL, 8 * count)
            self.core.publish_many(message, self._asker("publish", values))
        else:
            for value in values:
                one = c.PublishOne(value, None, None, c.Level.LEADER, 8)
                self.core.publish_one(one, self._asker("publish", [value]))

    @rule(group=st.sampled_from(GROUPS), consumer=st.sampled_from(CONSUMERS), count=st.integers(1, 6))
    def fetch(self, group: int, consumer: int, count: int) -> None:
        """A consumer asks for records."""
        self.core.fetch(
            c.Fetch(group, consumer, count, 1 << 20),
            self._asker("fetch", (group, consumer)),
            self.now,
        )
        self._perform()

    @rule(group=st.sampled_from(GROUPS), consumer=st.sampled_from(CONSUMERS))
    def wait(self, group: int, consumer: int) -> None:
        """A consumer asks to be told."""
        self.core.wait_for_ready(
            c.WaitForReady(group, consumer), self._asker("wait", (group, consumer)), self.now
        )
        self._perform()

    @precondition(lambda self: self.leased)
    @rule(
        data=st.data(),
        verb=st.sampled_from(("ack", "ack", "nack", "release")),
        delay=st.sampled_from((0.0, None, 3.0)),
    )
    def settle(self, data: Any, verb: str, delay: float | None) -> None:
        """A consumer settles some or all of what a lease brought."""
        key = data.draw(st.sampled_from(sorted(self.leased)))
        _, offsets = self.leased[key]
        chosen = sorted(data.draw(st.sets(st.sampled_from(sorted(offsets)), min_size=1)))
        offsets -= set(chosen)
        if not offsets:
            del self.leased[key]
        ranges = [(offset, offset + 1) for offset in chosen]
        asker = self._asker(verb, key[0])
        if verb == "ack":
            self.core.ack(c.Ack(*key, ranges), asker, self.now)
        elif verb == "nack":
            self.core.nack(c.Nack(*key, ranges, delay), asker, self.now, 0.5)
        else:
            self.core.release(c.Release(*key, ranges), asker, self.now)
        self._perform()

    @rule(group=st.sampled_from(GROUPS), consumer=st.sampled_from(CONSUMERS))
    def leave(self, group: int, consumer: int) -> None:
        """A consumer leaves, with all that it has leased."""
        for key, (holder, _) in list(self.leased.items()):
            if key[0] == group and holder == consumer:
                del self.leased[key]
        for asker in self.askers:
            if asker.about == (group, consumer):
                asker.listens = False
        self.core.members.release_consumer(c.ReleaseConsumer(group, consumer), self._asker("leave"), self.now)
        self._perform()

    @precondition(lambda self: any(not asker.heard for asker in self.askers))
    @rule(data=st.data())
    def give_up(self, data: Any) -> None:
        """An asker no longer listens."""
        open_ones = [place for place, asker in enumerate(self.askers) if not asker.heard]
        self.askers[data.draw(st.sampled_from(open_ones))].listens = False

    @rule(seconds=st.sampled_from((0.01, NOTICE_LASTS_S, 1.0, 5.0, 20.0)))
    def time_passes(self, seconds: float) -> None:
        """Deadlines come; a lease that ran out may be leased again, so its offsets are no promise any more."""
        self.now += seconds
        for group, lease in self.core.time_has_come(self.now):
            self.leased.pop((group, lease.lease_id), None)
        self._perform()

    @rule(log_fails=st.booleans(), journal_fails=st.booleans())
    def commit(self, log_fails: bool, journal_fails: bool) -> None:
        """A commit that may fail in either part."""
        self._commit(log_fails=log_fails, journal_fails=journal_fails)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        """The disk loses a range that no consumer has."""
        held = {offset for _, offsets in self.leased.values() for offset in offsets}
        start = data.draw(st.integers(0, len(self.log) - 1))
        stop = data.draw(st.integers(start + 1, len(self.log)))
        for offset in range(start, stop):
            if offset not in held:
                self.log[offset] = None

    @rule(same_process=st.booleans())
    def restart(self, same_process: bool) -> None:
        """A new core takes over, from what was journalled."""
        self.core.end()
        states = GroupStates()
        for record in self.journal:
            states.apply(record)
        if not same_process:
            kept = self.carried.settings
            self.carried = Carried(settings=kept)
            self.leased.clear()
        for asker in self.askers:
            if not asker.heard:
                asker.heard.append("crashed")
        self.core = self._core(states)
        self.core.begin(self.now, restarted=same_process)
        self._perform()

    # -- the shell

    def _commit(self, *, log_fails: bool, journal_fails: bool) -> None:
        appends = self.core.sequencer.take()
        if appends is not None and log_fails:
            self.core.append_failed(appends, PublishFailed("refused"), refused=False)
        elif appends is not None:
            base, bases = len(self.log), []
            for batch in appends.batches:
                bases.append(base)
                base += batch.count
                self.log += batch.value_list()
            self.core.log_moved(0, len(self.log), len(self.log), self.now, appends, bases)
        self._perform()
        work = self.core.journal.take()
        if work is None:
            return
        entries = [entry if isinstance(entry, bytes) else entry.record(0.0) for entry in work.entries]
        # What a journal cannot take stands in memory all the same, and is written when the disk heals (PC3).
        self.journal += entries
        if journal_fails and self.now > 0:
            self.core.journal_failed(work, StorageError("refused"), self.now)
        else:
            self.core.journalled(work)
        self._perform()

    def _perform(self) -> None:
        while self.core.effects:
            effects = self.core.deliveries.take_effects()
            for effect in effects:
                self._carry_out(effect)

    def _carry_out(self, effect: e.Effect) -> None:
        match effect:
            case e.Answer(answers):
                for token, value in answers:
                    token.heard.append(value)
            case e.Journalled(answers, leases):
                for token, value in answers:
                    token.heard.append(value)
                    if token.what == "ack":
                        for start, stop in value.accepted:
                            self.acked[token.about] |= set(range(start, stop))
                for pending in leases:
                    self._read(pending)
            case e.Refuse(tokens, error):
                for token in tokens:
                    token.heard.append(error)
            case e.AppendsStored(appends, bases):
                for part, base in zip(appends.parts, bases, strict=True):
                    tokens = part.tokens
                    for offset, token in enumerate(tokens, base):
                        assert self.log[offset : offset + len(token.about)] == token.about
                        token.heard.append(offset)
            case e.AppendsFailed(appends, error):
                for part in appends.parts:
                    for token in part.tokens:
                        token.heard.append(error)
            case e.Notify(token, group, consumer):
                token.heard.append("notice")
                if not token.listens:
                    self.core.not_notified(group, consumer, self.now)

    def _read(self, pending: PendingLease) -> None:
        """As the log reads: from an offset on, past what is lost, cut to the number of records asked for."""
        reading = LeaseReading(pending.lease, pending.max_bytes)
        while (wanted := reading.wanted(0)) is not None:
            start, stop, _ = wanted
            at = start
            while at < len(self.log) and self.log[at] is None:
                at += 1
            end = at
            while end < len(self.log) and self.log[end] is not None and end - at < stop - start:
                end += 1
            found = []
            if end > at:
                columns = Columns.build(self.log[at:end])  # type: ignore[arg-type]
                columns.base_offset = at
                found.append(columns)
            reading.take(found, end)
        records = self.core.lease_read(pending, reading, self.now)
        token = pending.token
        token.heard.append(records)
        if not token.listens:
            self.core.not_delivered(pending, self.now)
            return
        self.core.delivered(pending)
        group, consumer = token.about
        offsets = {offset for columns in records.batches for offset in columns.offset_list()}
        named = {offset for start, stop, _ in records.ranges for offset in range(start, stop)}
        assert not offsets & self.acked[group], "delivered after its ack was answered"
        delivery = self.core.states.groups[group].delivery
        if delivery.offsets.lease_of(records.lease_id) is None:
            return  # it ran out, or was released, while it was journalled and read
        assert offsets == named, "what is leased is what is delivered"
        for key, (_, held) in self.leased.items():
            assert key[0] != group or not held & offsets, "two leases of one record"
        if offsets:
            self.leased[group, records.lease_id] = (consumer, offsets)

    # -- promises

    @invariant()
    def each_is_told_once(self) -> None:
        """PC5: nobody hears twice."""
        assert all(len(asker.heard) <= 1 for asker in self.askers)

    @invariant()
    def nobody_waits_while_records_are_ready(self) -> None:
        """PC4: waiting consumers only while as many are notified as records are ready."""
        for group in self.core.states:
            if group.waiting:
                ready = group.delivery.offsets.ready_count(self.core.visible_end)
                assert ready <= len(group.notified)

    @invariant()
    def deliveries_are_whole(self) -> None:
        """DS1 to DS6, and nothing at or past the visible end is leased (PC1)."""
        for group in self.core.states:
            check_all(group.delivery.offsets)
            assert group.delivery.offsets.next <= max(self.core.visible_end, group.delivery.offsets.floor)

    def teardown(self) -> None:
        """In the end everything can be fetched and acked, and everybody has heard."""
        for _ in range(3):
            self._commit(log_fails=False, journal_fails=False)
        self.leased.clear()
        for _ in range(30):
            self.now += 2 * TIMEOUT_S
            self.core.time_has_come(self.now)
            for group in GROUPS:
                self.core.fetch(c.Fetch(group, 9, 1000, 1 << 20), self._asker("fetch", (group, 9)), self.now)
            self._perform()
            self._commit(log_fails=False, journal_fails=False)
            for (group, lease_id), (_, offsets) in list(self.leased.items()):
                ranges = [(offset, offset + 1) for offset in sorted(offsets)]
                self.core.ack(c.Ack(group, lease_id, ranges), self._asker("ack", group), self.now)
            self.leased.clear()
            self._commit(log_fails=False, journal_fails=False)
            if all(group.delivery.offsets.floor == len(self.log) for group in self.core.states):
                break
        assert [group.delivery.offsets.floor for group in self.core.states] == [len(self.log)] * len(GROUPS)
        assert all(asker.heard or asker.what == "wait" for asker in self.askers)
        super().teardown()


CoreModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCoreModel = CoreModel.TestCase
