"""Directories that earlier versions wrote: each still opens, and all that was in it is there.

`directories/NAME.tar.xz` is a directory as it was left, `NAME.json` what its user is to find: what `verify` says, every
record, and whom each group delivers what. `generate.py` made both and tells how. Only the public face is used
here, so that the tests hold whatever becomes of the code below it.

Time stands where it stood when the directory was left: the clock goes on from `left_us`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import sys
import tarfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
import callboard.cli

DIRECTORIES = Path(__file__).parent / "directories"
NAMES = sorted(path.stem for path in DIRECTORIES.glob("*.json"))
DAY_S = 86_400.0
PATIENCE_S = 60.0
"""A message that is still not there after so long is missing."""
SHORT_BYTES = 64
"""Values up to this size are kept as they are, longer ones as their hash."""

TOPIC_SETTINGS = (
    "partitions",
    "segment_bytes",
    "segment_age",
    "retention_age",
    "retention_bytes",
    "drop_unread",
    "compression",
    "max_message_bytes",
)
GROUP_SETTINGS = (
    "mode",
    "visibility_timeout",
    "max_in_flight",
    "group_expiry",
    "start",
    "durable",
    "backoff",
    "max_backoff",
)
Command = Callable[..., tuple[int, bytes]]
"""Runs `callboard` with arguments; returns its exit code and what it printed."""


class ClockAt:
    """Time goes on from an instant."""

    def __init__(self, wall_us: int) -> None:
        self._wall_us = wall_us
        self._began: float | None = None

    def monotonic(self) -> float:
        """Seconds on trio's clock."""
        return trio.current_time()

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        now = trio.current_time()
        if self._began is None:
            self._began = now
        return self._wall_us + round((now - self._began) * 1e6)


class Ledger(callboard.DurableActor[Any, Any]):
    """A user's actor: it books amounts under names, and tells how it came to know them."""

    snapshot_every = 4

    def __init__(self) -> None:
        self.booked: dict[str, int] = {}
        self.entries = 0

    async def receive(self, message: Any) -> Any:
        """Book a (name, amount), or with None tell all."""
        if message is not None:
            await self.persist(message)
        return {"booked": dict(sorted(self.booked.items())), "entries": self.entries}

    def apply(self, event: Any) -> None:
        """Book it."""
        name, amount = event
        self.booked[name] = self.booked.get(name, 0) + amount
        self.entries += 1

    def snapshot(self) -> Any:
        """Everything."""
        return [self.booked, self.entries]

    def restore(self, state: Any) -> None:
        """Everything."""
        self.booked, self.entries = state


# -- what a user sees, as JSON


def plain(data: bytes | None) -> Any:
    """Bytes as JSON: text as it is, what is no text in base64, what is long as a hash."""
    if data is None:
        return None
    if len(data) > SHORT_BYTES:
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()[:32]}
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain_setting(value: Any) -> Any:
    """A setting as JSON."""
    return value.isoformat() if isinstance(value, datetime) else value


def verified(command: Command) -> dict[str, Any]:
    """What `callboard verify` says of each log. Records of journals are the code's own business."""
    code, out = command("verify", "--json")
    logs = {}
    for log in json.loads(out)["logs"]:
        logs[log["name"]] = told = {
            what: [[item["kind"], item["first_offset"], item["last_offset"]] for item in log[what]]
            for what in ("problems", "notes")
        }
        if log["kind"] == "partition":
            told.update({key: log[key] for key in ("records", "start_offset", "end_offset")})
    return {"code": code, "logs": dict(sorted(logs.items()))}


def read_offline(command: Command) -> dict[str, dict[str, list[int]]]:
    """The offsets that can be read without the lock, by topic and partition."""
    found: dict[str, dict[str, list[int]]] = {}
    for topic in json.loads(command("topic", "list", "--json")[1]):
        found[topic["name"]] = {str(index): [] for index in range(topic["partitions"])}
        for line in command("consume", topic["name"], "--json")[1].splitlines():
            record = json.loads(line)
            found[topic["name"]][str(record["partition"])].append(record["offset"])
    return found


