"""Deadlines of questions: who is given up and when, what is remembered, and that it works until the very end."""

import gc
import math
import weakref
from decimal import Decimal
from fractions import Fraction
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.kernel import Actor, Batch
from callboard.actors.kernel.deadlines import SETTLED_MAX, Deadlines
from callboard.actors.kernel.reply import Reply
from callboard.log.errors import ActorCrashed, ActorStopped, AskTimeout, CallboardError, InvalidArgument
from callboard.simulations.world import run
from callboard.supervision import ChildSpec, SupervisorSpec, open_system


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


class Echo(Actor):
    """Answers at once, or raises what it is told."""

    async def receive(self, message):
        if isinstance(message, BaseException):
            raise message
        return message


class Thing:
    """Something that can be looked for."""


class Large(Actor):
    """Answers with something, and with itself."""

    async def receive(self, message):
        return Thing(), self


class Keeper(Actor):
    """Keeps the replies, and shows them."""

    def __init__(self):
        self.replies = []

    async def receive(self, message):
        if message == "show":
            return self.replies
        reply = self.context.defer_reply()
        self.replies.append(reply)
        if message == "abandon":
            reply.abandon()
        if message == "soon":
            reply.answer(message)
        return None


class Owner:
    """Whose the replies are."""

    path = "somebody"
    late_replies = 0
    loop = None


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
            await system.actor("later").ask(2, timeout=Fraction(1, 2))
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


@pytest.mark.parametrize("timeout", [-1, math.nan, -math.inf, "1", b"1", [1], 10**400, 1j, Decimal("sNaN")])
async def test_a_timeout_that_is_none_is_refused(stage, timeout):
    """Before anything is asked."""
    async with stage(later=Later) as system:
        with pytest.raises(InvalidArgument, match="Nothing was done"):
            await system.actor("later").ask(0, timeout=timeout)
        assert system.actor("later").statistics().received == 0
        with pytest.raises(InvalidArgument, match="Nothing was done"):
            await system.actor("later").ask_nowait(0).wait(timeout)


async def test_settled_questions_are_forgotten(stage):
    """However many were answered long before their deadlines, and while another one stays open."""
    async with stage(later=Later) as system:
        deadlines = system.kernel.deadlines
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(system.actor("later").ask, math.inf, timeout=7200))
            await wait_all_tasks_blocked()
            for _ in range(20 * SETTLED_MAX):
                await system.actor("later").ask(0, timeout=3600)
            assert len(deadlines) <= 2 * 2 + SETTLED_MAX
            nursery.cancel_scope.cancel()
        assert len(deadlines) == 0


async def test_of_many_that_were_settled_few_are_remembered(stage):
    """Also when they were asked at once, and one of them stays open."""
    async with stage(later=Later) as system:
        deadlines = system.kernel.deadlines
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(system.actor("later").ask, math.inf, timeout=7200))
            async with trio.open_nursery() as askers:
                for _ in range(20 * SETTLED_MAX):
                    askers.start_soon(partial(system.actor("later").ask, 0, timeout=3600))
            assert len(deadlines) <= 2 + SETTLED_MAX
            nursery.cancel_scope.cancel()


async def test_a_question_that_its_actor_abandoned_is_given_up_in_time(autojump_clock, stage):
    """The deadline counts whatever else happened to the reply."""
    async with stage(keeper=Keeper) as system:
        began = trio.current_time()
        with pytest.raises(AskTimeout):
            await system.actor("keeper").ask("abandon", timeout=2)
        assert trio.current_time() - began == pytest.approx(2)


async def test_a_watcher_that_exits_does_not_keep_the_tree_from_ending(autojump_clock, stage):
    """What came first comes out, and whoever asks is refused."""

    def leave(_):
        raise SystemExit(4)

    with pytest.raises(SystemExit, match="3"):
        async with stage(echo=Echo, later=Later) as system:
            system.actor("later").watch(leave)
            system.actor("echo").tell_nowait(SystemExit(3))
            await trio.sleep_forever()


async def test_an_answer_that_an_interrupt_cut_short_is_waited_for_no_longer_than_the_tree(
    autojump_clock, stage, monkeypatch
):
    """The asker was not woken; it is given up with the tree."""

    def answer(reply, value=None):
        reply.done = True
        raise KeyboardInterrupt("now")

    async def ask(ref):
        with pytest.raises(AskTimeout):
            await ref.ask(1, timeout=100)

    with trio.fail_after(50):
        async with trio.open_nursery() as nursery:
            with pytest.raises(KeyboardInterrupt, match="now"):
                async with stage(echo=Echo) as system:
                    monkeypatch.setattr(Reply, "answer", answer)
                    nursery.start_soon(ask, system.actor("echo"))
                    await trio.sleep_forever()


async def test_an_interrupt_while_the_system_opens_ends_it(autojump_clock, stage, monkeypatch):
    """Though an actor has not started yet."""

    def expire(reply):
        raise KeyboardInterrupt("now")

    class Starts(Actor):
        """Waits for somebody who does not answer."""

        async def started(self):
            await system.actor("later").ask(9, timeout=1)

    monkeypatch.setattr(Reply, "expire", expire)
    with pytest.raises(KeyboardInterrupt, match="now"), trio.fail_after(60):
        system = stage(later=Later, starts=Starts)
        async with system:
            pytest.fail("it has opened")


