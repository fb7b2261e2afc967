"""The history and its entries."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import callboard
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.history import History
from callboard.simulations.history.clients import ObservedTopic, consume
from callboard.simulations.history.surviving import collect


class Around:
    """What observed clients need of a world."""

    def __init__(self) -> None:
        self.history = History()
        self.retry_budget = 0
        self.consumers: dict[str, object] = {}
        self.probes: list[str] = []

    def probe(self, name: str, about: str = "") -> None:
        self.probes.append(name)


@pytest.fixture
def around() -> Around:
    return Around()


def test_a_dead_machine_records_nothing():
    """What a machine does after its end is not in the history."""
    history = History(now=lambda: 0.0)
    history.booted(1)
    history.ended(1, "power cut")
    history.record(1, "publish", "p1")
    history.record(2, "publish", "p1")
    assert [(entry.kind, entry.machine) for entry in history.entries] == [
        ("booted", 0),
        ("power cut", 0),
        ("publish", 2),
    ]


def test_entries_are_told_in_words():
    """An entry says who did what, where and for the how many-th time."""
    lines: list[str] = []
    history = History(now=lambda: 1.5, tell=lines.append)
    history.record(1, "delivered", "w2", 4, "orders", 1, "billing", (3,), (17,), (2,), 31.5)
    assert (
        history.entries[0].words() == "consumer w2 of billing was handed orders/1@17 (attempt 2): message 3"
    )
    assert len(lines) == 1
    assert history.story()[0].split() == f"1.500 s {history.entries[0].words()}".split()


def test_every_kind_has_words():
    """Whatever the kind, an entry is a sentence without its full stop."""
    history = History(now=lambda: 0.0)
    for kind in ("publish", "published", "refused", "unsure", "ack", "lost", "healed", "fault", "anything"):
        history.record(1, kind, "x", 1, "orders", 0, "billing", (1, 2, 3, 7), (5, 6), (1, 2), detail="why")
    assert all(entry.words() and not entry.words().endswith(".") for entry in history.entries)
    assert "4 messages 1..3, 7" in history.entries[0].words()


def test_entries_of_several_kinds_come_in_order():
    """Looking for kinds keeps the order of the history."""
    history = History(now=lambda: 0.0)
    for kind in ("ack", "nack", "ack", "left"):
        history.record(1, kind)
    assert [entry.kind for entry in history.of("nack", "ack")] == ["ack", "nack", "ack"]


def test_a_full_history_says_so_and_keeps_what_it_has():
    """A run that never ends must not fill the memory first."""
    words: list[str] = []
    history = History(now=lambda: 0.0, full=words.append, limit=3)
    for number in range(5):
        history.note("remark", str(number))
    assert [entry.detail for entry in history.entries] == ["0", "1", "2"]
    assert len(words) == 2
    assert "3 entries" in words[0]


async def test_clients_record_what_they_do_and_see(around: Around):
    """Publishes, deliveries and settlements of observed clients make a history, which matches what survives."""
    disk, clock = MemoryDisk(), VirtualClock()

    def open_runtime():
        return callboard.open_runtime(disk=disk, clock=clock, entropy=SeededEntropy(1))

    async def work(consumer):
        async with consumer.receive() as message:
            assert message.value == b"one"
        message = await consumer.get()
        await consumer.nack(message)
        for _ in range(2):
            message = await consumer.get()
            await consumer.ack(message, wait=False)
        assert message.attempt == 2
        await consumer.flush()
        batch = await consumer.next_batch(max_records=5)
        assert await consumer.ack(batch) == "acked"

    async with open_runtime() as runtime:
        topic = ObservedTopic(around, 1, await runtime.create_topic("orders"), "p1")
        assert await topic.publish(b"one", key=b"k") == "published"
        assert await topic.publish_batch([b"two", b"three"]) == "published"
        assert await topic.publish(b"four", acks="none") == "unsure"
        await topic.flush()
        assert await topic.publish(b"x" * (2 << 20)) == "refused"
        assert not await consume(around, 1, topic.topic, "billing", "w1", work)
    surviving = await collect(around.history, disk, open_runtime)
    again = await collect(around.history, disk, open_runtime)
    (left,) = surviving.partitions
    assert left.records == {0: 0, 1: 1, 2: 2, 3: 3}
    assert (left.groups[0].floor, left.groups[0].pending) == (4, 0)
    assert surviving.digests == again.digests
    assert [entry.attempts for entry in around.history.of("delivered")] == [(1,), (1,), (1,), (2,), (1,)]
    assert {"publish", "deliver", "ack", "nack", "flush"} <= set(around.probes)


async def test_a_crashed_consumer_leaves_and_what_it_was_doing_is_unsure(around: Around):
    """Crashing a consumer ends its task; the history tells that it left."""
    disk = MemoryDisk()
    async with callboard.open_runtime(disk=disk, entropy=SeededEntropy(1)) as runtime:
        topic = await runtime.create_topic("orders")
        async with trio.open_nursery() as nursery:

            async def work(consumer):
                await consumer.get()

            async def run():
                assert await consume(around, 1, topic, "billing", "w1", work)

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            consumer = around.consumers["w1"]
            assert consumer.crash()
            assert not consumer.crash()
    assert [entry.kind for entry in around.history.entries] == [
        "joining",
        "joined",
        "asks",
        "gave up",
        "left",
        "gone",
    ]
    assert around.consumers == {}


@pytest.mark.parametrize("in_batch", [False, True])
async def test_each_retry_is_a_point_that_faults_count_by(around: Around, autojump_clock, in_batch: bool):
    """One message or a batch: a publish that may have happened is tried again while the world allows, and says so."""

    class Doubtful:
        """A topic whose answers never come."""

        name = "orders"

        async def publish(self, value, **_):
            raise callboard.PublishFailed("nobody knows", indefinite=True)

        publish_batch = publish

    around.retry_budget = 2
    topic = ObservedTopic(around, 1, Doubtful(), "p1")
    assert await (topic.publish_batch([b"one"]) if in_batch else topic.publish(b"one")) == "unsure"
    assert around.probes.count("publish") == 3
    assert around.probes.count("retry") == 2
