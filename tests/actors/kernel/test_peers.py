"""Peers: notices to an actor and back, which never wait, never get lost and never grow."""

import attrs
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from trio.testing import wait_all_tasks_blocked

from callboard.actors.clients.port import unavailable
from callboard.actors.kernel import (
    Actor,
    ActorSystem,
    Batch,
    Began,
    Envelope,
    Failed,
    Gathering,
    MailboxSpec,
    Peer,
    Terminated,
    notify,
    notify_all,
    watch_marks,
)
from callboard.actors.kernel.wire import DescribedError, Wire
from callboard.log.errors import InvalidArgument, MailboxFull
from callboard.log.limits import STEP_ITEMS
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy
from callboard.supervision import ChildSpec, SupervisorSpec, open_system


@attrs.frozen
class News:
    """What a peer says of one thing."""

    peer: int
    thing: str
    value: int


class Party:
    """A peer with values that change, and what it has heard."""

    def __init__(self, ref):
        self.values = {}
        self.heard = []
        self.peer = Peer(ref, self)
        self.peer.open()

    def compose(self, thing):
        return News(self.peer.number, thing, self.values[thing])

    def hear(self, message):
        self.heard.append(message)

    def say(self, thing, value):
        self.values[thing] = value
        self.peer.mark(thing)


class Echo(Actor):
    """Takes notes of what it gets, and says it to the peer that the message names."""

    def __init__(self, notes):
        self.notes = notes

    async def receive(self, message):
        if isinstance(message, Exception):
            raise message
        if isinstance(message, trio.Event):
            await message.wait()
            return
        self.notes.append(message)
        if isinstance(message, News):
            notify(self.context.ref, message.peer, message.value)


async def test_of_each_thing_the_newest_is_said_once(autojump_clock, stage):
    """While the actor is busy values are overwritten; it gets the last of each, in the order of their first news."""
    notes, busy = [], trio.Event()
    async with stage(a=lambda: Echo(notes)) as system:
        party = Party(system.actor("a"))
        await system.actor("a").tell(busy)
        await wait_all_tasks_blocked()
        for value in range(1000):
            party.say("one" if value % 2 else "two", value)
        assert system.actor("a").statistics().mailbox_depth == 2
        busy.set()
        await wait_all_tasks_blocked()
    number = party.peer.number
    assert notes == [News(number, "two", 998), News(number, "one", 999)]
    assert party.heard == [998, 999, Terminated("a")]


async def test_a_full_mailbox_keeps_a_place_for_notices(autojump_clock, stage):
    """They neither wait nor fail, take no message's place, and come first."""
    notes, busy = [], trio.Event()
    spec = ChildSpec(name="b", start=lambda: Echo(notes), mailbox=MailboxSpec(2, "fail"))
    async with stage(a=lambda: Echo([])) as system:
        ref = await system.spawn(spec)
        party = Party(ref)
        await ref.tell(busy)
        await wait_all_tasks_blocked()
        ref.tell_nowait("1")
        ref.tell_nowait("2")
        try:
            ref.tell_nowait("3")
        except MailboxFull:
            notes.append("full")
        party.say("it", 7)
        busy.set()
        await wait_all_tasks_blocked()
    assert notes == ["full", News(party.peer.number, "it", 7), "1", "2"]


async def test_a_notice_comes_before_the_message_that_wakes_its_reader(autojump_clock, stage):
    """Also when that was sent a moment before."""
    notes = []
    async with stage(a=lambda: Echo(notes)) as system:
        ref = system.actor("a")
        party = Party(ref)
        await wait_all_tasks_blocked()
        ref.tell_nowait("1")
        party.say("it", 7)
        await wait_all_tasks_blocked()
    assert notes == [News(party.peer.number, "it", 7), "1"]


async def test_what_was_overwritten_while_the_actor_woke_or_was_busy_is_never_sent(autojump_clock, stage):
    """A notice says what is the newest when the actor takes it, also one that came while a message woke the actor."""
    notes = []

    class Slow(Echo):
        async def receive(self, message):
            await super().receive(message)
            await trio.sleep(1)

    async with stage(a=lambda: Slow(notes)) as system:
        ref = system.actor("a")
        party = Party(ref)
        await wait_all_tasks_blocked()
        ref.tell_nowait("1")
        party.say("one", 1)
        party.say("two", 1)
        await wait_all_tasks_blocked()  # the actor handles the first
        party.say("two", 2)
        party.say("three", 3)
        await trio.sleep(10)
    number = party.peer.number
    assert notes == [News(number, "one", 1), News(number, "two", 2), News(number, "three", 3), "1"]


