"""The committer: one plan at a time, in the right order, everybody answered once."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from callboard.actors.partition.commands import Level, PublishMany, PublishOne
from callboard.actors.partition.committer import LINGER_S, Committer
from callboard.actors.partition.port import PartitionPort
from callboard.actors.partition.sequencer import Sequencer
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    DiskFull,
    PublishFailed,
    StaleIncarnation,
    TopicFull,
)
from callboard.log.format.columns import Columns
from callboard.log.journal.journal import Journal
from callboard.log.limits import COMMIT_BYTES_MAX, Limits
from callboard.log.partition.log_settings import LogSettings
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.disk import Sync, Write
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


@attrs.define
class Asker:
    """Counts how often it is answered."""

    answers: list[Any] = attrs.Factory(list)

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return bool(self.answers)

    def answer(self, value: Any = None) -> bool:
        """The offset."""
        self.answers.append(value)
        return True

    def fail(self, error: BaseException) -> bool:
        """What went wrong."""
        self.answers.append(error)
        return True


@attrs.define
class Owner:
    """Stands where the partition would."""

    wakes: int = 0
    full: TopicFull | None = None

    def visible_advanced(self) -> None:
        """Count."""
        self.wakes += 1

    def delivery_snapshot(self) -> bytes:
        """Any state will do."""
        return b"state"

    async def make_room(self) -> TopicFull | None:
        """As the test wants it."""
        await trio.lowlevel.checkpoint()
        return self.full


@attrs.define
class Bench:
    """A committer on a disk in memory."""

    disk: MemoryDisk
    log: PartitionLog
    journal: Journal
    sequencer: Sequencer
    committer: Committer
    owner: Owner

    def publish(self, count: int = 1, level: Level = Level.ALL, size: int = 1) -> Asker:
        """Hand over a batch."""
        asker = Asker()
        columns = Columns.build([bytes(size)] * count)
        self.sequencer.add_many(PublishMany(columns, level, columns.size_bytes), asker)
        self.committer.kick()
        return asker

    def publish_one(self, level: Level = Level.ALL) -> Asker:
        """Hand over one record."""
        asker = Asker()
        self.sequencer.add_one(PublishOne(b"x", None, None, level, 1), asker)
        self.committer.kick()
        return asker

    def record(self, *, sync: bool, urgent: bool = True) -> Asker:
        """Hand over a journal record."""
        asker = Asker()
        self.committer.record(b"record", asker.answer, sync=sync, urgent=urgent)
        return asker

    def flush(self) -> Asker:
        """Ask for a flush."""
        asker = Asker()
        self.committer.flush(asker.answer)
        return asker

    def syncs(self) -> list[str]:
        """What was synced, in order: the log or the journal."""
        found = [executed for executed in self.disk.plans if executed.verb == "Sync"]
        return ["journal" if "/delivery" in executed.path else "log" for executed in found]


@asynccontextmanager
async def on_bench(*, running: bool = True) -> AsyncIterator[Bench]:
    """A committer, at work unless told otherwise."""
    clock, entropy = VirtualClock(), SeededEntropy(1)
    disk = MemoryDisk(clock=clock)
    files = await disk.incarnate("p")
    journal = await Journal.open(
        files, "p/delivery", clock=clock, entropy=entropy, restore=lambda _: None, apply=lambda _: None
    )
    log = await PartitionLog.open(
        files,
        "p",
        LogSettings(segment_bytes=64 * 1024 * 1024),
        label="orders/0",
        clock=clock,
        entropy=entropy,
    )
    sequencer, owner = Sequencer(), Owner()
    committer = Committer(
        files=files,
        log=log,
        journal=journal,
        sequencer=sequencer,
        clock=clock,
        port=PartitionPort("orders", 0),
        owner=owner,
        limits=Limits(),
    )
    disk.plans.clear()
    async with trio.open_nursery() as nursery:
        if running:
            nursery.start_soon(committer.run)
        yield Bench(disk, log, journal, sequencer, committer, owner)
        nursery.cancel_scope.cancel()


async def test_what_arrives_during_a_commit_forms_the_next(autojump_clock: Any) -> None:
    """A hundred publishers cost two commits: the first one's, and one for all who came meanwhile (C1)."""
    async with on_bench() as bench:
        bench.disk.latency_s = 1.0
        askers = [bench.publish_one()]
        await trio.sleep(0.5)
        askers += [bench.publish_one() for _ in range(99)]
        await trio.sleep(0.6)
        assert [asker.answers for asker in askers] == [[0], *([[]] * 99)]
        await trio.sleep(1.0)
        assert [asker.answers for asker in askers] == [[offset] for offset in range(100)]
        assert (bench.committer.commits, bench.owner.wakes) == (2, 2)


