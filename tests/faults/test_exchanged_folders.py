"""The folders of two partitions have exchanged their names."""

from __future__ import annotations

from typing import Any

from callboard.log.offline.verify import verify_directory


async def test_verify_says_whose_the_segments_in_a_wrong_folder_are(autojump_clock: Any, world: Any) -> None:
    """So somebody can move them back before the directory is opened, or repaired: then nothing is damaged."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in (0, 1):
            await topic.publish(b"message", partition=partition)
    folders = [f"topics/{topic.topic_id}/{partition}" for partition in (0, 1)]

    def exchange() -> None:
        files = world.disk.files()
        for here, there in (folders, folders[::-1]):
            for path, data in files.items():
                if path.startswith(f"{here}/"):
                    world.put(path.replace(here, there), data)

    exchange()
    strays = [each for each in (await verify_directory(world.disk)).problems if each.kind == "stray"]
    for here, there in (folders, folders[::-1]):
        told = [each.message for each in strays if each.path.startswith(f"{here}/0000")]
        assert told == [f"the file is no part of the log: it belongs to another log, {there}"]
    exchange()
    assert (await verify_directory(world.disk)).ok
