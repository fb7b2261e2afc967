"""A wall clock that was a year ahead for a moment: what was stamped meanwhile counts as of when it was first seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.partition.noticed import CLOCK_NAME
from callboard.log.format.stamps import TOLERANCE_US, Stamps, is_ahead
from callboard.log.limits import STAMPS_NOTICED_MAX
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import MakeDirectory, Unlink
from callboard.log.segments.small_files import read_whole, replace_whole
from callboard.message import to_us
from callboard.recordings.reader import LogBatches
from callboard.replay.joining import ttls_of

YEAR_S = 365 * 86_400.0
HOUR_S = 3600.0


async def in_a_wrong_year(world: Any, publish: Any) -> None:
    """Do it while the clock is a year ahead."""
    world.clock.shift(YEAR_S)
    await publish
    world.clock.shift(-YEAR_S)


def reported(runtime: Any) -> list[str]:
    """The places of which it was reported that a time is ahead."""
    return [
        logged.event.path
        for logged in runtime.events()
        if isinstance(logged.event, callboard.events.ClockWasAhead)
    ]


async def test_retention_goes_on_after_a_wrong_year(autojump_clock: Any, world: Any) -> None:
    """What was published behind the record with a time to come is dropped in its time, and it with that."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", retention_age=2 * HOUR_S, segment_age=HOUR_S)
        await in_a_wrong_year(world, topic.publish(b"in the wrong year"))
        for _ in range(12):
            await topic.publish(b"hourly")
            await trio.sleep(HOUR_S)
        (part,) = await topic.describe()
        assert part.start_offset >= 9
        assert part.stamps_ahead >= 1
        assert reported(runtime) == ["topics/orders/0"]


async def test_what_follows_a_record_of_a_wrong_year_is_not_dropped_before_its_time(
    autojump_clock: Any, world: Any
) -> None:
    """A segment goes when its youngest record is old, though another one has the latest stamp."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", retention_age=2 * HOUR_S, segment_age=2 * HOUR_S)
        await in_a_wrong_year(world, topic.publish(b"in the wrong year"))
        await topic.publish(b"when the clock was right again")
        await trio.sleep(1.5 * HOUR_S)
        await topic.publish(b"young when its segment is sealed")
        await trio.sleep(HOUR_S)
        (part,) = await topic.describe()
        assert part.start_offset == 0
        await trio.sleep(2 * HOUR_S)
        (part,) = await topic.describe()
        assert part.start_offset == part.visible_end == 3


async def test_a_segment_in_use_grows_old_after_a_wrong_year(autojump_clock: Any, world: Any) -> None:
    """Also when nothing else is published, and the directory was opened anew."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", retention_age=2 * HOUR_S, segment_age=HOUR_S)
        world.clock.shift(YEAR_S)
        await topic.publish(b"in the wrong year")
        await trio.sleep(1.5 * HOUR_S)
        await topic.publish(b"in another segment")
    world.clock.shift(-YEAR_S)
    async with world.open() as runtime:
        await trio.sleep(4 * HOUR_S)
        (part,) = await runtime.topic("orders").describe()
        assert part.start_offset == part.visible_end == 2


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_time_to_live_that_began_in_a_wrong_year_ends(
    autojump_clock: Any, world: Any, reopened: bool
) -> None:
    """It ends when it has passed since the record was first seen, and not in a year."""

    async def take(runtime: Any, group: str) -> Any:
        async with runtime.topic("orders").subscribe(group) as consumer:
            message = await consumer.get(timeout=1)
            return None if message is None else message.value

    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await in_a_wrong_year(world, topic.publish(b"an offer", ttl=60))
        assert await take(runtime, "early") == b"an offer"
        if not reopened:
            await trio.sleep(2 * HOUR_S)
            assert await take(runtime, "late") is None
            assert reported(runtime) == ["topics/orders/0"]
    if reopened:
        async with world.open() as runtime:
            assert await take(runtime, "again") == b"an offer"
            await trio.sleep(120)
            assert await take(runtime, "late") is None


async def opened_often(world: Any, times: int, look: Any, *, every_s: float = 20.0) -> None:
    """Open the directory this many times, for some seconds each, and have each process killed."""
    for _ in range(times):
        async with world.doomed() as runtime:
            await look(runtime)
            await trio.sleep(every_s)


