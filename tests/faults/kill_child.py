"""The process that the SIGKILL tests kill: publishes and consumes until it dies, and writes down what it was promised.

    python kill_child.py DIRECTORY RECORDS LIFE SEED

RECORDS is a folder; this life's facts go to the file LIFE in it, one line each, with one `write` to a file opened for
appending, so they survive this process whenever it dies. A fact is written after what it reports (and "T" before):

    C                          the topic exists
    P partition offset id      the publish of message `id` was acknowledged
    D partition offset id      a consumer was given the message
    X partition offset         it was not what was published under its id
    T partition offset         its acknowledgement is about to be sent
    A partition offset         its acknowledgement was awaited (or flushed), and returned
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import trio

import callboard

TOPIC = {"partitions": 2, "segment_bytes": 64 * 1024}


def message(name: str) -> bytes:
    """The whole payload of message `name`: made from its name alone, so anybody can check it."""
    source = random.Random(name)
    return name.encode() + b":" + source.randbytes(source.choice((0, 1, 100, 2000)))


def name_of(value: bytes) -> str:
    """The name in a payload."""
    return value.partition(b":")[0].decode("ascii", "replace")


class Facts:
    """The file of this life's facts."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, *lines: str) -> None:
        """Facts, in one write."""
        data = "".join(line + "\n" for line in lines).encode()
        if os.write(self._file, data) != len(data):
            raise SystemExit("a fact was cut short")


async def publish(topic: callboard.Topic, facts: Facts, life: str, who: int, seed: int) -> None:
    """Publish for ever: single messages and batches, synced or handed to the system."""
    draw, count = random.Random(f"{seed} publisher {who}"), 0
    while True:
        size = draw.choice((1, 1, 1, 7, 60))
        names = [f"{life}.{who}.{count + number}" for number in range(size)]
        count += size
        acks = draw.choice(("all", "all", "leader"))
        if size == 1:
            receipts = [await topic.publish(message(names[0]), key=b"%d" % who, acks=acks)]
        else:
            values = [message(name) for name in names]
            receipts = list(await topic.publish_batch(values, keys=[b"%d" % who] * size, acks=acks))
        pairs = zip(names, receipts, strict=True)
        facts.write(*(f"P {receipt.partition} {receipt.offset} {name}" for name, receipt in pairs))


def delivered(facts: Facts, partition: int, offset: int, value: bytes) -> None:
    """Write down a delivery, and whether it is what was published."""
    name = name_of(value)
    facts.write(f"D {partition} {offset} {name}")
    if value != message(name):
        facts.write(f"X {partition} {offset}")


async def consume_singly(topic: callboard.Topic, facts: Facts) -> None:
    """Await every acknowledgement."""
    async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
        async for received in consumer:
            place = f"{received.partition} {received.offset}"
            delivered(facts, received.partition, received.offset, received.value)
            facts.write(f"T {place}")
            await received.ack()
            facts.write(f"A {place}")


async def consume_lazily(topic: callboard.Topic, facts: Facts) -> None:
    """Acknowledge without waiting, and flush now and then."""
    async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
        places: list[str] = []
        async for received in consumer:
            place = f"{received.partition} {received.offset}"
            delivered(facts, received.partition, received.offset, received.value)
            facts.write(f"T {place}")
            await received.ack(wait=False)
            places.append(place)
            if len(places) == 20:
                await consumer.flush()
                facts.write(*(f"A {place}" for place in places))
                places.clear()


async def consume_batches(topic: callboard.Topic, facts: Facts) -> None:
    """Acknowledge batch by batch."""
    async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
        async for batch in consumer.batches(max_records=50):
            places = [f"{batch.partition} {offset}" for offset in batch.offsets()]
            for offset, value in zip(batch.offsets(), batch.values(), strict=True):
                delivered(facts, batch.partition, offset, value)
            facts.write(*(f"T {place}" for place in places))
            await batch.ack()
            facts.write(*(f"A {place}" for place in places))


async def main(directory: str, records: str, life: str, seed: int) -> None:
    """Work until killed."""
    facts = Facts(Path(records, life))
    print("opening", flush=True)
    async with callboard.open_runtime(directory, seed=seed) as runtime, trio.open_nursery() as nursery:
        topic = await runtime.create_topic("orders", **TOPIC)
        facts.write("C")
        for who in range(4):
            nursery.start_soon(publish, topic, facts, life, who, seed)
        nursery.start_soon(consume_singly, topic, facts)
        nursery.start_soon(consume_lazily, topic, facts)
        nursery.start_soon(consume_batches, topic, facts)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
