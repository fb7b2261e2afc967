"""Strategies, restart kinds, and children that come, go, fail and are revived while the system runs."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.kernel import Actor, MailboxSpec
from callboard.actors.kernel.events import ActorFailed, ActorRestarted, HookFailed
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    ConfigurationError,
    InvalidArgument,
    PartitionUnavailable,
    RestartLimitReached,
)
from callboard.supervision import Backoff, ChildSpec, SupervisorSpec, open_system


@pytest.fixture
def notes():
    return []


@pytest.fixture
def noting(notes):
    """Make the start of an actor that notes its beginnings and ends, and crashes by what it is sent."""

    class Noting(Actor):
        def __init__(self, name):
            self.name = name

        async def started(self):
            notes.append(f"{self.name}+")

        async def receive(self, message):
            if message == "stop":
                self.context.stop()
            elif message is not None:
                raise message
            return self.name

        async def stopping(self):
            notes.append(f"{self.name}-")

    return lambda name: lambda: Noting(name)


@pytest.mark.parametrize(
    ("strategy", "after"),
    [
        ("one_for_one", ["b+"]),
        ("one_for_all", ["c-", "a-", "a+", "b+", "c+"]),
        ("rest_for_one", ["c-", "b+", "c+"]),
    ],
)
async def test_who_is_restarted(autojump_clock, stage, noting, notes, strategy, after):
    """Each strategy takes along whom its table says: stopped last first, started first first."""
    children = {name: noting(name) for name in "abc"}
    async with stage(**children, supervisor={"strategy": strategy}) as system:
        notes.clear()
        await system.actor("b").tell(ValueError())
        await trio.sleep(1)
        assert notes == after
        assert [system.actor(name).statistics().state for name in "abc"] == ["running"] * 3
        assert [system.actor(name).statistics().restarts for name in "abc"] == [0, 1, 0]


async def test_the_mailboxes_of_children_restarted_together_survive(autojump_clock, stage, noting):
    """Messages to a sibling that is restarted along are handled by its next incarnation."""
    children = {name: noting(name) for name in "ab"}
    async with stage(**children, supervisor={"strategy": "one_for_all"}) as system:
        await system.actor("b").tell(ValueError())
        await wait_all_tasks_blocked()
        assert system.actor("a").statistics().state != "running"
        assert await system.actor("a").ask(None) == "a"
        assert system.actor("a").statistics().incarnation == 2


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("how", ["finished", "crashed", "killed"])
async def test_restart_kinds(autojump_clock, stage, noting, restart, how):
    """Permanent children always come back, transient ones after a failure, temporary ones never."""
    comes_back = restart == "permanent" or (restart == "transient" and how != "finished")
    async with stage(a={"start": noting("a"), "restart": restart}) as system:
        ref = system.actor("a")
        if how == "crashed":
            await ref.tell(ValueError())
        else:
            (ref.stop if how == "finished" else ref.kill)()
        await trio.sleep(1)
        assert ref.stopped is not comes_back
        assert ("a" in system.root) is comes_back
        assert ref.statistics().incarnation == (2 if comes_back else 1)


async def test_a_temporary_child_is_not_restarted_with_another(autojump_clock, stage, noting, notes):
    """A group restart ends temporary members for good."""
    temporary = {"start": noting("t"), "restart": "temporary"}
    async with stage(a=noting("a"), t=temporary, supervisor={"strategy": "one_for_all"}) as system:
        await system.actor("a").tell(ValueError())
        await trio.sleep(1)
        assert [node.name for node in system.tree().children] == ["a"]
    assert notes == ["a+", "t+", "t-", "a+", "a-"]


async def test_backoff_is_waited_out(autojump_clock, stage, noting):
    """Restarts in a row wait longer each time; the events tell how long and why."""
    backoff = Backoff(initial=1, maximum=3, jitter=0)
    spec = {"start": noting("a"), "backoff": backoff}
    async with stage(a=spec, supervisor={"period": 60}) as system:
        times = []
        for _ in range(4):
            await system.actor("a").tell(ValueError("x"))
            before = trio.current_time()
            await system.actor("a").ask(None)
            times.append(trio.current_time() - before)
        assert times == [1, 2, 3, 3]
        told = [entry.event for entry in system.events.recent() if isinstance(entry.event, ActorRestarted)]
        assert told[1] == ActorRestarted("a", 3, "ValueError: x", 2)
        await system.actor("a").tell(ValueError("x"))
        await wait_all_tasks_blocked()
        assert system.tree().children[0].state == "waiting"
        await system.root.restart_child("a")
        assert trio.current_time() == sum(times)


async def test_shutdown_does_not_wait_for_a_backoff(autojump_clock, stage, noting):
    """A child that waits for its restart ends at once when the system closes."""
    spec = {"start": noting("a"), "backoff": Backoff(initial=100, maximum=100)}
    async with stage(a=spec, supervisor={"period": 10_000}) as system:
        await system.actor("a").tell(ValueError())
        await wait_all_tasks_blocked()
        reply = system.actor("a").ask_nowait(None)
    assert trio.current_time() == 0
    with pytest.raises(ActorStopped):
        await reply.wait()


async def test_children_come_and_go(autojump_clock, stage, noting, notes):
    """start_child, child, stop_child: the name is free again, and waiting questions are answered."""
    async with stage(a=noting("a")) as system:
        ref = await system.root.start_child(ChildSpec(name="b", start=noting("b")))
        assert ref is system.root.child("b") is system.actor("b")
        assert await ref.ask(None) == "b"
        await system.root.stop_child("b")
        assert ref.stopped
        assert "b" not in system.root
        with pytest.raises(ActorStopped):
            await ref.ask(None)
        again = await system.root.start_child(ChildSpec(name="b", start=noting("b2")))
        assert await again.ask(None) == "b2"
        assert again.statistics().incarnation == 1
    assert notes == ["a+", "b+", "b-", "b2+", "b2-", "a-"]


async def test_supervisors_come_and_go(autojump_clock, stage, noting, notes):
    """A nested supervisor can be started and stopped with all that is below it."""
    async with stage() as system:
        topics = await system.root.start_child(SupervisorSpec(name="topics"))
        orders = await topics.start_child(SupervisorSpec(name="orders"))
        for name in "012":
            await orders.start_child(ChildSpec(name=name, start=noting(name)))
        assert system.root.supervisor("topics") is topics
        ref = system.actor("topics/orders/2")
        await system.root.stop_child("topics")
        assert ref.stopped
        with pytest.raises(ActorStopped):
            await orders.start_child(ChildSpec(name="3", start=noting("3")))
    assert notes == ["0+", "1+", "2+", "2-", "1-", "0-"]


async def test_added_children_outlive_a_restart_of_their_supervisor(autojump_clock, stage, noting, notes):
    """When a supervisor is restarted, so are the children added later, and references stay valid."""
    async with stage() as system:
        inner = await system.root.start_child(SupervisorSpec(name="inner", intensity=0))
        ref = await inner.start_child(ChildSpec(name="a", start=noting("a")))
        await ref.tell(ValueError())
        await ref.tell(None)
        assert await ref.ask(None) == "a"
        assert [node.restarts for node in system.tree().walk()] == [0, 1, 0]
    assert notes == ["a+", "a+", "a-"]


async def test_start_child_waits_through_restarts(autojump_clock, stage):
    """A child that starts at its third attempt is handed out when it has."""

    class Slow(Actor):
        async def started(self):
            if self.context.incarnation < 3:
                raise OSError("not yet")

    async with stage() as system:
        ref = await system.root.start_child(ChildSpec(name="a", start=Slow))
        assert ref.statistics().state == "running"
        assert ref.statistics().restarts == 2


async def test_start_child_of_what_ends_instead(autojump_clock, stage):
    """A temporary child that crashes while starting makes start_child raise, with the cause."""

    class Broken(Actor):
        async def started(self):
            raise OSError("broken")

    async with stage() as system:
        with pytest.raises(ActorStopped) as caught:
            await system.root.start_child(ChildSpec(name="a", start=Broken, restart="temporary"))
        assert str(caught.value.__cause__) == "broken"


async def test_add_child_does_not_wait(autojump_clock, stage, noting):
    """add_child hands out a reference at once; messages wait until the child has started."""
    async with stage() as system:
        ref = system.root.add_child(ChildSpec(name="a", start=noting("a")))
        assert ref.statistics().state == "new"
        assert await ref.ask(None) == "a"


async def test_what_does_not_fit_is_refused(autojump_clock, stage, noting):
    """A taken name and a backoff that hides the limit are refused when a child is added."""
    async with stage(a=noting("a")) as system:
        for spec in (
            ChildSpec(name="a", start=noting("a")),
            ChildSpec(name="b", start=noting("b"), backoff=Backoff(initial=100, maximum=100)),
        ):
            with pytest.raises(ConfigurationError):
                await system.root.start_child(spec)
        for call in (system.root.child, system.root.supervisor):
            with pytest.raises(InvalidArgument):
                call("nobody")
        with pytest.raises(InvalidArgument):
            system.root.supervisor("a")
        with pytest.raises(InvalidArgument):
            await system.root.stop_child("nobody")


@pytest.fixture
def fragile():
    """A supervisor spec with one insignificant child that may be restarted twice."""

    def make(start):
        child = ChildSpec(
            name="p",
            start=start,
            significant=False,
            mailbox=MailboxSpec(capacity=5),
            on_failed=lambda path, cause: PartitionUnavailable(f"{path}: {cause}", state="failed"),
        )
        healthy = ChildSpec(name="q", start=start)
        return SupervisorSpec(name="s", intensity=2, children=(child, healthy))

    return make


async def wear_out(ref):
    """Crash the actor once more than its supervisor allows."""
    for number in range(3):
        with pytest.raises(ActorCrashed):
            await ref.ask(ValueError(number))


async def test_an_insignificant_child_fails_alone(autojump_clock, seams, noting, fragile):
    """Over its intensity it is failed: questions get the specification's error, the siblings go on."""
    async with open_system(fragile(noting("p")), **seams) as system:
        ref = system.actor("p")
        ref.tell_nowait(ValueError(0))
        ref.tell_nowait(ValueError(1))
        ref.tell_nowait(ValueError(2))
        await wait_all_tasks_blocked()
        ref.tell_nowait(None)
        waiting = ref.ask_nowait(None)
        await trio.sleep(1)
        for question in (waiting.wait, lambda: ref.ask(None), lambda: ref.tell(None)):
            with pytest.raises(PartitionUnavailable) as caught:
                await question()
            assert caught.value.state == "failed"
            assert str(caught.value.__cause__) == "2"
        assert ref.statistics().mailbox_depth == 1
        node = system.tree().children[0]
        assert (node.state, node.last_failure) == ("failed", "ValueError: 2")
        assert await system.actor("q").ask(None) == "p"
        assert [e.event for e in system.events.recent() if isinstance(e.event, ActorFailed)] == [
            ActorFailed("p", "ValueError: 2")
        ]


