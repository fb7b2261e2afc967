"""tell and ask: order, back-pressure, policies, timeouts, cancellation."""

import contextlib
import gc
import weakref

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.kernel import Actor, MailboxSpec
from callboard.actors.kernel.events import MessageDropped
from callboard.log.errors import ActorCrashed, ActorStopped, AskTimeout, InvalidArgument, MailboxFull


class Gate(Actor):
    """Handles nothing before the gate is open, then keeps what comes."""

    def __init__(self, gate, kept):
        self.gate = gate
        self.kept = kept

    async def receive(self, message):
        await self.gate.wait()
        self.kept.append(message)
        return message


@pytest.fixture
def gate():
    return trio.Event()


@pytest.fixture
def kept():
    return []


@pytest.fixture
def gated(stage, gate, kept):
    """A system with one gated actor of the given mailbox."""

    def make(capacity, when_full="wait"):
        mailbox = MailboxSpec(capacity=capacity, when_full=when_full)
        return stage(gate={"start": lambda: Gate(gate, kept), "mailbox": mailbox})

    return make


async def busy(ref):
    """Let the actor take a first message in hand, so that what follows waits."""
    await ref.tell("first")
    await wait_all_tasks_blocked()


async def test_messages_are_handled_in_order(autojump_clock, gated, gate, kept):
    """Messages of one sender are handled in the order in which they were told."""
    gate.set()
    async with gated(10) as system:
        for number in range(100):
            await system.actor("gate").tell(number)
        await system.actor("gate").ask("last")
    assert kept == [*range(100), "last"]


async def test_ask_answers_what_receive_returns(autojump_clock, gated, gate):
    """What receive returns is the answer, None included."""
    gate.set()
    async with gated(10) as system:
        assert await system.actor("gate").ask(5) == 5
        assert await system.actor("gate").ask(None) is None


async def test_tell_waits_for_room(autojump_clock, gated, gate, kept):
    """tell into a full mailbox waits, and waiting tells get room in the order in which they came."""
    async with gated(1) as system, trio.open_nursery() as nursery:
        ref = system.actor("gate")
        await busy(ref)
        for number in range(4):
            nursery.start_soon(ref.tell, number)
            await wait_all_tasks_blocked()
        assert ref.statistics().mailbox_depth == 1
        gate.set()
        await ref.ask("last")
        assert kept == ["first", 0, 1, 2, 3, "last"]


async def test_a_cancelled_tell_has_not_enqueued(autojump_clock, gated, gate, kept):
    """A tell that is cancelled while it waits for room leaves nothing behind."""
    async with gated(1) as system:
        ref = system.actor("gate")
        await busy(ref)
        await ref.tell("second")
        with trio.move_on_after(1) as scope:
            await ref.tell("never")
        assert scope.cancelled_caught
        gate.set()
        await ref.ask("last")
    assert kept == ["first", "second", "last"]


async def test_tell_is_a_checkpoint(autojump_clock, gated, gate):
    """A tell into a mailbox with room is a checkpoint all the same."""
    gate.set()
    async with gated(10) as system:
        with trio.CancelScope() as scope:
            scope.cancel()
            await system.actor("gate").tell(1)
        assert scope.cancelled_caught


async def test_nowait_raises_when_full(autojump_clock, gated):
    """tell_nowait and ask_nowait raise MailboxFull, with path and capacity, rather than wait."""
    async with gated(1) as system:
        ref = system.actor("gate")
        await busy(ref)
        ref.tell_nowait("second")
        with pytest.raises(MailboxFull) as caught:
            ref.tell_nowait("third")
        assert (caught.value.path, caught.value.capacity) == ("gate", 1)
        with pytest.raises(MailboxFull):
            ref.ask_nowait("third")
        ref.kill()


