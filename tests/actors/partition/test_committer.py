"""The committer: one plan at a time, in the right order, everybody answered once."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from callboard.actors.partition.carried import Carried
from callboard.actors.partition.commands import (
    Ack,
    Fetch,
    Flush,
    Level,
    OpenGroup,
    PublishMany,
    PublishOne,
)
from callboard.actors.partition.committer import Committer, DiskEngine
from callboard.actors.partition.core import PartitionCore
from callboard.actors.partition.deliveries import CoreOptions
from callboard.actors.partition.effects import (
    Answer,
    AppendsFailed,
    AppendsStored,
    Effect,
    Journalled,
    Refuse,
)
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.partition.participants import JournalParticipant, LogParticipant
from callboard.actors.partition.queues import GATHER_S, LINGER_S, NEVER, NextWrite
from callboard.log.errors import (
    DiskFull,
    PlanFailed,
    PublishFailed,
    StaleIncarnation,
    TopicFull,
)
from callboard.log.format.columns import Columns
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, ignore
from callboard.log.limits import COMMIT_BYTES_MAX, GATHER_BYTES, USUAL
from callboard.log.partition.partition_log import LogSettings, PartitionLog
from callboard.log.seams.disk import Close, Create, MakeDirectory, Sync, Write
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


@attrs.define(eq=False)
class Asker:
    """Counts how often it is answered."""

    answers: list[Any] = attrs.Factory(list)
    abandoned: bool = False

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return bool(self.answers)


@attrs.define
class StagedFile:
    """What an outbox stages."""

    verbs: Any
    is_synced: bool = True


@attrs.define
class Outbox:
    """A participant of the test's own: it stages files of bytes into the same plan."""

    disk: Any
    waiting: list[bytes] = attrs.Factory(list)
    fates: list[str] = attrs.Factory(list)
    due: NextWrite = attrs.Factory(NextWrite)
    needs_upkeep: bool = False
    is_healthy: bool = True

    def put(self, payload: bytes) -> None:
        """Something to be written."""
        self.waiting.append(payload)
        self.due.at = 0.0

    async def healed(self) -> bool:
        return True

    def stage(self, now: float, *, must_sync: bool) -> Any:
        self.due.at = NEVER
        if not self.waiting:
            return None
        handle = self.disk.handle("p/outbox")
        verbs = (Create(handle), Write(handle, 0, tuple(self.waiting)), Sync(handle), Close(handle))
        return StagedFile(verbs)

    def applied(self, staged: Any) -> None:
        self.fates.append("applied")
        self.waiting.clear()

    def failed(self, staged: Any, error: PlanFailed) -> None:
        self.fates.append("failed")
        self.waiting.clear()

    def withdrawn(self, staged: Any) -> None:
        self.fates.append("withdrawn")

    async def upkeep(self) -> None:
        raise AssertionError("nothing to keep up")

    def closing(self) -> None:
        """Nothing is put off."""