async def test_a_failed_child_is_revived(autojump_clock, seams, noting, fragile, notes):
    """restart_child brings a failed child back, with its mailbox, and its failures are forgiven."""
    async with open_system(fragile(noting("p")), **seams) as system:
        ref = system.actor("p")
        for _ in range(2):
            await wear_out(ref)
            await trio.sleep(1)
            assert ref.statistics().state == "failed"
            assert await system.root.restart_child("p") is ref
            assert await ref.ask(None) == "p"


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_child_that_ends_too_often_without_an_error_fails(autojump_clock, stage, noting, how):
    """An insignificant child that is stopped or killed too often fails, with a cause that says so."""
    child = {"start": noting("a"), "significant": False, "intensity": 0}
    async with stage(a=child) as system:
        ref = system.actor("a")
        getattr(ref, how)()
        await trio.sleep(1)
        with pytest.raises(RestartLimitReached) as caught:
            await ref.ask(None)
    assert "was stopped or killed too often" in str(caught.value.__cause__)


@pytest.mark.parametrize("call", ["restart_child", "stop_child"])
async def test_a_call_about_a_child_that_is_just_ending(autojump_clock, stage, noting, call):
    """Who restarts or stops a child in the very moment in which it ends for good hears that it has ended."""
    heard = []

    async def call_when(event, system):
        await event.wait()
        try:
            await getattr(system.root, call)("a")
        except (ActorStopped, InvalidArgument) as error:
            heard.append(type(error))
        else:
            heard.append(None)

    for _ in range(10):
        crashed = trio.Event()
        async with stage(a={"start": noting("a"), "restart": "temporary"}) as system:
            system.events.subscribe(lambda _, crashed=crashed: crashed.set())
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(call_when, crashed, system)
                await wait_all_tasks_blocked()
                system.actor("a").tell_nowait(ValueError())
    assert len(heard) == 50


