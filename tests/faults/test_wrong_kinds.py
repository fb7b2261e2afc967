"""A file, a link or a pipe lies where a folder belongs, or a link or a pipe where a file belongs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import JournalSalvaged
from callboard.actors.partition.delivery_journal import DISPLACED
from callboard.cli.journals import with_contents
from callboard.log.host.disk import HostDisk
from callboard.log.offline.repair import RepairReport, repair_directory
from callboard.log.offline.verify import VerifyReport, verify_directory
from callboard.offline import OfflineDirectory
from tests.faults.sum_keeper import SumKeeper

SEGMENT = "00000000000000000000.log"
FOLDERS = [
    "catalog",
    "topics",
    "topics/T",
    "topics/T/0",
    "topics/T/0/delivery",
    "topics/T/delayed-0",
    "topics/T/outbox-0",
    "topics/T/outbox-0/delivery",
    "actors",
    "actors/user/keeper",
    "journals",
    "journals/actors/user/keeper",
    "quarantine",
]
FILES = [
    f"catalog/{SEGMENT}",
    "catalog/committed",
    f"topics/T/0/{SEGMENT}",
    "topics/T/0/committed",
    f"topics/T/0/delivery/{SEGMENT}",
    "topics/T/0/delivery/committed",
    "topics/T/0/delivery/publishers",
    f"actors/user/keeper/{SEGMENT}",
    "journals/actors/user/keeper/end",
]


async def fill(directory: Path) -> str:
    """A topic with a delayed message, an outbox and a record of publishers, another topic, and an actor."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("orders", dedup_window=3600)
        await (await runtime.create_topic("other")).publish(b"other")
        await topic.publish(b"one", dedup_id="one")
        await topic.publish(b"late", delay=3600)
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            await message.publish("other", b"by ack")
            await message.ack()
        other = runtime.topic("other").read(follow=True)
        assert [(await anext(other)).value for _ in range(2)] == [b"other", b"by ack"]
        await (await runtime.spawn(SumKeeper, name="keeper")).ask(3)
        return topic.topic_id


@pytest.fixture(scope="module")
def sound(tmp_path_factory: Any) -> tuple[Path, str]:
    """A directory that is sound, and the id of its first topic."""
    directory = tmp_path_factory.mktemp("sound") / "data"
    topic_id = trio.run(fill, directory)
    (directory / "quarantine").mkdir()
    (directory / "quarantine" / "kept").write_bytes(b"kept")
    return directory, topic_id


@pytest.fixture
def damaged(sound: tuple[Path, str], tmp_path: Path) -> Any:
    """Make a copy in which something of the wrong kind has the place of `path`, which is returned beside it."""

    def make(path: str, kind: str) -> tuple[Path, str]:
        directory, topic_id = tmp_path / "data", sound[1]
        shutil.copytree(sound[0], directory)
        path = path.replace("/T", f"/{topic_id}")
        place = directory / path
        shutil.move(place, tmp_path / "moved")
        if kind == "file":
            place.write_bytes(b"content")
        elif kind == "pipe":
            os.mkfifo(place)
        elif kind == "link":
            place.symlink_to(tmp_path / "moved")
        else:
            place.symlink_to(tmp_path / "nowhere")
        return directory, path

    return make


async def verified(directory: Path) -> VerifyReport:
    """As `callboard verify` does."""
    async with OfflineDirectory(str(directory)) as offline:
        return await with_contents(offline, await verify_directory(offline.disk))


async def repaired(directory: Path, *, dry_run: bool = False) -> RepairReport:
    disk = HostDisk(directory)
    try:
        return await repair_directory(disk, dry_run=dry_run)
    finally:
        await disk.aclose()


CASES = [
    *((path, kind) for path in FOLDERS for kind in ("file", "pipe", "link", "dangling link")),
    *((path, kind) for path in FILES for kind in ("pipe", "link", "dangling link")),
]


@pytest.mark.parametrize(("path", "kind"), CASES)
async def test_it_is_the_damage_of_one_place_and_repair_moves_it_to_quarantine(
    damaged: Any, path: str, kind: str
) -> None:
    """Verify names it and checks the rest; repair, and only that, moves it, as it is; then nothing is in its place."""
    directory, path = damaged(path, kind)
    report = await verified(directory)
    wrong = [each for each in report.problems if each.kind in ("not-a-folder", "not-a-file")]
    assert [each.path for each in wrong] == [path]
    assert "quarantine" in wrong[0].message
    other = [log for log in report.logs if log.path.startswith("topics/") and log.path.endswith("/0")]
    if path != "topics":
        assert any(log.records >= 2 for log in other)
    assert (await repaired(directory, dry_run=True)).quarantined == ()
    moved = [each for each in (await repaired(directory)).quarantined if path.rpartition("/")[2] in each]
    assert len(moved) == 1
    place = directory / moved[0]
    assert place.is_fifo() if kind == "pipe" else place.is_symlink() == (kind != "file")
    assert all(
        each.kind not in ("not-a-folder", "not-a-file") for each in (await verified(directory)).problems
    )
    assert not [each.path for each in (await repaired(directory)).actions]