async def test_what_a_settled_question_held_is_let_go(stage):
    """Neither the answer nor the actor is kept until the deadline."""
    async with stage(later=Later) as system:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(system.actor("later").ask, math.inf, timeout=7200))
            await wait_all_tasks_blocked()
            spec = ChildSpec(name="short", start=Large, restart="temporary")
            ref = await system.spawn(spec)
            answer, actor = await ref.ask("answer and actor", timeout=3600)
            held = [weakref.ref(answer), weakref.ref(actor)]
            ref.kill()
            del ref, answer, actor
            await wait_all_tasks_blocked()
            gc.collect()
            assert [each() for each in held] == [None, None]
            nursery.cancel_scope.cancel()


def test_nothing_ticks_once_nobody_asks():
    """Virtual time has nothing to go on to when every question is settled: the run is stuck where it was."""

    async def main(world):
        async with open_system(
            SupervisorSpec(name="t", children=(ChildSpec(name="later", start=Later),)),
            clock=world.clock,
            entropy=world.entropy,
        ) as system:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(system.actor("later").ask, math.inf, timeout=math.inf))
                for timeout in (10, 3600, 1e8):
                    assert await system.actor("later").ask(0, timeout=timeout) == 0

    result = run(main, seed=1)
    assert "every task waits" in str(result.failure)
    assert result.virtual_s == 0


async def test_a_timeout_of_nothing_is_over_at_once(stage):
    """Never is there time for an answer."""
    async with stage(echo=Echo) as system:
        for number in range(50):
            with pytest.raises(AskTimeout):
                await system.actor("echo").ask(number, timeout=0)


async def test_a_system_that_is_not_open_gives_up_as_well(autojump_clock, stage):
    """Before it is opened nobody answers."""
    system = stage(echo=Echo)
    with pytest.raises(AskTimeout):
        await system.actor("echo").ask(1, timeout=2)
    async with system:
        assert await system.actor("echo").ask(2, timeout=2) == 2


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
async def test_nobody_waits_for_a_tree_that_was_interrupted(autojump_clock, stage, end):
    """What passes through the tree ends everybody in it: questions that are open, and later ones, are refused."""
    refs, fates = [], []

    async def ask(name, timeout):
        try:
            await refs[name].ask(9, timeout=timeout)
        except CallboardError as error:
            fates.append((name, type(error)))

    async with trio.open_nursery() as nursery:
        with pytest.raises(end):
            async with stage(later=Later, echo=Echo) as system:
                refs += [system.actor("later"), system.actor("echo")]
                nursery.start_soon(ask, 0, 100)
                nursery.start_soon(ask, 0, None)
                await wait_all_tasks_blocked()
                refs[1].tell_nowait(end("now"))
                await trio.sleep_forever()
    with trio.fail_after(2):
        await ask(0, None)
        await ask(1, 1)
    assert fates == [(0, ActorCrashed), (0, ActorCrashed), (0, ActorStopped), (1, ActorStopped)]


async def test_an_interrupt_among_the_deadlines_ends_the_body(autojump_clock, stage, monkeypatch):
    """As anywhere else: the tree stops in order, still keeping deadlines, and the interrupt comes out."""
    seen = []

    def expire(reply, once=[KeyboardInterrupt("now")], real=Reply.expire):  # noqa: B006 - once
        if once:
            raise once.pop()
        real(reply)

    monkeypatch.setattr(Reply, "expire", expire)
    with pytest.raises(KeyboardInterrupt, match="now"):
        async with stage(
            later=Later,
            asker={"start": lambda: Asker(lambda: system.actor("later"), seen), "shutdown_grace": 5},
        ) as system:
            await system.actor("later").ask(9, timeout=1)
    assert len(seen) == 1


async def test_the_actor_finds_that_its_asker_has_gone(autojump_clock, stage):
    """A reply that was given up has no value and is not awaited; one that was answered keeps its answer."""
    async with stage(keeper=Keeper) as system:
        with pytest.raises(AskTimeout):
            await system.actor("keeper").ask("late", timeout=1)
        assert await system.actor("keeper").ask("soon", timeout=1) == "soon"
        late, soon = await system.actor("keeper").ask("show", timeout=1)
    with pytest.raises(InvalidArgument, match="no answer"):
        late.value()
    with pytest.raises(InvalidArgument, match="once only"):
        await late.wait()
    assert soon.value() == "soon"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20)), max_size=200))
def test_nobody_is_given_up_early_late_or_twice(questions):
    """Asked at some time, to be given up so much later, answered or not so much later."""
    fates = {}

    async def ask(deadlines, number, begin, timeout, pause):
        await trio.sleep(begin)
        reply = Reply(Owner())
        question = deadlines.add(reply, trio.current_time() + timeout)
        async with trio.open_nursery() as nursery:

            async def answer():
                await trio.sleep(pause + 0.5)
                reply.answer("yes")

            nursery.start_soon(answer)
            answered = await reply.settled()
            assert (answered is None) is reply.abandoned
            deadlines.settled(question)
            fates[number] = answered or "no", trio.current_time()

    async def main():
        deadlines = Deadlines()
        async with trio.open_nursery() as keeper:
            keeper.start_soon(deadlines.run)
            await wait_all_tasks_blocked()
            async with trio.open_nursery() as nursery:
                for number, question in enumerate(questions):
                    nursery.start_soon(ask, deadlines, number, *question)
            keeper.cancel_scope.cancel()
        assert len(deadlines) == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))
    for number, (begin, timeout, answered) in enumerate(questions):
        answer = "yes" if answered + 0.5 < timeout else "no"
        when = begin + (answered + 0.5 if answer == "yes" else timeout)
        assert fates[number] == (answer, pytest.approx(when))