async def test_a_commit_of_leader_records_is_not_synced_and_one_with_all_is(autojump_clock: Any) -> None:
    """The strongest level in a commit decides for its content (C2)."""
    async with on_bench() as bench:
        weak = bench.publish_one(Level.LEADER)
        await trio.sleep(0.1)
        assert (weak.answers, bench.syncs(), bench.log.is_dirty) == ([0], [], True)
        mixed = [bench.publish_one(Level.NONE), bench.publish_one(Level.ALL)]
        await trio.sleep(0.1)
        assert ([asker.answers for asker in mixed], bench.syncs(), bench.log.is_dirty) == (
            [[1], [2]],
            ["log"],
            False,
        )


async def test_the_journal_is_never_durable_ahead_of_the_log(autojump_clock: Any) -> None:
    """A journal record that is synced has the log synced before it, in the same plan (C3)."""
    async with on_bench() as bench:
        bench.publish(level=Level.LEADER)
        await trio.sleep(0.1)
        ack = bench.record(sync=True)
        await trio.sleep(0.1)
        assert (ack.answers, bench.syncs()) == ([None], ["log", "journal"])
        bench.publish(level=Level.LEADER)
        bench.record(sync=True)
        await trio.sleep(0.1)
        assert bench.syncs()[2:] == ["log", "journal"]
        bench.record(sync=False)
        await trio.sleep(0.1)
        assert len(bench.syncs()) == 4


async def test_what_nobody_waits_for_lingers_for_company(autojump_clock: Any) -> None:
    """Records without hurry are written after `LINGER_S`, or with the next commit if that is sooner."""
    async with on_bench() as bench:
        lazy = [bench.record(sync=True, urgent=False) for _ in range(50)]
        await trio.sleep(LINGER_S * 0.9)
        assert bench.committer.commits == 0
        await trio.sleep(LINGER_S * 0.2)
        assert bench.committer.commits == 1
        assert all(asker.answers == [None] for asker in lazy)
        lazy = [bench.record(sync=True, urgent=False)]
        bench.publish()
        await trio.sleep(LINGER_S / 10)
        assert (bench.committer.commits, lazy[0].answers) == (2, [None])


