"""The whole system: opening, closing, exceptions and cancellation from every side (T1 to T4)."""

import functools
import gc
import itertools
import signal
import warnings

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from callboard.actors.kernel import Actor
from callboard.actors.kernel.events import ActorEnded, ActorStarted, Escalated
from callboard.log.errors import ActorCrashed, ActorStopped, InvalidArgument, RestartLimitReached
from callboard.supervision import ChildSpec, SupervisorSpec, open_system
from callboard.supervision.supervisor import Supervisor


@pytest.fixture
def notes():
    return []


@pytest.fixture
def noting(notes):
    """Make the start of an actor that notes its beginnings and ends under a name."""

    class Noting(Actor):
        def __init__(self, name, start_s, stop_s):
            self.name = name
            self.start_s = start_s
            self.stop_s = stop_s

        async def started(self):
            await trio.sleep(self.start_s)
            notes.append(f"{self.name}+")

        async def receive(self, message):
            if message == "hang":
                await trio.sleep_forever()
            if message is not None:
                raise message

        async def stopping(self):
            await trio.sleep(self.stop_s)
            notes.append(f"{self.name}-")

    return lambda name, start_s=0, stop_s=0: lambda: Noting(name, start_s, stop_s)


async def test_ordered_start_and_reverse_stop(autojump_clock, stage, noting, notes):
    """Children start one after the other, each when the one before is ready, and stop in reverse."""
    async with stage(a=noting("a", 3, 1), b=noting("b", 1, 2), c=noting("c")):
        assert notes == ["a+", "b+", "c+"]
        assert trio.current_time() == 4
    assert notes[3:] == ["c-", "b-", "a-"]
    assert trio.current_time() == 7


async def test_nested_supervisors_are_part_of_the_order(autojump_clock, seams, noting, notes):
    """A nested supervisor is ready when its children are, and stops them in reverse before its turn is over."""
    inner = SupervisorSpec(
        name="inner",
        children=[ChildSpec(name="b", start=noting("b", 1)), ChildSpec(name="c", start=noting("c"))],
    )
    spec = SupervisorSpec(
        name="outer",
        children=[ChildSpec(name="a", start=noting("a")), inner, ChildSpec(name="d", start=noting("d"))],
    )
    async with open_system(spec, **seams) as system:
        assert [node.path for node in system.tree().walk()] == ["", "a", "inner", "inner/b", "inner/c", "d"]
        assert system.actor("inner/b").path == "inner/b"
        assert {node.state for node in system.tree().walk()} == {"running"}
    assert notes == ["a+", "b+", "c+", "d+", "d-", "c-", "b-", "a-"]
    assert {node.state for node in system.tree().walk()} == {"stopped"}


async def test_the_bodys_exception_comes_out_as_itself(autojump_clock, stage, noting, notes):
    """An exception of the body is not wrapped in a group, and the tree stops in order first."""
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with stage(a=noting("a"), b=noting("b")):
            raise error
    assert caught.value is error
    assert notes == ["a+", "b+", "b-", "a-"]


async def test_the_bodys_group_comes_out_as_itself(autojump_clock, stage, noting):
    """A group that the body raised is not touched."""
    error = ExceptionGroup("mine", [ValueError()])
    with pytest.raises(ExceptionGroup) as caught:
        async with stage(a=noting("a")):
            raise error
    assert caught.value is error


async def test_cancelled_from_outside(autojump_clock, stage, noting, notes):
    """Outer cancellation ends the body as Cancelled, after an orderly stop within the grace."""
    ended = []
    with trio.move_on_after(5) as scope:
        try:
            async with stage(a=noting("a", stop_s=2), b=noting("b", stop_s=1)):
                await trio.sleep_forever()
        except BaseException as error:
            ended.append((type(error), trio.current_time()))
            raise
    assert scope.cancelled_caught
    assert ended == [(trio.Cancelled, 8)]
    assert notes == ["a+", "b+", "b-", "a-"]


async def test_cancelled_while_opening(autojump_clock, stage, noting, notes):
    """Cancelling a system that is still starting stops what has started and comes out as Cancelled."""
    with trio.move_on_after(2) as scope:
        async with stage(a=noting("a", 1), b=noting("b", 3)):
            notes.append("never")
    assert scope.cancelled_caught
    assert notes == ["a+", "b+", "b-", "a-"]


