"""Guarded publishes to a partition: told once, after the disk, whatever restarts in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import ProducerForgotten, PublishersLost
from callboard.actors.partition.commands import (
    BeginProducer,
    ForgetProducer,
    Guard,
    Level,
    Offsets,
    PublishMany,
)
from callboard.actors.partition.publishing.admission import Admission
from callboard.actors.partition.publishing.publishers import PUBLISHERS_NAME, decode_in_steps
from callboard.actors.source_ids import SOURCE_EPOCH
from callboard.log.format.columns import Columns
from callboard.log.limits import Limits
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Create, Sync

FILE = f"delivery/{PUBLISHERS_NAME}"


def columns(*values: bytes, producer: tuple[int, int, int]) -> Columns:
    """A batch of one producer."""
    return Columns.build(list(values), producers=[(len(values), *producer)])


def ask(in_memory: Any, runtime: Any, batch: Columns, level: Level = Level.ALL, **guard: Any) -> Any:
    """Publish guarded; the reply to wait for."""
    message = PublishMany(batch, level, batch.size_bytes, Guard(**guard))
    return in_memory.port(runtime).ref.ask_nowait(message)


async def publish(
    in_memory: Any, runtime: Any, *values: bytes, producer: tuple[int, int, int], **more: Any
) -> Any:
    """The same, and wait for the offsets."""
    return (await ask(in_memory, runtime, columns(*values, producer=producer), **more).wait()).offsets


async def stored(runtime: Any) -> Sequence[bytes | None]:
    """What the partition holds."""
    return [record.value async for record in runtime.topic("orders").read()]


def emitted(runtime: Any, kind: type) -> list[Any]:
    """The events of a kind so far."""
    return [logged.event for logged in runtime.events() if isinstance(logged.event, kind)]


def paths(in_memory: Any) -> list[str]:
    return [path for path in in_memory.disk.paths() if path.endswith(FILE)]


def kept_end(in_memory: Any) -> int:
    """The offset up to which the file says who published what."""
    (path,) = paths(in_memory)
    admission = Admission("", window_us=1)
    for _ in decode_in_steps(in_memory.disk.file(path), admission):
        pass
    return admission.noted_end


async def test_a_duplicate_is_told_the_offset_of_the_original(autojump_clock: Any, in_memory: Any) -> None:
    """After a restart of the actor, and of the process, too."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"another")
        assert await publish(in_memory, runtime, b"0", b"1", producer=(7, 1, 0)) == (1, 2)
        assert await publish(in_memory, runtime, b"1", b"2", producer=(7, 1, 1)) == (2, 3)
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(0.1)
        assert await publish(in_memory, runtime, b"2", producer=(7, 1, 2)) == (3,)
    async with in_memory.open() as runtime:
        assert await publish(in_memory, runtime, b"0", b"1", b"2", b"3", producer=(7, 1, 0)) == (1, 2, 3, 4)
        assert await stored(runtime) == [b"another", b"0", b"1", b"2", b"3"]
        statistics = await in_memory.describe(runtime)
        assert (statistics.duplicates, statistics.producers) == (3, 1)


async def test_a_killed_process_leaves_what_the_log_says(
    autojump_clock: Any, in_memory: Any, world: Any
) -> None:
    """Without a clean close the file is behind the log, and the rest is read from there."""
    async with world.doomed() as runtime:
        await runtime.create_topic("orders")
        for sequence in range(3):
            await publish(in_memory, runtime, b"%d" % sequence, producer=(7, 1, sequence))
    assert kept_end(in_memory) == 0
    async with in_memory.open() as runtime:
        assert await publish(in_memory, runtime, b"2", producer=(7, 1, 2)) == (2,)
        with pytest.raises(callboard.SequenceOutOfOrder):
            await publish(in_memory, runtime, b"4", producer=(7, 1, 4))
        assert await stored(runtime) == [b"0", b"1", b"2"]


