"""`callboard verify` and `callboard repair`, on directories whose files were tampered with."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard

COMMAND = Path(sys.executable).with_name("callboard")


@pytest.fixture
def damaged(command: Any) -> Any:
    """A directory in which the batch with the offsets 1000 to 1999 of partition orders/0 is damaged."""
    command.run(
        "publish", "orders", "--create", stdin=b"".join(b"value %d\n" % number for number in range(3000))
    )
    path = segment(command.folder)
    content = bytearray(path.read_bytes())
    at = content.index(b"value 1500")
    content[at : at + 5] = b"VALUE"
    path.write_bytes(content)
    return command


def segment(folder: Path) -> Path:
    """The only segment of the only partition."""
    (path,) = (folder / "data" / "topics").glob("*/0/*.log")
    return path


def test_a_sound_directory_verifies(orders: Any) -> None:
    """Exit code 0, and what was read is counted."""
    orders.run("publish", "orders", "a", "b", "c")
    printed = orders.run("verify").out.decode()
    assert "2 partitions with 3 messages, and " in printed
    assert "of the broker's own with " in printed
    assert "sound" in printed
    found = orders.run("verify", "--json").json
    assert (True, 2, 3) == (found["ok"], found["partitions"], found["messages"])
    partitions = {log["name"]: log for log in found["logs"] if log["kind"] == "partition"}
    assert sum(log["records"] for log in partitions.values()) == 3
    assert set(partitions) == {"orders/0", "orders/1"}
    assert b"nothing is damaged" in orders.run("repair").out


def test_damage_is_named_by_topic_and_offsets(damaged: Any) -> None:
    """Verify exits with 4 and names the topic, the offsets lost and the place in the file."""
    found = damaged.run("verify", code=4).out.decode()
    assert "orders/0" in found
    assert "offsets 1000 to 1999" in found
    assert "byte" in found
    report = damaged.run("verify", "--json", code=4).json
    assert not report["ok"]
    problems = [problem for log in report["logs"] for problem in log["problems"]]
    assert (problems[0]["first_offset"], problems[0]["last_offset"]) == (1000, 1999)


def test_repair_makes_it_whole_and_keeps_what_it_took_out(damaged: Any) -> None:
    """A dry run exits with 4 and changes nothing; a repair loses no readable record; then all is sound."""
    before = segment(damaged.folder).read_bytes()
    planned = damaged.run("repair", "--dry-run", "--json", code=4).json
    assert planned["actions"]
    assert segment(damaged.folder).read_bytes() == before
    done = damaged.run("repair", "--json").json
    assert done["changed"]
    (lost,) = done["lost"]
    assert (lost["name"], lost["first_offset"], lost["last_offset"]) == ("orders/0", 1000, 1999)
    assert all((damaged.folder / "data" / path).exists() for path in done["quarantined"])
    assert damaged.run("verify", "--json").json["ok"]
    kept = damaged.run("consume", "orders", "--json")
    offsets = [document["offset"] for document in kept.documents]
    assert offsets == [*range(1000), *range(2000, 3000)]
    assert "1000 to 1999" in kept.err
    assert b"nothing is damaged" in damaged.run("repair").out


@pytest.mark.parametrize("delay", [0.3, 0.4, None])
def test_a_repair_that_is_terminated_is_done_by_the_next(damaged: Any, delay: float | None) -> None:
    """At whatever moment (None: once it has begun to take things out), no readable record is lost."""
    running = damaged.start("repair")
    if delay is None:
        while running.process.poll() is None and not list(damaged.folder.glob("data/**/quarantine")):
            pass
    else:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(delay)
    found = running.end(signal.SIGTERM)
    # Until Python has begun to run the command, the signal has its usual effect.
    assert found.code in (0, 143, -signal.SIGTERM)
    assert "Traceback" not in found.err
    damaged.run("repair")
    assert damaged.run("verify", "--json").json["ok"]
    offsets = [document["offset"] for document in damaged.run("consume", "orders", "--json").documents]
    assert offsets == [*range(1000), *range(2000, 3000)]


def test_repair_tells_people_what_it_did(damaged: Any) -> None:
    """Each thing done, and each range given up, is a line."""
    planned = damaged.run("repair", "--dry-run", code=4).out.decode()
    assert "would be given up" in planned
    assert "nothing was changed" in planned
    done = damaged.run("repair").out.decode()
    assert "lost: orders/0: offsets 1000 to 1999 given up" in done
    assert "kept: quarantine/" in done or "/quarantine/" in done


def test_damage_in_the_catalog_leaves_the_rest_verifiable(orders: Any) -> None:
    """Topics whose names cannot be read are named by their ids; the exit code is 4 for every command that needs it."""
    orders.run("publish", "orders", "a")
    for path in (orders.folder / "data" / "catalog").glob("*.log"):
        content = bytearray(path.read_bytes())
        content[:256] = b"\xa5" * 256
        path.write_bytes(content)
    report = orders.run("verify", "--json", code=4).json
    assert sum(log["kind"] == "partition" and log["records"] == 1 for log in report["logs"]) == 1
    assert "callboard verify" in orders.run("consume", "orders", code=4).err
    assert "callboard" in orders.run("publish", "orders", "b", code=4).err


def test_a_newer_format_is_refused_by_name(orders: Any) -> None:
    """A directory that a later version wrote is not touched: the message says what to do."""
    orders.run("publish", "orders", "a", "--partition", "0")
    for path in (orders.folder / "data").rglob("*.log"):
        content = path.read_bytes()
        path.write_bytes(newer(content))
    before = {path: path.read_bytes() for path in (orders.folder / "data").rglob("*.log")}
    for arguments in (
        ("verify",),
        ("repair",),
        ("consume", "orders"),
        ("topic", "list"),
        ("publish", "orders", "b"),
    ):
        refused = orders.run(*arguments, code=1)
        assert "FormatTooNew" in refused.err
    assert before == {path: path.read_bytes() for path in (orders.folder / "data").rglob("*.log")}


def newer(content: bytes) -> bytes:
    """A segment as if a later version had written it: both copies of its header say so."""
    copy = content[:8] + struct.pack("<H", 2) + content[10:60]
    return (copy + struct.pack("<I", zlib.crc32(copy))) * 2 + content[128:]


def test_a_locked_directory_names_its_holder(orders: Any) -> None:
    """Whatever needs the lock exits with 5 and says who has it; whatever only looks works beside it."""
    orders.run("publish", "orders", "a", "b", "--partition", "0")
    holder = orders.start("publish", "orders", "--partition", "0")
    follower = orders.start("consume", "orders", "--follow", "--partition", "0")
    assert [follower.line(), follower.line()] == [b"a\n", b"b\n"]
    holder.type(b"c\n")
    assert follower.line() == b"c\n"
    for arguments in (
        ("publish", "orders", "x"),
        ("consume", "orders", "--group", "g"),
        ("topic", "create", "new"),
        ("topic", "alter", "orders", "retention_age=60"),
        ("topic", "delete", "orders", "--yes"),
        ("repair",),
    ):
        refused = orders.run(*arguments, code=5)
        assert f"process {holder.process.pid}" in refused.err
    assert "control=True" in orders.run("topic", "alter", "orders", "retention_age=60", code=5).err
    assert orders.run("stats", "--json").json["partitions"][0]["visible_end"] == 3
    assert b"orders" in orders.run("topic", "describe", "orders").out
    assert orders.run("topic", "list", "--json").json[0]["records"] == 3
    assert orders.run("peek", "orders").lines == [b"a", b"b", b"c"]
    assert orders.run("verify", "--json").json["ok"]
    assert orders.run("repair", "--dry-run", "--json").json["actions"] == []
    assert "no runtime listens" in orders.run("tree", code=1).err
    assert holder.end().code == 0
    follower.end(signal.SIGTERM)


def test_a_killed_process_leaves_notes_and_no_damage(orders: Any) -> None:
    """After SIGKILL a directory verifies, and what was published is there."""
    holder = orders.start("publish", "orders", "--partition", "0")
    follower = orders.start("consume", "orders", "--follow")
    holder.type(b"a\nb\n")
    assert [follower.line(), follower.line()] == [b"a\n", b"b\n"]
    holder.end(signal.SIGKILL)
    follower.end(signal.SIGTERM)
    assert orders.run("verify", "--json").json["ok"]
    assert orders.run("consume", "orders").lines == [b"a", b"b"]
    assert orders.run("stats", "--json").json["partitions"][0]["visible_end"] == 2


def test_progress_is_for_terminals(orders: Any) -> None:
    """On a terminal, standard error shows how far verify is; the report is the same as ever."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [COMMAND, "verify"],
            cwd=orders.folder,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
            check=True,
        )
        shown = os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"verifying" in shown
    assert done.stdout == orders.run("verify").out


