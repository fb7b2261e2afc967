"""Mirrors of the catalog: what those that use topics, groups and schedules know of them."""

from __future__ import annotations

from typing import Any

import trio

from callboard.actors.catalog.commands import CatalogStands, GroupStands, TopicStands
from callboard.actors.mirror import Mirror
from callboard.actors.settings import GroupSettings, TopicSettings
from callboard.simulations.insides import directory_of


def opened(runtime: Any) -> Mirror:
    """A mirror that asks for what there is, as one that opens while the catalog runs."""
    mirror, session = Mirror(), runtime._session
    mirror.open(session.catalog, session.system.actor, asks=True)
    return mirror


def contents(mirror: Any) -> Any:
    """All that it knows, as data."""
    topics = [
        (
            *(topic.name, topic.topic_id, topic.settings, topic.stands),
            [
                (port.ref.path, port.label, port.pending_bytes, mirror.state_of(port))
                for port in topic.all_ports
            ],
            [topic.outbox_of(index, delays=False) is not None for index in range(len(topic.ports))],
        )
        for topic in mirror.topics()
    ]
    groups = [(each, mirror.name_of_group(each), mirror.group(each).settings) for each in mirror.group_ids()]
    schedules = [(each.record, each.stands, each.port.ref.path) for each in mirror.schedules()]
    return topics, groups, schedules, mirror.losses


async def test_a_mirror_that_opens_later_has_the_same(autojump_clock: Any, in_memory: Any) -> None:
    """Also of what changes from then on. A topic that is deleted goes from both, and says so."""
    async with in_memory.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2, dedup_window=60.0)
        await runtime.create_topic("bills")
        await orders.publish(b"x", delay=100.0)
        await orders.schedule("tick", value=b"", every=60.0)
        async with orders.subscribe("group") as consumer:
            await orders.publish(b"1")
            message = await consumer.get()
            await message.publish("bills", b"2")
            await message.ack()
            late: Any = opened(runtime)
            own = runtime._session.mirror
            await trio.sleep(1)
            assert contents(late) == contents(own)
            assert [topic.name for topic in late.topics()] == ["bills", "orders"]
            assert {port.holds for port in late.find("orders").all_ports} == {"", "delayed", "outbox"}

            kept = late.find("orders")
            await runtime.alter_topic("orders", retention_age=5.0)
            await runtime.group("group").alter(max_in_flight=7)
            await runtime.restart("topics/orders/1")
            await trio.sleep(120)
            assert late.find("orders") is kept
            assert kept.settings.retention_age == 5.0
            assert contents(late) == contents(own)
            assert late.schedules()[0].stands.fired == 2
        await runtime.group("group").delete()
        await runtime.delete_topic("orders")
        assert (kept.deleted, late.state_of(kept.ports[0])) == (True, "stopping")
        assert contents(late) == contents(own)
        assert (late.group_ids(), late.schedules()) == ([], [])


async def test_what_an_incarnation_of_the_catalog_does_not_say_is_dropped(
    autojump_clock: Any, in_memory: Any
) -> None:
    """All else stays the same objects, and handles go on."""
    async with in_memory.open() as runtime:
        orders, mirror = await runtime.create_topic("orders"), runtime._session.mirror
        async with orders.subscribe("group"):
            pass
        (group_id,) = mirror.group_ids()
        mirror.hear(TopicStands("0" * 16, "gone", "topics/orders", TopicSettings(), 1))
        mirror.hear(GroupStands(99, "over", "groups/group", GroupSettings()))
        live, group = mirror.find("orders"), mirror.group(group_id)
        gone, over = mirror.find("gone"), mirror.group(99)
        assert (gone.deleted, over.is_over) == (False, False)
        assert runtime.crash("catalog", ValueError("a bug"))
        await trio.sleep(1)
        assert [topic.name for topic in runtime.topics()] == ["orders"]
        assert (gone.deleted, over.is_over) == (True, True)
        assert (mirror.find("orders"), mirror.group(group_id)) == (live, group)
        assert (live.deleted, group.is_over) == (False, False)
        await orders.publish(b"x")


async def test_a_mirror_shares_no_object_of_the_catalog(autojump_clock: Any, in_memory: Any) -> None:
    """It has ports of its own, which lead to the same actors."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders")
        live: Any = directory_of(runtime).find("orders")
        mirrored: Any = runtime._session.mirror.find("orders")
        assert mirrored.ports[0] is not live.ports[0]
        assert mirrored.ports[0].ref is live.ports[0].ref


async def test_what_is_answered_is_in_the_mirror_before(autojump_clock: Any, in_memory: Any) -> None:
    """The asker finds it without waiting, also after a crash of the catalog."""
    async with in_memory.open() as runtime:
        session = runtime._session
        for number in range(3):
            topic = await runtime.create_topic(f"orders-{number}")
            assert session.mirror.find(topic.name) is topic._live
            async with topic.subscribe("group") as consumer:
                assert consumer._fetcher.member.live_group is session.mirror.group(1)
            assert runtime.crash("catalog", ValueError("a bug"))
            await trio.sleep(1)


def test_an_empty_mirror() -> None:
    """It finds nothing, and names a group by its id."""
    mirror = Mirror()
    mirror.hear(CatalogStands(frozenset(), frozenset(), mirror.losses))
    assert (mirror.find("orders"), mirror.ports_of("orders")) == (None, ())
    assert (mirror.name_of_group(5), mirror.settings_of_group("group")) == ("5", None)
