"""Recurring publishes, as users meet them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.actors import retry_pauses
from callboard.actors.clients.calls import PartitionCalls
from callboard.actors.kernel import ActorRef
from callboard.actors.partition.commands import PublishMany
from callboard.actors.source_ids import SCHEDULE_EPOCH
from callboard.log import limits
from callboard.log.errors import (
    ActorCrashed,
    InvalidArgument,
    ScheduleExists,
    ScheduleNotFound,
    TopicFull,
    TopicNotFound,
)
from callboard.log.format.columns import Columns
from callboard.simulations.insides import directory_of

MINUTES = {"cron": "* * * * *"}


def at(world: Any, text: str) -> None:
    """Set the wall clock."""
    world.clock.set_wall_us(round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6))


async def dues(topic: Any, name: str = "tick") -> list[str]:
    """When what came of a schedule was due: hours, minutes and seconds, UTC."""
    found = [record async for record in topic.read()]
    return [
        datetime.fromisoformat(record.headers["callboard-due"].decode()).strftime("%H:%M:%S")
        for record in found
        if record.headers.get("callboard-schedule") == name.encode()
    ]


async def test_a_schedule_publishes_when_it_is_due(autojump_clock: Any, world: Any) -> None:
    """Once each time, as it was given, with its name and the due instant, which is the message's own time."""
    at(world, "2025-06-02 06:59:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", priorities=True)
        made = await orders.schedule(
            "report",
            cron="0 9 * * mon-fri",
            zone="Europe/Berlin",
            value=b"now",
            key=b"k",
            headers={"a": "b"},
            ttl=math.inf,
            priority=7,
        )
        assert (made.cron, made.zone, made.every) == ("0 9 * * MON-FRI", "Europe/Berlin", None)
        assert (made.ttl, made.priority, made.key, made.headers) == (math.inf, 7, b"k", {"a": b"b"})
        assert [each.isoformat() for each in made.next(2)] == [
            "2025-06-02T09:00:00+02:00",
            "2025-06-03T09:00:00+02:00",
        ]
        await trio.sleep(29.9)
        assert [record async for record in orders.read()] == []
        await trio.sleep(0.2)
        (record,) = [record async for record in orders.read()]
        due = datetime(2025, 6, 2, 7, tzinfo=UTC)
        assert record.headers == {
            "a": b"b",
            "callboard-schedule": b"report",
            "callboard-due": b"2025-06-02T07:00:00+00:00",
        }
        assert (record.value, record.key, record.timestamp, record.priority) == (b"now", b"k", due, 7)
        assert record.ttl is None
        assert due <= record.append_time < due + timedelta(seconds=0.05)
        await trio.sleep(7 * 86_400)
        assert len([record async for record in orders.read()]) == 6
        (statistics,) = (await runtime.stats()).schedules
        assert (statistics.fired, statistics.passed_over, statistics.problem) == (6, 0, None)
        assert statistics.last_due == datetime(2025, 6, 9, 7, tzinfo=UTC)
        assert statistics.next_due == datetime(2025, 6, 10, 7, tzinfo=UTC)


async def test_seconds_between_due_instants(autojump_clock: Any, world: Any) -> None:
    """They count from when the schedule was made, also over a reopening."""
    at(world, "2025-06-02 12:00:03.5")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", every=10, value=b"")
        assert (made.every, made.cron, made.zone) == (10.0, None, None)
        await trio.sleep(25)
        assert await dues(orders) == ["12:00:13", "12:00:23"]
    await trio.sleep(1)
    async with world.open() as runtime:
        await trio.sleep(10)
        assert await dues(runtime.topic("orders")) == ["12:00:13", "12:00:23", "12:00:33"]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("latest", ["12:01:00", "12:05:00", "12:06:00"]),
        ("all", ["12:01:00", "12:02:00", "12:03:00", "12:04:00", "12:05:00", "12:06:00"]),
        ("skip", ["12:01:00", "12:06:00"]),
    ],
)
async def test_what_was_missed_while_the_directory_was_closed(
    autojump_clock: Any, world: Any, missed: Any, expected: list[str]
) -> None:
    """Comes at the next opening as the schedule's setting says; what stays away is counted and told."""
    at(world, "2025-06-02 12:00:30")
    events: list[Any] = []
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", value=b"", missed=missed, **MINUTES)
        await trio.sleep(40)
    await trio.sleep(250)
    async with world.open(on_event=events.append) as runtime:
        orders = runtime.topic("orders")
        await trio.sleep(1)
        assert await dues(orders) == expected[:-1]
        await trio.sleep(60)
        assert await dues(orders) == expected
        (statistics,) = (await runtime.stats()).schedules
        passed_over = 6 - len(expected)
        assert statistics.passed_over == passed_over
        told = [each.firings for each in events if isinstance(each, callboard.events.ScheduleMissed)]
        assert told == ([passed_over] if passed_over else [])
    async with world.open() as runtime:
        await trio.sleep(1)
        assert await dues(runtime.topic("orders")) == expected


