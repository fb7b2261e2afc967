"""DurableActor: state that survives restarts, snapshots, and a disk that fails."""

import pytest
import trio

from callboard.actors.kernel import Actor, DurableActor
from callboard.actors.kernel.events import HookFailed
from callboard.log.errors import ActorCrashed, ActorStopped, InvalidArgument
from callboard.log.host.disk import HostDisk
from callboard.log.seams.disk import Create, Sync, Unlink
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.supervision import ChildSpec


class Account(DurableActor):
    """Keeps a balance; knows how often it applied and restored."""

    snapshot_every = 10

    def __init__(self):
        self.balance = 0
        self.applied = 0
        self.restored = 0

    async def receive(self, message):
        if message == "boom":
            raise ValueError
        if message == "counts":
            return (self.applied, self.restored)
        if message:
            await self.persist(message)
        return self.balance

    def apply(self, event):
        self.applied += 1
        self.balance += event

    def snapshot(self):
        return {"balance": self.balance}

    def restore(self, state):
        self.restored += 1
        self.balance = state["balance"]


@pytest.fixture
async def disk(tmp_path):
    """A real disk that runs its plans in the loop's thread, so that virtual time stands meanwhile."""
    disk = HostDisk(tmp_path, inline=True)
    yield disk
    await disk.aclose()


async def test_state_survives_a_crash(autojump_clock, stage, disk):
    """After a crash the next incarnation replays its events."""
    async with stage(disk=disk, account=Account) as system:
        ref = system.actor("account")
        assert await ref.ask(5) == 5
        assert await ref.ask(7) == 12
        with pytest.raises(ActorCrashed):
            await ref.ask("boom")
        assert await ref.ask(0) == 12
        assert await ref.ask("counts") == (2, 0)


async def test_state_survives_the_system(autojump_clock, stage, disk):
    """A later system on the same disk finds the state, from a snapshot and the few events after it."""
    async with stage(disk=disk, account=Account) as system:
        for _ in range(25):
            await system.actor("account").ask(1)
    async with stage(disk=disk, account=Account) as system:
        assert await system.actor("account").ask(0) == 25
        assert await system.actor("account").ask("counts") == (5, 1)
        for _ in range(5):
            await system.actor("account").ask(1)
    async with stage(disk=disk, account=Account) as system:
        assert await system.actor("account").ask("counts") == (0, 1)
        assert await system.actor("account").ask(0) == 30


async def test_several_events_at_once(autojump_clock, stage, disk):
    """persist takes several events, written as one and applied in order."""

    class Listing(Account):
        async def receive(self, message):
            if message:
                await self.persist(*message)
            return self.balance

        def encode(self, event):
            return {"amount": event}

        def decode(self, data):
            return data["amount"]

    async with stage(disk=disk, account=Listing) as system:
        assert await system.actor("account").ask([1, 2, 3]) == 6
    async with stage(disk=disk, account=Listing) as system:
        assert await system.actor("account").ask(None) == 6


async def test_each_path_has_a_journal_of_its_own(autojump_clock, stage, disk):
    """Names that differ, differ on disk too, whatever characters they hold."""
    async with stage(disk=disk) as system:
        for number, name in enumerate(["a.b", "a%2Eb", "ä", "A b"], start=1):
            ref = await system.spawn(ChildSpec(name=name, start=Account))
            assert await ref.ask(number) == number
        assert {entry.name for entry in await (await disk.incarnate("test")).list("actors/user")} == {
            "a%2Eb",
            "a%252Eb",
            "%C3%A4",
            "A%20b",
        }


async def test_a_failing_disk_applies_nothing(autojump_clock, stage, disk):
    """When the journal cannot be written the actor crashes, and the event is part of no later state (DU3)."""
    applied = []

    class Cut(Account):
        async def started(self):
            await super().started()
            if self.context.incarnation == 1:
                await disk.incarnate(self.context.path)

        def apply(self, event):
            super().apply(event)
            if self.context.incarnation > 1:
                applied.append(event)

    async with stage(disk=disk, account=Cut) as system:
        with pytest.raises(ActorCrashed):
            await system.actor("account").ask(5)
        assert applied == []
        assert await system.actor("account").ask(6) == 6


async def test_what_the_upkeep_of_the_journal_meets_is_no_failure_of_the_event(autojump_clock, stage):
    """A disk that refuses a snapshot fails nobody whose event is stored, and the actor goes on."""
    disk = MemoryDisk()
    async with stage(disk=disk, account=Account) as system:
        account = system.actor("account")
        refused = disk.fail_next(Create, "EIO", path_contains="actors/account", times=3)
        assert [await account.ask(1) for _ in range(20)] == list(range(1, 21))
        assert refused.hits
    async with stage(disk=disk, account=Account) as system:
        assert await system.actor("account").ask(0) == 20


