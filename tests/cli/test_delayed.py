"""`callboard delayed` and `callboard publish --delay`, through the real entry point."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

import callboard
from callboard.control.client import ControlClient


def test_delayed_messages_are_published_listed_and_cancelled(command: Any) -> None:
    """From one command to the next: they wait in the directory."""
    command.run("publish", "orders", "tea", "milk", "--key", "k", "--delay", "3600", "--create")
    command.run("publish", "orders", "bill", "--deliver-at", "2999-01-01T00:00:00+00:00")
    lines = json.dumps({"value": "ham", "delay": 7200}) + "\n" + json.dumps({"value": "now"}) + "\n"
    command.run("publish", "orders", "--json-lines", stdin=lines.encode())
    found = command.run("delayed", "list", "orders", "--json").documents
    assert [each["value"] for each in found] == ["tea", "milk", "ham", "bill"]
    assert found[3]["due"] == "2999-01-01T00:00:00+00:00"
    told = command.run("delayed", "list", "orders", "--limit", "1").out.decode()
    assert "tea" in told
    assert "milk" not in told
    cancelled = command.run("delayed", "cancel", "orders", "0", str(found[1]["schedule_id"]), "99", "--json")
    assert cancelled.json["cancelled"] == [found[1]["schedule_id"]]
    assert "cancelled 0 of 1" in command.run("delayed", "cancel", "orders", "0", "1").err
    assert command.run("delayed", "count", "orders", "--json").json["messages"] == 3
    told = command.run("delayed", "list", "orders", "--limit", "1").out.decode()
    assert told.splitlines()[0].split() == ["partition", "id", "due", "key", "value"]
    assert "3 messages of orders wait" in command.run("delayed", "count", "orders").out.decode()


def test_a_delayed_message_is_told_with_its_id(command: Any) -> None:
    """It waits, until when, and what cancels it: for people and scripts. What is not delayed is published as ever."""
    told = command.run("publish", "orders", "tea", "--deliver-at", "2999-01-01", "--create").err
    assert "2999-01-01 has no zone: it is taken as 2999-01-01T00:00:00+00:00" in told
    assert (
        "a message waits for orders in partition 0 with id 0: it is due 2999-01-01T00:00:00+00:00"
        in told.splitlines()
    )
    assert "published" not in told
    lines = json.dumps({"value": "ham", "delay": 7200}) + "\n" + json.dumps({"value": "now"}) + "\n"
    found = command.run("publish", "orders", "--json-lines", "--json", stdin=lines.encode()).json
    assert (found["published"], found["waiting"]) == (1, 1)
    (waits,) = found["scheduled"]
    given = (str(waits["partition"]), str(waits["schedule_id"]))
    assert command.run("delayed", "cancel", "orders", *given, "--json").json["cancelled"] == [
        waits["schedule_id"]
    ]
    told = command.run("publish", "orders", *"abcdefghijkl", "--delay", "60").err
    assert len(told.splitlines()) == 11
    assert "2 other messages wait for orders" in told


def test_values_are_shown_as_text(command: Any) -> None:
    """UTF-8 as it is, and escaped what a terminal would obey. Nothing that waits is told in words."""
    command.run("publish", "orders", "caf\u00e9\tau lait", b"\xff", "--delay", "3600", "--create")
    told = command.run("delayed", "list", "orders").out.decode()
    assert "caf\u00e9\\tau lait" in told
    assert "\\xff" in told
    command.run("delayed", "cancel", "orders", "0", "1")
    assert command.run("delayed", "count", "orders").out == b"1 message of orders waits\n"
    command.run("delayed", "cancel", "orders", "0", "0")
    assert command.run("delayed", "list", "orders").err == "no delayed messages of orders\n"


def test_what_cannot_be_is_refused(command: Any) -> None:
    """In one line, before anything is written."""
    command.run("topic", "create", "orders")
    for options in (
        ["--delay", "-1"],
        ["--deliver-at", "soon"],
        ["--delay", "1", "--deliver-at", "2030-01-01"],
    ):
        ended = command.run("publish", "orders", "tea", *options, code=2)
        assert len(ended.err.strip().splitlines()) == 1
    ended = command.run("publish", "orders", "tea", "--delay", "1", "--dedup-id", "x", code=2)
    assert "not for delayed messages" in ended.err
    assert command.run("delayed", "count", "orders", "--json").json["messages"] == 0
    assert "99999999999999999999 is not in the range" in ended_by(command, "0", "9" * 20)
    assert "'a b' cannot be the name of a topic" in command.run("delayed", "count", "a b", code=2).err


def ended_by(command: Any, *given: str) -> str:
    """What `delayed cancel` says about these arguments, which it refuses."""
    told: str = command.run("delayed", "cancel", "orders", *given, code=2).err
    return told


async def test_beside_a_running_program(command: Any) -> None:
    """It is asked what waits, and cancels: nobody else has the directory open."""
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        await orders.publish(b"\xff", key=b"k", headers={"h": b"v"}, ttl=60, partition=1, delay=7200)
        await orders.publish(b"tea", partition=0, delay=3600)
        await orders.publish_batch(
            [b"%d" % number for number in range(1100)], partition=1, delays=[9e6] * 1100
        )

        def work() -> tuple[Any, ...]:
            def run(*words: str) -> Any:
                return command.run("delayed", *words, "--json")

            everything = run("list", "orders", "--all").documents
            assert [(each["partition"], each["schedule_id"]) for each in everything] == [
                (0, 0),
                *((1, number) for number in range(1101)),
            ]
            assert "tea" in command.run("delayed", "list", "orders", "--all").out.decode()
            counted = run("count", "orders").json["messages"]
            listed = run("list", "orders", "--limit", "2").documents
            told = command.run("delayed", "list", "orders", "--limit", "1").out.decode()
            ids = [str(number) for number in range(1, 1201)]
            cancelled = run("cancel", "orders", "1", *ids).json["cancelled"]
            wrong = [
                command.run("delayed", *words, code=1).err
                for words in (("list", "ordres"), ("cancel", "orders", "2", "0"))
            ]
            return counted, listed, told, cancelled, wrong

        counted, listed, told, cancelled, wrong = await trio.to_thread.run_sync(work)
        assert counted == 1102
        assert [(each["partition"], each["schedule_id"]) for each in listed] == [(0, 0), (1, 0)]
        assert (listed[1]["value"], listed[1]["key"]) == ({"base64": "/w=="}, "k")
        assert (listed[1]["headers"], listed[1]["ttl"], listed[1]["timestamp"]) == ({"h": "v"}, 60.0, None)
        assert told.splitlines()[1].split()[-1] == "tea"
        assert cancelled == list(range(1, 1101))
        assert [each.value for each in await orders.delayed().next()] == [b"tea", b"\xff"]
        assert "did you mean 'orders'" in wrong[0]
        assert "has no partition 2" in wrong[1]
        assert all(len(each.strip().splitlines()) == 1 for each in wrong)
        client = ControlClient(str(command.folder / "data"))
        for verb, given in (
            ("list_delayed", {"count": "0"}),
            ("list_delayed", {"count": "many"}),
            ("page_delayed", {"count": "5", "after": "1"}),
            ("page_delayed", {"count": "0", "after": ""}),
            ("cancel_delayed", {"partition": "", "ids": "0"}),
            ("cancel_delayed", {"partition": "0", "ids": "0 -1"}),
            ("cancel_delayed", {"partition": "0", "ids": "0 " + "9" * 20}),
        ):
            with pytest.raises(callboard.ControlError) as caught:
                await client.request(verb, topic="orders", **given)
            assert caught.value.kind == "InvalidArgument"
        assert await orders.delayed().count() == 2


async def test_what_waits_is_in_the_statistics(command: Any) -> None:
    """A line for each topic that has delayed messages, or had some since the directory was opened; none for others."""
    before = datetime.now(UTC).isoformat()
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        await runtime.create_topic("plain")
        orders, bills = [await runtime.create_topic(name, partitions=2) for name in ("orders", "bills")]
        await orders.publish(b"tea", partition=0, delay=0)
        for partition in (0, 1):
            await orders.publish(b"milk", partition=partition, delay=86_400)
        await bills.publish(b"bill", partition=1, deliver_at=datetime(2999, 1, 1, tzinfo=UTC))
        await bills.delayed().cancel(await bills.publish(b"bill", partition=1, delay=60))
        async with orders.subscribe("kitchen") as consumer:
            await consumer.get()
        while not any(partition.moved for partition in (await runtime.stats()).delayed):
            await trio.lowlevel.checkpoint()
        out = (await trio.to_thread.run_sync(command.run, "stats")).out.decode()
        told = [line for line in out.splitlines() if line.startswith("delayed messages of")]
        found = [
            re.fullmatch(
                r"delayed messages of (.+) wait \(none is due before (\S+) UTC\); (.+) since the directory was opened",
                line,
            )
            for line in told
        ]
        assert [(each[1], each[3]) for each in found if each] == [
            ("bills: 1", "0 came, 1 cancelled, 0 lost"),
            ("orders: 2", "1 came, 0 cancelled, 0 lost"),
        ]
        assert all(before[:19] <= each[2] < "2999-01-01T00:00:01" for each in found if each)
        assert len(told) == 2


def test_what_is_gone_of_the_delayed_messages_is_named(command: Any) -> None:
    """Their folder is gone: listing, listing all and counting say so on standard error."""
    command.run("publish", "orders", "tea", "--delay", "3600", "--partition", "0", "--create")
    assert command.run("delayed", "list", "orders").err == ""
    (folder,) = command.folder.rglob("delayed-0")
    shutil.rmtree(folder)
    for arguments in (("list", "orders"), ("list", "orders", "--all"), ("count", "orders", "--json")):
        told = command.run("delayed", *arguments).err
        assert "orders/0 (delayed):" in told
        assert "the folder of the log is gone" in told