async def test_how_many_missed_firings_come_is_bounded(autojump_clock: Any, world: Any) -> None:
    """The latest ones come, in order, however long the directory was closed."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", value=b"", missed="all", cron="* * * * * *")
        await trio.sleep(2.5)
    await trio.sleep(3 * 365 * 86_400)
    async with world.open() as runtime:
        orders = runtime.topic("orders")
        await trio.sleep(0.1)
        now_us = world.clock.wall_us()
        found = [record.timestamp.timestamp() async for record in orders.read()]
        caught_up = [each for each in found if each > now_us / 1e6 - 200]
        assert caught_up == [now_us // 1_000_000 - back for back in range(limits.CATCH_UP_MAX - 1, -1, -1)]
        assert (await runtime.stats()).schedules[0].passed_over == limits.MISSED_COUNTED_MAX


async def test_the_wall_clock_is_set_forward(autojump_clock: Any, world: Any) -> None:
    """What it leapt over was missed; within a minute that is looked at, and nothing comes early or twice."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", cron="*/10 * * * *", value=b"")
        await orders.schedule("skipped", cron="*/10 * * * *", value=b"", missed="skip")
        await trio.sleep(100)
        world.clock.shift(3600)
        await trio.sleep(61)
        assert await dues(orders) == ["13:00:00"]
        await trio.sleep(600)
        assert await dues(orders) == ["13:00:00", "13:10:00"]
        assert await dues(orders, "skipped") == ["13:10:00"]


async def test_a_small_step_of_the_wall_clock_leaps_over_nothing(autojump_clock: Any, world: Any) -> None:
    """As a time service makes it: even with "skip" the firing comes."""
    at(world, "2025-06-02 12:09:50")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", cron="*/10 * * * *", value=b"", missed="skip")
        await trio.sleep(5)
        world.clock.shift(20)
        await trio.sleep(61)
        assert await dues(orders) == ["12:10:00"]


async def test_the_wall_clock_is_set_back(autojump_clock: Any, world: Any) -> None:
    """What came does not come again; it goes on when the clock has passed that."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await trio.sleep(100)
        assert await dues(orders) == ["12:01:00", "12:02:00"]
        world.clock.shift(-300)
        await trio.sleep(299)
        assert await dues(orders) == ["12:01:00", "12:02:00"]
        assert made.next(1)[0].strftime("%H:%M") == "12:03"
        await trio.sleep(61)
        assert await dues(orders) == ["12:01:00", "12:02:00", "12:03:00"]


async def test_what_was_passed_over_comes_when_the_clock_is_set_back(autojump_clock: Any, world: Any) -> None:
    """It was never published: a clock that was wrong for a while silences nothing. That is seen within a minute."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", value=b"", missed="skip", **MINUTES)
        world.clock.shift(365 * 86_400)
        await trio.sleep(10)
        world.clock.shift(-365 * 86_400)
        await trio.sleep(150)
        assert (await dues(orders))[-2:] == ["12:02:00", "12:03:00"]


