"""Workers that send letters for a topic of jobs, through a service that fails now and then: each is sent once."""

from __future__ import annotations

from collections import Counter

import trio

import callboard
from callboard.testing import Machine, World, always, note, simulate, sometimes

LETTERS = 6


class ServiceDown(Exception):
    """The service could not take the letter."""


class LetterService:
    """A service of somebody else's. It sends a letter once per key, however often it is asked to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: Counter[bytes] = Counter()
        self.keys: set[str] = set()

    async def send(self, key: str, letter: bytes) -> None:
        await trio.sleep(self.world.entropy.random())
        if self.world.entropy.random() < 0.2:
            raise ServiceDown
        sometimes("a letter is sent again", key in self.keys)
        if key not in self.keys:
            note(f"the service sends {letter.decode()}")
            self.keys.add(key)
            self.sent[letter] += 1
        await trio.sleep(self.world.entropy.random())


class Worker:
    """Takes jobs, one at a time, until none has come for a while."""

    def __init__(self, jobs: callboard.Topic, service: LetterService) -> None:
        self.jobs = jobs
        self.service = service

    async def run(self) -> None:
        async with self.jobs.subscribe("workers") as consumer:
            while (message := await consumer.get(timeout=60)) is not None:
                key = message.value.decode()  # it may be in the topic twice: a publisher tries again
                try:
                    await self.service.send(key, message.value)
                except ServiceDown:
                    await message.nack(delay=1.0)
                else:
                    await message.ack()


@simulate
async def test_each_letter_is_sent_once(world: World) -> None:
    """Two workers share the jobs; whatever stops when, no letter is lost and none is sent twice."""
    service = LetterService(world)
    todo = [b"letter %d" % number for number in range(LETTERS)]

    async def day(machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            jobs = await runtime.create_topic("jobs")
            if todo:
                await jobs.publish_batch(todo)
                todo.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(Worker(jobs, service).run)

    await world.machine_until_done(day)
    always(len(service.sent) == LETTERS, f"{LETTERS - len(service.sent)} letters were never sent")
    always(max(service.sent.values()) == 1, f"sent more than once: {service.sent.most_common(1)}")