async def test_a_partition_without_guarded_publishes_has_no_file(autojump_clock: Any, in_memory: Any) -> None:
    """Nor does one that was only asked for an offset."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b"])
        answer = await ask(in_memory, runtime, Columns.build([b"c"]), expected_offset=2).wait()
        assert answer == Offsets((2,))
    assert paths(in_memory) == []


async def test_a_new_life_fences_the_ones_before_it(autojump_clock: Any, in_memory: Any) -> None:
    """From when it begins, before it has published anything, and over a restart of the actor."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        ref = in_memory.port(runtime).ref
        assert await ref.ask(BeginProducer(7)) == (1, 0)
        assert await publish(in_memory, runtime, b"0", producer=(7, 1, 0)) == (0,)
        assert await ref.ask(BeginProducer(7)) == (2, 1)
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(0.1)
        with pytest.raises(callboard.ProducerFenced, match="epoch 2 has begun") as refused:
            await publish(in_memory, runtime, b"zombie", producer=(7, 1, 1))
        assert (refused.value.epoch, refused.value.latest) == (1, 2)
        assert await publish(in_memory, runtime, b"1", producer=(7, 2, 1)) == (1,)
    async with in_memory.open() as runtime:
        assert await in_memory.port(runtime).ref.ask(BeginProducer(7)) == (3, 2)
        assert await stored(runtime) == [b"0", b"1"]


async def test_whoever_begins_is_told_of_what_was_on_its_way(autojump_clock: Any, in_memory: Any) -> None:
    """The next sequence counts what an earlier life has in the same commit, or in the one before."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        in_memory.disk.hang("/0/00000")
        replies = [ask(in_memory, runtime, columns(b"0", producer=(7, 0, 0)))]
        await trio.sleep(0.1)
        replies.append(ask(in_memory, runtime, columns(b"1", producer=(7, 0, 1))))
        begun = in_memory.port(runtime).ref.ask_nowait(BeginProducer(7))
        replies.append(ask(in_memory, runtime, columns(b"2", producer=(7, 0, 2))))
        await trio.sleep(0.1)
        assert not begun.done
        in_memory.disk.unhang()
        assert [(await reply.wait()).offsets for reply in replies[:2]] == [(0,), (1,)]
        assert await begun.wait() == (1, 2)
        with pytest.raises(callboard.ProducerFenced):
            await replies[2].wait()


@pytest.mark.parametrize("fails", [False, True])
async def test_duplicates_and_refusals_share_the_fate_of_the_commit_that_they_saw(
    autojump_clock: Any, in_memory: Any, fails: bool
) -> None:
    """Nobody is told of a record that is not stored, in any way; afterwards the same can be published again."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        await publish(in_memory, runtime, b"0", producer=(7, 1, 0))
        in_memory.disk.hang("/0/00000")
        blocker = ask(in_memory, runtime, columns(b"1", producer=(7, 1, 1)))
        await trio.sleep(0.1)  # what follows is one commit
        original = ask(in_memory, runtime, columns(b"2", producer=(7, 1, 2)))
        duplicate = ask(in_memory, runtime, columns(b"2", producer=(7, 1, 2)))
        refused = ask(in_memory, runtime, Columns.build([b"never"]), expected_offset=2)
        await trio.sleep(0.1)
        if fails:
            in_memory.disk.fail_next(Sync, "EIO", path_contains="/0/00000", after=1)
        in_memory.disk.unhang()
        assert (await blocker.wait()).offsets == (1,)
        if fails:
            for reply in (original, duplicate, refused):
                with pytest.raises(callboard.PublishFailed) as failed:
                    await reply.wait()
                assert failed.value.indefinite
            assert await publish(in_memory, runtime, b"2", producer=(7, 1, 2)) == (2,)
        else:
            first, second = await original.wait(), await duplicate.wait()
            assert first.offsets == second.offsets == (2,)
            assert (first.duplicates, second.duplicates) == ((), (0,))
            with pytest.raises(callboard.OffsetMismatch) as told:
                await refused.wait()
            assert (told.value.expected_offset, told.value.next_offset) == (2, 3)
        assert await stored(runtime) == [b"0", b"1", b"2"]


async def test_a_disk_too_full_for_the_file_refuses_and_heals(autojump_clock: Any, in_memory: Any) -> None:
    """Nothing is stored then; the next publish makes the file."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        in_memory.disk.fail_next(Create, "ENOSPC", path_contains=PUBLISHERS_NAME)
        with pytest.raises(callboard.DiskFull, match="Nothing was stored") as refused:
            await publish(in_memory, runtime, b"0", producer=(7, 1, 0))
        assert not refused.value.indefinite
        assert await publish(in_memory, runtime, b"0", producer=(7, 1, 0)) == (0,)
        assert await stored(runtime) == [b"0"]


@pytest.mark.parametrize("level", [Level.LEADER, Level.ALL])
async def test_a_duplicate_at_level_all_waits_for_the_sync_of_its_original(
    autojump_clock: Any, in_memory: Any, level: Level
) -> None:
    """An original at level leader is visible and not durable: asking again at level all makes it so."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        assert await publish(in_memory, runtime, b"0", producer=(7, 1, 0), level=Level.LEADER) == (0,)
        assert (await in_memory.describe(runtime)).durable_end == 0
        assert await publish(in_memory, runtime, b"0", producer=(7, 1, 0), level=level) == (0,)
        assert (await in_memory.describe(runtime)).durable_end == (level is Level.ALL)