async def read(topic: callboard.Topic) -> dict[str, list[Any]]:
    """All records, by partition: offset, value, key, headers, event and append time.

    The value of a tombstone is empty.
    """
    found: dict[str, list[Any]] = {str(index): [] for index in range(topic.partitions)}
    async for record in topic.read():
        found[str(record.partition)].append(
            [
                record.offset,
                plain(record.value or b""),
                plain(record.key),
                {name: plain(value) for name, value in record.headers.items()},
                record.timestamp.isoformat(),
                record.append_time.isoformat(),
            ]
        )
    return found


async def describe(topic: callboard.Topic) -> list[dict[str, Any]]:
    """Where each partition begins and ends, and how many gaps and damages it tells of."""
    return [
        {
            "state": found.state,
            "start_offset": found.start_offset,
            "next_offset": found.next_offset,
            "visible_end": found.visible_end,
            "gaps": len(found.gaps),
            "damages": len(found.damages),
        }
        for found in await topic.describe()
    ]


async def describe_groups(runtime: callboard.Runtime) -> dict[str, Any]:
    """Each group with its settings and, by topic and partition, what it has settled and what is left."""
    found = {}
    for group in await runtime.groups():
        partitions = {
            f"{name}/{place.partition}": {
                "floor": state.floor,
                "ready": state.ready,
                "leased": state.leased,
                "pending": state.pending,
            }
            for name in group.topics
            for place in await runtime.topic(name).describe()
            for state in place.groups
            if state.group_id == group.group_id
        }
        found[group.name] = {
            "settings": {name: plain_setting(getattr(group.settings, name)) for name in GROUP_SETTINGS},
            "topics": sorted(group.topics),
            "members": group.members,
            "partitions": partitions,
        }
    return found


async def deliver(topic: callboard.Topic, group: str, count: int | None) -> list[list[int]]:
    """Acknowledge what the group delivers now: partition, offset and attempt of each message.

    With `count` there are so many and no more; without, it ends when nothing has come for a while.
    """
    found: list[list[int]] = []
    async with topic.subscribe(group) as consumer:
        while count is None or len(found) < count:
            message = await consumer.get(timeout=1.0 if count is None else PATIENCE_S)
            if message is None:
                break
            found.append([message.partition, message.offset, message.attempt])
            await message.ack(wait=False)
        extra = await consumer.get(timeout=0)
        assert extra is None, f"{extra} is delivered to {group}, attempt {extra and extra.attempt}"
    return sorted(found)


async def deliver_all(runtime: callboard.Runtime, expected: dict[str, Any] | None) -> dict[str, Any]:
    """What each group delivers of each of its topics."""
    found = {}
    for group in await runtime.groups():
        for name in sorted(group.topics):
            place = f"{group.name} of {name}"
            count = None if expected is None else len(expected.get(place, []))
            found[place] = await deliver(runtime.topic(name), group.name, count)
    return found


async def look(
    directory: Path, left_us: int, expected: dict[str, Any] | None, *, control: bool
) -> dict[str, Any]:
    """Open the directory as it was left: what is there, and what is delivered."""
    clock = ClockAt(left_us)
    async with callboard.open_runtime(directory, clock=clock, control=control) as runtime:
        topics = {}
        for topic in runtime.topics():
            # A partition that recovers answers when it has.
            records = await read(topic)
            settings = {name: plain_setting(getattr(topic.settings, name)) for name in TOPIC_SETTINGS}
            topics[topic.name] = {
                "settings": settings,
                "partitions": await describe(topic),
                "records": records,
            }
        groups = await describe_groups(runtime)
        found: dict[str, Any] = {"topics": topics, "groups": groups}
        found["deliveries"] = await deliver_all(runtime, expected and expected["deliveries"])
        if (directory / "actors").exists():
            ledger = await runtime.spawn(Ledger, name="ledger")
            found["ledger"] = await ledger.ask(None)
    return found


