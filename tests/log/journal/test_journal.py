"""What a journal promises while nothing fails."""

import itertools
import re
from pathlib import Path

import pytest
import trio

from callboard.log import limits
from callboard.log.errors import FormatTooNew, InternalError, InvalidArgument
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_records import Kind
from callboard.log.journal.journal_walk import REPLAY_BYTES, Owner
from callboard.log.limits import JOURNAL_RESERVE_BYTES, Limits


async def test_clean_close_leaves_nothing_to_rewrite(owner):
    """After a clean close, an open rewrites nothing and quarantines nothing."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await journal.close()
    journal = await owner.open()
    assert (0, 0, ()) == (
        journal.recovery.rewritten_bytes,
        journal.recovery.torn_bytes,
        journal.recovery.quarantined,
    )


async def test_others_run_while_a_long_journal_is_replayed(owner):
    """No step replays more than some kilobytes of events, however long the journal is."""
    journal = await owner.open()
    events = [b"%06d" % number * 20 for number in range(2000)]
    for first in range(0, len(events), 20):
        await owner.append(journal, *events[first : first + 20])
    await journal.close()
    seen = []

    async def look():
        while True:
            await trio.lowlevel.checkpoint()
            seen.append(len(owner.state))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await owner.open()
        nursery.cancel_scope.cancel()
    assert owner.state == events
    grown = [after - before for before, after in itertools.pairwise(seen) if after > before]
    assert max(grown) * len(events[0]) <= 2 * REPLAY_BYTES


async def test_kill_rewrites_the_unproven_tail(owner):
    """After a kill, the events past the last proof are written anew and synced before they are believed."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await owner.append(journal, b"b", sync=False)
    owner.disk.kill()
    journal = await owner.open()
    assert [b"a", b"b"] == owner.state
    assert journal.recovery.rewritten_bytes > 0
    await owner.keeps([b"a", b"b"])


async def test_empty_stage_syncs_what_was_left(owner):
    """Staging nothing proves what was appended without a sync."""
    journal = await owner.open()
    await owner.append(journal, b"a", sync=False)
    await journal.append(())
    assert not journal.is_dirty
    await owner.keeps([b"a"])


async def test_snapshot_replaces_replay(owner):
    """After a snapshot only the events behind it are replayed, and the state is the same."""
    journal = await owner.open()
    await owner.append(journal, b"a", b"b")
    await journal.snapshot(owner.image())
    assert 0 == journal.bytes_since_snapshot
    await owner.append(journal, b"c")
    owner.disk.crash()
    journal = await owner.open()
    assert ([b"a", b"b", b"c"], [b"c"]) == (owner.state, owner.replayed)
    assert journal.bytes_since_snapshot > 0


async def test_a_mark_is_no_news(owner):
    """After a clean close nothing has been said since the last snapshot, and none is due, however often one opens."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await journal.snapshot(owner.image())
    for _ in range(3):
        await journal.close()
        journal = await owner.open()
        assert 0 == journal.bytes_since_snapshot
    assert [b"a"] == owner.state


async def test_snapshot_keeps_earlier_segments_until_prune(owner):
    """A snapshot removes nothing; prune removes what the newest snapshot made superfluous."""
    journal = await owner.open()
    for event in (b"a", b"b", b"c"):
        await owner.append(journal, event)
        await journal.snapshot(owner.image())
    assert 4 == len(owner.segments())
    assert 3 == await journal.prune()
    assert [journal.segment.path] == owner.segments()
    await owner.keeps([b"a", b"b", b"c"])


async def test_a_segment_that_is_left_keeps_no_reserve(owner):
    """The zeros behind its last frame are given back, whether a snapshot, a healing or its length ended it."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await journal.snapshot(owner.image())
    await owner.append(journal, b"b")
    journal.needs_healing = True
    await journal.heal(owner.image())
    owner.limits = Limits(journal_segment_bytes=1)
    await journal.close()
    journal = await owner.open()
    await owner.append(journal, b"c")
    files = owner.disk.files()
    sizes = [len(files[path]) for path in owner.segments()]
    assert sizes[-1] > JOURNAL_RESERVE_BYTES
    assert max(sizes[:-1]) < 1000
    assert len(sizes) > 3
    owner.disk.crash()
    await owner.open()
    assert [b"a", b"b", b"c"] == owner.state


