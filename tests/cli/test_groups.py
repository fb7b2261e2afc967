"""`callboard group`, through the real entry point: on a closed directory, and beside a runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

import callboard
from callboard.cli.output import folded
from callboard.control.client import ControlClient


@pytest.fixture
def billing(command: Any) -> Any:
    """A directory whose group `billing` has read four of six messages."""

    async def fill() -> None:
        async with callboard.open_runtime(command.folder / "data") as runtime:
            orders = await runtime.create_topic("orders")
            await orders.publish_batch([b"%d" % number for number in range(6)])
            async with orders.subscribe("billing", name="clerk") as consumer:
                for _ in range(4):
                    await (await consumer.get()).ack()

    trio.run(fill)
    return command


def test_groups_are_listed_and_described(billing: Any) -> None:
    """For people and as JSON."""
    assert "billing" in billing.run("group", "list").out.decode()
    (found,) = billing.run("group", "list", "--json").json
    assert (found["name"], found["topics"], found["lag"], found["members"]) == ("billing", ["orders"], 2, 0)
    told = billing.run("group", "describe", "billing").out.decode()
    assert "visibility_timeout" in told
    assert "orders/0" in told
    described = billing.run("group", "describe", "billing", "--json").json
    (place,) = described["places"]
    assert (place["floor"], place["end"], place["lag"]) == (4, 6, 2)
    assert place["oldest_unsettled"].endswith("+00:00")
    assert "no group 'nosuch'" in billing.run("group", "describe", "nosuch", code=1).err


def test_groups_are_paused_and_resumed(billing: Any) -> None:
    """Until they are resumed, in each program that opens the directory; the list says which are."""
    assert billing.run("group", "pause", "billing").err == "group billing is paused\n"
    assert "paused" in billing.run("group", "list").out.decode()
    assert billing.run("group", "describe", "billing", "--json").json["group"]["settings"]["paused"]
    assert billing.run("group", "resume", "billing", "--json").json["settings"]["paused"] is False
    assert billing.run("group", "list", "--json").json[0]["settings"]["paused"] is False
    billing.run("group", "pause", "billing")
    consumed = billing.run("consume", "orders", "--group", "billing")
    assert (consumed.out, consumed.err) == (
        b"",
        "group billing is paused: `callboard group resume billing` has it go on\n",
    )
    assert "no group 'nosuch'" in billing.run("group", "pause", "nosuch", code=1).err


async def test_groups_are_paused_beside_a_runtime(billing: Any) -> None:
    """Its consumers get nothing from then on."""
    async with (
        callboard.open_runtime(billing.folder / "data", control=True) as runtime,
        runtime.topic("orders").subscribe("billing") as consumer,
    ):
        await trio.to_thread.run_sync(partial(billing.run, "group", "pause", "billing"))
        assert consumer.settings.paused
        assert await consumer.get(timeout=0.2) is None
        await trio.to_thread.run_sync(partial(billing.run, "group", "resume", "billing"))
        assert await consumer.get(timeout=5.0) is not None


def test_groups_are_sought_reset_and_deleted(billing: Any) -> None:
    """By offset, end, instant; and what cannot be is refused in one line."""
    assert "orders/0@1" in billing.run("group", "seek", "billing", "1").err
    assert billing.run("group", "list", "--json").json[0]["lag"] == 5
    found = billing.run(
        "group", "seek", "billing", "end", "--topic", "orders", "--partition", "0", "--json"
    ).json
    assert found["places"] == [{"topic": "orders", "partition": 0, "offset": 6}]
    billing.run("group", "seek", "billing", "2001-01-01T00:00:00Z")
    assert billing.run("group", "list", "--json").json[0]["lag"] == 6
    billing.run("group", "seek", "billing", "4")
    assert billing.run("group", "reset", "billing", "--json").json["places"][0]["offset"] == 0
    for to in ("orders/0@4", "orders/0@4 --topic orders --partition 0"):
        assert "goes on from orders/0@4" in billing.run("group", "seek", "billing", *to.split()).err
    for arguments, words in (
        ("-1", "lies before the start: offsets begin at 0"),
        ("-- -1", "lies before the start: offsets begin at 0"),
        ("orders/0@-1", "lies before the start: offsets begin at 0"),
        ("orders/0 3", "is said in one word: orders/0@3"),
        ("orders/0", "Say orders/0@OFFSET"),
        ("orders/0@3 --partition 1", "Leave the options out"),
        ("orders/0@99", "OffsetOutOfRange"),
        ("orders/7@0", "partition"),
        ("nosuch/0@0", "nosuch"),
    ):
        ended = billing.run("group", "seek", "billing", *arguments.split(), code=None)
        assert ended.code != 0
        assert words in ended.err
        assert len(ended.err.strip().splitlines()) == 1, ended.err
    for arguments in (["7"], ["soon"], ["1", "--partition", "3"], ["1", "--topic", "nosuch"]):
        ended = billing.run("group", "seek", "billing", *arguments, code=None)
        assert ended.code != 0
        assert len(ended.err.strip().splitlines()) == 1, ended.err
    told = billing.run("group", "seek", "billing", "end", "--partition", "9", code=2).err
    assert "group 'billing' reads no partition 9 of topic 'orders'." in told
    assert "pass --yes" in billing.run("group", "delete", "billing", code=2).err
    billing.run("group", "delete", "billing", "--yes")
    assert billing.run("group", "list", "--json").json == []


async def test_groups_are_driven_beside_a_runtime(command: Any) -> None:
    """Through its control socket: its consumers go on from there."""
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"%d" % number for number in range(6)])
        async with orders.subscribe("billing", name="clerk") as consumer:
            for _ in range(6):
                await (await consumer.get()).ack()
            found = await trio.to_thread.run_sync(command.run, "group", "describe", "billing", "--json")
            assert [each["name"] for each in found.json["group"]["consumers"]] == ["clerk"]
            (member,) = found.json["group"]["consumers"]
            assert (member["in_flight"], member["oldest_leased"]) == (0, None)
            await trio.to_thread.run_sync(command.run, "group", "seek", "billing", "3")
            assert (await consumer.get()).offset == 3
            altered = await trio.to_thread.run_sync(
                command.run, "group", "alter", "billing", "visibility_timeout=60", "retry=1,10", "--json"
            )
            assert (altered.json["settings"]["visibility_timeout"], altered.json["settings"]["retry"]) == (
                60.0,
                [1.0, 10.0],
            )
            assert (await runtime.group("billing").describe()).group.settings.visibility_timeout == 60.0
            for name, setting, word in (
                ("billing", "mode=exclusive", "mode"),
                ("nosuch", "max_in_flight=5", "no group"),
            ):
                refuse = partial(command.run, "group", "alter", name, setting, code=None)
                told = await trio.to_thread.run_sync(refuse)
                assert told.code != 0
                assert word in told.err
                assert len(told.err.strip().splitlines()) == 1
        client = ControlClient(str(command.folder / "data"))
        for given in ('{"name": "mail"}', '{"max_in_flight": "many"}', "[]", "{"):
            with pytest.raises(callboard.ControlError):
                await client.request("alter_group", group="billing", settings=given)
        assert await client.request("ping")
        await trio.to_thread.run_sync(command.run, "group", "delete", "billing", "--yes")
        assert await runtime.groups() == ()


async def test_members_are_shown_with_what_they_have(command: Any) -> None:
    """Beside a runtime: how many messages, and since when, in the table and as JSON."""
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"a", b"b", b"c"])
        async with (
            orders.subscribe("billing", name="clerk") as clerk,
            orders.subscribe("billing", name="idler"),
        ):
            batch = await anext(clerk.batches(max_records=3))
            told = (await trio.to_thread.run_sync(command.run, "group", "describe", "billing")).out.decode()
            found = await trio.to_thread.run_sync(command.run, "group", "describe", "billing", "--json")
            members = {each["name"]: each for each in found.json["group"]["consumers"]}
            assert [members[name]["in_flight"] for name in ("clerk", "idler")] == [3, 0]
            since = members["clerk"]["oldest_leased"]
            assert since.endswith("+00:00")
            assert members["idler"]["oldest_leased"] is None
            (heads,) = [line for line in told.splitlines() if "oldest leased" in line]
            assert heads.split() == ["consumer", "name", "topics", "owns", "in", "flight", "oldest", "leased"]
            (row,) = [line for line in told.splitlines() if "clerk" in line]
            assert row.split()[1:4] == ["clerk", "orders", "3"]
            (row,) = [line for line in told.splitlines() if "idler" in line]
            assert row.split()[1:] == ["idler", "orders", "0"]
            await batch.ack()


async def test_stats_count_rebalances(command: Any) -> None:
    """Of groups that have any, with the columns that are not 0 everywhere; as JSON all."""
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        orders = await runtime.create_topic("orders")
        async with (
            orders.subscribe("billing", mode="exclusive"),
            orders.subscribe("mailing"),
        ):
            told = (await trio.to_thread.run_sync(command.run, "stats")).out.decode()
            found = (await trio.to_thread.run_sync(command.run, "stats", "--json")).json
    lines = told.splitlines()
    place = lines.index("since the directory was opened")
    assert [line.split() for line in lines[place + 1 : place + 4]] == [
        ["group", "rebalances"],
        ["billing", "1"],
        [],
    ]
    kept = {each["name"]: (each["rebalances"], each["stalled_members"]) for each in found["groups"]}
    assert kept == {"billing": (1, 0), "mailing": (0, 0)}
    assert "rebalances" not in command.run("stats").out.decode()


def test_lag_is_one_word_in_all_tables(billing: Any) -> None:
    """And `stats` says what its timers are."""
    for arguments in (["stats"], ["topic", "describe", "orders"], ["group", "list"]):
        told = billing.run(*arguments).out.decode()
        assert "lag" in told
        assert "pending" not in told
    assert "timers (ends of leases, pauses before retries, delays): " in billing.run("stats").out.decode()


def test_stats_say_since_when_they_count(command: Any) -> None:
    """What begins anew at opening has a star, or says so; `redelivered` goes on."""

    async def work() -> bytes:
        async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
            dead = await runtime.create_topic("dead")
            orders = await runtime.create_topic("orders")
            await orders.publish_batch([b"a", b"b"])
            async with orders.subscribe("billing", dead_letter_topic="dead") as consumer:
                await (await consumer.get()).nack()
                message = await consumer.get()
                await message.publish(dead, b"c")
                await message.ack()
            told: bytes = (await trio.to_thread.run_sync(command.run, "stats")).out
            return told

    def words_of(told: bytes) -> dict[str, dict[str, str]]:
        """Rows by the first words, and in them values by the last words of the heads."""
        tables = [part.splitlines() for part in told.decode().split("\n\n")]
        return {
            row.split()[0]: dict(zip(heads.split()[::-1], row.split()[::-1], strict=False))
            for heads, *rows in tables
            for row in rows
        }

    during, after = trio.run(work), command.run("stats").out
    for told in (during, after):
        assert (
            "\n* since the directory was opened, or its partition restarted; redelivered, " in told.decode()
        )
        assert "dead letters for  forwarded*" in told.decode()
        assert "came since the directory was opened" in told.decode()
        assert "discarded since the directory was opened" in told.decode()
    rows, later = words_of(during), words_of(after)
    assert int(rows["orders/0"]["commits*"]) > int(later["orders/0"]["commits*"])
    assert rows["billing"]["redelivered"] == later["billing"]["redelivered"] == "1"


def test_a_directory_without_its_option_is_told_how(command: Any) -> None:
    """`callboard stats DIR` says that -d names the directory, in one line."""
    told = command.run("stats", "data", code=2).err
    assert "The directory is named with -d." in told
    assert len(told.splitlines()) == 1


def test_commands_to_copy_are_never_broken() -> None:
    """On a narrow terminal too; other lines end between words."""
    text = "callboard: StorageError: the journal is damaged. Run `callboard repair -d /a/long/folder --accept` now."
    lines = folded(text, 30).splitlines()
    assert " ".join(lines) == text
    assert "`callboard repair -d /a/long/folder --accept`" in lines
    assert all(len(line) <= 30 for line in lines if "`" not in line)