@attrs.define
class Bench:
    """A committer on a disk in memory, with a core whose effects are carried out here."""

    disk: MemoryDisk
    log: PartitionLog
    journal: Journal
    core: PartitionCore
    full: TopicFull | None = None
    wakes: int = 0
    log_part: Any = None
    journal_part: Any = None
    committer: Any = None
    ran: list[tuple[str, str]] = attrs.Factory(list)
    """Verbs and their paths."""

    def perform(self) -> None:
        """Carry out what the core wants done."""
        effects = self.core.deliveries.take_effects()
        for effect in effects:
            self._perform(effect)
        self.committer.wake()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Answer(answers) | Journalled(answers):
                for token, value in answers:
                    token.answers.append(value)
            case Refuse(tokens, error):
                for token in tokens:
                    token.answers.append(error)
            case AppendsStored(appends, offsets):
                self.wakes += 1
                for part, base in zip(appends.parts, offsets, strict=True):
                    tokens = part.tokens
                    for offset, token in enumerate(tokens, base):
                        token.answers.append(offset)
            case AppendsFailed(appends, error):
                for part in appends.parts:
                    for token in part.tokens:
                        token.answers.append(error)

    async def make_room(self) -> TopicFull | None:
        """As the test wants it."""
        await trio.lowlevel.checkpoint()
        return self.full

    def publish(self, count: int = 1, level: Level = Level.ALL, size: int = 1) -> Asker:
        """Hand over a batch."""
        asker = Asker()
        columns = Columns.build([bytes(size)] * count)
        self.core.publish_many(PublishMany(columns, level, columns.size_bytes), asker, trio.current_time())
        self.perform()
        return asker

    def publish_one(self, level: Level = Level.ALL) -> Asker:
        """Hand over one record."""
        asker = Asker()
        self.core.publish_one(PublishOne(b"x", None, None, level, 1), asker, trio.current_time())
        self.perform()
        return asker

    def record(self, *, sync: bool, urgent: bool = True) -> Asker:
        """Hand over a journal record."""
        asker = Asker()
        core = self.core
        core.journal.entries.append(b"record")
        core.journal.answers.append((asker, None))
        core.journal.must_sync = core.journal.must_sync or sync
        now = trio.current_time()
        core.journal.due.at = 0.0 if urgent else min(core.journal.due.at, now + LINGER_S)
        self.perform()
        return asker

    def flush(self) -> Asker:
        """Ask for a flush."""
        asker = Asker()
        self.core.flush(Flush(), asker)
        self.perform()
        return asker

    def syncs(self) -> list[str]:
        """What was synced, in order: the log, the journal or the outbox."""
        return [
            "journal" if "/delivery" in path else "outbox" if "outbox" in path else "log"
            for verb, path in self.ran
            if verb == "sync"
        ]


@asynccontextmanager
async def on_bench(*, running: bool = True, outbox: str = "") -> AsyncIterator[Bench]:
    """A committer, at work unless told otherwise; an outbox joins "first" or "last"."""
    clock, entropy = VirtualClock(), SeededEntropy(1)
    disk = MemoryDisk(clock=clock)
    files = await disk.incarnate("p")
    journal = await Journal.open(files, "p/delivery", Owner(ignore, ignore), clock=clock, entropy=entropy)
    log = await PartitionLog.open(
        files,
        "p",
        LogSettings(segment_bytes=64 * 1024 * 1024),
        label="orders/0",
        clock=clock,
        entropy=entropy,
    )
    core = PartitionCore(
        GroupStates(), Carried(), CoreOptions(label="orders/0", is_abandoned=lambda token: token.abandoned)
    )
    bench = Bench(disk, log, journal, core)
    bench.log_part = LogParticipant(
        core,
        log,
        clock,
        perform=bench.perform,
        make_room=bench.make_room,
    )
    bench.journal_part = JournalParticipant(core, journal, log, clock, perform=bench.perform)
    participants = [bench.log_part, bench.journal_part]
    if outbox:
        participants.insert(0 if outbox == "first" else 2, Outbox(files))
    bench.committer = Committer(participants, DiskEngine(files), clock)
    disk.observer = lambda _, verb, path: bench.ran.append((verb, path))
    async with trio.open_nursery() as nursery:
        if running:
            nursery.start_soon(bench.committer.run)
        yield bench
        nursery.cancel_scope.cancel()


async def test_what_arrives_during_a_commit_forms_the_next(autojump_clock: Any) -> None:
    """A hundred publishers cost two commits: the first one's, and one for all who came meanwhile (CM1)."""
    async with on_bench() as bench:
        bench.disk.latency_s = 1.0
        askers = [bench.publish_one()]
        await trio.sleep(0.5)
        askers += [bench.publish_one() for _ in range(99)]
        await trio.sleep(0.6)
        assert [asker.answers for asker in askers] == [[0], *([[]] * 99)]
        await trio.sleep(1.0)
        assert [asker.answers for asker in askers] == [[offset] for offset in range(100)]
        assert (bench.committer.commits, bench.wakes) == (2, 2)


async def test_a_commit_of_leader_records_is_not_synced_and_one_with_all_is(autojump_clock: Any) -> None:
    """The strongest level in a commit decides for its content (CM2)."""
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
    """A journal record that is synced has the log synced before it, in the same plan (CM3)."""
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