@pytest.mark.parametrize("way", ["raises", "no value of CBOR", "not defined"])
async def test_a_snapshot_that_cannot_be_made_fails_no_event(autojump_clock, stage, way):
    """It is reported when it is due, and the actor goes on in the same life; to ask for one raises what is wrong."""

    class Wrong(Account):
        snapshot_every = 4

        def snapshot(self):
            if way == "not defined":
                return DurableActor.snapshot(self)
            if way == "raises":
                raise ZeroDivisionError
            return object()

        async def receive(self, message):
            if message == "save":
                try:
                    await self.save_snapshot()
                except (InvalidArgument, ZeroDivisionError) as error:
                    return type(error)
            return await super().receive(message)

    disk = MemoryDisk()
    async with stage(disk=disk, account=Wrong) as system:
        account = system.actor("account")
        assert [await account.ask(1) for _ in range(9)] == list(range(1, 10))
        failed = [each.event for each in system.events.recent() if isinstance(each.event, HookFailed)]
        assert [(each.path, each.hook) for each in failed] == [("account", "snapshot")] * 2
        assert await account.ask("counts") == (9, 0)
        wanted = ZeroDivisionError if way == "raises" else InvalidArgument
        assert await account.ask("save") is wanted
    async with stage(disk=disk, account=Wrong) as system:
        assert await system.actor("account").ask(0) == 9


async def test_what_a_life_found_the_next_ones_find(autojump_clock, stage):
    """An event that a failed sync left in doubt is found when the disk has synced it, and is not lost after that."""
    disk = MemoryDisk()
    async with stage(disk=disk, account={"start": Account, "significant": False}) as system:
        account = system.actor("account")
        refused = disk.fail_next(Sync, "EIO", path_contains="actors/account/0", times=2)
        with pytest.raises(ActorCrashed):
            await account.ask(5)
        assert await account.ask(0) == 5
        assert refused.hits == 2
        disk.crash()
    async with stage(disk=disk, account=Account) as system:
        assert await system.actor("account").ask(0) == 5


async def test_an_actor_whose_snapshot_is_damaged_goes_on(autojump_clock, stage):
    """What earlier segments still have is found, and a new snapshot lets the actor persist again."""
    disk = MemoryDisk()
    async with stage(disk=disk, account=Account) as system:
        disk.fail_next(Unlink, "EIO", path_contains="actors/account")
        for _ in range(12):
            await system.actor("account").ask(1)
    path = max(path for path in disk.paths() if path.startswith("actors/account/0"))
    disk.flip(path, disk.files()[path].index(b"balance"))
    async with stage(disk=disk, account=Account) as system:
        assert await system.actor("account").ask(1) == 13
    async with stage(disk=disk, account=Account) as system:
        assert await system.actor("account").ask(0) == 13


async def test_a_durable_actor_needs_a_disk(autojump_clock, stage):
    """In a system without a disk a durable actor says what it needs."""
    async with stage() as system:
        with pytest.raises(ActorStopped) as caught:
            await system.root.start_child(ChildSpec(name="a", start=Account, restart="temporary"))
        assert isinstance(caught.value.__cause__, InvalidArgument)


async def test_hooks_must_be_defined(autojump_clock, stage, disk):
    """What a subclass must define says so when it is missing."""
    bare = DurableActor()
    for call in (lambda: bare.apply(1), bare.snapshot, lambda: bare.restore(1)):
        with pytest.raises(InvalidArgument):
            call()
    assert isinstance(bare, Actor)
    await trio.lowlevel.checkpoint()


class Seen(DurableActor):
    """Keeps all that it was told, as it was told; a message "bad" cannot be applied."""

    def __init__(self):
        self.seen = []

    async def receive(self, message):
        if message == "what":
            return [*self.seen]
        try:
            await self.persist(*message)
        except (ValueError, InvalidArgument) as error:
            return type(error).__name__
        return None

    def apply(self, event):
        if event == "bad":
            raise ValueError(event)
        self.seen.append(event)

    def snapshot(self):
        return self.seen

    def restore(self, state):
        self.seen = state


async def test_a_live_apply_sees_what_a_replay_sees(autojump_clock, stage, disk):
    """An event is applied as it comes back from its stored form: a tuple is a list then, and later."""
    async with stage(disk=disk, seen=Seen) as system:
        await system.actor("seen").ask([("order", 1), {"a": (2,)}])
        assert await system.actor("seen").ask("what") == [["order", 1], {"a": [2]}]
    async with stage(disk=disk, seen=Seen) as system:
        assert await system.actor("seen").ask("what") == [["order", 1], {"a": [2]}]