async def test_paused_and_resumed(autojump_clock: Any, world: Any) -> None:
    """What is due meanwhile counts for nothing, also when the directory is closed in between."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", missed="all", **MINUTES)
        await trio.sleep(60)
        await made.pause()
        await made.pause()
        assert made.is_paused
        assert made.statistics().next_due is None
        await trio.sleep(60)
    async with world.open() as runtime:
        orders = runtime.topic("orders")
        (made,) = orders.schedules()
        await trio.sleep(60)
        assert await dues(orders) == ["12:01:00"]
        await made.resume()
        await trio.sleep(60)
        assert await dues(orders) == ["12:01:00", "12:04:00"]
    await trio.sleep(100)
    async with world.open() as runtime:
        await trio.sleep(1)
        assert await dues(runtime.topic("orders")) == ["12:01:00", "12:04:00", "12:05:00", "12:06:00"]


@pytest.mark.parametrize("change", ["pause", "remove", "pause and resume"])
async def test_nothing_fires_once_a_schedule_is_changed(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """What was due before a pause and waits to be stored never comes, also when the schedule goes on meanwhile."""
    waits, goes_on, store = trio.Event(), trio.Event(), PartitionCalls.store

    async def wait_for_credit(*arguments: Any) -> None:
        waits.set()
        await goes_on.wait()
        await store(*arguments)

    monkeypatch.setattr(PartitionCalls, "store", wait_for_credit)
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await waits.wait()
        for name in change.split(" and "):
            await getattr(made, name)()
        goes_on.set()
        await trio.sleep(90)
        assert await dues(orders) == (["12:02:00"] if change == "pause and resume" else [])


async def test_a_pause_waits_for_the_firing_that_is_being_stored(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the partition got before is in the topic when the pause returns."""
    sent, ask_nowait = trio.Event(), ActorRef.ask_nowait

    def note(ref: ActorRef[Any], message: Any) -> Any:
        if isinstance(message, PublishMany):
            sent.set()
        return ask_nowait(ref, message)

    monkeypatch.setattr(ActorRef, "ask_nowait", note)
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await sent.wait()
        await made.pause()
        assert await dues(orders) == ["12:01:00"]


async def test_a_schedule_is_found_again(autojump_clock: Any, world: Any) -> None:
    """With the same settings it goes on; with others it is refused, and told which they are."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=3)
        first = await orders.schedule("tick", value=b"v", **MINUTES)
        await trio.sleep(20)
        again = await orders.schedule("tick", value=b"v", zone="UTC", **MINUTES)
        assert (again.partition, again.created) == (first.partition, first.created)
        with pytest.raises(ScheduleExists, match="value=b'v'"):
            await orders.schedule("tick", value=b"w", **MINUTES)
        await orders.schedule("other", every=7, value=b"", partition=2)
        assert [each.name for each in orders.schedules()] == ["other", "tick"]
        assert [(each.topic, each.name) for each in runtime.schedules()] == [
            ("orders", "other"),
            ("orders", "tick"),
        ]
        await trio.sleep(20)
        assert await dues(orders) == ["12:01:00"]


async def test_a_removed_schedule_publishes_no_more(autojump_clock: Any, world: Any) -> None:
    """Its handle says so; another of the name begins anew; the partition forgets whom it published as."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await trio.sleep(60)
        assert (await orders.describe())[0].producers == 1
        await made.remove()
        with pytest.raises(ScheduleNotFound):
            await made.pause()
        with pytest.raises(ScheduleNotFound):
            made.next()
        await trio.sleep(60)
        assert await dues(orders) == ["12:01:00"]
        assert (await orders.describe())[0].producers == 0
        await orders.schedule("tick", value=b"", **MINUTES)
        world.clock.shift(-45)
        await trio.sleep(60)
        assert await dues(orders) == ["12:01:00", "12:02:00"]
    async with world.open() as runtime:
        assert len(runtime.schedules()) == 1


async def test_what_a_crash_left_of_removed_schedules_is_forgotten(autojump_clock: Any, world: Any) -> None:
    """A partition that knows a schedule which is no more forgets it when another one is served there."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        gone = [(1, 7, SCHEDULE_EPOCH, 5)]
        batch = Columns.build([b"of a schedule"], None, [{}], [0], producers=gone)
        port = runtime._session.mirror.find("orders").ports[0]
        await PartitionCalls(runtime._session.timers, runtime._session.mirror.refusal).store(port, batch)
        assert (await orders.describe())[0].producers == 1
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await trio.sleep(1)
        assert (await orders.describe())[0].producers == 0
        await trio.sleep(60)
        await orders.schedule("tock", value=b"", partition=0, **MINUTES)
        await trio.sleep(1)
        assert (await orders.describe())[0].producers == 1
        assert made.statistics().fired == 1


async def test_a_schedule_that_the_catalog_resumed_before_it_crashed(autojump_clock: Any, world: Any) -> None:
    """What was due while it was paused stays away, although nobody who saw it resumed is left."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await made.pause()
        await trio.sleep(180)
        schedules = directory_of(runtime).schedules
        (live,) = schedules._all.values()
        resumed = attrs.evolve(live.record, is_paused=False, since_us=world.clock.wall_us())
        schedules.follow([live.port], [resumed])
        await trio.sleep(60)
        assert await dues(orders) == ["12:04:00"]