async def test_a_new_incarnation_says_that_it_has_begun(autojump_clock, stage):
    """To open peers, before it takes a message; a peer that has closed hears nothing more, and cannot be told."""
    notes = []
    async with stage(a=lambda: Echo(notes)) as system:
        ref = system.actor("a")
        party, gone = Party(ref), Party(ref)
        gone.peer.close()
        party.say("it", 1)
        await wait_all_tasks_blocked()
        party.heard.clear()
        ref.crash(RuntimeError("a drill"))
        await trio.sleep(1.0)
        assert (party.heard, gone.heard) == ([Began()], [])
        assert not notify(ref, gone.peer.number, "hello")
        ref.stop()
    assert party.heard[-1] == Terminated("a")
    late = Party(ref)
    assert late.heard == [Terminated("a")]
    late.say("it", 2)
    assert late.peer.marks == {}


async def test_gathered_news_is_taken_together(autojump_clock, stage):
    """While the actor is busy each item is gathered: it takes all of them in one notice, in order."""
    notes, busy = [], trio.Event()
    async with stage(a=lambda: Echo(notes)) as system:
        ref = system.actor("a")
        news = Gathering(ref, lambda items: items)
        await ref.tell(busy)
        await wait_all_tasks_blocked()
        for number in range(3):
            news.add(number)
        assert ref.statistics().mailbox_depth == 1
        busy.set()
        await wait_all_tasks_blocked()
        news.add(3)
        await wait_all_tasks_blocked()
    assert notes == [(0, 1, 2), (3,)]


async def test_much_gathered_news_is_taken_as_much_at_a_time_as_a_step_handles(autojump_clock, stage):
    """In its order, before the messages that wait, with what came meanwhile behind it."""
    notes, busy = [], trio.Event()
    many = 2 * STEP_ITEMS + 1
    async with stage(a=lambda: Echo(notes)) as system:
        ref = system.actor("a")
        news = Gathering(ref, lambda items: items)
        await ref.tell(busy)
        await ref.tell("behind")
        await wait_all_tasks_blocked()
        for number in range(many):
            news.add(number)
        assert ref.statistics().mailbox_depth == 2
        busy.set()
        await wait_all_tasks_blocked()
        news.add(many)
        await wait_all_tasks_blocked()
    assert [len(note) for note in notes if note != "behind"] == [STEP_ITEMS, STEP_ITEMS, 1, 1]
    assert notes.pop(3) == "behind"
    assert [number for note in notes for number in note] == list(range(many + 1))


async def test_gathered_news_waits_for_a_failed_actor(autojump_clock):
    """One that is revived takes what was gathered before and since; for one that has ended, nothing is kept."""
    system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
    ref = system.register("a", MailboxSpec(1))
    cell = ref._cell
    news = Gathering(ref, lambda items: items)
    news.add(1)
    cell.fail(RuntimeError("a drill"), None)
    news.add(2)
    cell.mailbox.refuse(None)
    cell.tell_began()
    news.add(3)
    assert [message for message, _ in Batch(cell.mailbox, 9)] == [(1, 2, 3)]
    cell.tell_began()
    news.add(4)
    assert [message for message, _ in Batch(cell.mailbox, 9)] == [(4,)]
    news.add(5)
    cell.close(None)
    news.add(6)
    assert news._items == []


async def test_peers_hear_that_the_actor_has_failed(autojump_clock, seams):
    """One that opens later hears it at once; when the actor is restarted by hand, they hear that it has begun."""
    child = ChildSpec(name="a", start=lambda: Echo([]), significant=False)
    root = SupervisorSpec(name="test", children=[child])
    async with open_system(root, **seams) as system:
        ref = system.actor("a")
        party = Party(ref)
        while not party.heard or not isinstance(party.heard[-1], Failed):
            ref.crash(RuntimeError("a drill"))
            await trio.sleep(0.1)
        late = Party(ref)
        assert str(late.heard[0].cause) == "a drill"
        await system.root.restart_child("a")
        await wait_all_tasks_blocked()
        assert (party.heard[-1], late.heard[1:]) == (Began(), [Began()])
        assert Party(ref).heard == []


