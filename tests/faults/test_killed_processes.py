"""SIGKILL at random moments of a publishing and consuming process: what it was promised holds."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import attrs
import pytest

import callboard
from callboard.log.host.disk import HostDisk
from callboard.log.offline.verify import verify_directory

CHILD = Path(__file__).with_name("kill_child.py")
ROUNDS = 5
Place = tuple[int, int]


def _child_module() -> Any:
    """The child script as a module: its payloads are checked with its own code."""
    spec = importlib.util.spec_from_file_location("kill_child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


child = _child_module()


@attrs.define
class Promises:
    """What the lives were promised, and what they saw."""

    topic_exists: bool = False
    stored: dict[Place, str] = attrs.Factory(dict)
    delivered: dict[Place, set[str]] = attrs.Factory(lambda: defaultdict(set))
    tried: set[Place] = attrs.Factory(set)
    acked: set[Place] = attrs.Factory(set)
    broken: list[str] = attrs.Factory(list)

    def read(self, path: Path) -> None:
        """Take in the facts of one life, in their order."""
        for line in path.read_text().splitlines():
            tag, *words = line.split()
            if tag == "C":
                self.topic_exists = True
                continue
            place = int(words[0]), int(words[1])
            if tag == "P":
                if self.stored.setdefault(place, words[2]) != words[2]:
                    self.broken.append(f"{place} was given to {self.stored[place]} and to {words[2]}")
            elif tag == "D":
                self.delivered[place].add(words[2])
                if place in self.acked:
                    self.broken.append(f"{place} was delivered after its ack ({path.name})")
            elif tag == "X":
                self.broken.append(f"{place} was delivered altered")
            else:
                {"T": self.tried, "A": self.acked}[tag].add(place)


def live(directory: Path, records: Path, life: int, draw: random.Random) -> None:
    """One life of the child: killed after a time drawn from the seed, counted from when it begins to open."""
    records.mkdir(exist_ok=True)
    command = [sys.executable, str(CHILD), str(directory), str(records), str(life), str(draw.getrandbits(32))]
    duration = draw.choice((draw.uniform(0.0, 0.08), draw.uniform(0.05, 1.0)))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            if line != b"opening\n":
                pytest.fail(f"the child did not begin: {process.stderr.read().decode()}")
            try:
                process.wait(timeout=duration)
            except subprocess.TimeoutExpired:
                return
            pytest.fail(f"the child ended by itself: {process.stderr.read().decode()}")
        finally:
            process.kill()


async def check(directory: Path, promises: Promises) -> int:
    """Hold a last, whole life to everything that was promised; returns how many records there are."""
    async with callboard.open_runtime(directory) as runtime:
        if promises.topic_exists:
            runtime.topic("orders")
        topic = await runtime.create_topic("orders", **child.TOPIC)
        log = {(record.partition, record.offset): record.value async for record in topic.read()}
        names = {place: child.name_of(value) for place, value in log.items()}
        assert [place for place, value in log.items() if value != child.message(names[place])] == []
        assert {place: names.get(place) for place in promises.stored} == promises.stored
        assert len(set(names.values())) == len(names), "a message is in the log twice"
        _check_order(names)
        wrong = {place: seen for place, seen in promises.delivered.items() if seen != {names.get(place)}}
        assert wrong == {}, "what was delivered is not what the log holds"
        again = await _consume_rest(topic)
        assert len(again) == len(set(again))
        assert promises.acked.isdisjoint(again), "an awaited ack was forgotten"
        assert set(log) - promises.tried <= set(again), "an unacked message does not come again"
    return len(log)


async def _consume_rest(topic: callboard.Topic) -> list[Place]:
    """Everything that the group has not settled, as it is delivered."""
    again: list[Place] = []
    async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
        pending = [part.groups[0].pending for part in await topic.describe()]
        for _ in range(sum(pending)):
            received = await consumer.get()
            assert received is not None
            again.append((received.partition, received.offset))
            await received.ack(wait=False)
    return again


def _check_order(names: dict[Place, str]) -> None:
    """Each publisher's messages are in its order, with none missing before a later one, life by life."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place in sorted(names):
        life, who, number = names[place].split(".")
        found[life, who].append(int(number))
    for source, numbers in found.items():
        assert numbers == list(range(len(numbers))), f"publisher {source}"


async def run(directory: Path, records: Path, seed: int) -> None:
    """Several lives in one directory, then the check."""
    draw, promises = random.Random(seed), Promises()
    for life in range(ROUNDS):
        live(directory, records, life, draw)
    for life in range(ROUNDS):
        promises.read(records / str(life))
    assert promises.broken == []
    await check(directory, promises)
    disk = HostDisk(str(directory))
    report = await verify_directory(disk)
    await disk.aclose()
    assert [problem for log in report.logs for problem in log.problems] == []


@pytest.mark.parametrize("seed", [1])
async def test_what_was_promised_holds_after_five_kills(tmp_path: Path, seed: int) -> None:
    """Acknowledged records are there, in order, unaltered; awaited acks hold; only unacked messages come again."""
    await run(tmp_path / "data", tmp_path / "records", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
async def test_what_was_promised_holds_after_fifty_kills(tmp_path: Path, seed: int) -> None:
    """The same ten times over: fifty kills."""
    await run(tmp_path / "data", tmp_path / "records", seed)
