"""`callboard delayed` and `callboard publish --delay`, through the real entry point."""

from __future__ import annotations

import json
from typing import Any


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