async def test_a_journal_that_is_synced_unasked_has_the_log_synced_before_it(autojump_clock: Any) -> None:
    """Much that no sync has proven makes the journal sync by itself: the log comes first then too (CM3)."""
    async with on_bench() as bench:
        bench.publish(level=Level.LEADER)
        await trio.sleep(0.1)
        bench.core.journal.entries.append(bytes(USUAL.journal_unproven_bytes + 1))
        bench.record(sync=False)
        await trio.sleep(0.1)
        assert bench.syncs()[:2] == ["log", "journal"]


async def test_records_that_nobody_waits_for_gather_first(autojump_clock: Any) -> None:
    """They are written after a millisecond, or 64 KiB, or at once with what somebody waits for."""
    async with on_bench() as bench:
        for _ in range(10):
            bench.publish_one(Level.NONE)
            await trio.sleep(GATHER_S / 20)
        assert bench.committer.commits == 0
        await trio.sleep(GATHER_S)
        assert bench.committer.commits == 1
        for wakes in (
            lambda: bench.publish(level=Level.NONE, size=GATHER_BYTES),
            lambda: bench.publish_one(Level.LEADER),
            bench.flush,
        ):
            bench.publish_one(Level.NONE)
            before = bench.committer.commits
            wakes()
            await trio.sleep(GATHER_S / 10)
            assert bench.committer.commits == before + 1


async def test_a_commit_is_staged_by_whoever_wakes_the_committer(autojump_clock: Any) -> None:
    """When nothing is in the way. What comes meanwhile waits for the next, also what has lingered long enough."""
    async with on_bench() as bench:
        bench.disk.latency_s = 1.0
        await trio.sleep(0.1)
        first = bench.publish_one()
        assert bench.log_part.in_flight is not None
        lingers = bench.record(sync=True, urgent=False)
        await trio.sleep(0.5)
        assert (bench.committer.commits, lingers.answers) == (0, [])
        await trio.sleep(0.6)
        assert (bench.committer.commits, first.answers, lingers.answers) == (1, [0], [])
        await trio.sleep(1.0)
        assert (bench.committer.commits, lingers.answers) == (2, [None])
        bench.log.needs_healing, bench.log_part.is_healthy = True, False
        bench.publish_one()
        assert bench.log_part.in_flight is None


async def test_a_commit_that_was_begun_is_waited_for_by_a_committer_that_is_cancelled(tmp_path: Path) -> None:
    """No thread works for a committer that has ended."""
    async with aclosing(HostDisk(tmp_path)) as disk:
        files = await disk.incarnate("p")
        await files.submit((MakeDirectory("p"),))
        outbox = Outbox(files)
        engine = DiskEngine(files)
        committer = Committer((outbox,), engine, HostClock())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committer.run)
            await trio.testing.wait_all_tasks_blocked()
            outbox.put(b"x" * 1_000_000)
            nursery.cancel_scope.cancel()
            committer.wake()
            assert files.in_flight_since is not None
        assert files.in_flight_since is None
        assert (tmp_path / "p" / "outbox").stat().st_size == 1_000_000
        assert outbox.fates == []


async def test_a_commit_that_was_begun_and_fails_is_told_as_any_other(tmp_path: Path) -> None:
    """The participant hears of the failure, and the next commit is begun as before."""
    async with aclosing(HostDisk(tmp_path)) as disk:
        files = await disk.incarnate("p")
        outbox = Outbox(files)
        committer = Committer((outbox,), DiskEngine(files), HostClock())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committer.run)
            for fate in ("failed", "applied"):
                await trio.testing.wait_all_tasks_blocked()
                outbox.put(b"x")
                committer.wake()
                assert files.in_flight_since is not None
                await committer._idle.wait()
                committer._idle = trio.Event()
                assert outbox.fates.pop() == fate
                await files.submit((MakeDirectory("p"),))
            nursery.cancel_scope.cancel()


