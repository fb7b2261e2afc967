"""Replaying into a runtime: everything once, in time, and on after any interruption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
import trio

from callboard.log.errors import (
    CallboardError,
    DiskFull,
    FormatTooNew,
    InvalidArgument,
    MessageTooLarge,
    RecordingInvalid,
    TopicExists,
    TopicReadOnly,
)
from callboard.log.format.columns import Columns
from callboard.log.seams.disk import Close, Open, Unlink, Write
from callboard.recordings.reader import open_recording
from callboard.recordings.sharing import Share
from callboard.recordings.writer import new_recording
from callboard.replay import ReplayProgress, replay
from callboard.simulations.disk.memory_disk import MemoryDisk

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
COUNT = 70
PARTITIONS = [pytest.param(3, id="one to one"), pytest.param(2, id="by key")]


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_everything_is_replayed_once(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """And a second call has nothing left to do."""
    recorded = await make_recording()
    async with world.open() as runtime:
        options = {"speed": "max", "settings": {"partitions": partitions}}
        report = await replay(recorded.recording, runtime, "orders", **options)
        assert (report.records, report.is_resumed, report.is_raw) == (COUNT, False, partitions == 3)
        assert report.payload_bytes == sum(
            len(v) + len(k or b"") for p in recorded.partitions for v, k, _ in p
        )
        again = await replay(recorded.recording, runtime, "orders", **options)
        assert (again.records, again.is_resumed) == (0, True)
        await recorded.check_whole(runtime.topic("orders"))
        if partitions == 3:
            held = await recorded.held(runtime.topic("orders"))
            assert held == [[value for value, _, _ in part] for part in recorded.partitions]


async def test_nothing_is_replayed_into_a_read_only_topic(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """It is refused before anything is written."""
    recorded = await make_recording()
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3, read_only=True)
        with pytest.raises(TopicReadOnly):
            await replay(recorded.recording, runtime, "orders", speed="max")
        assert [part.next_offset for part in await topic.describe()] == [0, 0, 0]


async def test_records_keep_what_they_carry(world: Any, autojump_clock: Any) -> None:
    """Key, value, headers, tombstones; the recorded time becomes their own, where they had none too."""
    files = await MemoryDisk().incarnate("recording")
    columns = Columns.build(
        [b"tea", None, b""], [b"ada", None, b""], [{"of": b"x"}, None, None], [None, 1_000_000, None]
    )
    columns.append_time_us = 5_000_000
    async with new_recording(files, "day", partitions=1) as writer:
        await writer.append(0, columns)
    recording = await open_recording(files, "day")
    async with world.open() as runtime:
        for name, partitions in (("same", 1), ("other", 4)):
            await replay(recording, runtime, name, speed="max", settings={"partitions": partitions})
            found = {
                (None if r.is_tombstone else r.value, r.key): (r.headers, r.timestamp)
                async for r in runtime.topic(name).read()
            }
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            assert found == {
                (b"tea", b"ada"): ({"of": b"x"}, epoch + timedelta(seconds=5)),
                (None, None): ({}, epoch + timedelta(seconds=1)),
                (b"", b""): ({}, epoch + timedelta(seconds=5)),
            }
            async for record in runtime.topic(name).read():
                assert record.append_time >= START


@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("speed", [1, 10, 0.5])
async def test_each_record_is_published_when_its_time_comes(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int, speed: float
) -> None:
    """To the microsecond, under virtual time; one whose time falls comes with the one before it."""
    recorded = await make_recording()
    async with world.open() as runtime:
        began = world.clock.wall_us()
        settings = {"partitions": partitions}
        report = await replay(recorded.recording, runtime, "orders", speed=speed, settings=settings)
        due: dict[bytes, float] = {}
        for part in recorded.partitions:
            latest = 0
            for value, _, second in part:
                latest = max(latest, second)
                due[value] = latest / speed
        async for record in runtime.topic("orders").read():
            appended = (record.append_time - START).total_seconds() - (began / 1e6 - START.timestamp())
            assert appended == pytest.approx(due[record.value], abs=1e-5)
        assert report.elapsed_s == pytest.approx(39 / speed, abs=1e-5)
        assert report.lateness.records == COUNT
        assert report.lateness.max_s == pytest.approx(0.0, abs=1e-6)
        assert report.held_batches == 0


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_a_fixed_rate_is_kept_whatever_the_times(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """A record every quarter of a second in all, in the order of their times; also after an interruption."""
    recorded = await make_recording()
    async with world.open() as runtime:
        settings = {"partitions": partitions}
        began = world.clock.wall_us()
        with trio.move_on_after(5):
            await replay(recorded.recording, runtime, "orders", rate=4, settings=settings)
        again = world.clock.wall_us()
        report = await replay(recorded.recording, runtime, "orders", rate="4", settings=settings)
        assert (report.is_resumed, report.is_raw, report.lateness.records) == (
            True,
            partitions == 3,
            report.records,
        )
        await recorded.check_whole(runtime.topic("orders"))
        found = []
        async for record in runtime.topic("orders").read():
            appended_us = round(record.append_time.timestamp() * 1e6)
            start_us = began if appended_us < again else again
            found.append(
                (
                    (appended_us - start_us) / 1e6 + (start_us == again) * (COUNT - report.records) / 4,
                    record.timestamp,
                )
            )
        found.sort()
        assert [at for at, _ in found] == pytest.approx([number / 4 for number in range(COUNT)], abs=1e-4)
        if partitions == 3:
            held = await recorded.held(runtime.topic("orders"))
            assert held == [[value for value, _, _ in part] for part in recorded.partitions]
        with pytest.raises(InvalidArgument, match="exclude each other"):
            await replay(recorded.recording, runtime, "orders", rate=4, speed=2)
        for rate in (0, math.nan, "x", True):
            with pytest.raises(InvalidArgument, match="records per second"):
                await replay(recorded.recording, runtime, "orders", rate=rate)


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_a_fraction_is_replayed_by_whole_keys(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """Those of the share, with all of their records, and others by their offset; each fraction is a replay."""
    recorded = await make_recording()
    share = Share(Fraction(1, 2))
    wanted = [
        [
            value
            for offset, (value, key, _) in enumerate(part)
            if (share.holds_offset(offset) if key is None else share.holds_key(key))
        ]
        for part in recorded.partitions
    ]
    async with world.open() as runtime:
        options = {"speed": "max", "settings": {"partitions": partitions}}
        report = await replay(recorded.recording, runtime, "orders", fraction="0.5", **options)
        held = await recorded.held(runtime.topic("orders"))
        assert 0 < report.records == sum(map(len, wanted)) < COUNT
        assert sorted(value for part in held for value in part) == sorted(
            value for part in wanted for value in part
        )
        assert partitions == 2 or held == wanted
        report = await replay(recorded.recording, runtime, "orders", fraction=1, **options)
        assert (report.records, report.is_resumed) == (COUNT, False)
        with pytest.raises(InvalidArgument, match="above 0 and at most 1"):
            await replay(recorded.recording, runtime, "orders", fraction=2, **options)


async def test_a_span_and_keys_select(world: Any, make_recording: Any, autojump_clock: Any) -> None:
    """Each selection is a replay of its own."""
    recorded = await make_recording()
    start, stop = START + timedelta(seconds=10), START + timedelta(seconds=20)
    wanted = {
        value
        for part in recorded.partitions
        for value, key, second in part
        if key is not None and 10 <= second < 20 and key[-1:] in b"123"
    }
    async with world.open() as runtime:
        for name, partitions in (("same", 3), ("other", 5)):
            options = {"speed": 1, "start": start, "stop": stop, "keys": ["key-*-[123]"]}
            settings = {"partitions": partitions}
            report = await replay(recorded.recording, runtime, name, settings=settings, **options)
            held = await recorded.held(runtime.topic(name))
            assert sorted(value for part in held for value in part) == sorted(wanted)
            assert report.records == len(wanted)
            assert report.elapsed_s < 10
            more = await replay(recorded.recording, runtime, name, speed="max")
            assert (more.records, more.is_resumed) == (COUNT, False)


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_passes_follow_each_other(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """Each at the recorded pace; a later call with more passes goes on behind those that are there."""
    recorded = await make_recording()
    async with world.open() as runtime:
        settings = {"partitions": partitions}
        report = await replay(recorded.recording, runtime, "orders", passes=2, settings=settings)
        assert report.records == 2 * COUNT
        assert report.elapsed_s == pytest.approx(2 * 39, abs=1e-5)
        more = await replay(recorded.recording, runtime, "orders", passes=3, speed="max")
        assert (more.records, more.is_resumed) == (COUNT, True)
        await recorded.check_whole(runtime.topic("orders"), times=3)


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_a_loop_lasts_until_it_is_cancelled(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """And goes on in the same pass afterwards."""
    recorded = await make_recording()
    async with world.open() as runtime:
        settings = {"partitions": partitions}
        for _ in range(3):
            with trio.move_on_after(50.5):
                await replay(recorded.recording, runtime, "orders", passes=None, settings=settings)
        held = await recorded.held(runtime.topic("orders"))
        assert sum(map(len, held)) > 3 * COUNT
        await replay(recorded.recording, runtime, "orders", passes=6, speed="max")
        await recorded.check_whole(runtime.topic("orders"), times=6)


@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("among", ["alone", "among others"])
async def test_a_power_cut_at_any_verb_loses_and_doubles_nothing(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int, among: str
) -> None:
    """Any number of cuts, at any step; records of others behind the last one are read past."""
    recorded = await make_recording((40, 30, 20))
    lives = 0

    async def story(runtime: Any) -> None:
        topic = await runtime.create_topic("orders", partitions=partitions)
        if among != "alone":
            await topic.publish_batch([b"other"] * 50, partition=lives % partitions)
        await replay(recorded.recording, runtime, "orders", speed=100)
        while True:  # until the power goes
            await topic.publish(b"other")

    for verbs in (*range(1, 100, 9), *range(100, 400, 11)):
        lives += 1
        await world.live(story, power_lasts=verbs)
    async with world.open() as runtime:
        report = await replay(recorded.recording, runtime, "orders", speed="max")
        assert report.is_resumed
        topic = runtime.topic("orders")
        held = await recorded.held(topic)
        found = sorted(value for part in held for value in part if value != b"other")
        assert found == sorted(recorded.values)


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_a_crash_of_a_partition_ends_the_run_and_the_next_goes_on(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """The error comes out as itself; in the same runtime, nothing is lost or doubled."""
    recorded = await make_recording()
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=partitions)

        async def crash() -> None:
            for _ in range(6):
                await trio.sleep(1.0)
                runtime.crash("topics/orders/1", RuntimeError("a drill"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            while True:
                try:
                    await replay(recorded.recording, runtime, "orders", speed=7)
                except CallboardError:
                    await trio.sleep(0.01)
                    continue
                break
        await recorded.check_whole(runtime.topic("orders"))


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_cancelled_with_a_batch_on_its_way_it_goes_on(
    world: Any, make_recording: Any, autojump_clock: Any, partitions: int
) -> None:
    """The batch is waited for: it is stored, and not published again."""
    recorded = await make_recording()
    world.disk.sleep = trio.sleep
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=partitions)
        world.disk.latency_s = 0.3
        for _ in range(6):
            with trio.move_on_after(7.15):
                await replay(recorded.recording, runtime, "orders")
        world.disk.latency_s = 0.0
        await replay(recorded.recording, runtime, "orders", speed="max")
        await recorded.check_whole(runtime.topic("orders"))


async def test_a_full_disk_ends_the_run_and_nothing_is_lost(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """What was stored stays; with space again the same call goes on."""
    recorded = await make_recording((400, 300), frame=10)
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=2)
        world.disk.capacity_bytes = world.disk.used_bytes + 24_000
        heard: list[ReplayProgress] = []
        with pytest.raises(DiskFull):
            await replay(recorded.recording, runtime, "orders", speed=10, on_progress=heard.append)
        assert heard[-1].records == sum(map(len, await recorded.held(runtime.topic("orders")))) > 0
        world.disk.capacity_bytes = None
        await replay(recorded.recording, runtime, "orders", speed="max")
        await recorded.check_whole(runtime.topic("orders"))


async def test_level_leader_is_synced_in_the_end(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """Records are handed to the system in time, and everything is durable when the call returns."""
    recorded = await make_recording()

    async def story(runtime: Any) -> None:
        await replay(recorded.recording, runtime, "orders", acks="leader", speed=10)

    await world.live(story)
    async with world.open() as runtime:
        await recorded.check_whole(runtime.topic("orders"))


async def test_a_replay_runs_once_at_a_time(world: Any, make_recording: Any, autojump_clock: Any) -> None:
    """A second run would not see the records of the first."""
    recorded = await make_recording()
    async with world.open() as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(replay, recorded.recording, runtime, "orders")
        await trio.sleep(5)
        with pytest.raises(InvalidArgument, match="already"):
            await replay(recorded.recording, runtime, "orders", speed="max")
        await replay(recorded.recording, runtime, "elsewhere", speed="max")
        await trio.sleep(60)
        await recorded.check_whole(runtime.topic("orders"))


async def test_what_on_progress_raises_comes_out_as_it_is(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """In no group, and nothing is reported any more."""
    recorded = await make_recording()
    heard = []

    def refuse(progress: ReplayProgress) -> None:
        heard.append(progress)
        raise LookupError("no such bar")

    async with world.open() as runtime:
        with pytest.raises(LookupError, match="no such bar"):
            await replay(recorded.recording, runtime, "orders", on_progress=refuse, progress_every=10)
    assert len(heard) == 1


async def test_progress_is_told(world: Any, make_recording: Any, autojump_clock: Any) -> None:
    """How many, how fast, how far, and how long it will take."""
    recorded = await make_recording()
    heard: list[ReplayProgress] = []
    async with world.open() as runtime:
        await replay(recorded.recording, runtime, "orders", on_progress=heard.append, progress_every=10)
        counts = [found.records for found in heard]
        assert counts == sorted(counts)
        assert counts[-1] == COUNT
        assert [round(found.eta_s or 0) for found in heard[:4]] == [39, 29, 19, 9]
        assert heard[-1].part == 1.0
        assert all(found.behind_s == 0 for found in heard)
        heard.clear()
        await replay(recorded.recording, runtime, "fast", speed="max", on_progress=heard.append)
        assert (heard[-1].part, heard[-1].behind_s) == (1.0, 0.0)
        await replay(recorded.recording, runtime, "fast", speed="max", passes=2, on_progress=heard.append)
        assert (heard[-1].part, heard[-1].eta_s) == (1.0, 0.0)


async def test_a_log_that_cannot_keep_the_pace_shows(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """Nothing is skipped: lateness, drift and time held up say it."""
    recorded = await make_recording((40,), frame=40)
    world.disk.sleep = trio.sleep
    async with world.open() as runtime:
        await runtime.create_topic("orders")
        world.disk.latency_s = 4.0
        report = await replay(recorded.recording, runtime, "orders")
        world.disk.latency_s = 0.0
        assert report.lateness.max_s > 2.5
        assert report.lateness.p99_s >= report.lateness.p50_s > 0.5
        assert report.held_s > 10
        assert report.held_batches > 5
        await recorded.check_whole(runtime.topic("orders"))


# -- what is refused, and leaves nothing behind


async def refuse(world: Any, recording: Any, kind: type[CallboardError], **options: Any) -> CallboardError:
    """The error of a replay that is refused; no topic is made by it."""
    async with world.open() as runtime:
        before = [topic.name for topic in runtime.topics()]
        with pytest.raises(kind) as caught:
            await replay(recording, runtime, options.pop("topic", "orders"), **options)
        assert [topic.name for topic in runtime.topics()] == before
        for topic in runtime.topics():
            assert [record async for record in topic.read()] == []
    return caught.value


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 0},
        {"speed": -1},
        {"speed": math.nan},
        {"passes": 0},
        {"acks": "none"},
        {"keys": "user-*"},
        {"keys": [b"user"]},
        {"start": START, "stop": START},
        {"start": datetime(2023, 11, 14)},  # noqa: DTZ001 - that is the point
        {"topic": "a\0b"},
        {"settings": {"partition": 3}},
        {"settings": {"partitions": 0}},
    ],
)
async def test_wrong_arguments_are_refused(
    world: Any, make_recording: Any, autojump_clock: Any, options: dict[str, Any]
) -> None:
    """Before anything is made."""
    recorded = await make_recording()
    await refuse(world, recorded.recording, InvalidArgument, **options)


async def test_a_topic_with_other_settings_is_refused(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """Settings that are named must be those of the topic that is there."""
    recorded = await make_recording()
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=2)
    await refuse(world, recorded.recording, TopicExists, settings={"partitions": 4})


async def change(disk: MemoryDisk, path: str, data: bytes, offset: int = 0) -> None:
    """Overwrite bytes of a file."""
    files = await disk.incarnate("change")
    handle = files.handle(path)
    await files.submit((Open(handle), Write(handle, offset, (data,)), Close(handle)))


async def test_damage_anywhere_is_found_before_a_record_is_published(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """One byte of the last segment."""
    disk = MemoryDisk()
    recorded = await make_recording((40, 300), disk=disk)
    await change(disk, "day/1/00000000000000000000.log", b"\xff", 9_000)
    await refuse(world, recorded.recording, RecordingInvalid)


async def test_a_missing_segment_and_a_newer_version_are_refused(make_recording: Any) -> None:
    """When the recording is opened."""
    disk = MemoryDisk()
    await make_recording(disk=disk)
    files = await disk.incarnate("again")
    data = disk.files()["day/recording.json"]
    await change(disk, "day/recording.json", data.replace(b'"version": 1', b'"version": 2'))
    files = await disk.incarnate("again")
    with pytest.raises(FormatTooNew):
        await open_recording(files, "day")
    await change(disk, "day/recording.json", data)
    files = await disk.incarnate("again")
    await files.submit((Unlink("day/1/00000000000000000000.log"),))
    with pytest.raises(RecordingInvalid, match="missing"):
        await open_recording(files, "day")


async def oversized(**columns: Sequence[Any]) -> Any:
    """A recording with a record that no topic can hold, among others."""
    files = await MemoryDisk().incarnate("recording")
    async with new_recording(files, "day", partitions=1) as writer:
        await writer.append(0, Columns.build([b"small"] * 3))
        await writer.append(0, Columns.build([b"small"] * 3, **columns))
    return await open_recording(files, "day")


@pytest.mark.parametrize(
    "columns",
    [
        {"keys": [b"a", b"k" * 1_000_000, None]},
        {"headers": [{}, {f"{number}": b"" for number in range(257)}, {}]},
        {"headers": [{"a": b"b"}, {"h": bytes(70_000)}, None]},
    ],
)
async def test_records_that_no_topic_can_hold_are_refused(
    world: Any, autojump_clock: Any, columns: dict[str, Any]
) -> None:
    """A million-byte key, too many headers, too large ones: the place is named."""
    recording = await oversized(**columns)
    error = await refuse(world, recording, InvalidArgument)
    assert "offset 4 of partition 0" in str(error)
    async with world.open() as runtime:
        report = await replay(recording, runtime, "picked", speed="max", keys=["a"])
        assert report.records == (1 if "keys" in columns else 0)


async def test_messages_that_the_topic_cannot_hold_are_refused(world: Any, autojump_clock: Any) -> None:
    """The topic that is there, or the one that would be made; with a larger limit they are replayed."""
    files = await MemoryDisk().incarnate("recording")
    async with new_recording(files, "day", partitions=1) as writer:
        await writer.append(
            0, Columns.build([b"v" * 900, b"w" * 1_000, b"x" * 990], [None, b"12345678", None])
        )
    recording = await open_recording(files, "day")
    error = await refuse(world, recording, MessageTooLarge, settings={"max_message_bytes": 1_007})
    assert "offset 1" in str(error)
    async with world.open() as runtime:
        await runtime.create_topic("orders", max_message_bytes=1_007)
        await runtime.create_topic("larger", max_message_bytes=1_008)
    await refuse(world, recording, MessageTooLarge)
    async with world.open() as runtime:
        assert (await replay(recording, runtime, "larger", speed="max")).records == 3


async def test_an_empty_recording_makes_an_empty_topic(
    world: Any, make_recording: Any, autojump_clock: Any
) -> None:
    """Nothing to do is no error."""
    recorded = await make_recording((0, 0))
    async with world.open() as runtime:
        for speed in (1, "max"):
            report = await replay(recorded.recording, runtime, f"orders-{speed}", speed=speed, passes=None)
            assert report.records == 0