async def test_the_grace_then_the_kill(autojump_clock, stage, noting, notes):
    """A child that does not end within its shutdown grace is killed, and only then the next is stopped."""
    slow = {"start": noting("slow", stop_s=100), "shutdown_grace": 7}
    async with stage(a=noting("a"), slow=slow):
        pass
    assert notes == ["a+", "slow+", "a-"]
    assert trio.current_time() == 7


async def test_a_hanging_receive_is_killed_at_shutdown(autojump_clock, stage, noting):
    """An actor busy for ever is killed after its grace, and the tree does not hang."""
    async with stage(a={"start": noting("a"), "shutdown_grace": 2}) as system:
        reply = system.actor("a").ask_nowait("hang")
        await wait_all_tasks_blocked()
    assert trio.current_time() == 2
    assert reply.done


async def test_escalation_cancels_the_body(autojump_clock, stage, noting):
    """When the root gives up, the body is cancelled and RestartLimitReached comes out, caused by the failure."""
    cause = ValueError("again")
    reached = []
    with pytest.raises(RestartLimitReached) as caught:
        async with stage(a=noting("a"), supervisor={"intensity": 1}) as system:
            await system.actor("a").tell(cause)
            await system.actor("a").tell(cause)
            try:
                await trio.sleep_forever()
            finally:
                reached.append("finally")
    assert caught.value.__cause__ is cause
    assert (caught.value.child, caught.value.restarts) == ("a", 1)
    assert reached == ["finally"]
    assert [e.event.child for e in system.events.recent() if isinstance(e.event, Escalated)] == ["a"]


async def test_an_escalation_names_all_that_needed_restarts(autojump_clock, stage, noting):
    """It names each child with its restarts within the period, and not alone the one that happened to be the last."""
    with pytest.raises(RestartLimitReached) as caught:
        async with stage(
            a=noting("a"),
            b=noting("b"),
            c=noting("c"),
            d=noting("d"),
            supervisor={"intensity": 3, "period": 10},
        ) as system:
            await system.actor("d").tell(ValueError("long ago"))
            await trio.sleep(11)
            for name in "abac":
                await system.actor(name).tell(ValueError(f"{name} is broken"))
                await trio.sleep(1)
            pytest.fail("the fourth failure is too much")
    error = caught.value
    assert (error.child, error.children) == ("c", {"a": 2, "b": 1, "c": 1})
    assert "children 'a' (2), 'b' (1) and 'c' (1) needed more than 3 restarts in 10 s" in str(error)
    assert "(the last one 'c': ValueError: c is broken)" in str(error)
    (escalated,) = [e.event for e in system.events.recent() if isinstance(e.event, Escalated)]
    assert escalated.restarts == (("a", 2), ("b", 1), ("c", 1))


async def test_escalation_while_opening(autojump_clock, stage):
    """A child that cannot start makes opening fail with RestartLimitReached."""

    class Broken(Actor):
        async def started(self):
            raise OSError("no disk")

    with pytest.raises(RestartLimitReached) as caught:
        async with stage(a=Broken):
            pytest.fail("opened")
    assert isinstance(caught.value.__cause__, OSError)


async def test_an_error_that_follows_from_the_escalation(autojump_clock, stage, noting):
    """If the body trips over the dying tree, the escalation comes out, with the body's error as context."""
    with pytest.raises(RestartLimitReached) as caught:
        async with stage(a=noting("a"), supervisor={"intensity": 0}) as system:
            ref = system.actor("a")
            with trio.CancelScope(shield=True):
                await ref.tell(ValueError())
                await trio.sleep(1)
                await ref.ask(None)
    assert isinstance(caught.value.__context__, ActorStopped)


