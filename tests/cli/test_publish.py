"""`callboard publish`: arguments, lines, JSON lines."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from callboard.cli.messages import FIELDS


def values(command: Any, topic: str = "orders") -> list[bytes]:
    """What is stored, by `consume`."""
    lines: list[bytes] = command.run("consume", topic).lines
    return lines


def test_arguments_are_published_with_key_and_headers(orders: Any) -> None:
    """Every value becomes a message; the key chooses the partition of all."""
    done = orders.run(
        "publish", "orders", "a", "b", "--key", "k", "--header", "h=1", "--header", "g=x=y", "--json"
    )
    assert done.json["published"] == 2
    first, second = orders.run("consume", "orders", "--json").documents
    assert (first["value"], first["key"], first["headers"]) == ("a", "k", {"h": "1", "g": "x=y"})
    assert (second["value"], second["offset"], second["partition"]) == ("b", 1, first["partition"])


def test_arguments_keep_bytes_that_are_no_utf8(orders: Any) -> None:
    """What was typed is stored byte for byte."""
    orders.run("publish", "orders", b"\xff\xfe", "--key", b"\xfd", "--header", b"h=\xfc")
    assert values(orders) == [b"\xff\xfe"]
    (found,) = orders.run("consume", "orders", "--json").documents
    assert found["value"] == {"base64": "//4="}
    assert found["key"] == {"base64": "/Q=="}
    assert found["headers"] == {"h": {"base64": "/A=="}}


def test_lines_are_published_as_they_are(orders: Any) -> None:
    """Empty lines and bytes that are no text are messages; line ends of both kinds belong to none."""
    orders.run("publish", "orders", stdin=b"a\n\n\xff\xfe\r\nb\rc\n\0\nlast")
    found = orders.run("consume", "orders", "--json").documents
    assert [document["value"] for document in found] == ["a", "", {"base64": "//4="}, "b\rc", "\0", "last"]


def test_nothing_on_standard_input_is_nothing_to_publish(orders: Any) -> None:
    """Empty input succeeds and says 0."""
    assert orders.run("publish", "orders", "--json").json == {
        "topic": "orders",
        "published": 0,
        "partitions": {},
    }
    assert "published 0 messages" in orders.run("publish", "orders").err


def test_many_lines_arrive_in_order(orders: Any) -> None:
    """Batches keep the order of the lines of one partition, from a pipe and from a file."""
    text = b"".join(b"%d\n" % number for number in range(25_000))
    done = orders.run("publish", "orders", "--partition", "1", "--acks", "leader", "--json", stdin=text)
    assert done.json == {"topic": "orders", "published": 25_000, "partitions": {"1": 25_000}}
    (orders.folder / "lines").write_bytes(text)
    orders.shell("callboard publish orders --partition 0 --acks none < lines")
    assert orders.run("consume", "orders", "--partition", "1").out == text
    assert orders.run("consume", "orders", "--partition", "0").out == text


def test_lines_of_a_slow_pipe_are_published_as_they_come(orders: Any) -> None:
    """A line is stored while the pipe stays open; Ctrl-C ends the wait for the next and closes the directory."""
    running = orders.start("publish", "orders")
    follower = orders.start("consume", "orders", "--follow")
    running.type(b"first\n")
    assert follower.line() == b"first\n"
    running.type(b"second\n")
    assert follower.line() == b"second\n"
    done = running.end(signal.SIGINT)
    assert done.code == 130
    assert "published 2 messages" in done.err
    assert "Traceback" not in done.err
    assert follower.end(signal.SIGTERM).code == 143
    assert orders.run("verify", "--json").json["ok"]


def test_an_unknown_topic_names_the_remedy(orders: Any) -> None:
    """The message says how to create it, and which topic may have been meant."""
    refused = orders.run("publish", "ordesr", "x", code=1)
    for part in ("callboard topic create", "--create", "Did you mean 'orders'"):
        assert part in refused.err


def test_create_makes_the_topic_when_it_is_missing(command: Any) -> None:
    """--create creates it with default settings, once."""
    command.run("publish", "new", "a", "--create")
    command.run("publish", "new", "b", "--create")
    assert values(command, "new") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("a b", "x"), "white space"),
        (("orders", "x", "--header", "novalue"), "NAME=VALUE"),
        (("orders", "x", "--header", "=1"), "NAME=VALUE"),
        (("orders", "x", "--key", "k" * 70_000), "key has 70000 bytes"),
        (("orders", "x", "--json-lines"), "--json-lines reads standard input"),
        (("orders", "x", "--partition", "-1"), "-1"),
        (("orders", "x", "--acks", "some"), "some"),
        (("orders", "x", "--partition", "2", "--create"), "no partition 2"),
    ],
)
def test_bad_arguments_make_nothing(command: Any, arguments: tuple[str, ...], part: str) -> None:
    """What can be seen to be wrong is refused with exit code 2, without a topic being made."""
    refused = command.run("publish", *arguments, code=2)
    assert part in refused.err
    assert not (command.folder / "data" / "topics").exists() or not list(
        (command.folder / "data/topics").iterdir()
    )


def test_a_partition_that_does_not_exist_is_refused(orders: Any) -> None:
    """The partitions that exist are named."""
    assert "0 to 1" in orders.run("publish", "orders", "x", "--partition", "2", code=2).err
    assert values(orders) == []


def test_a_line_that_is_too_large_is_named_and_those_before_it_are_stored(command: Any) -> None:
    """The exact limit is the topic's, also for a line that never ends."""
    command.run("topic", "create", "orders", "max_message_bytes=1000")
    command.run("publish", "orders", stdin=b"x" * 1000 + b"\n")
    refused = command.run("publish", "orders", stdin=b"a\nb\n" + b"x" * 1001 + b"\nc\n", code=2)
    assert "line 3" in refused.err
    assert "published 2 messages" in refused.err
    endless = command.run("publish", "orders", stdin=b"d\n" + b"x" * 3_000_000, code=2)
    assert "line 2" in endless.err
    with_key = command.run("publish", "orders", "--key", "k", stdin=b"x" * 1000, code=2)
    assert "line 1" in with_key.err
    assert values(command) == [b"x" * 1000, b"a", b"b", b"d"]


