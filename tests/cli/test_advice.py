"""What the errors of journals advise: each command that a message names exists, and leads to a directory that opens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import cbor2
import pytest
import trio

import callboard
from callboard.actors.catalog.state import RECORDS_VERSION
from callboard.actors.kernel import DurableActor
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.host.entropy import HostEntropy
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, ignore

COMMANDS = re.compile(r"`callboard ([^`]*)`")


async def fill(folder: Path) -> None:
    """A topic with two groups, one of which has settled a message."""
    async with callboard.open_runtime(folder) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"one", b"two", b"three"])
        async with topic.subscribe("billing") as billing, topic.subscribe("mail") as mail:
            for consumer in (billing, mail):
                await (await consumer.get()).ack()


async def append(folder: Path, directory: Path, record: object) -> None:
    """Append a record to a journal, as nothing of Callboard would."""
    disk = HostDisk(folder)
    try:
        journal = await Journal.open(
            await disk.incarnate("drill"),
            str(directory.relative_to(folder)),
            Owner(ignore, ignore, RECORDS_VERSION),
            clock=HostClock(),
            entropy=HostEntropy(),
        )
        await journal.append([cbor2.dumps(record)])
        await journal.close()
    finally:
        await disk.aclose()


async def complaint(folder: Path) -> callboard.CallboardError | None:
    """What is wrong with the directory, or its partition; None when all messages are served to both groups."""
    try:
        async with callboard.open_runtime(folder) as runtime:
            topic = runtime.topic("orders")
            for name in ("billing", "mail"):
                async with topic.subscribe(name) as consumer:
                    offsets = set()
                    while len(offsets | {0}) < 3:
                        message = await consumer.get(timeout=5.0)
                        assert message is not None
                        offsets.add(message.offset)
    except callboard.PartitionUnavailable as unavailable:
        assert isinstance(unavailable.__cause__, callboard.CallboardError)
        return unavailable.__cause__
    except callboard.CallboardError as error:
        return error
    return None


def flip(directory: Path, needle: bytes | None = None) -> None:
    """Flip a bit of the newest segment: of `needle`, else in its last byte that is not zero."""
    path = max(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    place = data.index(needle) if needle else len(data.rstrip(b"\0")) - 1
    data[place] ^= 1
    path.write_bytes(data)


def catalog(folder: Path) -> Path:
    return folder / "catalog"


def delivery(folder: Path) -> Path:
    (found,) = (folder / "topics").glob("*/0/delivery")
    return found


SENSELESS = {
    "an event of a group that does not fit": [0, 1, [["A", 77, [1, 2]]]],
    "an event of a group that does not parse": [0, 2, [["L", 0]]],
    "a record that does not parse": "?",
}


@pytest.mark.parametrize("record", SENSELESS.values(), ids=SENSELESS)
def test_a_delivery_journal_without_sense_has_a_way_out(command: Any, record: object) -> None:
    """Verify names it, a plain repair leaves it alone; the command that the error names sets back the group."""
    folder = command.folder / "data"
    trio.run(fill, folder)
    trio.run(append, folder, delivery(folder), record)
    error = trio.run(complaint, folder)
    assert isinstance(error, callboard.JournalInvalid)
    (advice,) = COMMANDS.findall(str(error))
    assert b"senseless" in command.run("verify", code=4).out
    assert b"left alone" in command.run("repair", code=4).out
    assert isinstance(trio.run(complaint, folder), callboard.JournalInvalid)
    assert b"would be reset" in command.run(*shlex.split(advice), "--dry-run", code=4).out
    done = command.run(*shlex.split(advice), "--json").json
    assert done["resets"]
    assert all(reset["floor"] == 1 and reset["forgotten_records"] >= 1 for reset in done["resets"])
    assert list((folder / "quarantine").glob("*delivery*"))
    assert b"sound" in command.run("verify").out
    assert trio.run(complaint, folder) is None


async def fill_beside(folder: Path) -> None:
    """A delayed message, and one that an ack has published, which waits in the outbox until its topic has room."""
    async with callboard.open_runtime(folder) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"later", delay=0.1)
        await topic.publish(b"now")
        full = await runtime.create_topic("full", retention_bytes=65536, segment_bytes=65536)
        async with full.subscribe("lazy"):
            with pytest.raises(callboard.TopicFull):
                while True:
                    await full.publish(bytes(3000))
        async with topic.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.publish("full", b"by ack")
            await message.ack()


async def state_beside(folder: Path, beside: str) -> str:
    """The state of the partition beside that of the topic, once it has recovered or failed."""
    async with callboard.open_runtime(folder) as runtime:
        while True:
            found = await runtime.stats()
            (state,) = {each.state for each in getattr(found, beside) if each.topic == "orders"}
            if state in ("running", "failed"):
                return state
            await trio.sleep(0.05)


@pytest.mark.parametrize(("beside", "name"), [("delayed", "delayed-0"), ("outbox", "outbox-0")])
@pytest.mark.parametrize("group", ["*", "0"])
def test_a_journal_without_sense_beside_a_partition_has_a_way_out(
    command: Any, beside: str, name: str, group: str
) -> None:
    """Verify, repair and its reset know the waiting and outbox partitions of a topic as they know its partitions."""
    folder = command.folder / "data"
    trio.run(fill_beside, folder)
    (partition,) = (folder / "topics").glob(f"*/{name}")
    trio.run(append, folder, partition / "delivery", [0, 0, [["A", 777, [1, 2]]]])
    assert b"senseless" in command.run("verify", code=4).out
    said = command.run("repair", code=4).out
    assert b"left alone" in said
    assert f"orders/0 ({beside})".encode() in said
    assert trio.run(state_beside, folder, beside) == "failed"
    assert command.run("repair", "--reset-deliveries", group, "--json").json["resets"]
    assert b"sound" in command.run("verify").out
    assert trio.run(state_beside, folder, beside) == "running"


def test_setting_back_one_group_leaves_another_that_makes_no_sense_alone(command: Any) -> None:
    """The journal is replaced as a whole, so nothing is done until every group concerned is named."""
    folder = command.folder / "data"
    trio.run(fill, folder)
    for group_id in (1, 2):
        trio.run(append, folder, delivery(folder), [0, group_id, [["A", 77, [1, 2]]]])
    refused = command.run("repair", "--reset-deliveries", "billing", code=4)
    assert "--reset-deliveries 2" in refused.err
    command.run("repair", "--reset-deliveries", "billing", "--reset-deliveries", "2")
    assert trio.run(complaint, folder) is None


@pytest.mark.parametrize("needle", [b"orders", None], ids=["in the middle", "in the last append"])
def test_a_damaged_catalog_is_repaired_as_its_error_says(command: Any, needle: bytes | None) -> None:
    """The command that the error names makes the directory open again, without what is lost."""
    folder = command.folder / "data"
    trio.run(fill, folder)
    if needle is None:
        trio.run(append, folder, catalog(folder), {"kind": 200})
        (catalog(folder) / "committed").read_bytes()
        unmark(catalog(folder))
    flip(catalog(folder), needle)
    error = trio.run(complaint, folder)
    assert isinstance(error, callboard.LogCorrupt)
    assert COMMANDS.findall(str(error)) == ["repair"]
    command.run("verify", code=4)
    # A topic whose name is lost stays lost, and repair says so.
    assert command.run("repair", "--json", code=0 if needle is None else 4).json["changed"]
    found = trio.run(complaint, folder)
    assert found is None if needle is None else isinstance(found, callboard.TopicNotFound)


def unmark(directory: Path) -> None:
    """Take away the mark of a clean close, as if the process had died just before."""
    path = max(directory.glob("*.log"))
    data = path.read_bytes()
    end = data.rindex(b"\xf9CBF")
    path.write_bytes(data[:end] + bytes(len(data) - end))


def test_a_catalog_without_sense_is_named_and_no_command_is_advised(command: Any) -> None:
    """Nothing of ours mends it, so the error names no command; verify names the event."""
    folder = command.folder / "data"
    trio.run(fill, folder)
    trio.run(append, folder, catalog(folder), {"kind": 2, "topic": "77", "settings": {}})
    error = trio.run(complaint, folder)
    assert isinstance(error, callboard.JournalInvalid)
    assert not COMMANDS.findall(str(error))
    assert b"77" in command.run("verify", code=4).out
    assert b"left alone" in command.run("repair", code=4).out


class Counter(DurableActor[int, int]):
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    async def receive(self, message: int) -> int:
        await self.persist(message)
        return self.count

    def apply(self, event: int) -> None:
        self.count += event


async def counted(folder: Path) -> int:
    """Count one more."""
    async with callboard.open_runtime(folder) as runtime:
        return await (await runtime.spawn(Counter, name="one")).ask(1)


def test_an_actor_whose_journal_is_gone_begins_anew_as_its_error_says(command: Any) -> None:
    """Both ways out are named. What was counted is lost, and the actor starts."""
    folder = command.folder / "data"
    assert trio.run(counted, folder) == 1
    for path in (folder / "actors" / "user" / "one").glob("*.log"):
        path.unlink()
    with pytest.raises(callboard.CallboardError) as refused:
        trio.run(counted, folder)
    said = str(refused.value.__cause__ or refused.value)
    assert "from a copy" in said
    assert COMMANDS.findall(said) == ["repair"]
    assert command.run("repair", "--json").json["changed"]
    assert trio.run(counted, folder) == 1


def test_a_catalog_that_is_gone_is_not_offered_repair(command: Any) -> None:
    """No repair makes it again, so that its error names no command."""
    folder = command.folder / "data"
    trio.run(fill, folder)
    for path in catalog(folder).glob("*.log"):
        path.unlink()
    error = trio.run(complaint, folder)
    assert isinstance(error, callboard.LogCorrupt)
    assert "from a copy" in str(error)
    assert not COMMANDS.findall(str(error))
    command.run("repair", code=4)
    assert isinstance(trio.run(complaint, folder), callboard.LogCorrupt)


@pytest.mark.parametrize("place", [catalog, delivery])
def test_a_later_version_is_never_offered_repair(command: Any, place: Any) -> None:
    """Opening, verify and repair all say that Callboard must be upgraded, and change nothing."""
    folder = command.folder / "data"
    trio.run(fill, folder)
    trio.run(append, folder, place(folder), {"kind": 99, "group": 1})
    before = {path: path.read_bytes() for path in place(folder).glob("*.log")}
    error = trio.run(complaint, folder)
    assert isinstance(error, callboard.FormatTooNew)
    assert not COMMANDS.findall(str(error))
    for name in ("verify", "repair"):
        assert "Upgrade Callboard" in command.run(name, code=1).err
    assert before == {path: path.read_bytes() for path in place(folder).glob("*.log")}
