"""The catalog: ids are never used twice, and what was decided is carried out."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.catalog.directory import Directory
from callboard.actors.partition.commands import OpenGroup
from callboard.log.limits import Limits
from callboard.log.seams.disk import Create, Sync


async def test_group_ids_are_never_used_twice(autojump_clock: Any, in_memory: Any) -> None:
    """Not by a later group of the same name, nor after the journal was shortened, nor in a later life."""
    seen: list[int] = []
    for _ in range(3):
        async with in_memory.open() as runtime:
            topic = await runtime.create_topic("orders")
            for _ in range(3):
                async with topic.subscribe("group"):
                    (info,) = await runtime.groups()
                    seen.append(info.group_id)
                await runtime.group("group").delete()
    assert seen == sorted(set(seen))


async def test_states_of_groups_that_are_gone_are_cleared_at_the_start(
    autojump_clock: Any, in_memory: Any
) -> None:
    """A group that a partition knows and the catalog does not is forgotten once the partition has recovered."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        await in_memory.port(runtime).ref.ask(OpenGroup(77, True, "beginning"))
        assert [group.group_id for group in (await in_memory.describe(runtime)).groups] == [77]
    async with in_memory.open() as runtime:
        await trio.sleep(0.1)
        assert (await in_memory.describe(runtime)).groups == ()


