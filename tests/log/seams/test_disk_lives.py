"""What every disk promises about marks, incarnations, plans in flight, the lock and the end, on both disks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from callboard.log.errors import DirectoryLocked, InvalidArgument, StaleIncarnation, StorageError
from callboard.log.seams.disk import Create, MakeDirectory, Open, Sync, Write


async def fresh(life: Any, path: str, data: bytes = b"") -> Any:
    """An open handle for a new file with that content."""
    handle = life.handle(path)
    await life.submit([Create(handle), Write(handle, 0, [data])])
    return handle


async def content(life: Any, handle: Any) -> bytes:
    """All of an open file."""
    found: bytes = await life.read(handle, 0, await life.size(handle) + 1)
    return found


async def names(life: Any, path: str = "") -> list[str]:
    """The names in a directory, but for the lock."""
    return [entry.name for entry in await life.list(path) if entry.name != "lock"]


async def launch(nursery: trio.Nursery, life: Any, plan: Any) -> None:
    """Submit a plan in a task of its own; return when it is in flight, or over already."""
    over = trio.Event()

    async def run() -> None:
        try:
            await life.submit(plan)
        finally:
            over.set()

    nursery.start_soon(run)
    while life.in_flight_since is None and not over.is_set():
        await trio.lowlevel.checkpoint()


# -- marks


async def test_a_mark_is_a_small_file(life: Any) -> None:
    """A mark starts as zeros, shows what was stored, and is a file of its length."""
    mark = await life.mark("m", 8)
    assert mark.load() == bytes(8)
    mark.store(b"12345678")
    assert mark.load() == b"12345678"
    handle = life.handle("m")
    await life.submit((Open(handle),))
    assert await content(life, handle) == b"12345678"
    again = await life.mark("m", 8)
    assert again.load() == b"12345678"
    again.store(b"abcdefgh")
    assert mark.load() == b"abcdefgh"


async def test_a_mark_keeps_its_length(life: Any) -> None:
    """Storing another length is refused."""
    mark = await life.mark("m", 8)
    with pytest.raises(InvalidArgument):
        mark.store(b"1234567")


async def test_a_mark_extends_a_shorter_file(life: Any) -> None:
    """A file that is too short for its mark is filled up with zeros; a longer one keeps its rest."""
    await fresh(life, "m", b"abc")
    mark = await life.mark("m", 8)
    assert mark.load() == b"abc" + bytes(5)
    assert (await life.mark("m", 2)).load() == b"ab"


async def test_a_closed_mark_does_nothing(life: Any) -> None:
    """Closing twice, and storing and loading afterwards, do nothing."""
    mark = await life.mark("m", 8)
    mark.close()
    mark.close()
    mark.store(b"12345678")
    assert mark.load() == b""
    assert (await life.mark("m", 8)).load() == bytes(8)


async def test_a_mark_wants_a_file(life: Any) -> None:
    """A mark on a directory, or below a missing one, is refused."""
    await life.submit((MakeDirectory("d"),))
    for path in ("d", "x/m"):
        with pytest.raises(StorageError):
            await life.mark(path, 8)


# -- incarnations and plans in flight


def calls(life: Any, handle: Any) -> Iterator[Any]:
    """Every call that waits, on one incarnation."""
    yield lambda: life.submit(())
    yield lambda: life.read(handle, 0, 1)
    yield lambda: life.size(handle)
    yield lambda: life.list("")
    yield lambda: life.mark("m", 8)
    yield lambda: life.free_bytes()


async def test_a_fenced_incarnation_does_nothing(disk: Any) -> None:
    """After its successor was asked for, every call on an incarnation raises StaleIncarnation (DK3)."""
    old = await disk.incarnate("owner")
    handle = await fresh(old, "a", b"x")
    mark = await old.mark("m", 8)
    new = await disk.incarnate("owner")
    for call in calls(old, handle):
        with pytest.raises(StaleIncarnation) as caught:
            await call()
        assert caught.value.fields["owner"] == "owner"
    for sync_call in (
        lambda: old.handle("b"),
        lambda: old.read_cached(handle, 0, 1),
        lambda: mark.store(bytes(8)),
    ):
        with pytest.raises(StaleIncarnation):
            sync_call()
    assert await names(new) == ["a", "m"]


async def test_an_owner_that_is_forgotten_is_fenced(disk: Any) -> None:
    """Its incarnation does nothing any more; the owner may come back."""
    old = await disk.incarnate("owner")
    await fresh(old, "f", b"data")
    await disk.forget("owner")
    with pytest.raises(StaleIncarnation):
        await old.list("")
    new = await disk.incarnate("owner")
    assert await names(new) == ["f"]


async def test_forgetting_whoever_was_never_known_is_no_error(disk: Any) -> None:
    """Nothing is there, and nothing stays."""
    await disk.forget("nobody")
    assert await names(await disk.incarnate("owner")) == []


async def test_forgetting_waits_for_the_plan_in_flight(disk: Any) -> None:
    """What was submitted runs whole, and is over when the owner is forgotten (DK3)."""
    old = await disk.incarnate("owner")
    handle = await fresh(old, "f")

    async def forget() -> None:
        await disk.forget("owner")
        assert old.in_flight_since is None

    async with trio.open_nursery() as nursery:
        await launch(nursery, old, [Write(handle, number * 100, [bytes(100)]) for number in range(200)])
        nursery.start_soon(forget)
    new = await disk.incarnate("owner")
    again = new.handle("f")
    await new.submit((Open(again),))
    assert await new.size(again) == 20_000


async def test_owners_do_not_fence_each_other(disk: Any) -> None:
    """Another owner's incarnation goes on."""
    one, two = await disk.incarnate("one"), await disk.incarnate("two")
    await fresh(one, "a")
    await fresh(two, "b")
    assert (one.owner, two.owner) == ("one", "two")
    assert await names(one) == ["a", "b"]