def test_what_consume_prints_can_be_published_again(orders: Any) -> None:
    """JSON lines go round: values, keys, headers, bytes that are no text, and times."""
    orders.run("publish", "orders", "a", b"\xff", "\u2603", "--key", "k", "--header", b"h=\xff")
    orders.shell("callboard consume orders --json | callboard publish copy --create --json-lines -d other")
    kept = ("value", "key", "headers", "timestamp")
    first = orders.run("consume", "orders", "--json").documents
    second = orders.run("consume", "copy", "-d", "other", "--json").documents
    assert [{name: found[name] for name in kept} for found in first] == [
        {name: found[name] for name in kept} for found in second
    ]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"nonsense", "Expecting value"),
        (b"[1]", "no object"),
        (b"{}", 'no object with a "value"'),
        (b'{"value": 3}', "value is neither text nor"),
        (b'{"value": "a", "kye": "b"}', "unknown fields kye"),
        (b'{"value": "a", "headers": [1]}', "headers are no object"),
        (b'{"value": "a", "headers": {"h": 1}}', "header 'h' is neither"),
        (b'{"value": "a", "headers": {"": "x"}}', "non-empty"),
        (b'{"value": "a", "key": {"base64": "*"}}', "base64 of key"),
        (b'{"value": "a", "timestamp": "2026-01-01T00:00:00"}', "no time zone"),
        (b'{"value": "a", "timestamp": "yesterday"}', "yesterday"),
        (b'{"value": "a", "timestamp": 5}', "timestamp is no text"),
        (b'{"value": "\\ud800"}', "surrogates"),
        (b"\xff\xfe", "codec"),
        (b"[" * 100_000, "recursion"),
        (b'{"value": 1' + b"0" * 5000 + b"}", "line 2"),
    ],
)
def test_a_bad_json_line_is_named_and_those_before_it_are_stored(orders: Any, line: bytes, part: str) -> None:
    """Whatever the line is, the message says which one and what is wrong with it."""
    good = json.dumps({"value": "good"}).encode()
    refused = orders.run(
        "publish", "orders", "--json-lines", stdin=good + b"\n" + line + b"\n" + good, code=2
    )
    assert "line 2 of standard input" in refused.err
    assert part in refused.err
    assert values(orders) == [b"good"]