async def test_a_commit_that_has_ended_when_it_begins_is_told_in_the_same_step(tmp_path: Path) -> None:
    """The participant hears its fate from the waker; one that failed is left to the committer's task."""
    async with aclosing(HostDisk(tmp_path, inline=True)) as disk:
        files = await disk.incarnate("p")
        outbox = Outbox(files)
        committer = Committer((outbox,), DiskEngine(files), HostClock())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committer.run)
            await trio.testing.wait_all_tasks_blocked()
            outbox.put(b"x")
            committer.wake()
            assert outbox.fates == []
            await trio.testing.wait_all_tasks_blocked()
            assert outbox.fates == ["failed"]
            await files.submit((MakeDirectory("p"),))
            outbox.put(b"x")
            committer.wake()
            assert (outbox.fates, committer.commits) == (["failed", "applied"], 1)
            await committer.closed()
            nursery.cancel_scope.cancel()


async def test_lazy_acks_force_no_sync_before_their_linger_is_over(autojump_clock: Any) -> None:
    """They are written with what is written anyway, and answered by the first sync: of their linger, or of a flush."""
    async with on_bench() as bench:
        core = bench.core
        core.group_openings.open_group(OpenGroup(1, True, "beginning"), Asker(), 0.0)
        bench.publish(count=10)
        await trio.sleep(1.0)

        def leased() -> int:
            lease = core.fetch(Fetch(1, 7, 1, 1000), Asker(), trio.current_time())
            bench.perform()
            return lease.lease_id

        def acked(offset: int, lease_id: int) -> Asker:
            asker = Asker()
            core.ack(Ack(1, lease_id, ((offset, offset + 1),), lazy=True), asker, trio.current_time())
            bench.perform()
            return asker

        before, commits = len(bench.syncs()), bench.committer.commits
        lazy = [acked(offset, leased()) for offset in range(2)]
        await trio.sleep(LINGER_S / 2)
        assert (bench.committer.commits, len(bench.syncs())) == (commits + 2, before)
        assert [asker.answers for asker in lazy] == [[], []]
        await trio.sleep(LINGER_S)
        assert (bench.committer.commits, bench.syncs()[before:]) == (commits + 3, ["journal"])
        assert [len(asker.answers) for asker in lazy] == [1, 1]
        lazy = [acked(2, leased())]
        await trio.sleep(LINGER_S / 4)
        flush = bench.flush()
        await trio.sleep(LINGER_S / 4)
        assert ([len(asker.answers) for asker in lazy], flush.answers) == ([1], [None])
        assert len(bench.syncs()) == before + 2


async def test_a_lease_of_unsynced_records_syncs_them_beside_lazy_acks(autojump_clock: Any) -> None:
    """What a consumer is to know of is durable first, whatever lingers (PC2)."""
    async with on_bench() as bench:
        bench.core.group_openings.open_group(OpenGroup(1, True, "beginning"), Asker(), 0.0)
        await trio.sleep(1.0)
        bench.publish(level=Level.LEADER)
        await trio.sleep(0.1)
        before = len(bench.syncs())
        bench.core.fetch(Fetch(1, 7, 1, 1000), Asker(), trio.current_time())
        bench.perform()
        await trio.sleep(LINGER_S / 10)
        assert bench.syncs()[before:] == ["log", "journal"]


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
            assert bench.core.sequencer.records > 0
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
        assert (publish.answers, ack.answers, bench.journal_part.heals) == ([0], [None], 1)


async def test_a_full_topic_refuses_and_journals_on(autojump_clock: Any) -> None:
    """While `make_room` finds none publishers hear TopicFull, and acks go on."""
    async with on_bench() as bench:
        bench.log.alter(LogSettings(segment_bytes=65_536, retention_bytes=65_536))
        bench.publish(2, size=60_000)
        await trio.sleep(0.1)
        await bench.log.retain(now_us=0, unsettled_from=0, drop_unread=False)
        assert bench.log.is_over_limit
        bench.full = TopicFull("full", topic="orders")
        publish, ack = bench.publish(), bench.record(sync=True)
        await trio.sleep(0.1)
        assert [type(error) for error in publish.answers] == [TopicFull]
        assert ack.answers == [None]


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
        bench.journal.needs_healing, bench.journal_part.is_healthy = True, False
        asker = bench.record(sync=True)
        await trio.sleep(0.5)
        assert [type(error) for error in asker.answers] == [StaleIncarnation]
        assert bench.journal_part.due.at == NEVER
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
        bench.record(sync=True)
        bench.log_part.maintain()
        await trio.sleep(10.0)
        assert bench.disk.verbs_executed == before


