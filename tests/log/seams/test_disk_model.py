"""Hypothesis drives both disks with the same plans: without crashes and faults nobody can tell them apart."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from typing import Any

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.log.errors import PlanFailed, StorageError
from callboard.log.host.disk import HostDisk
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
from callboard.simulations.disk.memory_disk import MemoryDisk

# Few names, in few directories, so that plans collide.
PATHS = ["a", "b", "d", "d/a", "d/e", "d/e/a"]
HANDLES = 3

paths = st.sampled_from(PATHS)
handles = st.integers(0, HANDLES - 1)
offsets = st.sampled_from([0, 1, 7, 511, 512, 513, 1500])
buffers = st.lists(st.binary(max_size=600), max_size=3)

Make = Callable[[list[Any]], Any]


def on_handle(build: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Make]:
    """A verb on one of the handles, whichever disk's they are."""
    return st.builds(lambda number, *rest: lambda files: build(files[number], *rest), handles, *arguments)


def on_paths(build: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Make]:
    """A verb on names."""
    return st.builds(lambda *rest: lambda _: build(*rest), *arguments)


verbs = st.one_of(
    on_handle(Open),
    on_handle(Create),
    on_handle(Create),
    on_handle(Write, offsets, buffers),
    on_handle(Write, offsets, buffers),
    on_handle(Zero, offsets, st.integers(0, 2000)),
    on_handle(Sync),
    on_handle(Truncate, st.integers(0, 2000)),
    on_handle(Close),
    on_paths(Rename, paths, paths),
    on_paths(Link, paths, paths),
    on_paths(Unlink, paths),
    on_paths(MakeDirectory, paths),
    on_paths(RemoveDirectory, paths),
    on_paths(SyncDirectory, paths),
)
# A handle per entry: its path. Two handles may be on one file.
choices = st.lists(paths, min_size=HANDLES, max_size=HANDLES)
# True: the owner is restarted before the plan.
restarts = st.integers(0, 7).map(lambda number: number == 7)
steps = st.lists(st.tuples(restarts, st.lists(verbs, min_size=1, max_size=3)), min_size=5, max_size=30)

# Linux reports these by whichever check comes first; the type of trouble is the same.
SAME = {errno.ENOTDIR: errno.ENOENT, errno.EPERM: errno.EISDIR}


async def outcome(life: Any, plan: list[Any]) -> tuple[int, int] | None:
    """At which verb, and with what, a plan fails."""
    try:
        await life.submit(plan)
    except PlanFailed as failed:
        number = failed.error.errno
        return failed.index, SAME.get(number or 0, number or 0)
    return None


async def look(life: Any, files: list[Any]) -> dict[str, Any]:
    """Everything that can be seen."""
    seen: dict[str, Any] = {}
    for path in ["", *PATHS]:
        try:
            seen[path] = await life.list(path)
        except StorageError:
            seen[path] = "no directory"
    for number, handle in enumerate(files):
        try:
            size = await life.size(handle)
            seen[f"handle {number}"] = (
                size,
                await life.read(handle, 0, size + 9),
                await life.read(handle, 600, 5),
            )
            cached = life.read_cached(handle, 3, size + 9)
            assert cached in (None, await life.read(handle, 3, size + 9))
        except StorageError:
            seen[f"handle {number}"] = "closed"
    return seen


async def compare(real: Any, model: Any, chosen: list[str], story: list[tuple[bool, list[Make]]]) -> None:
    """Tell both disks the same story and look after each step."""
    disks = (real, model)
    lives = [await disk.incarnate("owner") for disk in disks]
    files = [[life.handle(path) for path in chosen] for life in lives]
    for life in lives:
        first, second = life.handle("a"), life.handle("d/a")
        await life.submit((MakeDirectory("d"), Create(first), Create(second), Link("a", "b")))
    for restart, plan in story:
        if restart:
            lives = [await disk.incarnate("owner") for disk in disks]
            files = [[life.handle(path) for path in chosen] for life in lives]
        made = [[make(mine) for make in plan] for mine in files]
        outcomes = [await outcome(life, verbs_) for life, verbs_ in zip(lives, made, strict=True)]
        assert outcomes[0] == outcomes[1], made[0]
        seen = [await look(life, mine) for life, mine in zip(lives, files, strict=True)]
        assert seen[0] == seen[1], made[0]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(choices, steps, st.booleans())
def test_the_model_is_the_real_thing(
    chosen: list[str], story: list[tuple[bool, list[Make]]], inline: bool
) -> None:
    """Whatever plans are run, both disks fail at the same verb for the same reason and show the same files."""
    with tempfile.TemporaryDirectory() as root:

        async def main() -> None:
            real = HostDisk(root, inline=inline)
            try:
                await compare(real, MemoryDisk(), chosen, story)
            finally:
                await real.aclose()

        trio.run(main)
