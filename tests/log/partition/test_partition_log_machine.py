"""A partition log against its ledger, under whatever order of appends, failures, crashes and reopenings."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.log.errors import StaleIncarnation, StorageError
from callboard.log.seams.disk import Create, Rename, Sync, SyncDirectory, Write, Zero

MAKE: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _worlds(make_world: Any) -> None:
    """Hypothesis cannot take function-scoped fixtures: the maker of worlds is passed by name."""
    MAKE["world"] = make_world


def toss(seed: int) -> Any:
    """A power loss that keeps each unsynced thing with a probability of its own."""
    source = random.Random(seed)
    bias = source.random()
    return lambda unsynced: [item for item in unsynced.items if source.random() < bias]


appends = st.tuples(
    st.just("append"),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([20, 700, 9_000]),
)
faults = st.tuples(
    st.just("fault"),
    st.sampled_from([Create, Rename, Sync, SyncDirectory, Write, Zero]),
    st.sampled_from([errno.EIO, errno.ENOSPC]),
    st.integers(0, 4),
    st.sampled_from(["kept", "reverted"]),
)
steps = st.one_of(
    appends,
    appends,
    appends,
    st.tuples(st.just("sync")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("crash"), st.integers(0, 1_000)),
    st.tuples(st.just("crash later"), st.integers(0, 12), st.integers(0, 1_000)),
    st.tuples(st.just("close")),
    st.tuples(st.just("read"), st.integers(0, 100)),
    faults,
)


class Machine:
    """Takes steps; after each end of a life the next one is checked against the ledger."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.power_lost = False

    async def take(self, step: tuple[Any, ...]) -> None:
        """One step; a power loss that strikes in it ends the life."""
        try:
            await getattr(self, step[0].replace(" ", "_"))(*step[1:])
        except StaleIncarnation:
            await self.revive(power_lost=True)
        if self.world.disk.is_off:
            await self.revive(power_lost=True)

    async def append(self, batches: int, records: int, durable: bool, size: int) -> None:
        await self.world.append(batches, records, durable=durable, size=size)

    async def sync(self) -> None:
        if not self.world.log.needs_healing:
            try:
                await self.world.files.submit(self.world.log.stage_sync())
            except StorageError as error:
                self.world.log.sync_failed(error)
            else:
                self.world.log.synced()
                self.world._keep_promises()

    async def kill(self) -> None:
        sick = self.world.log.needs_healing
        self.world.disk.kill()
        await self.revive(power_lost=sick)

    async def crash(self, seed: int) -> None:
        self.world.disk.crash(toss(seed))
        await self.revive(power_lost=True)

    async def crash_later(self, verbs: int, seed: int) -> None:
        self.world.disk.crash_after(verbs, toss(seed))

    async def close(self) -> None:
        sick = self.world.log.needs_healing
        try:
            await self.world.log.close()
        except StorageError:
            sick = True
        await self.revive(power_lost=sick)

    async def read(self, percent: int) -> None:
        log = self.world.log
        start = log.start_offset + (log.visible_end - log.start_offset) * percent // 100
        found = await self.world.contents(start)
        assert found == {at: value for at, value in self.world.seen.items() if at >= start}

    async def fault(self, verb: type, number: int, after: int, pages: Any) -> None:
        self.world.disk.fail_next(verb, OSError(number, "planted"), after=after, pages=pages)

    async def revive(self, *, power_lost: bool) -> None:
        """The next life: what was promised, and after a mere kill all that was seen, is there."""
        world = self.world
        world.disk.power_on()
        world.disk.faults.clear()
        named_end = max((*world.seen, -1)) + 1
        must_hold = dict(world.promised if power_lost else world.seen)
        await world.check_twice(must_hold=must_hold, named_end=named_end)
        world.seen = dict(world.promised)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(steps, min_size=3, max_size=30), seed=st.integers(0, 1_000))
async def test_any_life_keeps_the_promises(script: list[tuple[Any, ...]], seed: int) -> None:
    """Durable records survive in place, unaltered; offsets seen are never reused; nothing refused turns up."""
    world = MAKE["world"](seed, segment_bytes=65_536)
    machine = Machine(world)
    await world.open()
    for step in script:
        await machine.take(step)
    world.disk.crash(toss(seed))
    await machine.revive(power_lost=True)
