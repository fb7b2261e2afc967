"""Incarnations: hooks, tasks, crashes, stop and kill, what happens to messages in hand."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.kernel import Actor, Terminated
from callboard.actors.kernel.events import HookFailed, IncarnationCrashed
from callboard.log.errors import ActorCrashed, ActorStopped, CallboardError, InvalidArgument
from callboard.supervision import ChildSpec


class Journalling(Actor):
    """Notes what happens to it in a list that outlives it."""

    def __init__(self, notes):
        self.notes = notes

    async def started(self):
        self.notes.append(("started", self.context.incarnation))

    async def receive(self, message):
        if isinstance(message, Exception):
            raise message
        self.notes.append(message)
        return len(self.notes)

    async def stopping(self):
        self.notes.append("stopping")

    def crashed(self, error):
        self.notes.append(("crashed", type(error)))


@pytest.fixture
def notes():
    return []


async def test_hooks_in_order(autojump_clock, stage, notes):
    """started comes before any message, stopping after the last, crashed not at all."""
    async with stage(a=lambda: Journalling(notes)) as system:
        await system.actor("a").ask("one")
    assert notes == [("started", 1), "one", "stopping"]


async def test_a_crash_makes_a_new_instance(autojump_clock, stage, notes):
    """After a crash a new incarnation handles what waits; stopping is not called, crashed is."""
    async with stage(a=lambda: Journalling(notes)) as system:
        ref = system.actor("a")
        await ref.tell(ValueError("x"))
        await ref.tell("waits")
        assert await ref.ask("two") == 5
        assert ref.statistics().restarts == 1
        assert ref.statistics().last_failure == "ValueError: x"
    assert notes == [("started", 1), ("crashed", ValueError), ("started", 2), "waits", "two", "stopping"]


async def test_in_hand_messages_are_not_run_again(autojump_clock, stage, notes):
    """The asker gets ActorCrashed, indefinite, with the cause; what was told goes to the dead letters."""
    async with stage(a=lambda: Journalling(notes)) as system:
        ref = system.actor("a")
        with pytest.raises(ActorCrashed) as caught:
            await ref.ask(ValueError("asked"))
        assert caught.value.indefinite
        assert caught.value.path == "a"
        assert str(caught.value.__cause__) == "asked"
        told = ValueError("told")
        await ref.tell(told)
        await ref.ask("last")
        assert [(x.path, x.message, x.reason) for x in system.dead_letters.recent()] == [
            ("a", told, "crashed")
        ]
        assert ref.statistics().dead_letters == 1


async def test_retry_in_hand(autojump_clock, stage):
    """With retry_in_hand=2 a message is tried three times, first in line, before it is given up."""
    tries = []

    class Flaky(Actor):
        async def receive(self, message):
            tries.append(message)
            if message == "bad" or (message == "weak" and tries.count("weak") < 3):
                raise ValueError(message)
            return "done"

    async with stage(a={"start": Flaky, "retry_in_hand": 2}, supervisor={"intensity": 9}) as system:
        ref = system.actor("a")
        bad, weak = ref.ask_nowait("bad"), ref.ask_nowait("weak")
        with pytest.raises(ActorCrashed):
            await bad.wait()
        assert await weak.wait() == "done"
        await ref.tell("bad")
        assert await ref.ask("good") == "done"
        assert system.dead_letters.by_reason == {"crashed": 1}
    assert tries == ["bad"] * 3 + ["weak"] * 3 + ["bad"] * 3 + ["good"]


@pytest.mark.parametrize("child", [{"restart": "temporary"}, {"significant": False}])
async def test_a_message_that_was_tried_is_indefinite_when_its_actor_ends(autojump_clock, stage, child):
    """A question put back for another try, and never tried again, may have been acted on: it says so."""
    reached = trio.Event()

    class Flaky(Actor):
        async def receive(self, message):
            reached.set()
            raise ValueError(message)

    async with stage(a={"start": Flaky, "retry_in_hand": 1} | child, supervisor={"intensity": 0}) as system:
        tried, waiting = system.actor("a").ask_nowait("tried"), system.actor("a").ask_nowait("waiting")
        with pytest.raises(ActorCrashed) as caught:
            await tried.wait()
        assert caught.value.indefinite
        with pytest.raises(CallboardError) as refused:
            await waiting.wait()
        assert not refused.value.indefinite
        assert reached.is_set()


async def test_a_failing_task_crashes_the_actor_with_its_own_error(autojump_clock, stage, notes):
    """What a task raises is the actor's failure, unwrapped from its group."""

    class Tasked(Journalling):
        async def started(self):
            await super().started()
            if self.context.incarnation == 1:
                self.context.start_task(self.fail_after, 3)

        async def fail_after(self, seconds):
            await trio.sleep(seconds)
            raise LookupError("task")

    async with stage(a=lambda: Tasked(notes)) as system:
        await trio.sleep(10)
        assert system.actor("a").statistics().last_failure == "LookupError: task"
    assert notes == [("started", 1), ("crashed", LookupError), ("started", 2), "stopping"]


