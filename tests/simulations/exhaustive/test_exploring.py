"""Every short history of a log, with power lost at every verb; and that this finds what it should."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.simulations.disk.inodes import Inode, MemoryDirectory
from callboard.simulations.disk.verbs import VerbRunner
from callboard.simulations.exhaustive import life
from callboard.simulations.exhaustive.exploring import FAILURES_MAX, Exploration, explore
from callboard.simulations.exhaustive.operations import OPERATIONS
from callboard.simulations.exhaustive.survivors import ITEMS_MAX, subsets


def test_single_operations_keep_every_promise() -> None:
    """Power lost at each verb of making a log, and of each operation on an empty one, breaks no promise."""
    found = explore(1)
    assert found.failures == []
    assert found.sequences == 1 + len(OPERATIONS)
    assert found.states > 800
    assert 100 < found.distinct < found.states


@pytest.mark.slow
def test_pairs_of_operations_keep_every_promise() -> None:
    """The same for all pairs of operations."""
    found = explore(2)
    assert found.failures == []
    assert found.states > 15_000


def test_shares_are_the_whole() -> None:
    """Two halves of the work go through as many sequences, points and states as the whole."""
    whole = explore(1)
    halves = [explore(1, share=(number, 2)) for number in range(2)]
    assert sum(half.states for half in halves) == whole.states
    assert sum(half.points for half in halves) == whole.points
    assert sum(half.sequences for half in halves) == whole.sequences


def test_progress_is_told() -> None:
    """After each sequence the caller hears how far it is."""
    heard: list[tuple[int, int, int]] = []

    def hear(at: Exploration) -> None:
        heard.append((at.done, at.sequences, at.states))

    found = explore(1, hear, operations=("append", "roll"))
    assert [(done, of) for done, of, _ in heard] == [(1, 3), (2, 3), (3, 3)]
    assert heard[-1][-1] == found.states


# -- safeguards taken away


def expect_failure(words: str, *, length: int, operations: tuple[str, ...]) -> None:
    """An exploration fails with these words."""
    found = explore(length, operations=operations)
    assert 0 < len(found.failures) <= FAILURES_MAX + 1
    assert any(words in str(failure) for failure in found.failures), [str(f) for f in found.failures]


def test_a_sync_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without syncs an acknowledged record is lost."""

    def skip(_disk: VerbRunner, _life: Any, verb: Any) -> None:
        if "delivery" in verb.handle.path:
            verb.handle.opened().sync()

    monkeypatch.setattr(VerbRunner, "_sync", skip)
    expect_failure("offset 0 was synced", length=1, operations=("append",))


def test_a_directory_sync_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without directory syncs a file with an acknowledged record is lost."""
    monkeypatch.setattr(MemoryDirectory, "sync", lambda _: None)
    expect_failure("offset 0 was synced", length=1, operations=("append",))


def test_offsets_given_away_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is not told what its journal names uses an offset again."""
    opened = life.PartitionLog.open

    async def forgetful(*arguments: Any, named_end: int = 0, **settings: Any) -> Any:
        return await opened(*arguments, named_end=0, **settings)

    monkeypatch.setattr(life.PartitionLog, "open", forgetful)
    expect_failure("the next offset is 0", length=2, operations=("append_leader", "acknowledge"))


def test_a_believed_failed_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that takes a failed sync for a good one once it was tried again loses what it acknowledged."""

    async def retry(log: Any) -> None:
        await log._files.submit(log.stage_sync())
        log.visible_end = log._sync_target
        log.synced()
        log.needs_healing = log._is_tainted = False

    monkeypatch.setattr(life.PartitionLog, "heal", retry)
    expect_failure("was synced with", length=2, operations=("append_leader", "fail_log_sync"))


def test_garbage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that spoils a byte of what it was told to sync is caught."""
    sync = Inode.sync

    def spoil(inode: Inode) -> None:
        sync(inode)
        at = inode.durable.stored.find(b"000000")
        if at > 0:
            inode.durable.stored[at] ^= 1

    monkeypatch.setattr(Inode, "sync", spoil)
    expect_failure("offset 0 was synced", length=1, operations=("append",))


# -- subsets


@pytest.mark.parametrize("count", range(ITEMS_MAX + 1))
def test_small_numbers_of_items_have_all_subsets(count: int) -> None:
    """Up to the limit every subset is tried."""
    assert len(set(subsets(count))) == 2**count


@pytest.mark.parametrize("count", [ITEMS_MAX + 1, 9])
def test_large_numbers_of_items_have_representatives(count: int) -> None:
    """Beyond it: none, all, each alone, all but each, every other one, and halves."""
    tried = set(subsets(count))
    assert {(), tuple(range(count)), (0,), (count - 1,), tuple(range(1, count))} <= tried
    assert len(tried) == 2 * count + 6