async def test_schedules_go_with_their_topic(autojump_clock: Any, world: Any) -> None:
    """A topic that is created again under the name has none, and nothing is published to it."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        made = await orders.schedule("tick", value=b"", **MINUTES)
        await runtime.delete_topic("orders")
        assert runtime.schedules() == ()
        with pytest.raises(ScheduleNotFound):
            await made.remove()
        orders = await runtime.create_topic("orders")
        await trio.sleep(200)
        assert await dues(orders) == []
    async with world.open() as runtime:
        assert runtime.schedules() == ()
        await trio.sleep(200)
        assert await dues(runtime.topic("orders")) == []


async def test_a_full_topic_holds_what_is_due(autojump_clock: Any, world: Any) -> None:
    """It is told once; all that was due comes, in order, when there is room. Others are not held up."""
    at(world, "2025-06-02 12:00:30")
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders", segment_bytes=65536, retention_bytes=65536)
        other = await runtime.create_topic("other")
        await other.schedule("tick", value=b"", **MINUTES)
        async with orders.subscribe("slow", durable=True):
            with pytest.raises(TopicFull):
                while True:
                    await orders.publish(bytes(30_000))
            made = await orders.schedule("tick", value=bytes(9_000), **MINUTES)
            await trio.sleep(300)
            assert await dues(orders) == []
            assert len([each for each in events if isinstance(each, callboard.events.ScheduleHeld)]) == 1
            statistics = made.statistics()
            assert statistics.problem is not None
            assert statistics.next_due == datetime(2025, 6, 2, 12, 1, tzinfo=UTC)
            assert len(await dues(other)) == 5
        await runtime.group("slow").delete()
        await trio.sleep(60)
        assert await dues(orders) == [f"12:0{minute}:00" for minute in range(1, 7)]
        assert made.statistics().problem is None


@pytest.mark.parametrize("victim", ["recurring", "catalog", "topics/orders/0", "timer-wheel"])
async def test_crashes_lose_and_double_nothing(autojump_clock: Any, world: Any, victim: str) -> None:
    """Whoever crashes, each due instant comes once."""
    at(world, "2025-06-02 12:00:00.5")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", value=b"", cron="* * * * * *")
        for _ in range(20):
            await trio.sleep(2.37)
            runtime.crash(victim, RuntimeError("a drill"))
        await trio.sleep(2)
        found = await dues(orders)
        assert found == sorted(set(found))
        assert [int(each[-2:]) for each in found] == list(range(1, int(found[-1][-2:]) + 1))


async def test_everything_is_checked_before_an_actor_sees_it(autojump_clock: Any, world: Any) -> None:
    """With words that say what to do."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "Give one"),
        ({"every": 5, **MINUTES}, "Give one"),
        ({"every": 0.01}, "every is 0.01"),
        ({"every": True}, "every is True"),
        ({"every": math.nan}, "every is nan"),
        ({"every": 5, "zone": "UTC"}, "Leave the zone out"),
        ({"cron": "61 * * * *"}, "minute"),
        ({"zone": "Europe/Berlim", **MINUTES}, "no time zone 'Europe/Berlim'"),
        ({"zone": "../../etc/passwd", **MINUTES}, "no time zone"),
        ({"zone": "Europe", **MINUTES}, "no time zone"),
        ({"zone": 5, **MINUTES}, "no time zone"),
        ({"missed": "some", **MINUTES}, "missed is 'some'"),
        ({"value": "text", **MINUTES}, "not bytes"),
        ({"value": bytes(20_000), **MINUTES}, "16384 are allowed"),
        ({"key": 5, **MINUTES}, "key"),
        ({"headers": {"callboard-due": b""}, **MINUTES}, "by itself"),
        ({"headers": {str(n): b"" for n in range(255)}, **MINUTES}, "254 headers"),
        ({"ttl": -1, **MINUTES}, "ttl"),
        ({"priority": 4, **MINUTES}, "priorities=True"),
        ({"partition": 3, **MINUTES}, "no partition 3"),
    ]
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        for given, words in wrong:
            with pytest.raises(InvalidArgument, match=words) as caught:
                await orders.schedule("tick", **{"value": b"", **given})
            assert "Nothing was" in str(caught.value)
        with pytest.raises(InvalidArgument, match="name"):
            await orders.schedule("a/b", value=b"", **MINUTES)
        assert runtime.schedules() == ()
        made = await orders.schedule("tick", value=b"", **MINUTES)
        for count in (0, True, 5000, "5"):
            with pytest.raises(InvalidArgument, match="count"):
                made.next(count)
        await runtime.delete_topic("orders")
        with pytest.raises(TopicNotFound):
            await orders.schedule("tick", value=b"", **MINUTES)