async def test_escalation_goes_up_level_by_level(autojump_clock, seams, noting, notes):
    """A supervisor that gave up is restarted by its parent, whole and in order, until the parent gives up too."""
    inner = SupervisorSpec(
        name="inner",
        intensity=1,
        children=[ChildSpec(name="a", start=noting("a")), ChildSpec(name="b", start=noting("b"))],
    )
    spec = SupervisorSpec(name="outer", intensity=1, period=60, children=[inner])
    with pytest.raises(RestartLimitReached) as caught:
        async with open_system(spec, **seams) as system:
            for number in range(4):
                await system.actor("inner/a").tell(ValueError(number))
                await trio.sleep(1)
            pytest.fail("the fourth failure is too much")
    inner_error = caught.value.__cause__
    assert isinstance(inner_error, RestartLimitReached)
    assert (caught.value.path, inner_error.path) == ("", "inner")
    assert str(inner_error.__cause__) == "3"
    assert notes == ["a+", "b+", "a+", "b-", "a+", "b+", "a+", "b-"]


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
async def test_what_passes_a_supervisor(autojump_clock, stage, noting, passing):
    """KeyboardInterrupt and SystemExit in an actor are no crash: they end the system and come out as themselves."""
    with pytest.raises(passing):
        async with stage(a=noting("a"), b=noting("b")) as system:
            await system.actor("a").tell(passing())
            await trio.sleep_forever()


async def test_keyboard_interrupt_in_the_body(autojump_clock, stage, noting, notes):
    """KeyboardInterrupt in the body stops the tree in order and comes out."""
    with pytest.raises(KeyboardInterrupt):
        async with stage(a=noting("a")):
            raise KeyboardInterrupt
    assert notes == ["a+", "a-"]


@pytest.mark.parametrize("done_first", [False, True])
async def test_keyboard_interrupt_while_the_end_begins(
    autojump_clock, stage, noting, notes, monkeypatch, done_first
):
    """It comes out, and the tree is killed rather than waited for: nobody may have told it to stop."""

    def stop(self, *, final, interrupts=[KeyboardInterrupt("now")], real=Supervisor.stop):  # noqa: B006 - once
        if done_first:
            real(self, final=final)
        if interrupts:
            raise interrupts.pop()
        real(self, final=final)

    monkeypatch.setattr(Supervisor, "stop", stop)
    with pytest.raises(KeyboardInterrupt, match="now"), trio.fail_after(600):
        async with stage(a=noting("a", 0, 60)):
            pass
    assert notes == ["a+"]
    assert trio.current_time() < 60


async def test_crashes_while_stopping_are_reported_not_escalated(autojump_clock, stage):
    """An actor that raises in stopping() does not spoil an orderly end."""

    class Bad(Actor):
        async def stopping(self):
            raise ValueError("late")

    async with stage(a=Bad) as system:
        ref = system.actor("a")
    assert ref.statistics().last_failure == "ValueError: late"
    assert ref.statistics().state == "stopped"


async def test_after_the_end_references_know_it(autojump_clock, stage, noting):
    """When the system has ended, every send raises ActorStopped and waiting messages are buried."""
    async with stage(a=noting("a")) as system:
        ref = system.actor("a")
        ref.tell_nowait("hang")
        ref.tell_nowait(None)
        await wait_all_tasks_blocked()
        ref.tell_nowait(None)
    with pytest.raises(ActorStopped):
        ref.tell_nowait(None)
    with pytest.raises(InvalidArgument):
        system.actor("a")
    assert system.dead_letters.by_reason == {"crashed": 1, "stopped": 2}


async def test_a_system_is_used_once(autojump_clock, stage):
    """A second opening of the same object is refused."""
    system = stage()
    async with system:
        pass
    with pytest.raises(InvalidArgument):
        async with system:
            pass


async def test_spawn(autojump_clock, stage, noting, notes):
    """Users' actors live below "user", stop first, and need a name of their own only when they clash."""

    async def clerk(context):
        while True:
            _, reply = await context.next()
            reply.answer(context.path)

    async with stage(a=noting("a")) as system:
        ref = await system.spawn(clerk)
        assert await ref.ask(0) == "user/clerk"
        assert await (await system.spawn(clerk, name="second")).ask(0) == "user/second"
        spec = ChildSpec(name="mine", start=noting("mine"))
        assert (await system.spawn(spec)).path == "user/mine"
        assert (await system.spawn(noting("x"))).path == "user/actor"
        assert [node.name for node in system.tree().children] == ["a", "user"]
    assert notes == ["a+", "mine+", "x+", "x-", "mine-", "a-"]


async def test_a_spawned_actor_fails_alone(autojump_clock, stage):
    """A user's actor with a limit that crashes for ever ends as failed and takes nothing with it."""

    async def broken(context):
        raise ValueError("always")

    async with stage() as system:
        ref = await system.spawn(ChildSpec(name="broken", start=broken, significant=False))
        await trio.sleep(100)
        assert ref.statistics().state == "failed"
        with pytest.raises(RestartLimitReached):
            await ref.ask(1)
        assert "broken (failed, restarts 5, ValueError: always)" in system.tree().draw()