async def test_policy_fail(autojump_clock, gated, gate, kept):
    """With the policy to fail, tell and ask raise MailboxFull and nothing is lost that was accepted."""
    async with gated(1, "fail") as system:
        ref = system.actor("gate")
        await busy(ref)
        await ref.tell("second")
        with pytest.raises(MailboxFull):
            await ref.tell("third")
        with pytest.raises(MailboxFull):
            await ref.ask("third")
        gate.set()
        await wait_all_tasks_blocked()
    assert kept == ["first", "second"]


async def test_policy_drop_oldest(autojump_clock, gated, gate, kept):
    """The message that waits longest gives way; it is counted, buried with the reason, and told as an event."""
    async with gated(2, "drop_oldest") as system:
        ref = system.actor("gate")
        await busy(ref)
        for number in range(5):
            await ref.tell(number)
        statistics = ref.statistics()
        assert (statistics.dropped, statistics.dead_letters, statistics.mailbox_depth) == (3, 3, 2)
        letters = [(letter.message, letter.reason) for letter in system.dead_letters.recent()]
        assert letters == [(0, "drop_oldest"), (1, "drop_oldest"), (2, "drop_oldest")]
        told = [
            entry.event.dropped for entry in system.events.recent() if isinstance(entry.event, MessageDropped)
        ]
        assert told == [1, 2]
        gate.set()
        await wait_all_tasks_blocked()
    assert kept == ["first", 3, 4]


async def test_a_dropped_question_fails(autojump_clock, gated):
    """The asker of a question that gave way gets MailboxFull, and no answer is ever missing."""
    async with gated(1, "drop_oldest") as system, trio.open_nursery() as nursery:
        ref = system.actor("gate")
        await busy(ref)

        async def asker():
            with pytest.raises(MailboxFull):
                await ref.ask("question")

        nursery.start_soon(asker)
        await wait_all_tasks_blocked()
        await ref.tell("newer")
        ref.kill()


async def test_policy_drop_newest(autojump_clock, gated, gate, kept):
    """The new message is dropped: counted when told, MailboxFull when asked."""
    async with gated(1, "drop_newest") as system:
        ref = system.actor("gate")
        await busy(ref)
        await ref.tell("second")
        await ref.tell("third")
        with pytest.raises(MailboxFull):
            await ref.ask("fourth")
        assert ref.statistics().dropped == 2
        assert system.dead_letters.by_reason == {"drop_newest": 2}
        gate.set()
        await wait_all_tasks_blocked()
    assert kept == ["first", "second"]


async def test_ask_times_out_and_the_late_answer_is_counted(autojump_clock, gated, gate, kept):
    """A timed out ask is indefinite: the actor acts, its answer is dropped and counted."""
    async with gated(5) as system:
        ref = system.actor("gate")
        with pytest.raises(AskTimeout) as caught:
            await ref.ask("slow", timeout=2)
        assert caught.value.indefinite
        assert (caught.value.path, caught.value.timeout) == ("gate", 2)
        assert trio.current_time() == 2
        gate.set()
        await wait_all_tasks_blocked()
        assert ref.statistics().late_replies == 1
    assert kept == ["slow"]


async def test_a_timeout_without_room_is_definite(autojump_clock, gated, gate, kept):
    """An ask that never got into the mailbox has certainly not been acted on."""
    async with gated(1) as system:
        ref = system.actor("gate")
        await busy(ref)
        await ref.tell("second")
        with pytest.raises(AskTimeout) as caught:
            await ref.ask("third", timeout=1)
        assert not caught.value.indefinite
        gate.set()
        await wait_all_tasks_blocked()
    assert kept == ["first", "second"]


async def test_a_cancelled_ask_comes_out_as_cancelled(autojump_clock, gated, gate):
    """Cancelling an ask is not swallowed, and a late answer to it is dropped."""
    async with gated(5) as system:
        ref = system.actor("gate")
        with trio.move_on_after(1) as scope:
            await ref.ask("slow")
        assert scope.cancelled_caught
        gate.set()
        await wait_all_tasks_blocked()
        assert ref.statistics().late_replies == 1


