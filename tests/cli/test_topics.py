"""`callboard topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard


def test_a_topic_is_created_with_its_settings_and_listed(command: Any) -> None:
    """What was created is listed, with settings given by the names of the Python interface."""
    made = command.run(
        "topic", "create", "orders", "partitions=3", "retention-age=60.5", "drop_unread=yes", "--json"
    )
    assert made.json["settings"]["partitions"] == 3
    assert made.json["settings"]["retention_age"] == 60.5
    assert made.json["settings"]["drop_unread"] is True
    (found,) = command.run("topic", "list", "--json").json
    assert (found["name"], found["partitions"], found["records"]) == ("orders", 3, 0)
    assert b"orders" in command.run("topic", "list").out


def test_creating_again_compares_what_is_named(orders: Any) -> None:
    """The same settings, or none, are fine; others are refused with what is there."""
    orders.run("topic", "create", "orders")
    orders.run("topic", "create", "orders", "partitions=2")
    refused = orders.run("topic", "create", "orders", "partitions=3", code=1)
    assert "partitions is 2" in refused.err


def test_all_problems_of_settings_come_at_once_and_nothing_is_made(command: Any) -> None:
    """Unknown names, wrong values: all in one message, and no directory is left behind."""
    refused = command.run(
        "topic", "create", "orders", "partitons=2", "segment_bytes=x", "drop_unread=maybe", code=2
    )
    for part in ("did you mean 'partitions'", "segment_bytes is 'x'", "drop_unread is 'maybe'"):
        assert part in refused.err
    assert list(command.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("a b",), "white space"),
        (("orders", "partitions"), "not of the form name=value"),
        (("orders", "partitions=1", "partitions=2"), "given twice"),
        ((b"\xff",), "cannot be the name"),
        (("orders", "-d", ""), "no name of a directory"),
        (("orders", "dead_letter_topic=x"), "unknown setting 'dead_letter_topic'"),
    ],
)
def test_a_bad_topic_makes_nothing(command: Any, arguments: tuple[str | bytes, ...], part: str) -> None:
    """A name or setting that is not acceptable is refused before a directory is made."""
    refused = command.run("topic", "create", *arguments, code=2)
    assert part in refused.err
    assert list(command.folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list"),
        ("topic", "describe", "orders"),
        ("topic", "alter", "orders", "retention_age=5"),
        ("topic", "delete", "orders", "--yes"),
        ("group", "alter", "billing", "backoff=5"),
        ("publish", "orders", "x"),
        ("consume", "orders"),
        ("consume", "orders", "--group", "g"),
        ("peek", "orders"),
        ("stats",),
        ("tree",),
        ("verify",),
        ("repair",),
    ],
)
def test_a_directory_that_is_missing_is_said_and_not_made(command: Any, arguments: tuple[str, ...]) -> None:
    """Only what creates a topic makes a directory; all else names the one that is not there, or is not ours."""
    missing = command.run(*arguments, "-d", "nosuch", code=1)
    assert "there is no directory nosuch" in missing.err
    assert list(command.folder.iterdir()) == []
    (command.folder / "foreign").mkdir()
    foreign = command.run(*arguments, "-d", "foreign", code=1)
    assert "holds no topics" in foreign.err
    assert list((command.folder / "foreign").iterdir()) == []
    (command.folder / "file").touch()
    assert "is not a directory" in command.run(*arguments, "-d", "file", code=1).err


def test_a_file_where_a_directory_should_be_made_is_refused(command: Any) -> None:
    """`topic create` says what is wrong with the place."""
    (command.folder / "file").touch()
    assert "is not a directory" in command.run("topic", "create", "orders", "-d", "file", code=1).err


def test_the_directory_may_come_from_the_environment(orders: Any) -> None:
    """CALLBOARD_DIRECTORY names the directory where -d does not."""
    found = orders.shell(
        "CALLBOARD_DIRECTORY=$PWD/data; export CALLBOARD_DIRECTORY; cd /; callboard topic list --json"
    )
    assert [topic["name"] for topic in found.json] == ["orders"]


def test_a_topic_is_described_with_its_groups_by_name(orders: Any) -> None:
    """Settings, partitions and groups, for people and for scripts."""
    orders.run("publish", "orders", "a", "b", "--partition", "1")
    orders.run("consume", "orders", "--group", "billing", "--durable", "--max", "1")
    found = orders.run("topic", "describe", "orders", "--json").json
    assert [partition["visible_end"] for partition in found["partitions"]] == [0, 2]
    assert [group["name"] for group in found["groups"]] == ["billing"]
    text = orders.run("topic", "describe", "orders").out.decode()
    assert ["billing", "1", "1", "1"] in [line.split() for line in text.splitlines()]


def test_brackets_in_names_are_no_markup(command: Any) -> None:
    """A topic may be called like a markup tag and is shown as it is called."""
    command.run("topic", "create", "[red]x[/blue]", code=2)  # the slash
    command.run("topic", "create", "[red]x")
    assert b"[red]x" in command.run("topic", "list").out
    assert b"[red]x" in command.run("topic", "describe", "[red]x").out
    assert b"[red]x" in command.run("stats").out


def test_a_topic_is_altered(orders: Any) -> None:
    """Settings change; partitions never do; an unknown topic is named with the nearest known one."""
    found = orders.run("topic", "alter", "orders", "retention_age=60", "--json").json
    assert found["settings"]["retention_age"] == 60
    altered = orders.run("topic", "alter", "orders", "retention_age=none", "--json").json
    assert altered["settings"]["retention_age"] is None
    assert "cannot be changed" in orders.run("topic", "alter", "orders", "partitions=4", code=2).err
    assert "Did you mean 'orders'" in orders.run("topic", "alter", "ordres", "retention_age=60", code=1).err


def test_creating_prints_what_differs_from_the_defaults(command: Any) -> None:
    """And the number of partitions in any case; also of a topic that was there. `topic describe` shows all."""
    printed = command.run("topic", "create", "plain").out.decode().splitlines()
    assert [line.split() for line in printed] == [["topic", "plain", "is", "created"], ["partitions", "1"]]
    command.run("topic", "create", "orders", "partitions=2", "retention_age=60", "segment_age=none")
    printed = command.run("topic", "create", "orders").out.decode().splitlines()
    assert [line.split() for line in printed] == [
        ["topic", "orders", "was", "there", "already"],
        ["partitions", "2"],
        ["retention_age", "60", "s"],
    ]
    assert b"segment_age" in command.run("topic", "describe", "orders").out


def test_altering_prints_what_has_changed(orders: Any) -> None:
    """What it was, and what it is; nothing of settings that were so before."""
    changes = ("retention_age=60", "drop_unread=no", "compression=gzip")
    printed = orders.run("topic", "alter", "orders", *changes).out.decode().splitlines()
    assert [line.split() for line in printed] == [
        ["topic", "orders", "is", "altered"],
        ["retention_age", "none", "→", "60", "s"],
        ["compression", "none", "→", "gzip"],
    ]
    again = orders.run("topic", "alter", "orders", *changes).out.decode()
    assert again.splitlines() == ["topic orders has these settings already"]


def test_a_topic_is_deleted_only_when_somebody_says_yes(orders: Any) -> None:
    """Without a terminal nobody can be asked, so --yes is needed."""
    assert "--yes" in orders.run("topic", "delete", "orders", code=2).err
    assert "no topic 'other'" in orders.run("topic", "delete", "other", "--yes", code=1).err
    orders.run("topic", "delete", "orders", "--yes")
    assert orders.run("topic", "list", "--json").json == []
    assert "no topics" in orders.run("topic", "list").err


def test_the_settings_of_a_group_are_altered(orders: Any) -> None:
    """All are shown, problems come at once, and unknown groups are said."""
    orders.run("consume", "orders", "--group", "billing", "--durable")
    made = orders.run(
        "group", "alter", "billing", "visibility-timeout=60", "group_expiry=none", "--json"
    ).json
    assert (made["settings"]["visibility_timeout"], made["settings"]["group_expiry"]) == (60.0, None)
    altered = orders.run("group", "alter", "billing", "backoff=5").out.decode()
    assert altered.splitlines() == ["group billing is altered", "backoff  1 s → 5 s"]
    refused = orders.run("group", "alter", "billing", "backof=5", "max_in_flight=x", code=2).err
    assert "did you mean 'backoff'" in refused
    assert "max_in_flight is 'x'" in refused
    assert "durable cannot be changed" in orders.run("group", "alter", "billing", "durable=no", code=2).err
    assert "there is no group 'nobody'" in orders.run("group", "alter", "nobody", "backoff=5", code=1).err


async def test_topics_are_made_altered_and_deleted_beside_a_program(command: Any) -> None:
    """Through its control socket: it has the topics at once, and the settings hold for it."""
    async with callboard.open_runtime(command.folder / "data", control=True) as runtime:
        orders = await runtime.create_topic("orders")

        def work() -> tuple[Any, ...]:
            made = command.run(
                "topic", "create", "bills", "partitions=2", "retention_age=60.5", "--json"
            ).json
            again = command.run("topic", "create", "bills", "--json").json
            other = command.run("topic", "create", "bills", "partitions=3", code=1).err
            altered = command.run("topic", "alter", "orders", "max_message_bytes=1024", "--json").json
            fixed = command.run("topic", "alter", "orders", "partitions=3", code=1).err
            missing = [
                command.run("topic", *words, code=1).err
                for words in (("alter", "ordres", "retention_age=5"), ("delete", "ordres", "--yes"))
            ]
            asked = command.run("topic", "delete", "bills", code=2).err
            return made, again, other, altered, fixed, missing, asked

        made, again, other, altered, fixed, missing, asked = await trio.to_thread.run_sync(work)
        assert (made["created"], made["settings"]["partitions"], made["settings"]["retention_age"]) == (
            True,
            2,
            60.5,
        )
        assert (again["created"], again["settings"]) == (False, made["settings"])
        assert "partitions is 2" in other
        assert altered["settings"]["max_message_bytes"] == orders.settings.max_message_bytes == 1024
        with pytest.raises(callboard.MessageTooLarge):
            await orders.publish(bytes(2000))
        assert "partitions cannot be changed" in fixed
        assert all("id you mean 'orders'" in each for each in missing)
        assert "--yes" in asked
        bills = runtime.topic("bills")
        await bills.publish(b"bill")
        async with bills.subscribe("billing") as consumer:
            await (await consumer.get()).ack()
            await trio.to_thread.run_sync(command.run, "topic", "delete", "bills", "--yes")
            with pytest.raises(callboard.RuntimeClosed, match="'bills' was deleted"):
                await consumer.get()
        with pytest.raises(callboard.TopicNotFound):
            await bills.publish(b"late")
        assert [topic.name for topic in runtime.topics()] == ["orders"]


async def test_a_program_without_a_control_socket_is_named(command: Any) -> None:
    """It has the directory open: what cannot ask it says so, and how it could."""
    async with callboard.open_runtime(command.folder / "data") as runtime:
        await runtime.create_topic("orders")

        def work() -> list[str]:
            return [
                command.run(*words, code=5).err
                for words in (
                    ("topic", "create", "bills"),
                    ("topic", "alter", "orders", "retention_age=5"),
                    ("topic", "delete", "orders", "--yes"),
                    ("delayed", "cancel", "orders", "0", "1"),
                )
            ]

        for told in await trio.to_thread.run_sync(work):
            assert "open it there with control=True to ask it" in told
            assert len(told.strip().splitlines()) == 1