async def test_a_thousand_restarts(autojump_clock, stage):
    """A thousand restarts cost virtual seconds, lose no message but those in hand, and leak no task."""

    class Fragile(Actor):
        async def receive(self, message):
            if message % 2:
                raise ValueError(message)
            return message

    async with stage(a=Fragile, supervisor={"intensity": 5000, "period": 1e6}) as system:
        ref = system.actor("a")
        replies = [ref.ask_nowait(n) for n in range(1000)]
        for number in range(0, 1000, 2):
            assert await replies[number].wait() == number
        for number in range(1000, 2000):
            ref.tell_nowait(number)
            if number % 100 == 99:
                await ref.ask(0)
        assert ref.statistics().restarts == 1000
        assert ref.statistics().incarnation == 1001
        assert system.dead_letters.total == 500
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living < 20


async def test_a_tree_that_was_cut_off_refuses_instead_of_waiting(autojump_clock, seams, noting):
    """After a SystemExit has passed through, changing a nested supervisor's children is refused, for waiters too."""
    inner = SupervisorSpec(name="inner", children=[ChildSpec(name="slow", start=noting("slow", stop_s=3))])
    exiting = ChildSpec(name="exiting", start=noting("exiting"))
    waited = []
    async with trio.open_nursery() as nursery:
        with pytest.raises(SystemExit):
            async with open_system(
                SupervisorSpec(name="outer", children=[inner, exiting]), **seams
            ) as system:
                supervisor = system.root.supervisor("inner")

                async def wait_to_restart():
                    with pytest.raises(ActorStopped):
                        await supervisor.restart_child("slow")
                    waited.append("refused")

                nursery.start_soon(wait_to_restart)
                await wait_all_tasks_blocked()
                system.actor("exiting").tell_nowait(SystemExit(3))
                await trio.sleep_forever()
        with trio.fail_after(1):
            with pytest.raises(ActorStopped):
                await supervisor.stop_child("slow")
            with pytest.raises(ActorStopped):
                await supervisor.restart_child("slow")
            with pytest.raises(ActorStopped):
                await supervisor.start_child(ChildSpec(name="more", start=noting("more")))
            with pytest.raises(ActorStopped):
                await system.spawn(noting("mine"), name="mine")
    assert waited == ["refused"]


async def test_a_child_that_is_not_awaited_holds_up_nobody(autojump_clock, stage, noting, notes):
    """The next child starts beside it, and the supervisor is ready before it."""
    slow = {"start": noting("slow", 10), "awaited": False}
    async with stage(a=noting("a"), slow=slow, b=noting("b", 1)) as system:
        assert (notes, trio.current_time()) == (["a+", "b+"], 1)
        assert system.tree().children[1].state == "starting"
        await trio.sleep(10)
        assert notes == ["a+", "b+", "slow+"]
    assert notes[3:] == ["b-", "slow-", "a-"]


async def test_children_that_are_not_awaited_stop_side_by_side(autojump_clock, stage, noting, notes):
    """Those after them have ended by then, and those before them wait until all of them have."""
    unawaited = {
        f"u{number}": {"start": noting(f"u{number}", stop_s=1 + number), "awaited": False}
        for number in range(4)
    }
    async with stage(a=noting("a", stop_s=1), **unawaited, b=noting("b", stop_s=1)):
        await trio.sleep(1)
        begun = trio.current_time()
    assert trio.current_time() - begun == 6
    assert notes[6:] == ["b-", "u0-", "u1-", "u2-", "u3-", "a-"]


async def test_what_users_spawn_is_never_given_up(autojump_clock, stage, noting):
    """An actor that crashes at each start is tried again with growing pauses, and lives when the cause is gone."""
    starts = []

    async def worker(context):
        starts.append(trio.current_time())
        if len(starts) < 20:
            raise LookupError("the database is away")
        await trio.sleep_forever()

    async with stage(a=noting("a")) as system:
        await system.spawn(worker)
        await trio.sleep(600)
        assert len(starts) == 20
        assert system.actor("user/worker").statistics().state == "running"
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert gaps[0] <= 0.1
    assert 24 <= gaps[-1] <= 30