async def nothing(runtime: Any) -> None:
    """Only open the directory."""


async def test_a_time_to_live_of_a_wrong_year_ends_over_openings_that_are_shorter(
    autojump_clock: Any, world: Any
) -> None:
    """Each process goes on with the time at which an earlier one has noticed it, though it was killed."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        await in_a_wrong_year(world, topic.publish(b"an offer", ttl=60))
    await opened_often(world, 5, nothing)
    async with world.open() as runtime:
        async with runtime.topic("orders").subscribe("late") as consumer:
            assert await consumer.get(timeout=1) is None


async def test_a_record_of_a_wrong_year_is_dropped_by_age_over_openings_that_are_shorter(
    autojump_clock: Any, world: Any
) -> None:
    """Also when it is the last one of its partition."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders", retention_age=2 * HOUR_S, segment_age=HOUR_S)
        await in_a_wrong_year(world, topic.publish(b"old"))
    await opened_often(world, 8, nothing, every_s=0.5 * HOUR_S)
    async with world.open() as runtime:
        (part,) = await runtime.topic("orders").describe()
        assert part.start_offset == part.visible_end == 1


async def test_a_delay_of_a_wrong_year_ends_over_openings_that_are_shorter(
    autojump_clock: Any, world: Any
) -> None:
    """It counts from when an earlier process has noticed it."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        await in_a_wrong_year(world, topic.publish(b"later", delay=60))
    await opened_often(world, 5, nothing)
    async with world.open() as runtime:
        await trio.sleep(1)
        assert [record.value async for record in runtime.topic("orders").read()] == [b"later"]


async def test_a_nack_of_a_wrong_year_ends_over_openings_that_are_shorter(
    autojump_clock: Any, world: Any
) -> None:
    """Its delay counts from when an earlier process has noticed it."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        world.clock.shift(YEAR_S)
        await topic.publish(b"again")
        async with topic.subscribe("billing") as consumer:
            await (await consumer.get()).nack(delay=60)
            await consumer.flush()
        world.clock.shift(-YEAR_S)
    await opened_often(world, 5, nothing)
    async with world.open() as runtime:
        async with runtime.topic("orders").subscribe("billing") as consumer:
            assert (await consumer.get(timeout=1)) is not None


@pytest.mark.parametrize("harm", ["lost", "damaged", "another's", "a folder"])
async def test_a_file_of_noticed_times_that_is_no_use_is_passed_over(
    autojump_clock: Any, world: Any, harm: str
) -> None:
    """The directory opens, is sound, and what is ahead is noticed anew."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await in_a_wrong_year(world, topic.publish(b"an offer", ttl=60, partition=partition))
    async with world.open() as runtime:
        folder = f"topics/{topic.topic_id}/0/delivery"
    files = await world.disk.incarnate("harm")
    path = f"{folder}/{CLOCK_NAME}"
    found = await read_whole(files, path)
    assert found is not None
    if harm in ("lost", "a folder"):
        await files.submit((Unlink(path),))
    if harm == "a folder":
        await files.submit((MakeDirectory(path),))
    if harm == "damaged":
        await replace_whole(files, path, found[:-1] + b"?")
    if harm == "another's":
        await replace_whole(files, path, await read_whole(files, path.replace("/0/", "/1/")) or b"")
    await trio.sleep(70)
    async with world.open() as runtime:
        async with runtime.topic("orders").subscribe("late") as consumer:
            message = await consumer.get(timeout=1)
            assert message is not None
            assert message.partition == 0
            assert await consumer.get(timeout=1) is None


async def test_what_nobody_consumes_expires_after_a_wrong_year(autojump_clock: Any, world: Any) -> None:
    """The group that waits behind it does not lag for a year."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing"):
            pass
        await in_a_wrong_year(world, topic.publish(b"an offer", ttl=60))
        await trio.sleep(HOUR_S)
        assert (await world.group_of(topic)).pending == 0