async def test_a_flush_waits_for_what_came_before_it_and_for_nothing_else(autojump_clock: Any) -> None:
    """Publishers that never pause do not keep a flush waiting."""
    async with on_bench() as bench:
        bench.disk.latency_s = 1.0
        first = bench.publish(level=Level.LEADER)
        flush = bench.flush()

        async def never_pause(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            task_status.started()
            while True:
                bench.publish(2, Level.LEADER, size=COMMIT_BYTES_MAX // 3)
                await trio.sleep(0.3)

        async with trio.open_nursery() as nursery:
            await nursery.start(never_pause)
            await trio.sleep(6.0)
            assert (first.answers, flush.answers) == ([0], [None])
            assert bench.sequencer.records > 0
            nursery.cancel_scope.cancel()


async def test_a_failed_log_write_spares_the_journal(autojump_clock: Any) -> None:
    """The publisher hears it; the ack in the same commit is written by itself; the log heals by the next commit."""
    async with on_bench() as bench:
        bench.publish()
        await trio.sleep(0.1)
        for code, kind in ((errno.EIO, PublishFailed), (errno.ENOSPC, DiskFull)):
            bench.disk.fail_next(Write, OSError(code, "refused"), path_contains="p/0")
            publish, ack = bench.publish(), bench.record(sync=True)
            await trio.sleep(0.1)
            assert [type(error) for error in publish.answers] == [kind]
            assert ack.answers == [None]
            again = bench.publish()
            await trio.sleep(0.1)
            assert len(again.answers) == 1
            assert isinstance(again.answers[0], int)


async def test_a_failed_journal_write_spares_the_log(autojump_clock: Any) -> None:
    """The publisher gets its offset, and the journal goes on from the state in memory: the ack holds."""
    async with on_bench() as bench:
        bench.disk.fail_next(Sync, OSError(errno.EIO, "refused"), path_contains="/delivery")
        publish, ack = bench.publish(), bench.record(sync=True)
        await trio.sleep(0.1)
        assert (publish.answers, ack.answers, bench.committer.heals) == ([0], [None], 1)


async def test_a_full_topic_refuses_and_journals_on(autojump_clock: Any) -> None:
    """While `make_room` finds none publishers hear TopicFull, and acks go on."""
    async with on_bench() as bench:
        bench.log.alter(LogSettings(segment_bytes=65_536, retention_bytes=65_536))
        bench.publish(2, size=60_000)
        await trio.sleep(0.1)
        await bench.log.retain(now_us=0, unsettled_from=0, drop_unread=False)
        assert bench.log.over_limit()
        bench.owner.full = TopicFull("full", topic="orders")
        publish, ack = bench.publish(), bench.record(sync=True)
        await trio.sleep(0.1)
        assert [type(error) for error in publish.answers] == [TopicFull]
        assert ack.answers == [None]


async def test_abandoning_answers_everybody_once(autojump_clock: Any) -> None:
    """What is in flight, what waits, and who flushes: each hears the error exactly once (C4)."""
    async with on_bench() as bench:
        bench.disk.hang()
        askers = [bench.publish(), bench.record(sync=True)]
        await trio.sleep(0.1)
        askers += [bench.publish(), bench.publish_one(), bench.record(sync=True), bench.flush()]
        bench.committer.abandon(ActorCrashed("crashed", path="p"))
        assert [len(asker.answers) for asker in askers] == [1] * 6
        assert all(isinstance(asker.answers[0], CallboardError) for asker in askers)
        bench.disk.unhang()


async def test_who_fails_at_being_told_keeps_nobody_from_hearing(autojump_clock: Any) -> None:
    """The committer ends with his error; those behind him hear that it is over, once (C4)."""

    def fails(_: Any) -> None:
        raise RuntimeError("at being told")

    async with on_bench(running=False) as bench:
        before = bench.record(sync=True)
        bench.committer.record(b"record", fails, sync=True, urgent=True)
        behind = bench.record(sync=True)
        with pytest.raises(RuntimeError, match="at being told"):
            await bench.committer.run()
        bench.committer.abandon(ActorCrashed("crashed", path="p"))
        assert before.answers == [None]
        assert [type(error) for error in behind.answers] == [ActorCrashed]


async def test_a_healing_that_fails_after_it_is_done_owes_nothing(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor may fence the disk while the old segment is closed: nothing is tried again, over and over."""
    healed, commits = Journal.heal, 0

    async def heal_and_be_fenced(journal: Journal, state: bytes) -> None:
        await healed(journal, state)
        raise StaleIncarnation("fenced")

    commit = Committer._commit

    async def count(committer: Committer) -> None:
        nonlocal commits
        commits += 1
        await commit(committer)

    monkeypatch.setattr(Journal, "heal", heal_and_be_fenced)
    monkeypatch.setattr(Committer, "_commit", count)
    async with on_bench() as bench:
        bench.journal.needs_healing = True
        asker = bench.record(sync=True)
        await trio.sleep(0.5)
        assert [type(error) for error in asker.answers] == [StaleIncarnation]
        assert not bench.committer._has_work()
        autojump_clock.jump(5.0)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert commits == 1


async def test_closing_waits_for_everything_and_then_keeps_still(autojump_clock: Any) -> None:
    """`closed` returns when all is written; whatever is handed over later reaches no file."""
    async with on_bench() as bench:
        bench.disk.latency_s = 0.5
        askers = [bench.publish(), bench.record(sync=False, urgent=False), bench.publish(3), bench.flush()]
        await bench.committer.closed()
        assert [len(asker.answers) for asker in askers] == [1] * 4
        before = bench.disk.verbs_executed
        bench.committer.record(b"late", None, sync=True)
        bench.committer.maintain()
        await trio.sleep(10.0)
        assert bench.disk.verbs_executed == before