async def test_ask_nowait(autojump_clock, gated, gate):
    """A reply can be waited for later, once, with a timeout of its own."""
    async with gated(5) as system:
        ref = system.actor("gate")
        reply, slow = ref.ask_nowait(1), ref.ask_nowait(2)
        with pytest.raises(AskTimeout):
            await slow.wait(timeout=3)
        gate.set()
        assert await reply.wait() == 1
        assert reply.done
        with pytest.raises(InvalidArgument):
            await slow.wait()


async def test_a_reply_is_settled_once(autojump_clock, stage):
    """The second of two answers has no effect and is counted."""

    class Twice(Actor):
        async def receive(self, message):
            reply = self.context.defer_reply()
            return [reply.answer("one"), reply.answer("two"), reply.fail(ValueError())]

    async with stage(twice=Twice) as system:
        assert await system.actor("twice").ask(0) == "one"
        assert system.actor("twice").statistics().late_replies == 2


async def test_an_actor_can_answer_by_raising(autojump_clock, stage):
    """Reply.fail raises in the asker and does not crash the actor."""

    class Refusing(Actor):
        async def receive(self, message):
            self.context.defer_reply().fail(KeyError(message))

    async with stage(refusing=Refusing) as system:
        with pytest.raises(KeyError):
            await system.actor("refusing").ask("a")
        assert system.actor("refusing").statistics().restarts == 0


async def test_a_deferred_reply_is_answered_by_a_later_message(autojump_clock, stage):
    """A question may be kept and answered when another message comes."""

    class Pairing(Actor):
        waiting = None

        async def receive(self, message):
            if self.waiting is None:
                self.waiting = (message, self.context.defer_reply())
                return None
            first, reply = self.waiting
            reply.answer((first, message))
            return "second"

    async with stage(pairing=Pairing) as system:
        ref = system.actor("pairing")
        reply = ref.ask_nowait("a")
        assert await ref.ask("b") == "second"
        assert await reply.wait() == ("a", "b")


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_answer_that_was_given_later_is_held_by_its_asker_alone(autojump_clock, stage, is_late):
    """Once the asker lets it go it is gone, though the actor goes on; however many came before."""

    class Answer:
        """Something large."""

    class Defers(Actor):
        """Answers in a task of its own."""

        async def receive(self, message):
            reply = self.context.defer_reply()
            self.context.start_task(self.answer, reply)

        async def answer(self, reply):
            await trio.sleep(2 if is_late else 1)
            reply.answer(Answer())

    async with stage(defers=Defers) as system:
        held = []
        for _ in range(3):
            with contextlib.suppress(AskTimeout):
                held.append(weakref.ref(await system.actor("defers").ask("?", timeout=1.5)))
        await trio.sleep(10)
        gc.collect()
        assert [each() for each in held] == [None] * (0 if is_late else 3)
        assert not [each for each in gc.get_objects() if type(each) is Answer]


async def test_a_deferred_reply_of_a_statement_goes_nowhere(autojump_clock, stage):
    """defer_reply for a message that was told is harmless."""

    class Deferring(Actor):
        async def receive(self, message):
            return self.context.defer_reply().answer(1)

    async with stage(deferring=Deferring) as system:
        await system.actor("deferring").tell(0)
        assert await system.actor("deferring").ask(0) == 1


async def test_an_unanswered_deferred_reply_fails_when_the_incarnation_ends(autojump_clock, stage):
    """A reply left open fails with ActorCrashed, indefinite, when its incarnation crashes or stops."""

    class Forgetful(Actor):
        async def receive(self, message):
            if message == "boom":
                raise ValueError(message)
            self.context.defer_reply()

    async with stage(forgetful=Forgetful) as system:
        ref = system.actor("forgetful")
        reply = ref.ask_nowait("a")
        await wait_all_tasks_blocked()
        await ref.tell("boom")
        with pytest.raises(ActorCrashed) as caught:
            await reply.wait()
        assert caught.value.indefinite
        assert isinstance(caught.value.__cause__, ValueError)
        reply = ref.ask_nowait("a")
        await trio.sleep(1)
        ref.stop()
        with pytest.raises(ActorCrashed):
            await reply.wait()


