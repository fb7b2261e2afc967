"""Batches: all that waits in one call, and whom a crash is blamed on."""

import pytest
from trio.testing import wait_all_tasks_blocked

from callboard.actors.kernel import Actor, MailboxSpec
from callboard.log.errors import ActorCrashed, ActorStopped
from callboard.log.limits import RECEIVE_BATCH_MAX


class Summing(Actor):
    """Handles batches; the message "boom" crashes it, "leave" ends the batch early."""

    batches = []

    async def receive_batch(self, batch):
        seen = [len(batch)]
        self.batches.append(seen)
        for message, reply in batch:
            if message == "boom":
                raise ValueError(message)
            seen.append(message)
            if reply is not None:
                reply.answer(message)
            if message == "leave":
                break


@pytest.fixture
def batches():
    Summing.batches = []
    return Summing.batches


async def test_a_batch_is_all_that_waits(autojump_clock, stage, batches):
    """One call gets everything that waited, in order."""
    async with stage(a=Summing) as system:
        for number in range(5):
            system.actor("a").tell_nowait(number)
        assert await system.actor("a").ask("last") == "last"
    assert batches == [[6, 0, 1, 2, 3, 4, "last"]]


async def test_a_crash_is_blamed_on_the_current_item(autojump_clock, stage, batches):
    """Items before the crash are done, the current one is blamed, the others come first in the next batch."""
    async with stage(a=Summing) as system:
        ref = system.actor("a")
        for message in (1, "boom", 2, 3):
            ref.tell_nowait(message)
        await ref.ask(4)
        assert [letter.message for letter in system.dead_letters.recent()] == ["boom"]
        assert ref.statistics().received == 5
    assert batches == [[5, 1], [3, 2, 3, 4]]


async def test_a_batch_may_be_left_early(autojump_clock, stage, batches):
    """Items that were not reached are in the next batch, and the cursor blames nobody afterwards."""
    async with stage(a=Summing) as system:
        for message in (1, "leave", 2):
            system.actor("a").tell_nowait(message)
        await system.actor("a").ask(3)
        assert system.dead_letters.total == 0
    assert batches == [[4, 1, "leave"], [2, 2, 3]]


async def test_a_batch_is_bounded(autojump_clock, stage, batches):
    """No batch holds more than RECEIVE_BATCH_MAX items."""
    mailbox = MailboxSpec(capacity=2 * RECEIVE_BATCH_MAX)
    async with stage(a={"start": Summing, "mailbox": mailbox}) as system:
        for number in range(RECEIVE_BATCH_MAX + 1):
            system.actor("a").tell_nowait(number)
        await system.actor("a").ask("last")
    assert [seen[0] for seen in batches] == [RECEIVE_BATCH_MAX, 2]


async def test_a_batch_that_is_not_iterated_is_a_crash(autojump_clock, stage):
    """An actor that takes no message would spin for ever: it crashes with a clear error instead."""

    class Idle(Actor):
        async def receive_batch(self, batch):
            pass

    async with stage(a={"start": Idle, "restart": "temporary"}) as system:
        ref = system.actor("a")
        with pytest.raises(ActorStopped):
            await ref.ask(1)
        assert "took no message" in ref.statistics().last_failure


async def test_unanswered_questions_of_a_batch_fail_at_a_crash(autojump_clock, stage):
    """Questions that a batch left open fail when a later message crashes the incarnation."""

    class Keeping(Actor):
        async def receive_batch(self, batch):
            for message, _reply in batch:
                if message == "boom":
                    raise ValueError

    async with stage(a=Keeping) as system:
        ref = system.actor("a")
        replies = [ref.ask_nowait(n) for n in range(3)]
        await wait_all_tasks_blocked()
        assert not any(reply.done for reply in replies)
        await ref.tell("boom")
        for reply in replies:
            with pytest.raises(ActorCrashed):
                await reply.wait()