async def test_handles_stay_with_their_incarnation(disk: Any) -> None:
    """A handle of one incarnation is refused by another, in plans and reads."""
    one, two = await disk.incarnate("one"), await disk.incarnate("two")
    handle = await fresh(one, "a")
    with pytest.raises(InvalidArgument):
        await two.submit((MakeDirectory("made"), Write(handle, 0, [b"x"])))
    with pytest.raises(InvalidArgument):
        await two.read(handle, 0, 1)
    with pytest.raises(InvalidArgument):
        two.read_cached(handle, 0, 1)
    assert await names(one) == ["a"]


async def test_the_successor_waits_for_the_plan_in_flight(disk: Any) -> None:
    """A new incarnation is handed out only after the old one's plan has ended, and that plan runs whole (DK3)."""
    old = await disk.incarnate("owner")
    handle = await fresh(old, "a")
    seen: list[int] = []

    async def succeed() -> None:
        new = await disk.incarnate("owner")
        again = new.handle("a")
        assert old.in_flight_since is None
        await new.submit((Open(again),))
        seen.append(await new.size(again))

    async with trio.open_nursery() as nursery:
        await launch(nursery, old, [Write(handle, number * 100, [bytes(100)]) for number in range(200)])
        nursery.start_soon(succeed)
    assert seen == [20_000]


async def test_successors_queue_up(disk: Any) -> None:
    """Of several that ask at once for the same owner, each gets an incarnation and only the last is not fenced."""
    lives: list[Any] = []

    async def ask() -> None:
        lives.append(await disk.incarnate("owner"))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    for old in lives[:-1]:
        with pytest.raises(StaleIncarnation):
            old.handle("a")
    await lives[-1].submit(())


async def test_a_plan_in_flight_is_not_cancelled(life: Any) -> None:
    """Cancellation that arrives while a plan runs waits for its end (DK1)."""
    handle = await fresh(life, "a")

    async with trio.open_nursery() as nursery:
        await launch(nursery, life, [Write(handle, number * 100, [bytes(100)]) for number in range(200)])
        nursery.cancel_scope.cancel()
    assert life.in_flight_since is None
    assert await life.size(handle) == 20_000


async def test_flights_are_told(life: Any) -> None:
    """While a plan runs, the time of its submission is known; afterwards none is."""
    assert life.in_flight_since is None
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        await launch(nursery, life, [MakeDirectory(f"d{number}") for number in range(200)])
        since = life.in_flight_since
        assert since is None or before <= since <= trio.current_time()
    assert life.in_flight_since is None


async def test_plans_of_many_owners_do_not_mix(disk: Any) -> None:
    """Many owners that write at once each find their own bytes."""

    async def work(owner: str) -> None:
        life = await disk.incarnate(owner)
        handle = await fresh(life, owner)
        for number in range(20):
            await life.submit((Write(handle, number * 8, [owner.encode()]), Sync(handle)))
        assert await content(life, handle) == owner.encode() * 20

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(work, f"{number:08}")


# -- the lock and the end


async def test_the_lock_is_exclusive(disk: Any) -> None:
    """A second lock is refused, in the same process too, and names the holder; released, it is free."""
    lock = await disk.lock({"pid": 4242, "host": "stage", "started": "2024-01-01"})
    with pytest.raises(DirectoryLocked) as caught:
        await disk.lock({"pid": 1})
    assert caught.value.fields["holder"]["pid"] == 4242
    assert "4242" in str(caught.value)
    assert caught.value.fields["directory"] == disk.root
    lock.release()
    lock.release()
    again = await disk.lock({"pid": 2})
    lock.release()
    with pytest.raises(DirectoryLocked):
        await disk.lock({"pid": 3})
    again.release()


async def test_closing_ends_everything_and_the_disk_opens_again(disk: Any) -> None:
    """A closed disk has fenced its incarnations and let go of the lock; what was written is there at the next use."""
    await disk.lock({"pid": 1})
    old = await disk.incarnate("owner")
    await fresh(old, "a", b"x")
    await disk.aclose()
    await disk.aclose()
    with pytest.raises(StaleIncarnation):
        await old.submit(())
    (await disk.lock({"pid": 2})).release()
    new = await disk.incarnate("owner")
    handle = new.handle("a")
    await new.submit((Open(handle),))
    assert await content(new, handle) == b"x"


async def test_closing_waits_for_plans(disk: Any) -> None:
    """A plan that is in flight when the disk is closed runs to its end, even when closing is cancelled."""
    life = await disk.incarnate("owner")
    handle = await fresh(life, "a")
    async with trio.open_nursery() as nursery:
        await launch(nursery, life, [Write(handle, number * 100, [bytes(100)]) for number in range(200)])
        with trio.CancelScope() as scope:
            scope.cancel()
            await disk.aclose()
        assert life.in_flight_since is None
    new = await disk.incarnate("owner")
    again = new.handle("a")
    await new.submit((Open(again),))
    assert await new.size(again) == 20_000