async def test_a_deduplication_id_of_a_wrong_year_is_new_again(autojump_clock: Any, world: Any) -> None:
    """When its window has passed since it was first seen; until then it is a duplicate."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=60)
        await in_a_wrong_year(world, topic.publish(b"one", dedup_id=b"1"))
        assert (await topic.publish(b"one", dedup_id=b"1")).offset == 0
        await trio.sleep(30)
        assert (await topic.publish(b"one", dedup_id=b"1")).offset == 0
        await trio.sleep(31)
        assert (await topic.publish(b"two", dedup_id=b"1")).offset == 1
    async with world.open() as runtime:
        assert (await runtime.topic("orders").publish(b"two", dedup_id=b"1")).offset == 1


@pytest.mark.parametrize("end", ["nothing", "actor", "process", "closing"])
async def test_a_schedule_fires_after_a_wrong_year(autojump_clock: Any, world: Any, end: str) -> None:
    """At every due instant from when the clock was set right, whatever ends meanwhile, and at none of them twice."""

    async def dues(runtime: Any) -> list[bytes]:
        return [record.headers["callboard-due"] async for record in runtime.topic("orders").read()]

    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.schedule("beat", every=20.0, value=b"x", missed="skip")
        await trio.sleep(100)
        world.clock.shift(YEAR_S)
        await trio.sleep(180)
        world.clock.shift(-YEAR_S)
        before = len(await dues(runtime))
        if end == "actor":
            runtime.crash("recurring", RuntimeError("drill"))
            runtime.crash("topics/orders/0", RuntimeError("drill"))
        if end in ("nothing", "actor"):
            await trio.sleep(600)
            found = await dues(runtime)
            assert 25 <= len(found) - before <= 31
            assert len(set(found)) == len(found)
            assert reported(runtime) == ["topics/orders/0"]
        if end == "closing":
            await trio.sleep(90)
    for _ in range(2):
        async with world.open() as runtime:
            before = len(await dues(runtime))
            await trio.sleep(600)
            found = await dues(runtime)
            assert 25 <= len(found) - before <= 31
            assert len(set(found)) == len(found)


async def test_what_has_waited_too_long_is_first_after_a_wrong_year(autojump_clock: Any, world: Any) -> None:
    """A message of low priority that was published in it starves no longer than others."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", priorities=True)
        async with topic.subscribe("billing", starvation_after=60.0) as consumer:
            await in_a_wrong_year(world, topic.publish(b"low", priority=0))
            await topic.publish_batch([callboard.Message(b"high", priority=5)] * 4)
            first = await consumer.get()
            await trio.sleep(61)
            await first.ack()
            values = []
            for _ in range(4):
                message = await consumer.get()
                values.append(message.value)
                await message.ack()
            assert first.value == b"high"
            assert values[0] == b"low"


async def test_a_group_that_was_left_in_a_wrong_year_expires(autojump_clock: Any, world: Any) -> None:
    """Its expiry counts from when that was first seen."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        world.clock.shift(YEAR_S)
        async with topic.subscribe("billing", group_expiry=7200.0):
            pass
    world.clock.shift(-YEAR_S)
    async with world.open() as runtime:
        await trio.sleep(3 * HOUR_S)
        assert await runtime.groups() == ()


async def test_a_group_that_was_left_in_a_wrong_year_expires_over_openings_that_are_shorter(
    autojump_clock: Any, world: Any
) -> None:
    """Its expiry counts from when an earlier process has noticed it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        world.clock.shift(YEAR_S)
        async with topic.subscribe("billing", group_expiry=4 * HOUR_S):
            pass
    world.clock.shift(-YEAR_S)
    for openings in range(3):
        async with world.open() as runtime:
            assert [group.name for group in await runtime.groups()] == ["billing"], openings
            await trio.sleep(1.25 * HOUR_S)
    async with world.open() as runtime:
        await trio.sleep(1.25 * HOUR_S)
        assert await runtime.groups() == ()