async def look_later(directory: Path, left_us: int, expected: dict[str, Any] | None) -> dict[str, Any]:
    """Open it a day later: what was delayed is delivered."""
    clock = ClockAt(left_us + round(DAY_S * 1e6))
    async with callboard.open_runtime(directory, clock=clock) as runtime:
        return await deliver_all(runtime, expected)


def unpack(name: str, folder: Path) -> Path:
    """The directory, as it was left. An archive holds no sockets: one that was left over is made again."""
    directory = folder / "data"
    with tarfile.open(DIRECTORIES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return directory


def leave_socket(directory: Path) -> None:
    """The socket of a process that was killed: nobody listens. Its path has to be short: it is made from within."""
    before = os.getcwd()
    os.chdir(directory)
    try:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind("control.sock")
    finally:
        os.chdir(before)


# -- the tests


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Command:
    """`callboard` on the unpacked directory, in this process."""

    def run(*arguments: str) -> tuple[int, bytes]:
        monkeypatch.setattr(sys, "argv", ["callboard", *arguments, "--directory", str(tmp_path / "data")])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            callboard.cli.main()
        return int(ended.value.code or 0), capfdbinary.readouterr().out

    return run


def expectations(name: str) -> Any:
    """What is to be found in a directory."""
    return json.loads((DIRECTORIES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_offline_it_reads_as_it_did(name: str, tmp_path: Path, command: Command) -> None:
    """`verify` says what it said when the directory was made, and every offset can be read without the lock."""
    expected = expectations(name)
    directory = unpack(name, tmp_path)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert verified(command) == expected["verify"]
    assert read_offline(command) == expected["offline"]
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_with_all_that_was_in_it(name: str, tmp_path: Path) -> None:
    """Topics, records, groups; then exactly the unsettled messages are delivered, with their attempts, each in time."""
    expected = expectations(name)
    directory = unpack(name, tmp_path)
    if expected["has_socket"]:
        leave_socket(directory)
    found = trio.run(lambda: look(directory, expected["left_us"], expected, control=expected["has_socket"]))
    assert found == {key: expected[key] for key in found}
    assert ("ledger" in found) == ("ledger" in expected)
    assert not (directory / "control.sock").exists()
    later = trio.run(look_later, directory, expected["left_us"], expected["later"])
    assert later == expected["later"]


@pytest.mark.parametrize("name", NAMES)
def test_it_goes_on_where_it_ended(name: str, tmp_path: Path) -> None:
    """Opened twice, it holds the same records; what is published now follows them, and is delivered."""
    expected = expectations(name)
    directory = unpack(name, tmp_path)

    async def publish_and_read() -> None:
        async with callboard.open_runtime(directory, clock=ClockAt(expected["left_us"])):
            pass
        async with callboard.open_runtime(directory, clock=ClockAt(expected["left_us"])) as runtime:
            for topic in runtime.topics():
                there = expected["topics"][topic.name]
                assert await read(topic) == there["records"]
                for index, partition in enumerate(there["partitions"]):
                    receipt = await topic.publish(b"new", key=b"k", headers={"h": b"v"}, partition=index)
                    assert receipt.offset == partition["next_offset"]
                    records = [record async for record in topic.read(receipt.offset, partition=index)]
                    assert [(r.offset, r.value, r.key) for r in records] == [(receipt.offset, b"new", b"k")]
            assert {group.name for group in await runtime.groups()} == set(expected["groups"])

    trio.run(publish_and_read)


def test_every_directory_has_its_expectations() -> None:
    """An archive without expectations would never be opened."""
    assert sorted(path.name.removesuffix(".tar.xz") for path in DIRECTORIES.glob("*.tar.xz")) == NAMES
    assert NAMES