def test_a_header_given_twice_is_refused(orders: Any) -> None:
    """Which of the two was meant is not guessed."""
    assert "twice" in orders.run("publish", "orders", "a", "--header", "h=1", "--header", "h=2", code=2).err
    assert values(orders) == []


def test_a_refused_line_does_not_say_that_nothing_was_written(orders: Any) -> None:
    """The lines before it are stored; the message says what is wrong, and ends in one full stop."""
    lines = b'{"value": "a"}\n{"value": "b", "timestamp": "2026-05-01"}\n'
    told = orders.run("publish", "orders", "--json-lines", stdin=lines, code=2).err
    assert "line 2" in told
    assert "no time zone. It and" in told
    assert "Nothing was written" not in told
    assert values(orders) == [b"a"]


def test_a_value_with_an_id_is_stored_once(orders: Any) -> None:
    """Each call succeeds; what `consume` prints of it says the id, and can be published again."""
    orders.run("topic", "create", "calls", "dedup_window=3600")
    for value, published in (("a", 1), ("b", 0)):
        done = orders.run("publish", "calls", value, "--dedup-id", "1", "--key", "k", "--json")
        assert done.json["published"] == published
    lines = orders.run("consume", "calls", "--json")
    (found,) = lines.documents
    assert (found["value"], found["dedup_id"]) == ("a", "1")
    orders.run("publish", "calls", "--json-lines", stdin=b"\n".join(lines.lines) + b"\n")
    assert values(orders, "calls") == [b"a"]


def test_values_and_lines_expire(orders: Any) -> None:
    """`--ttl` is for every message that says nothing itself; what `consume` prints of them can be published again."""
    orders.run("topic", "create", "calls", "default_ttl=3600")
    orders.run("publish", "calls", "a", "b", "--ttl", "60")
    orders.run("publish", "calls", "--json-lines", stdin=b'{"value": "c", "ttl": 7.5}\n{"value": "d"}\n')
    lines = orders.run("consume", "calls", "--json")
    assert [(found["value"], found["ttl"]) for found in lines.documents] == [
        ("a", 60),
        ("b", 60),
        ("c", 7.5),
        ("d", 3600),
    ]
    orders.run("publish", "calls", "--json-lines", stdin=b"\n".join(lines.lines) + b"\n")
    for wrong in ("0", "-1", "nan", "inf"):
        assert "'--ttl'" in orders.run("publish", "calls", "x", "--ttl", wrong, code=2).err
    told = orders.run(
        "publish", "calls", "--json-lines", stdin=b'{"value": "c", "ttl": "soon"}\n', code=2
    ).err
    assert "line 1 of standard input: ttl is no number" in told


