"""`callboard schedule`, through the real entry point."""

from __future__ import annotations

from typing import Any

import trio

from callboard import open_runtime


def test_schedules_are_added_listed_changed_and_removed(command: Any) -> None:
    """From one command to the next: they are in the directory."""
    command.run("topic", "create", "orders")
    assert "no schedules" in command.run("schedule", "list").err
    assert "schedules" not in command.run("stats").out.decode()
    cron = ["--cron", "0 0 29 2 *", "--zone", "Europe/Berlin"]
    added = command.run(
        "schedule", "add", "orders", "leap", "tea", *cron, "--key", "k", "--header", "a=b", "--json"
    )
    found = added.json
    assert "schedules: 1, 0 paused; 0 firings published" in command.run("stats").out.decode()
    assert (found["name"], found["cron"], found["zone"]) == ("leap", "0 0 29 2 *", "Europe/Berlin")
    assert (found["value"], found["key"], found["headers"], found["missed"]) == (
        "tea",
        "k",
        {"a": "b"},
        "latest",
    )
    assert (
        "-02-28T23:00"
        in command.run("schedule", "add", "orders", "leap", "tea", *cron, "--key", "k", "--header", "a=b").err
    )
    command.run("schedule", "add", "orders", "often", "x", "--every", "86400", "--missed", "skip")
    assert [each["name"] for each in command.run("schedule", "list", "orders", "--json").json] == [
        "leap",
        "often",
    ]
    told = command.run("schedule", "list").out.decode()
    assert "every 86400 s" in told
    assert "0 0 29 2 * Europe/Berlin" in told
    (first, second) = command.run("schedule", "next", "orders", "leap", "--count", "2").out.decode().split()
    assert first[4:] == second[4:] == "-02-29T00:00:00+01:00"
    command.run("schedule", "pause", "orders", "often")
    assert "paused" in command.run("schedule", "list").out.decode()
    command.run("schedule", "resume", "orders", "often")
    assert command.run("schedule", "remove", "orders", "often", "--json").json["removed"]
    assert [each["name"] for each in command.run("schedule", "list", "--json").json] == ["leap"]


def test_what_cannot_be_is_refused(command: Any) -> None:
    """In one line, before anything is written."""
    command.run("topic", "create", "orders")
    for options in (
        ["--cron", "61 * * * *"],
        ["--cron", "* * * * *", "--every", "5"],
        ["--cron", "* * * * *", "--zone", "Nowhere"],
        ["--every", "nan"],
        [],
    ):
        ended = command.run("schedule", "add", "orders", "tick", "x", *options, code=2)
        assert len(ended.err.strip().splitlines()) == 1
    assert "has no schedule" in command.run("schedule", "remove", "orders", "tick", code=1).err
    assert "has no schedule" in command.run("schedule", "next", "orders", "tick", code=1).err
    assert "nowhere" in command.run("schedule", "list", "nowhere", code=1).err


async def test_beside_a_running_program(command: Any) -> None:
    """Its runtime has the schedule at once, and publishes what is due."""
    async with open_runtime(command.folder / "data", control=True) as runtime:
        orders = await runtime.create_topic("orders")

        def work() -> Any:
            command.run("schedule", "add", "orders", "tick", "x", "--every", "0.1")
            listed = command.run("schedule", "list", "--json").json
            command.run("schedule", "pause", "orders", "tick")
            return listed

        (listed,) = await trio.to_thread.run_sync(work)
        assert (listed["topic"], listed["name"], listed["every"]) == ("orders", "tick", 0.1)
        (found,) = orders.schedules()
        assert found.is_paused
