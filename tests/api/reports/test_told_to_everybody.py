"""What a program that has configured no logging reads on stderr, and what one that has gets: level, fields, traceback.

A process of its own meets everything that goes wrong, on a real directory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = '''
import json, logging, sys, threading
from pathlib import Path
import trio
import callboard
from callboard.actors.partition import committer
from callboard.log.host import verbs

SEGMENT = 65_536

class AsJson(logging.Handler):
    def emit(self, record):
        fields = getattr(record, "callboard", {})
        told = [record.name, record.levelname, record.getMessage(), {key: repr(value) for key, value in fields.items()}]
        print(json.dumps(told), flush=True)

if "structured" in sys.argv:
    logging.basicConfig(level=logging.DEBUG, handlers=[AsJson()])
    logging.getLogger("asyncio").setLevel(logging.ERROR)

async def heard(runtime, name, act):
    """Do something, and wait until the event of that name has come."""
    came = trio.Event()
    def hear(event):
        if type(event).__name__ == name:
            came.set()
    forget = runtime.subscribe_events(hear)
    await act()
    await came.wait()
    forget()

async def broken(context):
    raise LookupError("there is no such table")

async def fill(topic):
    """Publish until the topic refuses it."""
    try:
        for _ in range(10):
            await topic.publish(b"x" * 30_000)
    except callboard.TopicFull:
        return
    raise AssertionError("the topic took everything")

async def first(path):
    async with callboard.open_runtime(path) as runtime:
        # An actor of one's own crashes, is restarted, and stays down.
        spec = callboard.ChildSpec(
            name="migration", start=broken, significant=False, intensity=1,
            backoff=callboard.Backoff(initial=0.001, maximum=0.001),
        )
        await heard(runtime, "ActorFailed", lambda: runtime.spawn(spec))
        # A partition fails until it stays down.
        failing = await runtime.create_topic("failing")
        async def fail():
            while runtime.topic("failing") and (await failing.describe())[0].state != "failed":
                try:
                    runtime.crash("topics/failing/0", RuntimeError("a drill"))
                except callboard.CallboardError:
                    pass
                await trio.sleep(0.01)
        await fail()
        # The disk does not answer.
        slow = await runtime.create_topic("slow")
        gate, real, committer.STUCK_AFTER_S = threading.Event(), verbs._sync, 0.1
        verbs._sync = lambda number: (gate.wait(), real(number))[1]
        async with trio.open_nursery() as nursery:
            async def publish():
                nursery.start_soon(slow.publish, b"value")
            await heard(runtime, "PartitionStuck", publish)
            verbs._sync = real
            gate.set()
        # A group holds a full topic back.
        full = await runtime.create_topic("full", segment_bytes=SEGMENT, retention_bytes=SEGMENT)
        async with full.subscribe("holding"):
            pass
        await fill(full)
        # What a group has not read is dropped.
        dropping = await runtime.create_topic(
            "dropping", segment_bytes=SEGMENT, retention_bytes=SEGMENT, drop_unread=True
        )
        async with dropping.subscribe("late"):
            pass
        async def publish():
            for _ in range(10):
                await dropping.publish(b"x" * 30_000)
        await heard(runtime, "UnreadDropped", publish)
        # A group without members is forgotten.
        async def leave():
            async with slow.subscribe("gone", group_expiry=1.0):
                pass
        await heard(runtime, "GroupExpired", leave)
        damaged = await runtime.create_topic("damaged")
        for value in (b"one", b"two", b"three"):
            await damaged.publish(value)
        return damaged.topic_id

async def second(path):
    async with callboard.open_runtime(path) as runtime:
        assert [record.value async for record in runtime.topic("damaged").read()] == [b"one", b"three"]
        # What was full before is full still: that is told again, once a publish has looked at it.
        await fill(runtime.topic("full"))

topic_id = trio.run(first, "data")
(segment,) = Path("data/topics", topic_id, "0").glob("*.log")
stored = segment.read_bytes()
segment.write_bytes(stored.replace(b"two", b"twp"))
trio.run(second, "data")
'''


@pytest.fixture(scope="module", params=[[], ["structured"]])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bool, str, str]:
    """Whether the program has configured logging, what it printed, and its stderr."""
    folder: Path = tmp_path_factory.mktemp("told")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py", *request.param],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return bool(request.param), done.stdout, done.stderr


BROKEN_AT = 1 + PROGRAM[: PROGRAM.index("raise LookupError")].count("\n")
PLAIN = {
    f"user/migration crashed (LookupError: there is no such table, at program.py:{BROKEN_AT} in broken). It is": 1,
    "user/migration failed more often than its supervisor allows and stays down": 1,
    "topics/failing/0 crashed (RuntimeError: a drill).": 5,
    "topics/failing/0 failed more often than its supervisor allows and stays down (RuntimeError: a drill).": 1,
    "topics/slow/0 is stuck: its disk does not answer, and publishes are refused. Check the disk;": 1,
    "topics/full/0 is full: it holds ": 2,
    "topics/dropping/0: retention dropped 2 records that group late had not settled. Give": 1,
    "group gone had no member for 1 s and was forgotten: its place is lost. Give it": 1,
    "topics/damaged/0 is damaged: topics/": 1,
}
"""How a line begins, and how often it comes at least."""

STRUCTURED: dict[str, tuple[str, str, dict[str, str]]] = {
    "IncarnationCrashed": ("actors", "WARNING", {"path": "'user/migration'"}),
    "ActorFailed": ("actors", "ERROR", {"path": "'topics/failing/0'"}),
    "PartitionStuck": ("partitions", "WARNING", {"path": "'topics/slow/0'", "stuck": "True"}),
    "PartitionFull": ("partitions", "WARNING", {"path": "'topics/full/0'", "retention_bytes": "65536"}),
    "UnreadDropped": ("partitions", "WARNING", {"path": "'topics/dropping/0'", "records": "2"}),
    "GroupExpired": ("groups", "WARNING", {"group": "'gone'", "after_s": "1.0"}),
    "DamageFound": (
        "partitions",
        "WARNING",
        {"path": "'topics/damaged/0'", "first_offset": "1", "last_offset": "1", "is_new": "True"},
    ),
}
"""By event: its logger and level, and some of its fields."""


def test_what_goes_wrong_is_told_to_a_program_that_configures_nothing(told: tuple[bool, str, str]) -> None:
    """One line each on stderr, without a traceback; what is no warning is not there. With a handler it gets all."""
    is_configured, _, err = told
    lines = err.splitlines()
    if is_configured:
        assert lines == []
        return
    for beginning, least in PLAIN.items():
        assert sum(line.startswith(beginning) for line in lines) >= least, (beginning, err)
    assert "Traceback" not in err
    assert "user/migration is restarted in" not in err
    last = "lines like the ones before were left out"
    others = [line for line in lines if not line.startswith(tuple(PLAIN)) and last not in line]
    assert others == []


def test_each_kind_of_line_has_its_fields(told: tuple[bool, str, str]) -> None:
    """In the record's attribute `callboard`; the frames of a crash come at debug level, with the same fields."""
    is_configured, out, _ = told
    if not is_configured:
        assert out == ""
        return
    records: list[tuple[str, str, str, dict[str, Any]]] = [
        tuple(json.loads(line)) for line in out.splitlines() if '["callboard' in line
    ]
    for event, (logger, level, fields) in STRUCTURED.items():
        wanted = {"event": repr(event), **fields}.items()
        found = [record for record in records if record[1] == level and wanted <= record[3].items()]
        assert found, (event, out)
        assert {name for name, *_ in found} == {f"callboard.{logger}"}
    frames = [record for record in records if " crashed at:" in record[2]]
    assert {level for _, level, *_ in frames} == {"DEBUG"}
    (first, *_) = frames
    assert first[2].startswith("user/migration crashed at:\n  ")
    assert "program.py" in first[2]
    assert " in broken" in first[2]
    assert first[3]["event"] == "'IncarnationCrashed'"