async def test_another_participant_joins_without_the_committer_changing(autojump_clock: Any) -> None:
    """What a third participant stages is part of the same plan, behind the log and the journal."""
    async with on_bench(running=False, outbox="last") as bench:
        outbox = bench.committer._participants[-1]
        publish, ack = bench.publish(), bench.record(sync=True)
        outbox.put(b"payload")
        await bench.committer._commit()
        assert (publish.answers, ack.answers, outbox.fates) == ([0], [None], ["applied"])
        assert (bench.syncs(), bench.committer.commits) == (["log", "journal", "outbox"], 1)


async def test_each_participant_hears_its_own_fate(autojump_clock: Any) -> None:
    """What precedes the failing one stands; what is behind it is withdrawn, and written in the same commit."""
    async with on_bench(running=False, outbox="last") as bench:
        outbox = bench.committer._participants[-1]
        bench.disk.fail_next(Sync, OSError(errno.EIO, "refused"), path_contains="/delivery")
        publish, ack = bench.publish(), bench.record(sync=True)
        outbox.put(b"payload")
        await bench.committer._commit()
        assert (publish.answers, ack.answers, outbox.fates) == ([0], [None], ["withdrawn", "applied"])


async def test_a_failure_before_the_log_withdraws_what_the_log_had_staged(autojump_clock: Any) -> None:
    """Publishers hear that nothing was stored; acks go on; the next publish is stored."""
    async with on_bench(running=False, outbox="first") as bench:
        outbox = bench.committer._participants[0]
        bench.disk.fail_next(Create, OSError(errno.ENOSPC, "refused"), path_contains="outbox")
        publish, ack = bench.publish(), bench.record(sync=True)
        outbox.put(b"payload")
        await bench.committer._commit()
        assert outbox.fates == ["failed"]
        assert [error.indefinite for error in publish.answers] == [False]
        assert ack.answers == [None]
        again = bench.publish()
        await bench.committer._commit()
        assert again.answers == [0]


async def test_appends_whose_publishers_gave_up_are_dropped_and_counted(autojump_clock: Any) -> None:
    """When much waits, what nobody waits for any more is not written; the rest keeps its order."""
    async with on_bench(running=False) as bench:
        askers = [bench.publish(size=300_000) for _ in range(5)]
        askers[1].abandoned = askers[3].abandoned = True
        await bench.committer._commit()
        assert [asker.answers for asker in askers] == [[0], [], [1], [], [2]]
        assert (bench.core.sequencer.cancelled, bench.core.sequencer.records) == (2, 0)


@pytest.mark.parametrize("hangs_in", ["roll", "snapshot"])
async def test_the_watchdog_sees_every_wait_for_the_disk(autojump_clock: Any, hangs_in: str) -> None:
    """A hang in upkeep makes the partition stuck as one in a commit does, and its end is told too."""
    told: list[tuple[float, bool]] = []
    async with on_bench() as bench, trio.open_nursery() as nursery:
        nursery.start_soon(bench.committer.watch, lambda stuck: told.append((trio.current_time(), stuck)))
        bench.publish()
        await trio.sleep(10.0)
        began = trio.current_time()
        bench.disk.hang("p/")
        if hangs_in == "roll":
            bench.log.alter(LogSettings(segment_bytes=64 * 1024 * 1024, segment_age_s=1.0))
        else:
            bench.journal_part._snapshot_beyond = -1
        bench.log_part.maintain()
        bench.committer.wake()
        await trio.sleep(20.0)
        found = [stuck for _, stuck in told]
        bench.disk.unhang()
        assert found == [True]
        assert told[0][0] - began < 6.0
        bench.disk.unhang()
        await trio.sleep(1.0)
        assert [stuck for _, stuck in told] == [True, False]
        nursery.cancel_scope.cancel()
