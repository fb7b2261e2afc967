"""The recorded traffic, a small profile of eight events, and runtimes whose deliveries are known."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import attrs
import pytest
import trio
import trio.testing


@pytest.fixture(scope="session")
def drawing(spark_packages: None) -> Any:
    """`callboard.simulations.workload.drawing`, which needs numpy."""
    return import_module("callboard.simulations.workload.drawing")


@pytest.fixture(scope="session")
def pieces(spark_packages: None) -> Any:
    """`callboard.simulations.workload.pieces`."""
    return import_module("callboard.simulations.workload.pieces")


@pytest.fixture(scope="session")
def content(spark_packages: None) -> Any:
    """`callboard.simulations.workload.content`."""
    return import_module("callboard.simulations.workload.content")


@pytest.fixture(scope="session")
def what_if(spark_packages: None) -> Any:
    """`callboard.simulations.workload.what_if`."""
    return import_module("callboard.simulations.workload.what_if")


@pytest.fixture
def small_profile() -> dict[str, Any]:
    """The document of a profile: alice at 0, 0, 1, 61.5 s, bob at 1 s twice, carol at 2 s, and one without a key."""
    return {
        "format": "callboard-profile",
        "version": 1,
        "events": 8,
        "start_us": 1_000_000_000,
        "span_us": 61_500_000,
        "time_step_us": 1_000,
        "bucket_us": 60_000_000,
        "bucket_counts": [7, 1],
        "sub_buckets": [[[2, 2], [3, 1]], [[1, 1]]],
        "burst": [[1, 1], [2, 2], [3, 1]],
        "arrival_log2_us": [[0, 4], [20, 2], [26, 1]],
        "key_top": [4, 2],
        "key_tail": {"keys": 1, "events": 1},
        "keyless": 1,
        "key_bytes": [[3, 1], [5, 2]],
        "gap_log2_us": [[0, 2], [20, 1], [26, 1]],
        "session_idle_us": 30_000_000,
        "session_events": [[1, 2], [2, 2]],
        "session_log2_us": [[0, 3], [20, 1]],
        "value_bin_bytes": 16,
        "value_bytes": [[0, 7], [4, 1]],
        "value_total_bytes": 100,
        "partitions": 2,
        "recording": None,
        "week_hours": [[72, 8]],
    }


@pytest.fixture
def small_dependence() -> dict[str, Any]:
    """What joins these events: two of each key at a time, but for carol; the one without a key comes after hers."""
    return {
        "clock_us": 100_000,
        "parts": [7, 0, 0, 0, 1, 0, 0, 0],
        "second_splits": [[[685, 18, 1]], [[685, 18, 1]], [[685, 11, 1]], []],
        "step_splits": [[], [], [], []],
        "hot": [
            {"windows": [[0, 1]], "sizes": [[0, 1]], "again": 0},
            {"windows": [[0, 4]], "sizes": [[0, 3], [1, 1]], "again": 0},
            {"windows": [[0, 2]], "sizes": [[0, 2]], "again": 65_536},
        ],
        "others": [[0, 0, 1, 1, 1]],
        "starts": [[1, 20, 1], [2, 12, 1], [4, 0, 1]],
        "runs": [[1, 1, 2], [2, 2, 1], [4, 3, 1]],
        "returns": [[4, 4, 1]],
        "size_first": [[0, 0, 3]],
        "size_next": [[0, 0, 3], [0, 1, 1]],
        "size_stays": 65_536,
        "window_sizes": [[0, 0, 7], [0, 1, 1]],
    }


@pytest.fixture
def small_profile_text(small_profile: dict[str, Any]) -> str:
    """The same as text."""
    return json.dumps(small_profile)


@pytest.fixture(scope="session")
def azure_code(nasa_log: pathlib.Path) -> pathlib.Path:
    """A trace of inference requests, beside the web server's log."""
    return nasa_log.parents[1] / "azure-llm" / "AzureLLMInferenceTrace_code.csv"


@pytest.fixture(scope="session")
def azure_conv(azure_code: pathlib.Path) -> pathlib.Path:
    """Another one."""
    return azure_code.with_name("AzureLLMInferenceTrace_conv.csv")


@pytest.fixture(scope="session")
def web_day(spark: Any, nasa_log: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The web server's log, imported once for all tests that only read it."""
    out = tmp_path_factory.mktemp("web") / "day"
    import_module("callboard.simulations.workload.importing").import_traffic(
        spark, [str(nasa_log)], str(out), partitions=3
    )
    return out


@attrs.define
class Story:
    """What a client did, and when: by partition and offset, times in microseconds."""

    directory: str
    """The files of its runtime."""
    world: Any
    published: dict[tuple[int, int], int] = attrs.Factory(dict)
    acked: dict[tuple[int, int], int] = attrs.Factory(dict)
    first_came: dict[tuple[int, int], int] = attrs.Factory(dict)
    deliveries: dict[tuple[int, int], int] = attrs.Factory(dict)
    nacks: int = 0
    opened_us: int = 0

    def run(self, client: Callable[[Story, Any], Awaitable[object]], **settings: Any) -> None:
        """Let a client use the runtime, on a clock that jumps, and put its files where other processes see them."""

        async def live() -> None:
            async with self.world.open(**settings) as runtime:
                await client(self, runtime)

        trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))
        for path, data in self.world.disk.files().items():
            file = pathlib.Path(self.directory, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    async def wait(self, seconds: float) -> None:
        """Let that much of the virtual time pass."""
        await trio.sleep(seconds)

    async def publish(self, topic: Any, partition: int, value: bytes = b"value") -> None:
        """Publish, and write down when."""
        receipt = await topic.publish(value, partition=partition)
        self.published[receipt.partition, receipt.offset] = self.world.clock.wall_us()

    def came(self, message: Any) -> tuple[int, int]:
        """Write down that a message came."""
        place = message.partition, message.offset
        self.deliveries[place] = self.deliveries.get(place, 0) + 1
        self.first_came.setdefault(place, self.world.clock.wall_us())
        return place

    async def ack(self, message: Any) -> None:
        """Acknowledge, and write down when."""
        await message.ack()
        self.acked[message.partition, message.offset] = self.world.clock.wall_us()


@pytest.fixture
def story(world: Any, tmp_path: pathlib.Path) -> Story:
    """A client that has done nothing yet."""
    return Story(str(tmp_path / "data"), world)


async def _nack_and_ack(story: Story, runtime: Any) -> None:
    topic = await runtime.create_topic("orders", partitions=2)
    async with topic.subscribe("billing", visibility_timeout=600) as consumer:
        story.opened_us = story.world.clock.wall_us()
        for number in range(60):
            await story.publish(topic, number % 2)
            await trio.sleep(1)
        while (message := await consumer.get(timeout=1.0)) is not None:
            tried = story.deliveries[story.came(message)]
            if (message.offset % 7 == 0 and tried == 1) or (message.offset % 14 == 0 and tried == 2):
                await message.nack(delay=0)
                story.nacks += 1
            else:
                await trio.sleep(3)
                await story.ack(message)
    await trio.sleep(1)
    await story.publish(topic, 1)


@pytest.fixture
def known(story: Story) -> Story:
    """Sixty records in two partitions, one a second, and one more that nobody took.

    Of each partition's thirty, offsets 0, 7, 14, 21 and 28 are nacked when they come, and 0, 14 and 28 once more. All
    are acked, one every three seconds.
    """
    story.run(_nack_and_ack)
    return story
