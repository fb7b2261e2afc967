"""The journal against a model, under Hypothesis: appends, snapshots, failures, kills and crashes in any order."""

import errno
import random

import trio
from hypothesis import settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from callboard.log.errors import StorageError
from callboard.log.seams.disk import Create, Rename, Sync, SyncDirectory, Write

EVENTS = strategies.lists(strategies.binary(min_size=1, max_size=300), min_size=1, max_size=4)
IO_ERROR = OSError(errno.EIO, "Input/output error")


class JournalMachine(RuleBasedStateMachine):
    """Over the owner of a journal whose state is the list of its events."""

    owner_type = None

    def __init__(self):
        super().__init__()
        self.owner = self.owner_type()
        self.number = 0
        self.durable = 0
        """How many events power loss cannot take."""
        self.doubtful = []
        """Events whose append failed after the last that is certain: they may come back."""
        self.run(self._open)

    def run(self, function, *arguments):
        return trio.run(function, *arguments)

    async def _open(self):
        self.journal = await self.owner.open()
        if self.journal.needs_healing:
            await self.journal.heal(self.owner.image())
        self.durable = len(self.owner.state)
        self.doubtful = []

    def named(self, events):
        """Events that tell their number, without the comma that separates events in a snapshot."""
        self.number += 1
        return [
            b"%d.%d:%s" % (self.number, place, event.replace(b",", b"."))
            for place, event in enumerate(events)
        ]

    async def _append(self, events, sync):
        try:
            await self.owner.append(self.journal, *events, sync=sync)
        except StorageError:
            self.doubtful = events
            raise
        if not self.journal.is_dirty:
            self.durable = len(self.owner.state)

    @precondition(lambda self: not self.journal.needs_healing)
    @rule(events=EVENTS, sync=strategies.booleans())
    def append(self, events, sync):
        self.run(self._append, self.named(events), sync)

    @precondition(lambda self: not self.journal.needs_healing)
    @rule(
        events=EVENTS,
        verb=strategies.sampled_from([Write, Sync]),
        pages=strategies.sampled_from(["kept", "reverted"]),
        partial=strategies.integers(0, 100),
    )
    def append_fails(self, events, verb, pages, partial):
        self.owner.disk.fail_next(verb, IO_ERROR, pages=pages, partial=partial)
        try:
            self.run(self._append, self.named(events), True)
        except StorageError:
            assert self.journal.needs_healing
            return
        raise AssertionError("the append did not fail")

    @rule()
    def snapshot(self):
        self.run(self._snapshot)

    async def _snapshot(self):
        await self.journal.snapshot(self.owner.image())
        self.durable = len(self.owner.state)
        self.doubtful = []

    @rule(verb=strategies.sampled_from([Create, Write, Sync, Rename, SyncDirectory]))
    def snapshot_fails(self, verb):
        self.owner.disk.fail_next(
            verb, IO_ERROR, path_contains=".log.new" if verb is not SyncDirectory else ""
        )
        try:
            self.run(self._snapshot)
        except StorageError:
            if not self.journal.needs_healing and not self.journal.is_dirty:
                self.durable = len(self.owner.state)
            return
        raise AssertionError("the snapshot did not fail")

    @rule()
    def prune(self):
        self.run(self.journal.prune)

    @rule()
    def close_and_open(self):
        healing = self.journal.needs_healing
        self.run(self.journal.close)
        if not healing:
            self.durable = len(self.owner.state)
        self._reopen()

    @rule()
    def kill(self):
        if not self.journal.needs_healing:
            self.durable = len(self.owner.state)
        self.owner.disk.kill()
        self._reopen()

    @rule(seed=strategies.integers(0, 2**32))
    def crash(self, seed):
        source = random.Random(seed)

        def choose(unsynced):
            if unsynced.is_directory:
                return unsynced.items[: source.randrange(len(unsynced.items) + 1)]
            return [item for item in unsynced.items if source.random() < 0.5]

        self.owner.disk.crash(choose)
        self._reopen()

    def _reopen(self):
        certain, doubtful, durable = list(self.owner.state), self.doubtful, self.durable
        self.run(self._open)
        said = [*certain, *doubtful]
        assert self.owner.state == said[: len(self.owner.state)]
        assert len(self.owner.state) >= durable

    @invariant()
    def nothing_is_promised_twice(self):
        assert len(self.owner.state) == len(set(self.owner.state)) or not self.owner.state


def test_journal_keeps_to_the_model(new_owner):
    """Whatever happens in whatever order, an open gives back all that was promised, and nothing that was not said."""
    machine = type("Machine", (JournalMachine,), {"owner_type": new_owner})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