@pytest.mark.parametrize(("path", "kind"), [case for case in CASES if case[1] in ("file", "dangling link")])
async def test_opening_reports_it_in_words_and_serves_the_other_topic(
    damaged: Any, path: str, kind: str
) -> None:
    """Whatever cannot be opened names the place and `callboard repair`; after that, all can be opened but a catalog."""
    directory, path = damaged(path, kind)
    told: list[str] = []
    await use(directory, told)
    is_shared = path.startswith("catalog") or path == "topics"
    assert all("other" not in words for words in told) or is_shared
    for words in told:
        assert "callboard repair" in words
        assert re.search(rf"{re.escape(path)}(?![\w/])", words)
        assert "verb" not in words
        assert "plan" not in words
    await repaired(directory)
    told.clear()
    await use(directory, told)
    if not path.startswith("catalog"):
        assert told == []


async def use(directory: Path, told: list[str]) -> None:
    """Publish to all topics, and ask the actor; what is refused is `told`."""
    try:
        async with callboard.open_runtime(directory) as runtime:
            for name in ("orders", "other"):
                try:
                    await runtime.topic(name).publish(b"new")
                except callboard.CallboardError as error:
                    told.append(f"{name}: {error}")
            try:
                await (await runtime.spawn(SumKeeper, name="keeper")).ask(1)
            except callboard.CallboardError as error:
                told.append(f"keeper: {error}")
    except callboard.CallboardError as error:
        told.append(f"opening: {error}")


async def test_a_delivery_journal_of_nothing_but_a_folder_begins_anew(
    autojump_clock: Any, world: Any
) -> None:
    """It is gone, and what has the name of its file is in the way: opening moves that, and serves."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    folder = f"topics/{topic.topic_id}/0/delivery"
    for path in [path for path in world.disk.paths() if path.startswith(f"{folder}/")]:
        world.disk.tree.unlink(path)
    world.put(f"{folder}/committed/kept", b"content")
    async with world.open() as runtime:
        async with runtime.topic("jobs").subscribe("group") as consumer:
            assert (await consumer.get()).offset == 0
        assert (await runtime.topic("jobs").publish(b"more", partition=0)).offset == 3


async def test_opening_reports_a_folder_in_the_place_of_the_committed_file_of_a_delivery_journal(
    autojump_clock: Any, world: Any
) -> None:
    """The records of the journal are there, and that they are all of them nothing says any more."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    path = f"topics/{topic.topic_id}/0/delivery/committed"
    world.disk.tree.unlink(path)
    world.put(f"{path}/kept", b"content")
    async with world.open() as runtime:
        (partition,) = await runtime.topic("jobs").describe()
        told = [
            logged.event.damage for logged in runtime.events() if isinstance(logged.event, JournalSalvaged)
        ]
        assert len(told) == 1
        assert path in told[0]
        assert partition.damages == tuple(told)
        async with runtime.topic("jobs").subscribe("group") as consumer:
            assert (await consumer.get()).offset == 1
    async with world.open() as runtime:
        (partition,) = await runtime.topic("jobs").describe()
        assert partition.damages == ()


async def test_opening_reports_a_folder_in_the_place_of_a_segment_of_a_delivery_journal(
    autojump_clock: Any, world: Any
) -> None:
    """What the groups had settled since is lost without any other trace when no sync of it is on record."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    folder = f"topics/{topic.topic_id}/0/delivery"
    path = f"{folder}/00000000000000000099.log"
    world.put(f"{path}/kept", b"content")
    async with world.open() as runtime:
        (partition,) = await runtime.topic("jobs").describe()
        told = [
            logged.event.damage for logged in runtime.events() if isinstance(logged.event, JournalSalvaged)
        ]
        assert told == [f"{path}: {DISPLACED}"]
        assert partition.damages == tuple(told)
        async with runtime.topic("jobs").subscribe("group") as consumer:
            assert (await consumer.get()).offset == 1
    async with world.open() as runtime:
        (partition,) = await runtime.topic("jobs").describe()
        assert partition.damages == ()


async def test_a_folder_in_the_place_of_a_segment_is_refused_and_no_record_counts_as_lost(
    autojump_clock: Any, world: Any
) -> None:
    """As any other thing in its place; when the file is put back, all is there."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
    path = f"topics/{topic.topic_id}/0/{SEGMENT}"
    content = world.disk.files()[path]
    world.disk.tree.unlink(path)
    world.put(f"{path}/kept", b"content")
    async with world.open() as runtime:
        with pytest.raises(
            callboard.PartitionUnavailable, match=f"{path} is a folder, and a file belongs there"
        ):
            await runtime.topic("jobs").publish(b"more", partition=0)
    world.disk.tree.unlink(f"{path}/kept")
    world.disk.tree.directory(path.rpartition("/")[0]).change({SEGMENT: None})
    world.put(path, content)
    async with world.open() as runtime:
        assert [record.offset async for record in runtime.topic("jobs").read()] == [0, 1, 2]
        assert (await runtime.topic("jobs").describe())[0].damages == ()


async def test_a_lock_that_is_no_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Permissions and space have nothing to do with it."""
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(callboard.StorageError, match=r"is no file\. Nothing was opened\. Remove it"):
        async with callboard.open_runtime(tmp_path):
            pass