async def test_several_failures_stay_a_group(autojump_clock, stage):
    """Two tasks that fail at once are one crash, by a group of both."""

    class Both(Actor):
        async def receive(self, message):
            for error in (KeyError("a"), OSError("b")):
                self.context.start_task(self.fail, error)

        async def fail(self, error):
            raise error

    async with stage(a=Both) as system:
        await system.actor("a").tell("go")
        await trio.sleep(1)
        assert system.actor("a").statistics().last_failure.startswith("ExceptionGroup")


async def test_tasks_are_cancelled_and_waited_for_at_stop_and_crash(autojump_clock, stage, notes):
    """A new incarnation starts only when every task of the old has ended, shielded work included."""

    class Shielding(Journalling):
        async def started(self):
            await super().started()
            self.context.start_task(self.work)

        async def work(self):
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
                self.notes.append("work ended")

    async with stage(a=lambda: Shielding(notes)) as system:
        await system.actor("a").tell(ValueError())
        await trio.sleep(4)
    assert notes == [
        ("started", 1),
        "work ended",
        ("crashed", ValueError),
        ("started", 2),
        "stopping",
        "work ended",
    ]


async def test_one_task_can_be_cancelled(autojump_clock, stage, notes):
    """start_task returns a scope that ends this task and leaves the actor alone."""

    class Tasked(Journalling):
        async def receive(self, message):
            if message == "begin":
                self.scope = self.context.start_task(trio.sleep_forever, name="nap")
            else:
                self.scope.cancel()

    async with stage(a=lambda: Tasked(notes)) as system:
        await system.actor("a").ask("begin")
        await system.actor("a").ask("end")
        await wait_all_tasks_blocked()
        assert system.actor("a").statistics().state == "running"


async def test_stop_overtakes_waiting_messages(autojump_clock, stage, notes):
    """Stop takes effect after the message in hand; what waits is handled by the next incarnation."""

    class Stopping(Journalling):
        async def receive(self, message):
            if message == "stop":
                self.context.stop()
            return await super().receive(message)

    async with stage(a=lambda: Stopping(notes)) as system:
        ref = system.actor("a")
        for message in ("one", "stop", "two"):
            ref.tell_nowait(message)
        await ref.ask("three")
    expected = [("started", 1), "one", "stop", "stopping", ("started", 2), "two", "three", "stopping"]
    assert notes == expected


async def test_stop_from_outside_lets_the_message_in_hand_finish(autojump_clock, stage, notes):
    """ref.stop() does not interrupt receive."""

    class Slow(Journalling):
        async def receive(self, message):
            await trio.sleep(3)
            return await super().receive(message)

    async with stage(a={"start": lambda: Slow(notes), "restart": "transient"}) as system:
        ref = system.actor("a")
        reply = ref.ask_nowait("one")
        ref.tell_nowait("two")
        await wait_all_tasks_blocked()
        ref.stop()
        assert await reply.wait() == 2
        await wait_all_tasks_blocked()
        assert ref.stopped
        with pytest.raises(ActorStopped):
            await ref.tell("three")
        assert system.dead_letters.by_reason == {"stopped": 1}
    assert notes == [("started", 1), "one", "stopping"]


async def test_kill_overtakes_even_a_busy_actor(autojump_clock, stage, notes):
    """kill cancels an actor inside receive; the asker gets ActorCrashed and the supervisor restarts it."""

    class Stuck(Journalling):
        async def receive(self, message):
            if message == "hang":
                await trio.sleep_forever()
            return await super().receive(message)

    async with stage(a=lambda: Stuck(notes)) as system:
        ref = system.actor("a")
        reply = ref.ask_nowait("hang")
        await wait_all_tasks_blocked()
        ref.kill()
        with pytest.raises(ActorCrashed):
            await reply.wait()
        await ref.ask("next")
    assert notes == [("started", 1), ("crashed", ActorCrashed), ("started", 2), "next", "stopping"]


async def test_killed_before_it_began(autojump_clock, stage, notes):
    """An actor that is killed while it starts never comes to handle a message."""

    class Slow(Journalling):
        async def started(self):
            await super().started()
            await trio.sleep(10)

    async with stage() as system:
        with trio.move_on_after(1):
            await system.spawn(lambda: Slow(notes), name="slow")
        ref = system.actor("user/slow")
        reply = ref.ask_nowait("x")
        ref.kill()
        await reply.wait()
    assert notes == [("started", 1), ("crashed", ActorCrashed), ("started", 2), "x", "stopping"]