async def test_crashes_of_insignificant_children_do_not_add_up(autojump_clock, seams, noting):
    """Each insignificant child has a window of its own, and never brings the supervisor down."""
    children = [ChildSpec(name=str(n), start=noting(str(n)), significant=False) for n in range(20)]
    async with open_system(SupervisorSpec(name="s", intensity=1, children=children), **seams) as system:
        for number in range(20):
            with pytest.raises(ActorCrashed):
                await system.actor(str(number)).ask(ValueError())
        for number in range(20):
            assert await system.actor(str(number)).ask(None) == str(number)


async def test_a_failed_supervisor_answers_for_those_below(autojump_clock, stage, noting):
    """An insignificant supervisor that gives up too often fails; actors below refuse until it is revived."""
    async with stage(supervisor={"intensity": 0}) as system:
        spec = SupervisorSpec(name="inner", intensity=0, significant=False)
        inner = await system.root.start_child(spec)
        ref = await inner.start_child(ChildSpec(name="a", start=noting("a")))
        await ref.tell(ValueError())
        await trio.sleep(1)
        with pytest.raises(RestartLimitReached):
            await ref.ask(None)
        assert [node.state for node in system.tree().walk()] == ["running", "failed", "failed"]
        assert await system.root.restart_child("inner") is inner
        assert await ref.ask(None) == "a"