def test_a_value_at_another_offset_is_refused(orders: Any) -> None:
    """The error says which offset comes next; several values cannot expect one offset."""
    orders.run("topic", "create", "calls")
    assert orders.run("publish", "calls", "a", "--expected-offset", "0").code == 0
    refused = orders.run("publish", "calls", "b", "--expected-offset", "0", code=None)
    assert refused.code != 0
    assert "the next offset of partition calls/0 is 1" in refused.err
    refused = orders.run("publish", "calls", "b", "c", "--expected-offset", "1", code=None)
    assert "for one VALUE" in refused.err
    assert values(orders, "calls") == [b"a"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_publish_counts_the_batch_that_was_under_way(
    orders: Any, number: signal.Signals, code: int
) -> None:
    """What it says is stored is what is stored, and nothing is in doubt that it has heard of."""
    running = orders.start("publish", "orders", "--partition", "0", "--json")
    line = b"x" * 500 + b"\n"
    for _ in range(20):
        running.type(line * 1000)
    done = running.end(number)
    assert done.code == code
    told = done.json
    stored = len(values(orders))
    assert (told["published"], told.get("in_doubt", 0)) == (stored, 0)


def test_lines_before_one_that_the_topic_does_not_allow_are_stored(orders: Any) -> None:
    """Errors of the topic's settings name the first such line, as those of the line itself do."""
    good, late = b'{"value": "good"}\n', b'{"value": "late"}\n'
    urgent, named = b'{"value": "x", "priority": 3}\n', b'{"value": "x", "dedup_id": "i"}\n'
    for wrong, words in ((urgent, "has a priority"), (named, "has a dedup_id")):
        lines = good * 3 + wrong + late + named + urgent + b"nonsense\n"
        refused = orders.run("publish", "orders", "--json-lines", stdin=lines, code=2)
        assert f"line 4 of standard input: it {words}, and topic 'orders' has no" in refused.err
        assert "It and what follows was not published" in refused.err
        assert "Nothing was written" not in refused.err
        assert "published 3 messages" in refused.err
    assert values(orders) == [b"good"] * 6
    waits = b'{"value": "x", "delay": 60, "dedup_id": "i"}\n'
    refused = orders.run("publish", "orders", "--json-lines", stdin=good + waits + late, code=2)
    assert "line 2 of standard input" in refused.err
    assert values(orders) == [b"good"] * 7


def test_a_duplicate_is_told_as_one(orders: Any) -> None:
    """Where the message is that was stored before, for people and as JSON; nothing is counted as published."""
    orders.run("topic", "create", "calls", "dedup_window=3600")
    orders.run("publish", "calls", "other")
    first = orders.run("publish", "calls", "a", "--dedup-id", "y")
    assert "published 1 message to calls" in first.err
    again = orders.run("publish", "calls", "b", "--dedup-id", "y")
    assert again.err == "nothing was published: calls has a message with this id at offset 1 of partition 0\n"
    found = orders.run("publish", "calls", "b", "--dedup-id", "y", "--json").json
    assert found == {
        "topic": "calls",
        "published": 0,
        "partitions": {},
        "duplicate": {"partition": 0, "offset": 1},
    }


def test_a_copy_of_messages_with_priorities_and_ids_needs_a_topic_made_for_them(command: Any) -> None:
    """--create makes none that would refuse them, and says which to make; the copy into that has all of it."""
    command.run("topic", "create", "urgent", "priorities=true", "dedup_window=3600")
    command.run("publish", "urgent", "plain")
    command.run("publish", "urgent", "a", "--priority", "7", "--dedup-id", "1")
    lines = command.run("consume", "urgent", "--json").out
    arguments = ("publish", "copy", "--create", "--json-lines", "-d", "other")
    refused = command.run(*arguments, stdin=lines, code=2)
    assert "line 2 of standard input has a priority" in refused.err
    advice = "topic create copy priorities=true dedup_window=3600"
    assert f"`callboard {advice}`" in refused.err
    assert command.run("topic", "list", "-d", "other", "--json").json == []
    command.run(*advice.split(), "-d", "other")
    command.run(*arguments, stdin=lines)
    copied = command.run("consume", "copy", "-d", "other", "--json").documents
    assert [found.get("priority") for found in copied] == [None, 7]
    assert [found.get("dedup_id") for found in copied] == [None, "1"]


@pytest.mark.parametrize("option", ["--priority", "--dedup-id"])
def test_create_makes_no_topic_that_refuses_its_message(command: Any, option: str) -> None:
    """The error says how to create it."""
    refused = command.run("publish", "new", "a", "--create", option, "3", code=2)
    assert "`callboard topic create new " in refused.err
    assert command.run("topic", "list", "--json").json == []


def test_help_names_every_field_of_json_lines(command: Any) -> None:
    """So does the how-to."""
    told = command.run("publish", "--help").out.decode()
    assert {name for name in FIELDS if f'"{name}"' not in told.replace("\n", " ")} == set()
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md").read_text()
    assert {name for name in FIELDS if f"| `{name}` |" not in page} == set()


def test_help_warns_of_what_a_pipe_holds(command: Any) -> None:
    """What is in it is acknowledged."""
    assert "--max, not `| head`" in " ".join(command.run("consume", "--help").out.decode().split())


def test_lines_that_are_stored_already_are_not_counted_as_published(command: Any) -> None:
    """Ids that the topic has, or that come twice in one batch, publish nothing, and the report says so."""
    command.run("topic", "create", "once", "dedup_window=100")
    lines = b"".join(b'{"value": "a", "dedup_id": "%s"}\n' % name for name in (b"u1", b"u2", b"u1"))
    first = command.run("publish", "once", "--json-lines", "--json", stdin=lines).json
    assert (first["published"], first["duplicates"]) == (2, 1)
    again = command.run("publish", "once", "--json-lines", "--json", stdin=lines).json
    assert (again["published"], again["duplicates"]) == (0, 3)
