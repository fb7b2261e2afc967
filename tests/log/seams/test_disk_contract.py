"""What every disk promises about files, plans and names, on the real and on the simulated one."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from callboard.log.errors import (
    InvalidArgument,
    PlanFailed,
    StorageError,
)
from callboard.log.seams.disk import (
    Close,
    Create,
    Link,
    MakeDirectory,
    Open,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
    Zero,
)


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


async def failure(life: Any, *plan: Any) -> PlanFailed:
    """The error with which a plan ends."""
    with pytest.raises(PlanFailed) as caught:
        await life.submit(plan)
    return caught.value


# -- files


async def test_what_is_written_is_read(life: Any) -> None:
    """Bytes written through a plan are read back, by waiting and from the cache."""
    handle = await fresh(life, "a", b"hello")
    await life.submit((Sync(handle),))
    assert await life.read(handle, 0, 5) == b"hello"
    assert await life.read(handle, 1, 3) == b"ell"
    assert life.read_cached(handle, 1, 3) in (b"ell", None)


async def test_reads_are_short_only_at_the_end(life: Any) -> None:
    """A read past the end returns what there is, or nothing."""
    handle = await fresh(life, "a", b"hello")
    assert await life.read(handle, 3, 10) == b"lo"
    assert await life.read(handle, 5, 10) == b""
    assert await life.read(handle, 99, 10) == b""
    assert await life.read(handle, 0, 0) == b""
    assert life.read_cached(handle, 3, 10) in (b"lo", None)
    assert life.read_cached(handle, 99, 10) in (b"", None)


async def test_buffers_of_every_kind_are_joined(life: Any) -> None:
    """Several buffers are written one after the other, whatever their type, empty ones included."""
    handle = await fresh(life, "a")
    buffers = [b"ab", bytearray(b"cd"), b"", memoryview(b"xefx")[1:3]]
    await life.submit((Write(handle, 0, buffers), Sync(handle)))
    await life.submit((Write(handle, 6, buffers), Sync(handle)))
    assert await content(life, handle) == b"abcdefabcdef"


async def test_more_buffers_than_one_call_takes(life: Any) -> None:
    """A write of thousands of buffers arrives whole and in order."""
    handle = await fresh(life, "a")
    buffers = [number.to_bytes(4, "big") for number in range(5000)]
    await life.submit((Write(handle, 0, buffers), Sync(handle)))
    await life.submit((Write(handle, 20_000, buffers),))
    assert await content(life, handle) == b"".join(buffers) * 2


async def test_wide_views_count_in_bytes(life: Any) -> None:
    """A memoryview of 8-byte items is written with all its bytes."""
    handle = await fresh(life, "a")
    wide = memoryview(bytes(range(16))).cast("Q")
    for offset in (0, 16):
        await life.submit((Write(handle, offset, [wide]), Sync(handle)))
    assert await content(life, handle) == bytes(range(16)) * 2


async def test_writing_nothing_is_no_error(life: Any) -> None:
    """A write without bytes changes nothing, beyond the end of the file too."""
    handle = await fresh(life, "a", b"x")
    await life.submit((Write(handle, 9, []), Sync(handle), Write(handle, 9, [b""]), Sync(handle)))
    assert await content(life, handle) == b"x"


async def test_holes_read_as_zeros(life: Any) -> None:
    """What was skipped by a write beyond the end reads as zeros."""
    handle = await fresh(life, "a", b"x")
    await life.submit((Write(handle, 1000, [b"y"]),))
    assert await content(life, handle) == b"x" + bytes(999) + b"y"


async def test_overwriting_keeps_the_rest(life: Any) -> None:
    """A write in the middle changes only the bytes it covers."""
    handle = await fresh(life, "a", b"0123456789")
    await life.submit((Sync(handle), Write(handle, 3, [b"ab"]), Sync(handle)))
    assert await content(life, handle) == b"012ab56789"


async def test_zero_writes_zeros(life: Any) -> None:
    """Zeroing overwrites what is there and extends the file."""
    handle = await fresh(life, "a", b"0123456789")
    await life.submit((Zero(handle, 4, 3_000_000), Zero(handle, 0, 0)))
    assert await life.size(handle) == 3_000_004
    assert await life.read(handle, 0, 8) == b"0123\0\0\0\0"
    assert await life.read(handle, 2_999_990, 100) == bytes(14)


@pytest.mark.parametrize(
    "make", [lambda h: Zero(h, -1, 5), lambda h: Zero(h, 0, -5), lambda h: Truncate(h, -1)]
)
async def test_negative_numbers_are_refused(life: Any, make: Any) -> None:
    """Negative offsets and lengths fail the verb and change nothing."""
    handle = await fresh(life, "a", b"x")
    assert (await failure(life, make(handle))).error.errno == errno.EINVAL
    assert (await failure(life, Write(handle, -1, [b"y"]))).error.errno == errno.EINVAL
    assert await content(life, handle) == b"x"


async def test_truncate_cuts_and_extends(life: Any) -> None:
    """Cut bytes do not come back when the file is extended: they read as zeros."""
    handle = await fresh(life, "a", b"0123456789")
    await life.submit((Truncate(handle, 4),))
    assert await content(life, handle) == b"0123"
    await life.submit((Truncate(handle, 6),))
    assert await content(life, handle) == b"0123\0\0"


async def test_a_closed_handle_is_of_no_use(life: Any) -> None:
    """Every use of a handle that is not open fails with EBADF; closing it is no error."""
    handle = life.handle("a")
    for verb in (Write(handle, 0, [b"x"]), Sync(handle), Truncate(handle, 0), Zero(handle, 0, 1)):
        failed = await failure(life, verb, Sync(handle))
        assert (failed.index, failed.error.errno) == (0, errno.EBADF)
    with pytest.raises(StorageError):
        await life.read(handle, 0, 1)
    with pytest.raises(StorageError):
        await life.size(handle)
    await life.submit((Close(handle), Create(handle), Close(handle), Close(handle)))
    assert (await failure(life, Sync(handle))).error.errno == errno.EBADF


async def test_reads_of_a_closed_handle_fail_from_the_cache_too(life: Any) -> None:
    """The cached read of a closed handle is an error with its cause."""
    handle = life.handle("a")
    with pytest.raises(StorageError) as caught:
        life.read_cached(handle, 0, 1)
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_handle_opens_once(life: Any) -> None:
    """Opening an open handle fails; after closing, it opens again with the same content."""
    handle = await fresh(life, "a", b"x")
    assert (await failure(life, Open(handle))).error.errno == errno.EBUSY
    await life.submit((Close(handle), Open(handle)))
    assert await content(life, handle) == b"x"


async def test_two_handles_share_a_file(life: Any) -> None:
    """What is written through one handle is read through another of the same file."""
    first = await fresh(life, "a", b"one")
    second = life.handle("a")
    await life.submit((Open(second), Write(second, 0, [b"two"]), Sync(second)))
    assert await content(life, first) == b"two"


async def test_create_wants_a_free_name(life: Any) -> None:
    """Creating over a file or directory fails; opening what is missing fails."""
    await fresh(life, "a", b"x")
    await life.submit((MakeDirectory("d"),))
    assert isinstance((await failure(life, Create(life.handle("a")))).error, FileExistsError)
    assert isinstance((await failure(life, Create(life.handle("d")))).error, FileExistsError)
    assert isinstance((await failure(life, Open(life.handle("b")))).error, FileNotFoundError)
    assert isinstance((await failure(life, Open(life.handle("d")))).error, IsADirectoryError)
    assert isinstance((await failure(life, Create(life.handle("x/y")))).error, FileNotFoundError)
    assert isinstance((await failure(life, Create(life.handle("a/y")))).error, NotADirectoryError)


# -- plans


async def test_an_empty_plan_does_nothing(life: Any) -> None:
    """A plan without verbs succeeds."""
    await life.submit(())
    assert life.in_flight_since is None


async def test_the_failed_verb_is_named_and_ends_the_plan(life: Any) -> None:
    """Verbs before the failing one took effect, later ones did not; index, verb and cause tell which (DK2)."""
    handle = life.handle("a")
    bad = Unlink("missing")
    failed = await failure(life, Create(handle), Write(handle, 0, [b"x"]), bad, Write(handle, 0, [b"y"]))
    assert failed.index == 2
    assert failed.verb is bad
    assert isinstance(failed.error, FileNotFoundError)
    assert failed.__cause__ is failed.error
    assert await content(life, handle) == b"x"


async def test_a_plan_is_taken_as_it_was_submitted(life: Any) -> None:
    """Changing the list after the call does not change the plan."""
    plan: list[Any] = [MakeDirectory("a")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.submit, plan)
        await trio.testing.wait_all_tasks_blocked()
        plan.append(MakeDirectory("b"))
    assert await names(life) == ["a"]


async def test_nothing_runs_of_a_malformed_plan(life: Any) -> None:
    """Something that is no verb is refused before the first verb runs."""
    with pytest.raises(InvalidArgument):
        await life.submit((MakeDirectory("a"), "rm -rf"))
    assert await names(life) == []


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b"])
async def test_paths_stay_below_the_root(life: Any, path: str) -> None:
    """A path that is absolute, not normal, or leads upwards is refused wherever a path is taken."""
    for verb in (
        Unlink(path),
        MakeDirectory(path),
        RemoveDirectory(path),
        Rename("a", path),
        Link(path, "a"),
    ):
        with pytest.raises(InvalidArgument):
            await life.submit((MakeDirectory("made"), verb))
    with pytest.raises(InvalidArgument):
        life.handle(path)
    with pytest.raises(InvalidArgument):
        await life.mark(path, 8)
    if path:
        with pytest.raises(InvalidArgument):
            await life.list(path)
        with pytest.raises(InvalidArgument):
            await life.submit((SyncDirectory(path),))
    assert await names(life) == []


async def test_a_mark_has_a_length(life: Any) -> None:
    """A mark of no bytes is refused."""
    with pytest.raises(InvalidArgument):
        await life.mark("m", 0)


async def test_submitting_is_a_checkpoint(life: Any) -> None:
    """Each call that waits lets other tasks run, and is cancelled before it starts."""
    handle = await fresh(life, "a", b"x")
    for call in (
        lambda: life.submit((Write(handle, 0, [b"y"]),)),
        lambda: life.read(handle, 0, 1),
        lambda: life.size(handle),
        lambda: life.list(""),
        lambda: life.mark("m", 8),
        lambda: life.free_bytes(),
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await call()
        assert scope.cancelled_caught
    assert await content(life, handle) == b"x"
    assert await names(life) == ["a"]
    with trio.testing.assert_checkpoints():
        await life.submit(())
    for number in range(50):  # also a plan whose thread may end it before its task waits
        with trio.testing.assert_checkpoints():
            await life.submit((Create(life.handle(f"b{number}")),))


# -- names


async def test_rename_replaces(life: Any) -> None:
    """A renamed file takes the place of the one that had the name."""
    await fresh(life, "a", b"new")
    await fresh(life, "b", b"old")
    await life.submit((Rename("a", "b"),))
    handle = life.handle("b")
    await life.submit((Open(handle),))
    assert await names(life) == ["b"]
    assert await content(life, handle) == b"new"


async def test_a_handle_follows_its_file(life: Any) -> None:
    """An open handle still reads and writes its file after that was renamed or lost its name."""
    handle = await fresh(life, "a", b"x")
    await life.submit((Rename("a", "b"), Write(handle, 1, [b"y"]), Unlink("b"), Write(handle, 2, [b"z"])))
    assert await content(life, handle) == b"xyz"
    assert await names(life) == []


async def test_rename_of_one_file_onto_itself_does_nothing(life: Any) -> None:
    """Two names of one file both stay when one is renamed to the other."""
    await fresh(life, "a")
    await life.submit((Link("a", "b"), Rename("a", "b"), Rename("a", "a")))
    assert await names(life) == ["a", "b"]


async def test_directories_are_renamed_with_their_files(life: Any) -> None:
    """A renamed directory keeps what is in it, and replaces an empty directory only."""
    await life.submit((MakeDirectory("d"), MakeDirectory("e"), MakeDirectory("f/full")))
    await fresh(life, "d/a")
    assert (await failure(life, Rename("d", "f"))).error.errno == errno.ENOTEMPTY
    assert (await failure(life, Rename("d", "d/sub"))).error.errno == errno.EINVAL
    assert (await failure(life, Rename("d/a", "e"))).error.errno == errno.EISDIR
    assert (await failure(life, Rename("e", "d/a"))).error.errno == errno.ENOTDIR
    await life.submit((Rename("d", "e"),))
    assert await names(life) == ["e", "f"]
    assert await names(life, "e") == ["a"]


async def test_a_link_is_a_second_name(life: Any) -> None:
    """A linked file is one file; it lives until its last name is gone."""
    await fresh(life, "a", b"x")
    await life.submit((Link("a", "b"), Unlink("a")))
    handle = life.handle("b")
    await life.submit((Open(handle),))
    assert await content(life, handle) == b"x"
    await fresh(life, "c")
    assert isinstance((await failure(life, Link("b", "c"))).error, FileExistsError)
    assert isinstance((await failure(life, Link("missing", "d"))).error, FileNotFoundError)


async def test_unlink_wants_a_file(life: Any) -> None:
    """Unlinking a missing name or a directory fails."""
    await life.submit((MakeDirectory("d"),))
    assert isinstance((await failure(life, Unlink("a"))).error, FileNotFoundError)
    assert isinstance((await failure(life, Unlink("d"))).error, IsADirectoryError | PermissionError)
    assert isinstance((await failure(life, Rename("a", "b"))).error, FileNotFoundError)


async def test_directories_are_made_with_those_above(life: Any) -> None:
    """Making a directory makes the missing ones above it, and what exists is no error."""
    await life.submit((MakeDirectory("a/b/c"), MakeDirectory("a/b"), MakeDirectory("a/b/c")))
    assert await names(life, "a/b") == ["c"]
    await fresh(life, "f")
    assert isinstance((await failure(life, MakeDirectory("f"))).error, FileExistsError)
    assert isinstance((await failure(life, MakeDirectory("f/g"))).error, NotADirectoryError)


async def test_only_empty_directories_are_removed(life: Any) -> None:
    """Removing a full or missing directory, or a file, fails."""
    await life.submit((MakeDirectory("a/b"),))
    await fresh(life, "f")
    assert (await failure(life, RemoveDirectory("a"))).error.errno == errno.ENOTEMPTY
    assert isinstance((await failure(life, RemoveDirectory("x"))).error, FileNotFoundError)
    assert isinstance((await failure(life, RemoveDirectory("f"))).error, NotADirectoryError)
    await life.submit((RemoveDirectory("a/b"), RemoveDirectory("a")))
    assert await names(life) == ["f"]


async def test_directories_are_synced(life: Any) -> None:
    """The root and any directory can be synced; a missing one, or a file, fails."""
    await life.submit((MakeDirectory("a"), SyncDirectory("a"), SyncDirectory("")))
    await fresh(life, "f")
    assert isinstance((await failure(life, SyncDirectory("x"))).error, FileNotFoundError)
    assert isinstance((await failure(life, SyncDirectory("f"))).error, NotADirectoryError)


async def test_lists_are_sorted_and_tell_sizes(life: Any) -> None:
    """A listing is sorted by name and says what is a directory and how long each file is."""
    await fresh(life, "b", b"12345")
    await life.submit((MakeDirectory("a"), MakeDirectory("C")))
    entries = [(e.name, e.is_directory, e.size_bytes) for e in await life.list("") if e.name != "lock"]
    assert entries == [("C", True, 0), ("a", True, 0), ("b", False, 5)]
    assert await life.list("missing") == []
    assert await life.list("a") == []
    with pytest.raises(StorageError):
        await life.list("b")


async def test_free_space_is_told(life: Any) -> None:
    """A disk says how much may still be written."""
    assert await life.free_bytes() > 1024