@pytest.mark.parametrize("years", [-1, 1], ids=["behind", "ahead"])
async def test_openings_by_a_wrong_clock_expire_no_group_that_was_in_use(
    autojump_clock: Any, world: Any, years: int
) -> None:
    """Its expiry counts from when it was left, once the clock is right again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing", group_expiry=24 * HOUR_S):
            pass
    for _ in range(4):
        world.clock.shift(years * YEAR_S)
        async with world.open():
            await trio.sleep(0.5 * HOUR_S)
        world.clock.shift(-years * YEAR_S)
        async with world.open():
            await trio.sleep(0.5 * HOUR_S)
    async with world.open() as runtime:
        await trio.sleep(19 * HOUR_S)
        assert [group.name for group in await runtime.groups()] == ["billing"]
        await trio.sleep(2 * HOUR_S)
        assert await runtime.groups() == ()


def now_of(world: Any) -> datetime:
    """The time on the wall clock."""
    return datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)


@pytest.mark.parametrize("reopened", [False, True])
async def test_who_starts_at_an_instant_gets_what_was_appended_then(
    autojump_clock: Any, world: Any, reopened: bool
) -> None:
    """Readers, groups and seeks pass over what was published in a wrong year, and a `stop` does not end there."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"before")
        await in_a_wrong_year(world, topic.publish(b"in the wrong year"))
        await trio.sleep(HOUR_S)
        await topic.publish(b"an hour later")
        await trio.sleep(HOUR_S)
        then = now_of(world)
        await trio.sleep(60)
        await topic.publish_batch([b"two hours later", b"as well"])
        if not reopened:
            await look_from(world, runtime, then)
    if reopened:
        async with world.open() as runtime:
            await look_from(world, runtime, then)


async def look_from(world: Any, runtime: Any, then: datetime) -> None:
    """The last two of five were appended since."""
    await trio.sleep(1)
    topic = runtime.topic("orders")
    since = [b"two hours later", b"as well"]
    assert [record.value async for record in topic.read(start=then)] == since
    assert [record.offset async for record in topic.read(stop=then)] == [0, 1, 2]
    assert [record.offset async for record in topic.read(stop=now_of(world))] == [0, 1, 2, 3, 4]
    assert [record.offset async for record in topic.read(start=then + timedelta(days=30))] == []
    async with topic.subscribe("billing", start=then) as consumer:
        assert [(await consumer.get()).value, (await consumer.get()).value] == since
    assert await runtime.group("billing").seek(then + timedelta(hours=6)) == {("orders", 0): 5}
    assert await runtime.group("billing").seek(then) == {("orders", 0): 3}


