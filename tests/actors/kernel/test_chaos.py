"""Random crashes, stops, kills and time-outs: no question stays open, no message disappears."""

import random
from collections import Counter

import pytest
import trio

from callboard.actors.kernel import Actor, MailboxSpec
from callboard.log.errors import ActorCrashed, ActorStopped, AskTimeout, MailboxFull

SENDERS = 8
MESSAGES = 60


class Moody(Actor):
    """Does what the message says, which is seldom good for it."""

    def __init__(self, handled):
        self.handled = handled
        self.kept = []

    async def receive(self, message):
        mood, number = message
        self.handled.add(number)
        match mood:
            case "crash":
                raise ValueError(number)
            case "nap":
                await trio.sleep(0.5)
            case "hang":
                await trio.sleep_forever()
            case "stop":
                self.context.stop()
            case "defer":
                self.kept.append((self.context.defer_reply(), number))
                return None
            case "answer":
                for reply, kept in self.kept:
                    reply.answer(kept)
                self.kept.clear()
            case "task":
                self.context.start_task(self.fail_later)
        return number

    async def fail_later(self):
        await trio.sleep(0.1)
        raise OSError("task")


MOODS = ["fine"] * 8 + ["crash", "nap", "hang", "stop", "defer", "answer", "task"]


@pytest.mark.parametrize("seed", range(12))
async def test_every_question_ends_and_every_statement_is_accounted_for(autojump_clock, stage, seed):
    """Each ask ends with its answer or an error; each tell is handled, refused or among the dead letters."""
    chance = random.Random(seed)
    handled, outcomes, accepted = set(), Counter(), set()

    async def sender(ref, first):
        for number in range(first, first + MESSAGES):
            message = (chance.choice(MOODS), number)
            await trio.sleep(chance.random() * 0.2)
            try:
                if chance.random() < 0.5:
                    timeout = chance.choice([None, 0.1, 2])
                    assert await ref.ask(message, timeout=timeout) == number
                    outcomes["answered"] += 1
                    assert number in handled
                else:
                    with trio.move_on_after(chance.choice([0.05, 5])) as scope:
                        await ref.tell(message)
                    if not scope.cancelled_caught:
                        accepted.add(number)
            except (ActorCrashed, AskTimeout, MailboxFull, ActorStopped) as error:
                outcomes[type(error).__name__] += 1

    async def killer(ref):
        while True:
            await trio.sleep(chance.random() * 3)
            chance.choice([ref.kill, ref.stop, ref.kill])()

    when_full = chance.choice(["wait", "drop_oldest", "drop_newest", "fail"])
    spec = {
        "start": lambda: Moody(handled),
        "mailbox": MailboxSpec(capacity=3, when_full=when_full),
        "retry_in_hand": chance.choice([0, 1]),
    }
    async with stage(a=spec, supervisor={"intensity": 100_000, "period": 1e6}) as system:
        ref = system.actor("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(killer, ref)
            async with trio.open_nursery() as senders:
                for number in range(SENDERS):
                    senders.start_soon(sender, ref, number * MESSAGES)
            nursery.cancel_scope.cancel()
    told = {letter.message[1] for letter in system.dead_letters.recent()}
    assert accepted <= handled | told
    assert outcomes["answered"] > 0
    assert outcomes["ActorCrashed"] + outcomes["AskTimeout"] > 0
    assert ref.statistics().mailbox_depth == 0