async def test_there_is_a_limit(autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More schedules than a directory may hold are refused."""
    monkeypatch.setattr("callboard.actors.catalog.scheduling.SCHEDULES_MAX", 2)
    async with world.open() as runtime:
        for name in ("a", "b"):
            topic = await runtime.create_topic(name)
            await topic.schedule("tick", value=b"", **MINUTES)
        with pytest.raises(InvalidArgument, match="no more are allowed"):
            await topic.schedule("tock", value=b"", **MINUTES)
        await topic.schedules()[0].remove()
        await topic.schedule("tock", value=b"", **MINUTES)


async def test_a_zone_that_is_not_here_holds_the_schedule(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory opens, the schedule says why it waits, and goes on when the zone is there."""
    at(world, "2025-06-02 12:00:30")
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", value=b"", zone="Europe/Berlin", missed="all", **MINUTES)

    def lost(name: str) -> Any:
        raise InvalidArgument(f"there is no time zone {name!r}")

    events: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr("callboard.runtime.load_zone", lost)
        async with world.open(on_event=events.append) as runtime:
            await trio.sleep(100)
            assert "no time zone" in str((await runtime.stats()).schedules[0].problem)
            assert len([each for each in events if isinstance(each, callboard.events.ScheduleHeld)]) == 1
    async with world.open() as runtime:
        await trio.sleep(1)
        assert await dues(runtime.topic("orders")) == ["12:01:00", "12:02:00"]


async def test_a_catalog_that_crashes_says_so(autojump_clock: Any, world: Any) -> None:
    """Asking again finds the schedule, or makes it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        for number in range(5):
            async with trio.open_nursery() as nursery:

                async def add(number: int = number) -> None:
                    while True:
                        try:
                            await orders.schedule(f"tick-{number}", value=b"", every=3600)
                        except ActorCrashed:
                            continue
                        return

                nursery.start_soon(add)
                await trio.lowlevel.checkpoint()
                runtime.crash("catalog", RuntimeError("a drill"))
        assert len(runtime.schedules()) == 5
    assert retry_pauses.PAUSE_S < retry_pauses.PAUSE_MAX_S


async def test_missed_firings_so_many_seconds_apart_are_all_counted(autojump_clock: Any, world: Any) -> None:
    """However many they are; those of a cron expression up to a thousand, and the words say so."""
    events: list[Any] = []
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("fast", value=b"", every=0.5, missed="skip")
        await orders.schedule("cron", value=b"", cron="* * * * * *", missed="skip")
    await trio.sleep(86_400)
    async with world.open(on_event=events.append) as runtime:
        await trio.sleep(0.1)
        told = {
            each.schedule: each.firings
            for each in events
            if isinstance(each, callboard.events.ScheduleMissed)
        }
    assert told["orders/fast"] in range(172_798, 172_802)
    assert told["orders/cron"] == 1_000


async def test_what_a_schedule_refuses_is_told_in_its_own_words(autojump_clock: Any, world: Any) -> None:
    """As the caller gave it, and of no batch."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.schedule("tick", value=b"", every=5, ttl=60)
        with pytest.raises(callboard.ScheduleExists, match=r"other settings: every=5, ttl=60\. Nothing"):
            await orders.schedule("tick", value=b"", every=6, ttl=61)
        with pytest.raises(callboard.InvalidArgument, match=r"^a value is str"):
            await orders.schedule("tock", value="text", every=6)


async def test_the_next_due_instants_end_with_the_calendar(autojump_clock: Any, world: Any) -> None:
    """A schedule that is due every hundred years tells those until the year 9900, however many are asked for."""
    at(world, "2025-01-01 00:00:00")
    async with world.open() as runtime:
        jobs = await runtime.create_topic("jobs")
        made = await jobs.schedule("century", value=b"x", every=100 * 366 * 86400.0)
        assert [each.year for each in made.next(2)] == [2125, 2225]
        found = made.next(1000)
        assert len(found) == 78
        assert found[-1].year < 9900