@pytest.mark.parametrize("significant", [True, False])
async def test_a_child_is_stopped_while_its_supervisor_is_down(autojump_clock, stage, noting, significant):
    """stop_child below a supervisor that waits for its restart, or has failed, does not wait for its next life."""
    backoff = Backoff(initial=4, maximum=4, jitter=0)
    async with stage(supervisor={"intensity": 1 if significant else 0}) as system:
        children = [ChildSpec(name="listed", start=noting("listed"))]
        spec = SupervisorSpec(
            name="inner", intensity=0, significant=significant, backoff=backoff, children=children
        )
        inner = await system.root.start_child(spec)
        await inner.start_child(ChildSpec(name="added", start=noting("added")))
        await inner.child("listed").tell(ValueError())
        await trio.sleep(1)
        with trio.fail_after(1):
            await inner.stop_child("listed")
            await inner.stop_child("added")
        assert "listed" not in inner
        assert "added" not in inner
        await system.root.restart_child("inner")
        assert "added" not in inner
        assert await inner.child("listed").ask(None) == "listed"


async def test_a_running_child_is_restarted_gracefully(autojump_clock, stage, noting, notes):
    """restart_child of a healthy child stops it gracefully, starts it anew, and counts no failure."""
    async with stage(a=noting("a"), b=noting("b"), supervisor={"intensity": 0}) as system:
        await system.root.restart_child("a")
        assert await system.actor("a").ask(None) == "a"
        assert system.actor("a").statistics().restarts == 0
    assert notes == ["a+", "b+", "a-", "a+", "b-", "a-"]