async def test_an_intensity_of_its_own(autojump_clock, stage, noting):
    """An insignificant child with its own intensity fails by that, whatever its supervisor's is."""
    starts = []

    async def broken(context):
        starts.append(trio.current_time())
        raise LookupError("no such table")

    async with stage(a=noting("a")) as system:
        await system.spawn(ChildSpec(name="broken", start=broken, significant=False, intensity=2))
        await trio.sleep(60)
        assert len(starts) == 3
        assert system.actor("user/broken").statistics().state == "failed"


def test_an_interrupt_is_not_raised_inside_the_tree(seams):
    """Ctrl-C that comes while the tree's own tasks run is raised in the task that opened the system."""
    met = []

    class Quiet(Actor):
        defers_interrupts = True

        async def receive(self, message):
            signal.raise_signal(signal.SIGINT)
            met.append("went on")

    async def main():
        async with open_system(
            SupervisorSpec(name="a", children=(ChildSpec(name="q", start=Quiet),)), **seams
        ) as s:
            await s.actor("q").tell(1)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert met == ["went on"]


def test_an_interrupt_reaches_a_users_actor(seams):
    """Ctrl-C is raised in a user's actor that computes without a checkpoint, and ends the program."""
    met = []

    class Busy(Actor):
        async def receive(self, message):
            signal.raise_signal(signal.SIGINT)
            met.append("went on")

    async def main():
        async with open_system(
            SupervisorSpec(name="a", children=(ChildSpec(name="b", start=Busy),)), **seams
        ) as s:
            await s.actor("b").tell(1)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert met == []


def test_an_interrupt_is_not_raised_while_a_function_takes_a_message(seams):
    """Ctrl-C that comes while a message moves from the mailbox into a function's hands is raised elsewhere."""
    met = []

    async def taker(context):
        try:
            met.append((await context.next()).message)
        except KeyboardInterrupt:
            met.append("interrupted")

    async def main():
        async with open_system(
            SupervisorSpec(name="a", children=(ChildSpec(name="t", start=taker),)), **seams
        ) as s:
            mailbox = s.actor("t")._cell.mailbox
            mailbox.trap = functools.partial(signal.raise_signal, signal.SIGINT)
            await s.actor("t").tell(1)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert met == [1]


@pytest.mark.parametrize("while_opening", [False, True])
def test_an_interrupt_while_a_cancelled_system_closes_comes_out(seams, while_opening):
    """The cancellation that closes it does not hide Ctrl-C, and the program does not go on."""
    met = []

    class Slow(Actor):
        defers_interrupts = True

        async def started(self):
            if while_opening:
                try:
                    await trio.sleep_forever()
                finally:
                    signal.raise_signal(signal.SIGINT)

        async def stopping(self):
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    async def main():
        spec = SupervisorSpec(name="a", children=(ChildSpec(name="slow", start=Slow, shutdown_grace=5.0),))
        with trio.move_on_after(0.01):
            async with open_system(spec, **seams):
                await trio.sleep_forever()
        met.append("went on")
        await trio.lowlevel.checkpoint()  # where the interrupt comes out, if it was only late

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert met == []


def test_a_subscriber_that_is_interrupted_leaves_no_coroutine_behind(seams):
    """Ctrl-C in what hears that a function starts as an actor comes out, without a warning that nobody awaits it."""

    async def actor(context):
        await trio.sleep_forever()

    def hear(event):
        if isinstance(event, ActorStarted):
            raise KeyboardInterrupt("now")

    async def main():
        spec = SupervisorSpec(name="a", children=(ChildSpec(name="f", start=actor),))
        system = open_system(spec, **seams)
        system.events.subscribe(hear)
        async with system:
            await trio.sleep_forever()

    with warnings.catch_warnings(record=True) as told, pytest.raises(KeyboardInterrupt, match="now"):
        warnings.simplefilter("always")
        trio.run(main)
        gc.collect()
    assert [str(each.message) for each in told] == []