async def test_prune_keeps_young_segments(owner):
    """Prune keeps the segments with events from the given instant on."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    owner.clock.shift(10)
    await journal.snapshot(owner.image())
    middle = owner.clock.wall_us() + 1
    owner.clock.shift(10)
    await journal.snapshot(owner.image())
    assert 1 == await journal.prune(keep_from_us=middle)
    assert 2 == len(owner.segments())


@pytest.mark.parametrize("damaged", [0, 1, 2, 3])
async def test_prune_passes_over_headers_that_are_damaged(owner, damaged):
    """The age of a segment whose header is gone is that of the next; what is kept is the same, or one segment more."""
    journal = await owner.open()
    instants = []
    for number in range(3):
        await owner.append(journal, b"%d" % number)
        owner.clock.shift(10)
        await journal.snapshot(owner.image())
        instants.append(owner.clock.wall_us() + 1)
    path = owner.segments()[damaged]
    for byte in range(SEGMENT_HEADER_BYTES):
        owner.disk.flip(path, byte)
    assert await journal.prune(keep_from_us=instants[1]) == (1 if damaged == 2 else 2)
    state = list(owner.state)
    await owner.append(journal, b"more")
    assert owner.state == [*state, b"more"]


async def test_prune_believes_no_segment_that_has_the_name_of_another(owner):
    """Names do not say which of two that have exchanged them is older: the younger one is not dropped for it."""
    journal = await owner.open()
    instants = []
    for number in range(3):
        await owner.append(journal, b"%d" % number)
        owner.clock.shift(10)
        await journal.snapshot(owner.image())
        instants.append(owner.clock.wall_us() + 1)
    await owner.append(journal, b"more")
    one, other = owner.segments()[:2]
    files = owner.disk.files()
    owner.disk.plant_file(one, files[other])
    owner.disk.plant_file(other, files[one])
    assert await journal.prune(keep_from_us=instants[0]) == 0
    assert await journal.prune(keep_from_us=instants[2]) == 3


async def test_damaged_snapshot_is_passed_over(owner):
    """A damaged snapshot costs nothing while earlier segments say the same; the owner then heals."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await journal.snapshot(owner.image())
    await owner.append(journal, b"b")
    await journal.close()
    whole = owner.disk.files()[journal.segment.path]
    owner.disk.flip(journal.segment.path, whole.index(b"a", 220))
    journal = await owner.open()
    assert [b"a", b"b"] == owner.state
    assert 1 == len(journal.recovery.skipped_snapshots)
    assert journal.needs_healing
    await journal.heal(owner.image())
    await owner.append(journal, b"c")
    owner.disk.crash()
    journal = await owner.open()
    assert [b"a", b"b", b"c"] == owner.state
    assert () == journal.recovery.skipped_snapshots


async def test_too_large_snapshot_is_refused(owner, monkeypatch):
    """A snapshot above the limit is refused with both sizes, and the journal goes on."""
    monkeypatch.setattr(limits, "SNAPSHOT_BYTES_MAX", 10)
    journal = await owner.open()
    with pytest.raises(InvalidArgument) as caught:
        await journal.snapshot(bytes(11))
    assert (11, 10) == (caught.value.size_bytes, caught.value.limit_bytes)
    await owner.append(journal, b"a")


async def test_long_segments_are_left(owner):
    """A long segment is followed by another one, and replay runs through both."""
    owner.limits = limits.Limits(journal_segment_bytes=4096)
    journal = await owner.open()
    events = [b"%d" % number * 40 for number in range(100)]
    for event in events:
        await owner.append(journal, event)
    assert len(owner.segments()) > 2
    await owner.keeps(events)


async def test_many_events_in_one_append(owner):
    """An append of more events than a frame takes becomes several frames."""
    owner.limits = limits.Limits(frame_records=8)
    journal = await owner.open()
    events = [b"%d" % number for number in range(50)]
    await owner.append(journal, *events)
    await owner.keeps(events)


async def test_one_append_at_a_time(owner):
    """Staging while an append is staged is refused as a bug (JN1)."""
    journal = await owner.open()
    staged = journal.stage([b"a"])
    with pytest.raises(InternalError):
        journal.stage([b"b"])
    journal.withdraw(staged)
    journal.stage([b"b"])