async def test_one_child_in_backoff_does_not_hold_up_others(autojump_clock, stage, noting):
    """In one_for_one, restarts and new children do not wait for somebody else's backoff or slow stop."""

    class Clinging(Actor):
        async def stopping(self):
            await trio.sleep(3)

    slow = {"start": noting("slow"), "backoff": Backoff(initial=50, maximum=50)}
    async with stage(slow=slow, cling=Clinging, b=noting("b"), supervisor={"period": 1000}) as system:
        await system.actor("slow").tell(ValueError())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(system.root.stop_child, "cling")
            await wait_all_tasks_blocked()
            await system.actor("b").tell(ValueError())
            await system.actor("b").ask(None)
            await system.root.start_child(ChildSpec(name="c", start=noting("c")))
            assert trio.current_time() < 1
        assert trio.current_time() == 3


@pytest.mark.parametrize("made", ["raises", "makes no exception"])
async def test_an_on_failed_that_fails_is_reported_once(autojump_clock, stage, made):
    """The child is failed all the same, waiting and later questions hear of it, and its siblings live on."""

    def on_failed(path, cause):
        if made == "raises":
            raise KeyError(path)
        return path

    class Slow(Actor):
        async def receive(self, message):
            await trio.sleep(1)
            raise ValueError(message)

    spec = {"start": Slow, "significant": False, "intensity": 0, "on_failed": on_failed}
    hooks = []
    async with stage(slow=spec, other=Actor) as system:
        system.events.subscribe(lambda event: hooks.append(event) if isinstance(event, HookFailed) else None)
        ref = system.actor("slow")
        replies = [ref.ask_nowait("x") for _ in range(3)]
        await trio.sleep(5)
        for reply in replies[1:]:
            with pytest.raises(RestartLimitReached):
                reply.value()
        with pytest.raises(RestartLimitReached):
            await ref.tell("x")
        assert [(event.path, event.hook) for event in hooks] == [("slow", "on_failed")]
        assert system.actor("other").statistics().state == "running"


async def test_who_is_down_with_its_supervisor_is_not_blamed(autojump_clock, stage):
    """The error of a child whose supervisor gave up names the supervisor, the sibling that failed, and why."""

    class Bad(Actor):
        async def receive(self, message):
            raise ValueError(message)

    inner = SupervisorSpec(
        name="inner",
        significant=False,
        intensity=0,
        children=[ChildSpec(name="good", start=Actor), ChildSpec(name="bad", start=Bad)],
    )
    async with stage(any=Actor, supervisor={"intensity": 0}) as system:
        await system.root.start_child(inner)
        await system.actor("inner/bad").tell("x")
        await trio.sleep(5)
        with pytest.raises(RestartLimitReached) as caught:
            await system.actor("inner/good").ask("x")
        assert (caught.value.path, caught.value.child) == ("inner", "inner/bad")
        assert str(caught.value) == (
            "Actor 'inner/good' is down with its supervisor: Supervisor 'inner' gave up: child 'bad' needed more than 0"
            " restarts in 10 s (ValueError: x). Repair the cause, or allow more restarts. Then restart 'inner' by hand."
        )


async def test_an_actor_knows_whether_it_is_stopped_for_good(autojump_clock, stage, notes):
    """Another incarnation follows a stop for a sibling's crash; none follows its removal, or the end of the system."""

    class Leaving(Actor):
        async def receive(self, message):
            raise message

        async def stopping(self):
            notes.append((self.context.path.rpartition("/")[2], self.context.is_final_stop))

    async with stage(a=Leaving, b=Leaving, c=Leaving, supervisor={"strategy": "one_for_all"}) as system:
        await system.actor("a").tell(ValueError("a bug"))
        await wait_all_tasks_blocked()
        await trio.sleep(1.0)
        assert notes == [("c", False), ("b", False)]
        notes.clear()
        await system.root.stop_child("b")
        assert notes == [("b", True)]
        notes.clear()
    assert notes == [("c", True), ("a", True)]