async def test_an_interrupt_in_foreign_code_leaves_no_asker_waiting(seams, autojump_clock):
    """Whatever a subscriber, a watcher or a hook raises at the end, every question fails, and every watcher hears."""
    heard, failed = [], []

    class Silent(Actor):
        async def receive(self, message):
            self.context.defer_reply()

        def crashed(self, error):
            raise SystemExit("a hook")

    def hear(event):
        if isinstance(event, ActorEnded):
            raise SystemExit("a subscriber")

    def watch(notice):
        heard.append(notice.path)
        raise SystemExit("a watcher")

    async def ask(ref):
        with pytest.raises((ActorStopped, ActorCrashed)):
            await ref.ask("anything")
        failed.append(ref.path)

    children = tuple(ChildSpec(name=name, start=Silent) for name in ("one", "two"))
    system = open_system(SupervisorSpec(name="a", children=children), **seams)
    system.events.subscribe(hear)
    with pytest.raises(BaseExceptionGroup):
        async with trio.open_nursery() as nursery:
            async with system:
                for name in ("one", "two"):
                    ref = system.actor(name)
                    ref.watch(watch)
                    ref.watch(watch)
                    nursery.start_soon(ask, ref)
                await wait_all_tasks_blocked()
                system.actor("one").crash(ValueError("a drill"))
                await trio.sleep(60)
    assert sorted(heard) == ["one", "one", "two", "two"]
    assert sorted(failed) == ["one", "two"]


class Unready(Actor):
    """Starts only when `fixed` is set."""

    fixed = False

    async def started(self):
        await trio.sleep(1)
        if not self.fixed:
            raise KeyError("no DATABASE_URL")

    async def receive(self, message):
        if message == "crash":
            Unready.fixed = False
            raise ValueError(message)
        return message


@pytest.mark.parametrize("spec", [False, True])
async def test_spawn_raises_what_keeps_an_actor_from_starting(autojump_clock, stage, monkeypatch, spec):
    """The first start's failure is the caller's, whatever the rules of restarting; the name is free again."""
    monkeypatch.setattr(Unready, "fixed", False)
    start = ChildSpec(name="Unready", start=Unready, significant=False) if spec else Unready
    async with stage() as system:
        with pytest.raises(
            ActorStopped, match=r"'user/Unready' could not start.*no DATABASE_URL.* in started"
        ) as caught:
            await system.spawn(start)
        assert isinstance(caught.value.__cause__, KeyError)
        assert trio.current_time() == 1
        Unready.fixed = True
        ref = await system.spawn(start)
        assert await ref.ask("tea") == "tea"
        await ref.tell("crash")  # from now on its supervisor tries, as often as the rules say
        await trio.sleep(1.5)
        Unready.fixed = True
        assert await ref.ask("tea") == "tea"


async def test_spawn_of_what_is_no_actor(autojump_clock, stage):
    """A function that makes none, takes no context, or fails in `__init__` is refused with the reason."""

    async def nobody():
        pass

    class Broken(Actor):
        def __init__(self):
            self.url = {}["DATABASE_URL"]

    async with stage() as system:
        for start, cause in (
            (lambda c: 5, TypeError),
            (lambda: 5, InvalidArgument),
            (nobody, TypeError),
            (Broken, KeyError),
        ):
            with pytest.raises(ActorStopped) as caught:
                await system.spawn(start, name="x")
            assert isinstance(caught.value.__cause__, cause)
        assert system.tree().children[0].children == ()


async def test_spawn_waits_for_the_start_alone(autojump_clock, stage):
    """A function that fails at once has started: it is restarted without limit, and its caller goes on."""

    async def broken(context):
        raise ValueError("always")

    async with stage() as system:
        ref = await system.spawn(broken)
        assert trio.current_time() == 0
        await trio.sleep(100)
        assert ref.statistics().restarts > 3


async def test_an_actor_on_trial_when_the_system_ends(autojump_clock, stage):
    """Who waits in `spawn` for a start is answered when the tree ends; a cancelled caller leaves the start alone."""
    answers = []

    async def spawn(system):
        try:
            await system.spawn(Unready, name="late")
        except ActorStopped as error:
            answers.append(error.path)

    async with trio.open_nursery() as nursery:
        async with stage() as system:
            with trio.move_on_after(0.5):
                await system.spawn(Unready, name="given up")
            await trio.sleep(1)
            assert [node.path for node in system.tree().walk()] == ["", "user"]
            nursery.start_soon(spawn, system)
            await trio.sleep(0.5)
    assert answers == ["user/late"]