async def test_watch(autojump_clock, stage):
    """Watchers are told once, when the actor ends for good, not when it restarts; late ones at once."""
    told = []

    class Fragile(Actor):
        async def receive(self, message):
            raise ValueError(message)

    class Watching(Actor):
        async def receive(self, message):
            told.append(message)

    spec = {"start": Fragile, "restart": "transient", "significant": False}
    async with stage(a=spec, b=Watching, supervisor={"intensity": 3}) as system:
        ref = system.actor("a")
        ref.watch(system.actor("b"))
        unwatch = ref.watch(lambda notice: told.append("no"))
        unwatch()
        ref.watch(lambda notice: told.append("function"))
        await ref.tell("crash")
        await trio.sleep(1)
        assert told == []
        ref.stop()
        await trio.sleep(1)
        assert told == ["function", Terminated("a")]
        ref.watch(told.append)
        assert told[-1] == Terminated("a")


async def test_a_failing_hook_does_not_stop_the_kernel(autojump_clock, stage):
    """A crashed hook, watcher or subscriber that raises becomes an event, and the restart goes on."""

    class Bad(Actor):
        async def receive(self, message):
            if message:
                raise ValueError

        def crashed(self, error):
            raise KeyError("hook")

    def subscriber(event):
        if isinstance(event, IncarnationCrashed):
            raise KeyError("subscriber")

    async with stage(a=Bad) as system:
        unsubscribe = system.events.subscribe(subscriber)
        await system.actor("a").tell(1)
        await system.actor("a").ask(0)
        unsubscribe()
        hooks = [entry.event.hook for entry in system.events.recent() if isinstance(entry.event, HookFailed)]
        assert sorted(hooks) == ["crashed", "subscriber"]


async def test_an_async_function_is_an_actor(autojump_clock, stage, notes):
    """A plain async function takes messages with next(), is stopped by Cancelled there, and may simply return."""

    async def doubling(context):
        try:
            while True:
                message, reply = await context.next()
                if reply is not None:
                    reply.answer(message * 2)
                if message == 0:
                    return
        finally:
            notes.append("ended")

    async with stage(double={"start": doubling, "restart": "transient"}, other=doubling) as system:
        ref = system.actor("double")
        await ref.tell(5)
        assert await ref.ask(4) == 8
        ref.tell_nowait(0)
        ref.tell_nowait(1)
        await trio.sleep(1)
        assert ref.stopped
        assert system.dead_letters.by_reason == {"stopped": 1}
    assert notes == ["ended", "ended"]