def test_losses_are_told_until_they_are_accepted(damaged: Any) -> None:
    """Stats tell what was lost at every opening, and verify notes it, until `repair --accept`."""
    damaged.run("repair")
    for _ in range(2):
        assert damaged.run("stats", "--json").json["partitions"][0]["lost_records"] == 1000
        told = damaged.run("stats").out.decode()
        assert "given up by repair; offsets 1000 to 1999 are lost" in told
        assert "repair --accept" in told
    assert "repair --accept" in damaged.run("verify").out.decode()
    assert "1000 lost records are acknowledged" in damaged.run("repair", "--accept").out.decode()
    assert damaged.run("stats", "--json").json["partitions"][0]["lost_records"] == 0
    assert "given up" not in damaged.run("stats").out.decode()
    assert "repair --accept" not in damaged.run("verify").out.decode()


def test_a_topic_that_lost_its_name_is_not_forgotten(command: Any) -> None:
    """Where the catalog is damaged, listing says that topics may be missing; after repair verify names their files."""
    for name in ("kept", "lost"):
        command.run("publish", name, "1", "2", "--create")
    path = command.folder / "data" / "catalog" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    at = content.index(b"lost")
    content[at] ^= 4
    path.write_bytes(content)
    listed = command.run("topic", "list", code=4)
    assert b"kept" in listed.out
    assert "topics may be missing" in listed.err
    command.run("repair", code=4)
    verified = command.run("verify", code=4).out
    assert b"nameless" in verified
    assert b"move the topic's folder away" in verified
    assert command.run("verify", code=4).out == verified


