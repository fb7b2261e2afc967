"""A folder has the name of a small file beside the segments."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory

INDEX = "00000000000000000000.index"
FILES = ["committed", "damages", INDEX, "delivery/committed", "delivery/publishers", "catalog"]


@pytest.mark.parametrize("name", FILES)
async def test_a_folder_in_place_of_a_small_file_is_reported_and_set_aside(
    autojump_clock: Any, world: Any, name: str
) -> None:
    """Verify names it, repair moves it to quarantine with all that is in it, and every message is served after."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=1, dedup_window=3600)
        for number in range(3):
            await topic.publish(b"message", dedup_id=f"id {number}")
    path = "catalog/committed" if name == "catalog" else f"topics/{topic.topic_id}/0/{name}"
    if path in world.disk.files():
        world.disk.tree.unlink(path)
    world.put(f"{path}/kept", b"content")
    found = [each for each in (await verify_directory(world.disk)).problems if each.kind == "folder"]
    assert [each.path for each in found] == [path]
    assert "is a folder" in found[0].message
    assert (await repair_directory(world.disk, dry_run=True)).quarantined == ()
    quarantined = (await repair_directory(world.disk)).quarantined
    assert len(quarantined) == 1
    assert world.disk.file(f"{quarantined[0]}/kept") == b"content"
    await repair_directory(world.disk)
    assert all(each.kind == "publishers" for each in (await verify_directory(world.disk)).problems)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert [message.value async for message in topic.read()] == [b"message"] * 3
        assert (await topic.publish(b"message", dedup_id="id 1")).offset == 1
    assert (await verify_directory(world.disk)).ok