async def test_what_may_have_been_appended_since_is_not_left_out(autojump_clock: Any, world: Any) -> None:
    """Of what lies before the instant and after it, records of a wrong year in between are read, too."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"before")
        world.clock.shift(YEAR_S)
        await topic.publish(b"wrong")
        await trio.sleep(HOUR_S)
        then = now_of(world) - timedelta(seconds=YEAR_S)
        await trio.sleep(HOUR_S)
        await topic.publish(b"wrong, too")
        world.clock.shift(-YEAR_S)
        assert [record.offset async for record in topic.read(start=then)] == [1, 2]
        await topic.publish(b"after")
        assert [record.offset async for record in topic.read(start=then)] == [1, 2, 3]
        assert [record.offset async for record in topic.read(start=then - timedelta(hours=5))] == [0, 1, 2, 3]


async def test_an_instant_is_found_in_any_segment(autojump_clock: Any, world: Any) -> None:
    """Also by who reads the files, whichever segments have records of a wrong year, at their ends or alone."""
    instants = []
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=65536)
        for number in range(24):
            await trio.sleep(5)
            instants.append(now_of(world))
            await trio.sleep(5)
            publish = topic.publish_batch([b"x" * 6000] * 5)
            await (in_a_wrong_year(world, publish) if number in (3, 4, 11, 12, 13, 14, 15, 23) else publish)
        (part,) = await topic.describe()
        assert part.segments > 8
        async with topic.subscribe("billing"):
            pass
        files = await world.disk.incarnate("reader")
        reader = LogReader(files, f"topics/{topic.topic_id}/0")
        for number, then in enumerate(instants):
            first = 3 if number in (4, 5) else 11 if number in range(12, 17) else number
            assert await reader.offset_at(to_us(then), world.clock.wall_us()) == 5 * first
            assert await runtime.group("billing").seek(then) == {("orders", 0): 5 * first}


async def test_a_copy_has_no_times_of_a_wrong_year(autojump_clock: Any, world: Any) -> None:
    """Records are copied with the time of the one before them, or of the first that follows, and live as long."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for number in range(6):
            publish = topic.publish(b"x", ttl=60)
            await (in_a_wrong_year(world, publish) if number in (0, 1, 4) else publish)
            await trio.sleep(10)
        now_us = world.clock.wall_us()
        files = await world.disk.incarnate("copy")
        for start, wanted in ((0, [20, 20, 20, 30, 30, 50]), (4, [50, 50])):
            reader = LogReader(files, f"topics/{topic.topic_id}/0")
            await reader.refresh()
            batches = LogBatches(reader, start, 6, lambda first, last: None, now_us=now_us)
            times, lives = [], []
            async for columns in batches:
                times += [columns.append_time(index) for index in range(columns.count)]
                lives += ttls_of(columns)
            begun_us = now_us - 60_000_000
            assert [(time_us - begun_us) // 1_000_000 for time_us in times] == wanted
            assert lives == [60_000_000] * len(wanted)


def test_a_stamp_that_is_ahead_counts_as_when_it_was_noticed() -> None:
    """It is reported once, and grows old from then on; one within the tolerance counts as it is."""
    told: list[tuple[int, int]] = []
    stamps = Stamps(report=lambda stamp_us, now_us: told.append((stamp_us, now_us)))
    assert stamps.believed(TOLERANCE_US, 0) == TOLERANCE_US
    assert not is_ahead(TOLERANCE_US, 0)
    assert stamps.believed(3 * TOLERANCE_US, 0) == 0
    assert stamps.believed(2 * TOLERANCE_US, 5) == 0
    assert stamps.believed(3 * TOLERANCE_US, 5) == 0
    assert stamps.believed(4 * TOLERANCE_US, 7) == 7
    assert (told, stamps.count) == ([(3 * TOLERANCE_US, 0)], 2)


def test_what_was_stamped_before_the_clock_was_set_right_counts_as_of_then() -> None:
    """Also when it is read much later; and what a later, less wrong clock has stamped counts as of that one's end."""
    stamps = Stamps()
    stamps.notice(40 * TOLERANCE_US, 5)
    stamps.notice(10 * TOLERANCE_US, 90)
    stamps.notice(TOLERANCE_US, 91)
    assert [stamps.believed(each * TOLERANCE_US, 100) for each in (40, 20, 10, 3)] == [5, 5, 90, 90]
    assert stamps.count == 2


def test_what_a_clock_has_noticed_that_is_set_back_once_more_grows_old() -> None:
    """It counts as of the second time, not as now for as long as the first lasted."""
    read, stamped = Stamps(), Stamps()
    stamps_us = [each * TOLERANCE_US for each in (100, 60, 30)]
    for stamps in (read, stamped):
        stamps.notice(100 * TOLERANCE_US, 50 * TOLERANCE_US)
    stamped.notice(50 * TOLERANCE_US, 1)  # what was stamped last was ahead
    assert [read.believed(each_us, 1) for each_us in stamps_us] == [1, 1, 1]
    for stamps in (read, stamped):
        assert [stamps.believed(each_us, 9) for each_us in stamps_us] == [1, 1, 1]


async def test_retention_by_age_goes_on_when_the_clock_is_set_back_twice(
    autojump_clock: Any, world: Any
) -> None:
    """What was stamped by a clock that was set back, and back once more, is dropped when it is old."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", retention_age=2 * HOUR_S, segment_age=HOUR_S)
        for shift_s in (2 * YEAR_S, -YEAR_S, -YEAR_S):
            world.clock.shift(shift_s)
            await topic.publish(b"in one of three years")
            await trio.sleep(1.5 * HOUR_S)
            await topic.publish(b"in another segment")
        for _ in range(12):
            await topic.publish(b"hourly")
            await trio.sleep(HOUR_S)
        (part,) = await topic.describe()
        assert part.start_offset >= 14


def test_what_is_noticed_is_bounded() -> None:
    """What was noticed first is forgotten, and noticed again."""
    stamps = Stamps()
    for number in range(STAMPS_NOTICED_MAX + 1):
        stamps.notice((100 - number) * TOLERANCE_US, number)
    assert stamps.believed(99 * TOLERANCE_US, 77) == 1
    assert stamps.believed(100 * TOLERANCE_US, 77) == 77


@pytest.mark.parametrize("begins", ["made", "resumed"])
async def test_a_schedule_that_begins_in_a_wrong_year_misses_no_more_than_others(
    autojump_clock: Any, world: Any, begins: str
) -> None:
    """What was due while the directory was closed comes as `missed` says, also when its processes were killed."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        if begins == "resumed":
            schedule = await topic.schedule("hourly", value=b"", every=HOUR_S, missed="all")
            await schedule.pause()
            await in_a_wrong_year(world, schedule.resume())
        else:
            await in_a_wrong_year(world, topic.schedule("hourly", value=b"", every=HOUR_S, missed="all"))
    for fired in range(5):

        async def look(runtime: Any, fired: int = fired) -> None:
            await trio.sleep(1)
            assert len(await world.values(runtime)) == fired
            (statistics,) = (await runtime.stats()).schedules
            assert (statistics.next_due,) == runtime.schedules()[0].next(1)

        await opened_often(world, 1, look)
        await trio.sleep(HOUR_S)


async def test_a_clock_that_is_ahead_again_by_less_stamps_nothing_old(
    autojump_clock: Any, world: Any
) -> None:
    """What it stamps the second time counts as of when that was set right, before anything else is published."""
    async with world.open() as runtime:
        ids = await runtime.create_topic("ids", dedup_window=HOUR_S)
        ticks = await runtime.create_topic("ticks")
        await ticks.schedule("daily", value=b"", every=24 * HOUR_S)
        for topic in (ids, ticks):
            await in_a_wrong_year(world, in_a_wrong_year(world, topic.publish(b"two years ahead")))
            await topic.publish(b"right again")
        await trio.sleep(30 * 24 * HOUR_S)
        await in_a_wrong_year(world, ids.publish(b"one year ahead", dedup_id="id"))
        assert (await ids.publish(b"one year ahead", dedup_id="id")).duplicate
        world.clock.shift(YEAR_S)
        await trio.sleep(24 * HOUR_S)
        fired = runtime.schedules()[0].statistics().fired
        world.clock.shift(-YEAR_S)
        await trio.sleep(120)
        assert runtime.schedules()[0].statistics().fired == fired


async def test_what_a_clock_stamps_that_is_ahead_until_the_end_of_the_process_is_not_old(
    autojump_clock: Any, world: Any
) -> None:
    """It was ahead by more before; the next process knows the id of what came last."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", dedup_window=HOUR_S)
        await in_a_wrong_year(world, in_a_wrong_year(world, topic.publish(b"two years ahead")))
        await topic.publish(b"right again")
        await trio.sleep(30 * 24 * HOUR_S)
        world.clock.shift(YEAR_S)
        await topic.publish(b"one year ahead", dedup_id="id")
    world.clock.shift(-YEAR_S)
    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        assert (await topic.publish(b"one year ahead", dedup_id="id")).duplicate
        await trio.sleep(HOUR_S + 1)
        assert not (await topic.publish(b"later", dedup_id="id")).duplicate


async def test_a_nack_of_a_clock_that_was_ahead_by_more_before_is_not_due_at_once(
    autojump_clock: Any, world: Any
) -> None:
    """The delivery journal alone says so, which is replayed before the log is open; the delay ends in its time."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await in_a_wrong_year(world, in_a_wrong_year(world, topic.publish(b"two years ahead")))
        await topic.publish(b"right again")
        await trio.sleep(30 * 24 * HOUR_S)
        world.clock.shift(YEAR_S)
        async with topic.subscribe("billing", max_in_flight=2) as consumer:
            for _ in range(2):
                await (await consumer.get()).nack(delay=HOUR_S)
            await consumer.flush()
    world.clock.shift(-YEAR_S)
    for opening in range(3):
        async with world.open() as runtime:
            async with runtime.topic("jobs").subscribe("billing") as consumer:
                assert ((await consumer.get(timeout=1)) is not None) == (opening == 2)
            await trio.sleep(0.6 * HOUR_S)


def test_what_is_read_of_an_earlier_time_hides_no_later_one() -> None:
    """Each time that the clock was ahead counts as of its end, in whatever order they are noticed; each is counted."""
    stamps = Stamps()
    hour_us = round(HOUR_S * 1e6)
    stamps.notice(1_000 * hour_us, 20 * hour_us)
    stamps.notice(2_000 * hour_us, 10 * hour_us)
    assert stamps.believed(1_000 * hour_us, 30 * hour_us) == 20 * hour_us
    assert stamps.believed(1_500 * hour_us, 30 * hour_us) == 10 * hour_us
    for stamp in range(3_000, 3_010):
        assert stamps.believed(stamp * hour_us, 30 * hour_us) == 30 * hour_us
    assert stamps.count == 3