async def test_reserve_is_kept(owner):
    """The reserve is topped up as the journal grows."""
    journal = await owner.open()
    for _ in range(10):
        await owner.append(journal, bytes(limits.JOURNAL_RESERVE_BYTES // 5))
        assert journal.reserve_bytes >= limits.JOURNAL_RESERVE_BYTES
    assert not journal.is_short_of_space


def test_page_lists_every_kind_of_frame():
    """The page on journals names each kind of control record with its number."""
    page = (Path(__file__).parents[3] / "docs/principles/journal.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+) (\w+) \|", page, re.MULTILINE)
    assert [(str(kind.value), kind.name.lower()) for kind in Kind] == listed


async def test_history_is_kept_up_to_a_size(owner):
    """Segments that are young enough to stay go all the same, oldest first, when there are too many bytes of them."""
    journal = await owner.open()
    for number in range(6):
        await owner.append(journal, b"event-%d" % number)
        await journal.snapshot(owner.image())
    sizes = [len(owner.disk.files()[path]) for path in owner.segments()]
    assert await journal.prune(keep_from_us=0, keep_bytes=sum(sizes[:-1])) == 0
    assert (sum(sizes[:-1]), 0) == (journal.history_bytes, journal.dropped_history_bytes)
    assert await journal.prune(keep_from_us=0, keep_bytes=sum(sizes[3:-1])) == 3
    assert (sum(sizes[3:-1]), sum(sizes[:3])) == (journal.history_bytes, journal.dropped_history_bytes)
    assert await journal.prune(keep_from_us=0, keep_bytes=0) == 3
    assert len(owner.segments()) == 1
    state = list(owner.state)
    await owner.keeps(state)


async def test_a_journal_of_a_later_version_is_too_new(owner):
    """Its owner does not read it, and nothing is changed."""
    await append_as(owner, 2, b"later")
    before = owner.disk.files()
    with pytest.raises(FormatTooNew, match="version 2"):
        await open_as(owner, 1)
    assert before == owner.disk.files()


async def test_a_journal_of_an_earlier_version_goes_on_in_a_new_segment(owner):
    """What is appended is never in another form than its segment: a snapshot begins one first."""
    await append_as(owner, 1, b"early")
    journal = await open_as(owner, 2)
    assert (journal.needs_healing, [b"early"]) == (True, owner.state)
    await journal.heal(owner.image())
    await owner.append(journal, b"late")
    await journal.close()
    versions = [decode_segment_header(owner.disk.files()[path]).records_version for path in owner.segments()]
    assert [1, 2] == versions
    heard = []
    await (await open_as(owner, 2, heard.append)).close()
    assert ([2], [b"early", b"late"]) == (heard, owner.state)
    # The snapshot says no more than what is before it: when it rots, that is read.
    path = owner.segments()[-1]
    owner.disk.flip(path, owner.disk.files()[path].index(b"early"))
    await open_as(owner, 2, heard.append)
    assert ([2, 1, 2], [b"early", b"late"]) == (heard, owner.state)


async def open_as(owner, version, versioned=lambda _: None):
    owner.state = []
    files = await owner.disk.incarnate("owner")
    return await Journal.open(
        files,
        "catalog",
        Owner(owner.restore, owner.state.append, version, versioned),
        clock=owner.clock,
        entropy=owner.entropy,
    )


async def append_as(owner, version, event):
    journal = await open_as(owner, version)
    await owner.append(journal, event)
    await journal.close()


class Stepping:
    """An owner that takes a snapshot, and some events, in steps."""

    def __init__(self):
        self.heard = []

    def hear(self, told):
        """In three steps when there is an s in it."""
        return self._in_steps(told) if b"s" in told else self.heard.append(told)

    def _in_steps(self, told):
        for step in range(3):
            self.heard.append(b"%s %d" % (told, step))
            yield


async def test_others_run_between_the_steps_of_an_owner(owner):
    """An owner that takes something in steps hears what comes behind it after them, and others run meanwhile."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await journal.snapshot([b"sn", b"ap"])
    await owner.append(journal, b"b", b"slow", b"c")
    await owner.append(journal, b"d")
    await journal.close()

    stepping, seen = Stepping(), []

    async def look():
        while True:
            seen.append(len(stepping.heard))
            await trio.lowlevel.checkpoint()

    files = await owner.disk.incarnate("owner")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        seams = {"clock": owner.clock, "entropy": owner.entropy}
        journal = await Journal.open(files, "catalog", Owner(stepping.hear, stepping.hear), **seams)
        await journal.close()
        nursery.cancel_scope.cancel()
    snap, slow = [[b"%s %d" % (each, step) for step in range(3)] for each in (b"snap", b"slow")]
    assert stepping.heard == [*snap, b"b", *slow, b"c", b"d"]
    # Of two tasks that are ready each runs once in a turn, in either order: two steps may come between two looks.
    assert {1, 2} & {*seen}
    assert {5, 6} & {*seen}
