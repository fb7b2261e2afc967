"""Deadlines of questions: who is given up and when, what is remembered, and that it works until the very end."""

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from callboard.actors import Actor, Batch
from callboard.actors.deadlines import KEPT_MIN, Deadlines
from callboard.actors.reply import Reply
from callboard.log.errors import AskTimeout, InvalidArgument


class Later(Actor):
    """Answers a question after as many seconds as it says, many at a time."""

    async def receive_batch(self, batch: Batch):
        for message, reply in batch:
            self.context.start_task(self.answer, message, reply)

    async def answer(self, message, reply):
        await trio.sleep(message)
        reply.answer(message)


class Asker(Actor):
    """Asks the other actor once more while it stops."""

    def __init__(self, other, seen):
        self.other = other
        self.seen = seen

    async def receive(self, message):
        return message

    async def stopping(self):
        with pytest.raises(AskTimeout):
            await self.other().ask(100, timeout=1)
        self.seen.append(trio.current_time())


class Owner:
    """Whose the replies are."""

    path = "somebody"
    late_replies = 0


async def test_each_question_has_its_own_deadline(autojump_clock, stage):
    """Of questions asked at once each is answered, or given up when its own time is over."""
    seen = {}

    async def ask(ref, seconds, timeout):
        try:
            seen[seconds, timeout] = await ref.ask(seconds, timeout=timeout), trio.current_time() - began
        except AskTimeout as error:
            seen[seconds, timeout] = error.timeout, trio.current_time() - began

    async with stage(later=Later) as system:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for seconds, timeout in [(5, 9), (9, 5), (3, 2), (2, 3), (1, math.inf), (7, 0)]:
                nursery.start_soon(ask, system.actor("later"), seconds, timeout)
    assert {key: (value[0], pytest.approx(value[1])) for key, value in seen.items()} == {
        (5, 9): (5, 5),
        (9, 5): (5, 5),
        (3, 2): (2, 2),
        (2, 3): (2, 2),
        (1, math.inf): (1, 1),
        (7, 0): (0, 0),
    }


async def test_answers_that_come_too_late_are_counted(autojump_clock, stage):
    """Who gave up is not answered any more."""
    async with stage(later=Later) as system:
        with pytest.raises(AskTimeout) as caught:
            await system.actor("later").ask(2, timeout=1)
        assert caught.value.indefinite
        await trio.sleep(5)
        assert system.actor("later").statistics().late_replies == 1


async def test_a_question_that_was_cancelled_is_not_given_up_again(autojump_clock, stage):
    """Cancellation comes first, and the deadline finds nothing to do."""
    async with stage(later=Later) as system:
        with trio.move_on_after(1) as scope:
            await system.actor("later").ask(9, timeout=3)
        assert scope.cancelled_caught
        await trio.sleep(5)


async def test_an_actor_that_stops_can_still_ask(autojump_clock, stage):
    """Deadlines are kept until the tree has ended, also when all of it was cancelled from outside."""
    seen = []
    with trio.move_on_after(10) as scope:
        async with stage(
            later=Later,
            asker={"start": lambda: Asker(lambda: system.actor("later"), seen), "shutdown_grace": 5},
        ) as system:
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [time - scope.deadline for time in seen] == [pytest.approx(1)]


@pytest.mark.parametrize("timeout", [-1, math.nan, -math.inf])
async def test_a_timeout_that_is_none_is_refused(stage, timeout):
    """Before anything is asked."""
    async with stage(later=Later) as system:
        with pytest.raises(InvalidArgument, match="Nothing was asked"):
            await system.actor("later").ask(0, timeout=timeout)
        assert system.actor("later").statistics().received == 0


async def test_settled_questions_are_forgotten(stage):
    """However many were answered long before their deadlines."""
    async with stage(later=Later) as system:
        for _ in range(20 * KEPT_MIN):
            await system.actor("later").ask(0, timeout=3600)
        assert len(system.kernel.deadlines) <= KEPT_MIN + 1


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20)), max_size=200))
def test_nobody_is_given_up_early_late_or_twice(questions):
    """Asked at some time, to be given up so much later, answered or not so much later."""
    fates = {}

    async def ask(deadlines, number, begin, timeout, answered):
        await trio.sleep(begin)
        reply = Reply(Owner())
        deadlines.add(reply, trio.current_time() + timeout, timeout)
        async with trio.open_nursery() as nursery:

            async def answer():
                await trio.sleep(answered + 0.5)
                reply.answer("yes")

            nursery.start_soon(answer)
            try:
                fates[number] = await reply.settled(), trio.current_time()
            except AskTimeout:
                fates[number] = "no", trio.current_time()

    async def main():
        deadlines = Deadlines()
        async with trio.open_nursery() as keeper:
            keeper.start_soon(deadlines.run)
            async with trio.open_nursery() as nursery:
                for number, question in enumerate(questions):
                    nursery.start_soon(ask, deadlines, number, *question)
            keeper.cancel_scope.cancel()
        assert len(deadlines) <= 2 * len(questions) + KEPT_MIN

    trio.run(main, clock=MockClock(autojump_threshold=0))
    for number, (begin, timeout, answered) in enumerate(questions):
        answer = "yes" if answered + 0.5 < timeout else "no"
        when = begin + (answered + 0.5 if answer == "yes" else timeout)
        assert fates[number] == (answer, pytest.approx(when))