async def test_a_tell_that_is_cancelled_has_not_enqueued(autojump_clock, gated, gate, kept):
    """A tell that raises Cancelled has not enqueued its message, also where there is room."""
    async with gated(10) as system:
        ref = system.actor("gate")
        with trio.CancelScope() as scope:
            scope.cancel()
            await ref.tell("never")
        assert scope.cancelled_caught
        gate.set()
        await ref.ask("last")
    assert kept == ["last"]


async def test_a_tell_that_is_cancelled_meanwhile_has_enqueued(autojump_clock, gated, gate, kept):
    """A tell that enqueued its message returns, also when it is cancelled in that moment."""
    told = []

    async def tell(ref, scope):
        with scope:
            await ref.tell("once")
            told.append("once")

    async with gated(10) as system:
        ref = system.actor("gate")
        await busy(ref)
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell, ref, scope)
            for _ in range(10):
                await trio.lowlevel.checkpoint()
                if ref.statistics().mailbox_depth:
                    break
            scope.cancel()
        gate.set()
        await ref.ask("last")
    assert told == ["once"]
    assert kept == ["first", "once", "last"]


async def test_an_actor_that_asks_itself_is_refused(autojump_clock, stage):
    """In words: it would wait for ever. In a task of its own it may."""
    found = []

    class Narcissus(Actor):
        async def receive(self, message):
            if message == "who":
                return "me"
            if message == "task":
                self.context.start_task(self.wonder)
                return None
            return await self.context.ref.ask("who")

        async def wonder(self):
            found.append(await self.context.ref.ask("who"))

    async with stage(narcissus=Narcissus) as system:
        ref = system.actor("narcissus")
        await ref.ask("task")
        await trio.sleep(1)
        assert found == ["me"]
        with pytest.raises(ActorCrashed, match="asks itself"):
            await ref.ask("look")


@pytest.mark.parametrize("way", ["ask_nowait", "question"])
async def test_an_actor_that_waits_for_its_own_answer_is_refused(autojump_clock, stage, way):
    """However it asked; what it has deferred, and a task answers, it may wait for."""

    class Narcissus(Actor):
        async def receive(self, message):
            ref = self.context.ref
            if message == "who":
                self.context.start_task(self.answer, self.context.defer_reply())
                return None
            if message == "kept":
                return await self.reply.wait()
            if message == "keep":
                self.reply = ref.ask_nowait("who")
                return None
            if way == "ask_nowait":
                return await ref.ask_nowait("who").wait()
            reply = ref.question()
            await ref.send("who", reply)
            return await reply.wait(timeout=5.0)

        async def answer(self, reply):
            await trio.sleep(1)
            reply.answer("me")

    async with stage(narcissus=Narcissus) as system:
        ref = system.actor("narcissus")
        with pytest.raises(ActorCrashed, match="waits for an answer of its own"), trio.fail_after(1):
            await ref.ask("look")
        await ref.ask("keep")
        assert await ref.ask("kept") == "me"