async def test_a_group_whose_end_a_crash_broke_off_has_no_coordinator(
    autojump_clock: Any, in_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next incarnation of the catalog stops it, and another group can have the name."""
    retire = Directory.retire_coordinator

    async def break_off(*_: object) -> None:
        monkeypatch.setattr(Directory, "retire_coordinator", retire)
        raise LookupError("a bug")

    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            pass
        assert "group" in runtime.tree().draw()
        monkeypatch.setattr(Directory, "retire_coordinator", break_off)
        with pytest.raises(callboard.ActorCrashed):
            await runtime.group("group").delete()
        await trio.sleep(10)
        assert await runtime.groups() == ()
        assert " group " not in runtime.tree().draw()
        with trio.fail_after(60):
            async with topic.subscribe("group") as consumer:
                await topic.publish(b"one")
                assert (await consumer.get()).value == b"one"


async def test_the_journal_stays_short(autojump_clock: Any, in_memory: Any) -> None:
    """Thousands of decisions are folded into snapshots; everything is there again afterwards."""
    async with in_memory.open(limits=Limits(catalog_snapshot_every_bytes=4096)) as runtime:
        for number in range(300):
            await runtime.create_topic("passing")
            if number % 30 == 0:
                await runtime.create_topic(f"kept-{number}", retention_age=float(number + 1))
            await runtime.delete_topic("passing")
    size = sum(len(data) for path, data in in_memory.disk.files().items() if path.startswith("catalog/"))
    assert size < 1024 * 1024
    async with in_memory.open() as runtime:
        found = {topic.name: topic.settings.retention_age for topic in runtime.topics()}
        assert found == {f"kept-{number}": number + 1.0 for number in range(0, 300, 30)}


async def test_refusals_are_answers_and_crash_nothing(autojump_clock: Any, in_memory: Any) -> None:
    """A hundred wrong questions leave the catalog as it was."""
    async with in_memory.open() as runtime:
        for _ in range(25):
            with pytest.raises(callboard.InvalidArgument):
                await runtime.create_topic("no/slashes")
            with pytest.raises(callboard.ConfigurationError):
                await runtime.create_topic("orders", partitions=0)
            with pytest.raises(callboard.TopicNotFound):
                await runtime.delete_topic("orders")
            with pytest.raises(callboard.GroupNotFound):
                await runtime.group("group").delete()
        node = next(node for node in runtime.tree().walk() if node.path == "catalog")
        assert (node.restarts, runtime.topics()) == (0, ())


async def test_questions_queue_while_a_deletion_waits(autojump_clock: Any, in_memory: Any) -> None:
    """Commands are carried out one after the other, in the order in which they came."""
    in_memory.disk.latency_s = 0.05
    async with in_memory.open() as runtime:
        order: list[str] = []

        async def do(what: str, operation: Any) -> None:
            await operation
            order.append(what)

        await runtime.create_topic("orders")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(do, "delete", runtime.delete_topic("orders"))
            await trio.sleep(0.01)
            nursery.start_soon(do, "create", runtime.create_topic("orders", partitions=2))
            await trio.sleep(0.01)
            nursery.start_soon(do, "alter", runtime.alter_topic("orders", max_message_bytes=7))
        assert order == ["delete", "create", "alter"]
        settings = runtime.topic("orders").settings
        assert (settings.partitions, settings.max_message_bytes) == (2, 7)


async def test_decisions_that_wait_together_share_a_sync(autojump_clock: Any, in_memory: Any) -> None:
    """A hundred groups are opened in the time of a few syncs, in the order in which they were asked for."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        in_memory.disk.latency_s = 0.01
        begun = trio.current_time()

        async def subscribe(number: int) -> None:
            async with topic.subscribe(f"group-{number:02}", start="end"):
                pass

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(subscribe, number)
                await trio.lowlevel.checkpoint()
        assert trio.current_time() - begun < 0.5
        in_memory.disk.latency_s = 0.0
        ids = [group.group_id for group in await runtime.groups()]
        assert sorted(ids) == list(range(1, 101))
    async with in_memory.open() as runtime:
        assert [group.group_id for group in await runtime.groups()] == ids


async def test_what_the_upkeep_of_the_journal_meets_fails_no_decision(
    autojump_clock: Any, in_memory: Any
) -> None:
    """A disk that refuses the journal's next segment undoes no decision, and nothing is decided twice."""
    names = [f"jobs-{number}" for number in range(8)]
    async with in_memory.open(limits=Limits(journal_segment_bytes=512)) as runtime:
        refused = in_memory.disk.fail_next(Create, "EIO", path_contains="catalog", times=10)
        for name in names:
            topic = await runtime.create_topic(name)
            async with topic.subscribe(name):
                pass
        assert refused.hits
    async with in_memory.open() as runtime:
        assert [topic.name for topic in runtime.topics()] == names
        assert sorted(group.name for group in await runtime.groups()) == names


async def test_a_decision_that_is_refused_fails_none_that_share_its_sync(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Of topics whose names collide the first is created, and others beside them; a disk error fails all of a sync."""
    async with in_memory.open() as runtime:
        in_memory.disk.latency_s = 0.01
        outcomes: dict[str, str] = {}

        async def create(name: str) -> None:
            try:
                await runtime.create_topic(name)
                outcomes[name] = "created"
            except callboard.CallboardError as error:
                outcomes[name] = type(error).__name__

        async def create_all(*names: str) -> None:
            async with trio.open_nursery() as nursery:
                for name in ("first", *names):
                    nursery.start_soon(create, name)
                    for _ in range(10):
                        await trio.lowlevel.checkpoint()

        await create_all("orders", "ORDERS", "returns")
        assert outcomes == {
            "first": "created",
            "orders": "created",
            "ORDERS": "TopicExists",
            "returns": "created",
        }
        in_memory.disk.fail_next(Sync, "EIO", path_contains="catalog/")
        await create_all("a", "b")
        assert "StorageError" in outcomes.values()
        wanted = {name for name, outcome in outcomes.items() if outcome == "created"}
        assert {topic.name for topic in runtime.topics()} == wanted
    async with in_memory.open() as runtime:
        assert {topic.name for topic in runtime.topics()} == wanted


@pytest.mark.parametrize("how", ["create", "join"])
async def test_what_a_failed_decision_left_is_healed_before_anything_is_confirmed(
    autojump_clock: Any, world: Any, in_memory: Any, how: str
) -> None:
    """A topic or group whose deletion may have been written is confirmed only when it is certain that it stays."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing"):
            pass
        in_memory.disk.fail_next(Sync, "EIO", path_contains="catalog/")
        in_memory.disk.fail_next(Create, "EIO", path_contains="catalog/", times=2)
        with pytest.raises(callboard.StorageError) as raised:
            if how == "create":
                await runtime.delete_topic("orders")
            else:
                await runtime.group("billing").delete()
        assert raised.value.indefinite

        async def confirm() -> None:
            if how == "create":
                await runtime.create_topic("orders")
            else:
                async with runtime.topic("orders").subscribe("billing"):
                    pass

        for _ in range(2):
            with pytest.raises(callboard.StorageError):
                await confirm()
        await confirm()
    async with in_memory.open() as runtime:
        assert [topic.name for topic in runtime.topics()] == ["orders"]
        assert [group.name for group in await runtime.groups()] == ["billing"]