async def test_a_function_actor_that_crashes_is_restarted(autojump_clock, stage):
    """The message in hand of a crashed function is treated like any other."""

    async def fragile(context):
        while True:
            message, reply = await context.next()
            reply.answer(1 // message)

    async with stage(a=fragile) as system:
        with pytest.raises(ActorCrashed) as caught:
            await system.actor("a").ask(0)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert await system.actor("a").ask(1) == 1


async def test_a_function_that_asks_for_the_next_message_has_handled_the_last(autojump_clock, stage, notes):
    """A function that is killed while it waits for the next message is not to blame for the one before."""

    async def noting(context):
        while True:
            message, _ = await context.next()
            notes.append(message)
            context.start_task(trio.sleep_forever)
            if message == "last":
                context.ref.kill()

    async with stage(a={"start": noting, "retry_in_hand": 1}) as system:
        await system.actor("a").tell("last")
        await trio.sleep(1)
        assert notes == ["last"]
        assert system.dead_letters.total == 0


def pool(handle, size):
    """A function of which several tasks take messages."""

    async def take(context):
        while True:
            await handle(context, *await context.next())

    async def readers(context):
        for _ in range(size):
            context.start_task(take, context)
        await trio.sleep_forever()

    return readers


async def test_a_crash_settles_what_each_task_of_a_function_was_handling(autojump_clock, stage, notes):
    """Askers hear that the actor crashed, statements are dead letters, and an answer that was given counts."""

    async def handle(context, message, reply):
        if message == "bad":
            raise ValueError(message)
        if message == "quick":
            reply.answer("done")
            return
        await trio.sleep_forever()

    async def ask(ref, message):
        try:
            notes.append(await ref.ask(message))
        except ActorCrashed as error:
            notes.append((message, str(error.__cause__)))

    async with stage(a=pool(handle, 4)) as system:
        ref = system.actor("a")
        await trio.sleep(1)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for message in ("first", "second", "quick", "bad"):
                    if message == "bad":
                        await ref.tell("statement")
                    nursery.start_soon(ask, ref, message)
                    await trio.sleep(1)
        assert (notes[0], sorted(notes[1:])) == (
            "done",
            [("bad", "bad"), ("first", "bad"), ("second", "bad")],
        )
        assert [letter.message for letter in system.dead_letters.recent()] == ["statement"]
        assert ref.statistics().received == 5


async def test_what_several_tasks_had_in_hand_is_tried_again_in_its_order(autojump_clock, stage, notes):
    """With `retry_in_hand`, each as often as it allows."""

    async def handle(context, message, reply):
        notes.append(message)
        await trio.sleep_forever() if message != "bad" else await trio.sleep(1)
        raise ValueError(message)

    async with stage(a={"start": pool(handle, 3), "retry_in_hand": 1}) as system:
        ref = system.actor("a")
        await trio.sleep(1)
        for message in ("first", "second", "bad", "fourth"):
            await ref.tell(message)
        await trio.sleep(10)
        assert notes == ["first", "second", "bad"] * 2 + ["fourth"]
        assert [letter.message for letter in system.dead_letters.recent()] == ["first", "second", "bad"]


async def test_messages_come_to_several_tasks_in_their_order(autojump_clock, stage, notes):
    """Also to those that waited for one when several came, and none is left while a task waits."""

    async def handle(context, message, reply):
        notes.append(message)
        await trio.sleep(5)
        reply.answer(message)

    async with stage(a=pool(handle, 3)) as system:
        ref = system.actor("a")
        for start in range(0, 90, 3):
            await trio.sleep(10)
            replies = [ref.ask_nowait(number) for number in range(start, start + 3)]
            with trio.fail_after(6):
                assert [await reply.wait() for reply in replies] == list(range(start, start + 3))
        assert notes == list(range(90))


async def test_a_task_of_a_function_that_has_ended_has_handled_its_message(autojump_clock, stage, notes):
    """A crash later is not put down to it."""

    async def once(context):
        notes.append((await context.next())[0])

    async def main(context):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                context.start_task(once, context)
                nursery.start_soon(once, context)
                await trio.sleep(1)
        await context.next()
        raise ValueError("bad")

    async with stage(a=main) as system:
        for number in range(7):
            await system.actor("a").tell(number)
        await trio.sleep(10)
        assert sorted(notes)[:6] == list(range(6))
        assert [letter.message for letter in system.dead_letters.recent()] == [6]


@pytest.mark.parametrize("start", [lambda: 5, Actor])
async def test_what_is_no_actor_crashes_clearly(autojump_clock, stage, start):
    """A start that makes no actor, and an actor without receive, fail with an InvalidArgument that says so."""
    async with stage(a={"start": start, "restart": "temporary"}) if start is Actor else stage() as system:
        if start is Actor:
            with pytest.raises(ActorCrashed) as caught:
                await system.actor("a").ask(1)
        else:
            with pytest.raises(ActorStopped) as caught:
                await system.root.start_child(ChildSpec(name="b", start=start, restart="temporary"))
        assert isinstance(caught.value.__cause__, InvalidArgument)


async def test_context_offers_the_surroundings(autojump_clock, stage):
    """A context knows its path and reference, reaches other actors, emits events and sees its own numbers."""

    class Curious(Actor):
        async def receive(self, message):
            context = self.context
            await context.checkpoint()
            await context.sleep_until(context.clock.monotonic() + 1)
            context.emit("mine")
            return (
                context.path,
                context.ref,
                context.actor("b").path,
                context.statistics().state,
                context.disk,
            )

    async with stage(a=Curious, b=Curious) as system:
        ref = system.actor("a")
        assert await ref.ask(0) == ("a", ref, "b", "running", None)
        assert system.events.recent()[-1].event == "mine"
        assert [node.path for node in system.tree().children] == ["a", "b"]


async def test_only_a_function_may_take_messages_itself(autojump_clock, stage):
    """An Actor that calls next() or defers outside receive gets an InvalidArgument."""

    class Greedy(Actor):
        async def started(self):
            with pytest.raises(InvalidArgument):
                self.context.defer_reply()

        async def receive(self, message):
            with pytest.raises(InvalidArgument):
                await self.context.next()
            return "ok"

    async with stage(a=Greedy) as system:
        assert await system.actor("a").ask(0) == "ok"


async def test_an_idle_actor_does_not_tick(autojump_clock, stage, notes):
    """With nothing to do, nothing is scheduled: a virtual year passes at once."""
    async with stage(a=lambda: Journalling(notes)) as system:
        await trio.sleep(365 * 86_400)
        assert system.actor("a").statistics().rate_per_s == 0