async def test_the_file_is_written_again_when_the_log_has_grown(autojump_clock: Any, in_memory: Any) -> None:
    """So an opening reads little of the log; what the file says is never ahead of it."""
    async with in_memory.open(limits=Limits(publishers_every_bytes=1_000)) as runtime:
        await runtime.create_topic("orders")
        ends = set()
        for sequence in range(100):
            await publish(in_memory, runtime, b"%d" % sequence, producer=(7, 1, sequence))
            ends.add(kept_end(in_memory))
            assert max(ends) <= sequence + 1
    assert len(ends) > 3
    assert kept_end(in_memory) == 100


async def test_a_damaged_file_is_made_anew_from_the_log(autojump_clock: Any, in_memory: Any) -> None:
    """And somebody is told."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        await publish(in_memory, runtime, b"0", producer=(7, 1, 0))
    in_memory.disk.flip(paths(in_memory)[0], 20)
    async with in_memory.open() as runtime:
        assert await publish(in_memory, runtime, b"0", producer=(7, 1, 0)) == (0,)
        assert emitted(runtime, PublishersLost)


@pytest.mark.parametrize("what", ["removed", "flipped", "cut"])
async def test_a_file_that_is_lost_is_reported_until_it_is_accepted(
    autojump_clock: Any, in_memory: Any, what: str
) -> None:
    """Verify, repair, an event and the statistics say so, and what the log still holds is known again."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        await publish(in_memory, runtime, b"0", producer=(7, 1, 0))
    disk, (path, *_) = in_memory.disk, paths(in_memory)
    if what == "removed":
        disk.tree.unlink(path)
    elif what == "cut":
        disk.plant_file(path, disk.files()[path][:20])
    else:
        disk.flip(path, 20)
    assert [path] == [problem.path for problem in (await verify_directory(disk)).problems]
    assert [path] == [problem.path for problem in (await repair_directory(disk)).left]
    for is_first in (True, False):
        async with in_memory.open() as runtime:
            assert await publish(in_memory, runtime, b"0", producer=(7, 1, 0)) == (0,)
            assert bool(emitted(runtime, PublishersLost)) == is_first
            assert path in str((await in_memory.describe(runtime)).damages)
        assert () == (await verify_directory(disk)).problems
    await repair_directory(disk, accept=True)
    async with in_memory.open() as runtime:
        assert () == (await in_memory.describe(runtime)).damages


async def test_a_producer_too_many_is_told_of(autojump_clock: Any, in_memory: Any) -> None:
    """The one that was silent longest is forgotten: its next record is refused unless it begins."""
    async with in_memory.open(limits=Limits(producers=2)) as runtime:
        await runtime.create_topic("orders")
        for producer_id in (1, 2, 3):
            await publish(in_memory, runtime, b"0", producer=(producer_id, 1, 0))
        told = emitted(runtime, ProducerForgotten)
        assert [(event.producer_id, event.reason) for event in told] == [
            (1, "more than 2 producers publish to the partition")
        ]
        with pytest.raises(callboard.SequenceOutOfOrder):
            await publish(in_memory, runtime, b"1", producer=(1, 1, 1))
        assert await publish(in_memory, runtime, b"1", producer=(1, 1, 1), rises=True) == (3,)


async def test_a_source_stays_until_it_is_forgotten(autojump_clock: Any, in_memory: Any) -> None:
    """Whatever other producers there are."""
    async with in_memory.open(limits=Limits(producers=1)) as runtime:
        await runtime.create_topic("orders")
        await publish(in_memory, runtime, b"s", producer=(9, SOURCE_EPOCH, 5), rises=True)
        for producer_id in (1, 2):
            await publish(in_memory, runtime, b"0", producer=(producer_id, 1, 0))
        assert await publish(in_memory, runtime, b"s", producer=(9, SOURCE_EPOCH, 5), rises=True) == (0,)
        await in_memory.port(runtime).ref.ask(ForgetProducer(9))
        assert await publish(in_memory, runtime, b"s", producer=(9, SOURCE_EPOCH, 5), rises=True) == (3,)