async def test_nothing_becomes_durable_that_cannot_be_applied(autojump_clock, stage, disk):
    """The actor begins anew without the events, also where it catches the error, and its journal does not stop it."""
    async with stage(disk=disk, seen=Seen) as system:
        ref = system.actor("seen")
        await ref.ask(["one"])
        assert await ref.ask(["two", "bad"]) == "ValueError"
        await trio.sleep(10)
        assert await ref.ask("what") == ["one"]
    async with stage(disk=disk, seen=Seen) as system:
        assert await system.actor("seen").ask("what") == ["one"]
        assert system.actor("seen").statistics().restarts == 0


async def test_an_event_that_has_no_stored_form_is_refused(autojump_clock, stage, disk):
    """In words, before anything is done: the actor goes on."""
    async with stage(disk=disk, seen=Seen) as system:
        ref = system.actor("seen")
        assert await ref.ask(["one", object()]) == "InvalidArgument"
        assert await ref.ask("what") == []
        assert ref.statistics().restarts == 0


async def test_tasks_of_an_actor_take_turns_at_persisting(autojump_clock, stage, disk):
    """What they persist side by side, and snapshots between, is there afterwards, in one order."""

    class Busy(Seen):
        snapshot_every = 7

        async def receive(self, message):
            if message == "what":
                return self.seen
            for number in range(10):
                self.context.start_task(self.persist, [number, 1], [number, 2])
            self.context.start_task(self.save_snapshot)
            return None

    async with stage(disk=disk, busy=Busy) as system:
        await system.actor("busy").ask("go")
        await trio.sleep(10)
        found = await system.actor("busy").ask("what")
        assert sorted(found) == [[number, half] for number in range(10) for half in (1, 2)]
    async with stage(disk=disk, busy=Busy) as system:
        assert await system.actor("busy").ask("what") == found


async def test_a_persist_that_is_cut_off_begins_the_actor_anew(autojump_clock, stage, disk):
    """What it had in memory may not be in the journal, which counts."""

    class Hasty(Seen):
        async def receive(self, message):
            if message == "what":
                return self.seen
            with trio.CancelScope() as scope:
                scope.cancel()
                await self.persist(message)
            return "went on"

    async with stage(disk=disk, hasty=Hasty) as system:
        for number in range(3):
            await system.actor("hasty").ask(number)
            await trio.sleep(10)
        found = await system.actor("hasty").ask("what")
    async with stage(disk=disk, hasty=Hasty) as system:
        assert await system.actor("hasty").ask("what") == found


async def test_nothing_is_handled_by_a_state_that_the_journal_does_not_have(autojump_clock, stage, disk):
    """When an actor catches what `persist` raised, the next message is handled by the next incarnation."""
    async with stage(disk=disk, seen=Seen) as system:
        ref = system.actor("seen")
        replies = [
            ref.ask_nowait(message) for message in (["one"], ["two", "bad"], "what", ["three"], "what")
        ]
        await trio.sleep(10)
        assert [reply.value() for reply in replies] == [None, "ValueError", ["one"], None, ["one", "three"]]
    async with stage(disk=disk, seen=Seen) as system:
        assert await system.actor("seen").ask("what") == ["one", "three"]


@pytest.mark.parametrize("name", ["apply", "snapshot", "restore", "encode", "decode"])
async def test_an_async_hook_is_refused(autojump_clock, stage, disk, name):
    """Nobody would await it: the events would change nothing."""

    async def hook(self, value=None):
        return value

    async with stage(disk=disk) as system:
        with pytest.raises(ActorStopped, match=f"Late.{name} is async"):
            await system.spawn(type("Late", (Seen,), {name: hook}))


@pytest.mark.parametrize("call", ["persist", "save_snapshot"])
async def test_a_journal_that_nobody_opened_is_named(autojump_clock, stage, disk, call):
    """A `started` that does not call the inherited one is told to."""

    class Hasty(Seen):
        async def started(self):
            pass

        async def receive(self, message):
            await getattr(self, call)()

    async with stage(disk=disk, hasty=Hasty) as system:
        with pytest.raises(ActorCrashed, match=r"await super\(\).started\(\)"):
            await system.actor("hasty").ask("x")


async def test_a_message_whose_persist_failed_is_no_dead_letter_where_that_was_caught(
    autojump_clock, stage, disk
):
    """The actor has handled it; those that waited are handled by the next incarnation."""
    async with stage(disk=disk, seen=Seen) as system:
        ref = system.actor("seen")
        for message in (["bad"], ["one"]):
            await ref.tell(message)
        await trio.sleep(10)
        assert system.dead_letters.total == 0
        assert await ref.ask("what") == ["one"]