def test_repair_says_that_it_cannot_mend_a_missing_catalog(command: Any) -> None:
    """It does not call a directory sound whose topics have lost all names."""
    command.run("publish", "orders", "1", "--create")
    shutil.rmtree(command.folder / "data" / "catalog")
    for options in ((), ("--dry-run",)):
        assert b"the catalog is missing" in command.run("repair", *options, code=4).out


def test_what_a_catalog_has_lost_is_told_until_it_is_accepted(command: Any) -> None:
    """Each opening says in one line which records are gone and what is missing; so do `stats` and `verify`."""
    trio.run(_make_group, command.folder / "data")
    (path,) = (command.folder / "data" / "catalog").glob("*.log")
    content = bytearray(path.read_bytes())
    content[content.index(b"billing")] ^= 1
    path.write_bytes(content)
    assert b"lost: catalog: offset" in command.run("repair").out
    for _ in range(2):
        found = command.run("stats", "--json")
        catalog = found.json["catalog"]
        (damage,) = catalog["damages"]
        assert "given up by repair" in damage
        assert catalog["lost_records"] > 0
        assert catalog["missing"] == ["group 1"]
        (line,) = [line for line in found.err.splitlines() if "catalog" in line]
        assert "group 1" in line
        assert "callboard repair --accept" in line
        assert "bug" not in found.err
    told = command.run("stats").out.decode()
    assert damage in told
    assert "group 1" in told
    assert "repair --accept" in command.run("verify").out.decode()
    assert "acknowledged" in command.run("repair", "--accept").out.decode()
    found = command.run("stats", "--json")
    assert (found.json["catalog"]["damages"], found.json["catalog"]["missing"]) == ([], [])
    assert found.err == ""
    assert "--accept" not in command.run("stats").out.decode() + command.run("verify").out.decode()
    assert b"nothing is damaged" in command.run("repair", "--accept").out


def test_a_new_group_inherits_nothing_of_one_that_the_catalog_has_lost(command: Any) -> None:
    """It gets an id of its own: what the lost group has acked comes to it."""

    async def work(group: str) -> bytes | None:
        async with callboard.open_runtime(command.folder / "data") as runtime:
            async with runtime.topic("orders").subscribe(group) as consumer:
                message = await consumer.get(timeout=10.0)
                if message is not None:
                    await message.ack()
                return None if message is None else message.value

    command.run("publish", "orders", "one", "--create")
    assert trio.run(work, "billing") == b"one"
    (path,) = (command.folder / "data" / "catalog").glob("*.log")
    content = bytearray(path.read_bytes())
    content[content.index(b"billing")] ^= 1
    path.write_bytes(content)
    command.run("repair")
    assert trio.run(work, "audit") == b"one"


async def _make_group(folder: Path) -> None:
    """A topic and a durable group that has been left: its creation, and an event about it, lie in the catalog."""
    async with callboard.open_runtime(folder) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
        async with topic.subscribe("billing"):
            pass


@pytest.mark.parametrize("partition", [0, 1])
def test_a_log_whose_files_are_gone_is_no_sound_one(orders: Any, partition: int) -> None:
    """Verify, a dry run, and repair find what the next opening would find: the committed file proves the loss."""
    orders.run("publish", "orders", "a", "b", "c", "--partition", str(partition))
    for path in (orders.folder / "data" / "topics").glob(f"*/{partition}/*.log"):
        path.unlink()
    told = orders.run("verify", code=4).out.decode()
    assert f"DAMAGED: orders/{partition}: lost: offsets 0 to 2: every segment of the log is gone" in told
    planned = orders.run("repair", "--dry-run", "--json", code=4).json
    done = orders.run("repair", "--json").json
    assert (planned["actions"], planned["lost"]) == (done["actions"], done["lost"])
    (lost,) = done["lost"]
    assert (lost["name"], lost["first_offset"], lost["last_offset"]) == (f"orders/{partition}", 0, 2)
    assert orders.run("verify", "--json").json["ok"]
    assert b"nothing is damaged" in orders.run("repair").out
    orders.run("publish", "orders", "d", "--partition", str(partition))
    (found,) = orders.run("consume", "orders", "--json").documents
    assert (found["value"], found["offset"]) == ("d", 3)


def test_a_delivery_journal_whose_files_are_gone_is_lost(orders: Any) -> None:
    """It is damage as well, and repair makes the journal whole again."""
    orders.run("publish", "orders", "a", "b", "--partition", "0")
    orders.run("consume", "orders", "--group", "billing", "--durable", "--max", "2")
    for path in (orders.folder / "data" / "topics").glob("*/0/delivery/*.log"):
        path.unlink()
    assert "orders/0/delivery: lost: offsets 0 to" in orders.run("verify", code=4).out.decode()
    orders.run("repair", "--dry-run", code=4)
    assert orders.run("repair", "--json").json["lost"]
    assert orders.run("verify", "--json").json["ok"]