async def test_all_open_peers_hear_what_is_said_to_all(autojump_clock, stage):
    """A peer that has closed does not."""
    async with stage(a=lambda: Echo([])) as system:
        ref = system.actor("a")
        parties = [Party(ref) for _ in range(3)]
        parties[1].peer.close()
        notify_all(ref, "hello")
        assert [party.heard for party in parties] == [["hello"], [], ["hello"]]


async def test_an_actor_that_takes_nothing_yet_hears_of_marks(autojump_clock, stage):
    """Of those that wait already, and of those that come, until it has heard enough; they are taken all the same."""
    notes, busy, marks = [], trio.Event(), []
    async with stage(a=lambda: Echo(notes)) as system:
        ref = system.actor("a")
        party = Party(ref)
        await ref.tell(busy)
        await wait_all_tasks_blocked()
        party.say("one", 1)
        watch_marks(ref, marks.append)
        party.say("two", 2)
        party.say("two", 3)
        watch_marks(ref, None)
        party.say("three", 3)
        assert marks == ["one", "two"]
        busy.set()
        await wait_all_tasks_blocked()
    assert [note.thing for note in notes] == ["one", "two", "three"]


class NoticesMachine(RuleBasedStateMachine):
    """Peers, a mailbox and a list do the same; `said` has the marks that are on their way, by peer."""

    @initialize(peers=st.integers(1, 3))
    def make(self, peers):
        system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
        ref = system.register("a", MailboxSpec(1))
        self.cell = ref._cell
        self.parties = [Party(ref) for _ in range(peers)]
        self.said = {}
        self.front, self.others, self.number = [], [], 0

    @rule(party=st.integers(0, 2), thing=st.sampled_from("abc"), value=st.integers())
    def say(self, party, thing, value):
        """There is one place for each mark."""
        party = self.parties[party % len(self.parties)]
        party.say(thing, value)
        self.said.setdefault(party, {})[thing] = None

    @rule()
    def put(self):
        """Other messages have the capacity for themselves."""
        self.number += 1
        if self.cell.mailbox.put(Envelope(self.number, None)):
            self.others.append(self.number)

    @rule(limit=st.integers(1, 4))
    def take(self, limit):
        """Notices come before the channel, each with what is the newest; those of one peer one after the other."""
        for message, _ in Batch(self.cell.mailbox, limit):
            if self.front:
                assert message == self.front.pop(0)
            elif self.said:
                party, things = next(iter(self.said.items()))
                thing = next(iter(things))
                del things[thing]
                if not things:
                    del self.said[party]
                assert message == News(party.peer.number, thing, party.values[thing])
            else:
                assert message == self.others.pop(0)

    @rule()
    def fail_and_revive(self):
        """What did not reach a failed actor never will: its peers hear when it begins."""
        self.cell.mailbox.refuse(lambda: InvalidArgument("failed"))
        self.parties[0].say("a", 0)
        self.cell.mailbox.refuse(None)
        self.said.clear()
        self.front, self.others = self.front + self.others, []
        self.cell.tell_began()
        assert all(party.heard[-1] == Began() for party in self.parties)

    @invariant()
    def same(self):
        """Nothing is counted twice or left (PE1)."""
        if hasattr(self, "cell"):
            said = sum(map(len, self.said.values()))
            assert len(self.cell.mailbox) == said + len(self.front) + len(self.others)
            assert sum(len(party.peer.marks) for party in self.parties) == said


NoticesMachine.TestCase.settings = settings(deadline=None)
TestNotices = NoticesMachine.TestCase


@pytest.mark.parametrize("in_wire_mode", [False, True])
async def test_in_wire_mode_peers_hear_a_copy_of_what_an_actor_failed_with(
    autojump_clock, seams, in_wire_mode
):
    """A class that only the program knows comes as words; what is said of the failure is the same."""

    class Own(Exception):
        pass

    child = ChildSpec(name="a", start=lambda: Echo([]), significant=False)
    root = SupervisorSpec(name="test", children=[child])
    async with open_system(root, wire=Wire([int]) if in_wire_mode else None, **seams) as system:
        ref, cause = system.actor("a"), Own("a drill")
        party = Party(ref)
        while not party.heard or not isinstance(party.heard[-1], Failed):
            ref.crash(cause)
            await trio.sleep(0.1)
        heard = party.heard[-1].cause
        assert (heard is cause, type(heard)) == (not in_wire_mode, DescribedError if in_wire_mode else Own)
        assert str(unavailable("orders", 0, "orders/0", "failed", heard)).startswith(
            "partition orders/0 is failed (Own: a drill). Nothing was written."
        )