async def test_a_function_that_asks_itself_is_refused(autojump_clock, stage):
    """Unless several tasks take its messages: then another one may answer."""

    async def one(context):
        await context.next()
        with pytest.raises(InvalidArgument, match="asks itself"):
            await context.ref.ask("early")
        _, reply = await context.next()
        reply.answer("went on")

    async def two(context):
        async def take():
            while True:
                message, reply = await context.next()
                reply.answer("me" if message == "who" else await context.ref.ask("who"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)

    async with stage(one=one, two=two) as system:
        with trio.fail_after(1):
            await system.actor("one").tell("go")
            assert await system.actor("one").ask("then") == "went on"
            assert await system.actor("two").ask("look") == "me"


@pytest.mark.parametrize("way", ["tell", "send"])
async def test_an_actor_does_not_wait_for_room_in_its_own_mailbox(autojump_clock, stage, way):
    """Nobody else makes room there: it hears that the mailbox is full."""

    class Chatty(Actor):
        async def receive(self, message):
            ref = self.context.ref
            if message == "go":
                for _ in range(2):
                    await ref.tell("more")
                with pytest.raises(MailboxFull):
                    await (ref.tell("more") if way == "tell" else ref.send("more", ref.question()))

    async with stage(chatty={"start": Chatty, "mailbox": MailboxSpec(capacity=2)}) as system:
        with trio.fail_after(1):
            await system.actor("chatty").ask("go")


async def test_a_task_of_an_incarnation_that_has_ended_is_refused(autojump_clock, stage):
    """In words, and so is what is no function; the actor's next incarnation goes on."""
    contexts, refused = [], []

    class Short(Actor):
        async def receive(self, message):
            contexts.append(self.context)
            if message == "task":
                with pytest.raises(InvalidArgument, match="not an async function"):
                    self.context.start_task(None)
            if message == "die":
                raise ValueError(message)

        def crashed(self, error):
            with pytest.raises(InvalidArgument, match="has ended"):
                self.context.start_task(trio.sleep, 0)
            refused.append(error)

    async with stage(short=Short) as system:
        ref = system.actor("short")
        await ref.ask("task")
        await ref.tell("die")
        await trio.sleep(5)
        await ref.ask("again")
        with pytest.raises(InvalidArgument, match="incarnation 1 of actor 'short' has ended"):
            contexts[0].start_task(trio.sleep, 0)
        assert len(refused) == 1


class Sized(Exception):
    """An exception that is false."""

    def __len__(self):
        return 0


class Undecided(Exception):
    """An exception that is neither true nor false."""

    def __bool__(self):
        raise RuntimeError("perhaps")


@pytest.mark.parametrize("kind", [Sized, Undecided])
async def test_an_exception_is_a_crash_whatever_its_truth(autojump_clock, stage, kind):
    """Nobody asks an exception whether it is true."""

    class Raising(Actor):
        async def receive(self, message):
            raise kind(message)

    spec = {"start": Raising, "significant": False, "intensity": 0}
    async with stage(raising=spec) as system:
        ref = system.actor("raising")
        with pytest.raises(ActorCrashed) as caught:
            await ref.ask("x")
        assert type(caught.value.__cause__) is kind
        await trio.sleep(1)
        assert ref.statistics().state == "failed"
        assert ref.statistics().last_failure == f"{kind.__name__}: x"


async def test_an_async_crashed_is_refused(autojump_clock, stage):
    """Nobody would await it."""

    class Late(Actor):
        async def crashed(self, error):
            del error

    async with stage() as system:
        with pytest.raises(ActorStopped, match=r"Late\.crashed is async"):
            await system.spawn(Late)


async def test_callbacks_are_known_by_themselves(autojump_clock, stage):
    """A subscriber that cannot be compared keeps nobody from leaving, and leaves itself."""

    class Incomparable:
        def __init__(self):
            self.heard = 0

        def __call__(self, event):
            self.heard += 1

        def __eq__(self, other):
            raise RuntimeError("compared")

        __hash__ = None

    async with stage(any=Actor) as system:
        incomparable, others = Incomparable(), []
        leave = system.events.subscribe(incomparable)
        leave_other = system.events.subscribe(others.append)
        leave_again = system.events.subscribe(others.append)
        leave_other()
        system.events.emit("one")
        assert (incomparable.heard, others) == (1, ["one"])
        leave()
        leave()
        leave_again()
        system.events.emit("two")
        assert (incomparable.heard, others) == (1, ["one"])
