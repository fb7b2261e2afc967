"""Verify finds every damaged byte, names what it cost, and lets be what crashes leave."""

import re
from pathlib import Path

import pytest

from callboard.log.format.committed import COMMITTED_COPY_AT, encode_committed, encode_committed_file
from callboard.log.format.frame import FRAME_MAGIC
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, ignore
from callboard.log.offline.inspected_log import ProblemKind
from callboard.log.offline.verify import verify_directory
from callboard.log.segments.segment_file import index_path
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


async def make_journal(disk, directory="catalog", events=5):
    files = await disk.incarnate(directory)
    journal = await Journal.open(
        files,
        directory,
        Owner(ignore, ignore),
        clock=VirtualClock(),
        entropy=SeededEntropy(7),
    )
    for number in range(events):
        await journal.append([b"event-%d" % number])
    return journal


async def test_sound_directory(writer):
    """A sound directory verifies clean, with what it holds counted per log."""
    await writer.fill()
    await make_journal(writer.disk)
    await make_journal(writer.disk, f"{writer.directory}/delivery")
    told = []
    report = await verify_directory(writer.disk, progress=told.append)
    assert report.ok
    assert () == report.notes
    assert [writer.directory] == [log.path for log in report.partitions]
    assert ["catalog", f"{writer.directory}/delivery"] == [log.path for log in report.journals]
    log = report.partitions[0]
    assert (36, 3, 0, 36) == (log.records, log.segments, log.start_offset, log.end_offset)
    assert told[-1].bytes_done <= told[-1].bytes_total


async def test_empty_root(writer):
    """A root without logs is sound."""
    writer.disk.kill()
    assert (await verify_directory(type(writer.disk)())).ok


async def test_any_flipped_byte_of_a_segment(new_writer):
    """Wherever a bit flips in a sealed segment, verify says so; inside a frame it names exactly its records."""
    writer = await new_writer().start()
    await writer.fill(segments=3, frames=2)
    path = writer.path(6)
    whole = writer.disk.files()[path]
    end, second = len(whole.rstrip(b"\0")), whole.index(FRAME_MAGIC, 129)
    for byte in range(end):
        writer.disk.flip(path, byte, 0x10)
        report = await verify_directory(writer.disk)
        writer.disk.flip(path, byte, 0x10)
        assert not report.ok, byte
        problems = report.problems
        assert {path} == {problem.path for problem in problems}
        if byte >= 128:
            first = 6 if byte < second else 9
            assert [(first, first + 2)] == [(p.first_offset, p.last_offset) for p in problems], byte
        else:
            assert ["header-copy"] == [problem.kind for problem in problems]


async def test_torn_tail_is_a_note(writer):
    """Bytes that are no frame at the end of the last segment are a note."""
    await writer.fill()
    await writer.append(publish=False)
    writer.disk.flip(writer.path(24), writer.segment.position - 1)
    report = await verify_directory(writer.disk)
    assert report.ok
    assert [("torn", 36, 38)] == [(note.kind, note.first_offset, note.last_offset) for note in report.notes]


async def test_lost_durable_end_is_a_problem(writer):
    """Records that were durable and are gone from the end of the log are named."""
    await writer.fill()
    writer.disk.flip(writer.path(24), writer.segment.position - 1)
    report = await verify_directory(writer.disk)
    assert ("lost", 33, 35) in [(p.kind, p.first_offset, p.last_offset) for p in report.problems]


async def test_lost_visible_end_is_a_note(writer):
    """Records that were visible but never synced may vanish at power loss: a note."""
    await writer.fill()
    writer.mark.store(encode_committed(40, 36))
    report = await verify_directory(writer.disk)
    assert report.ok
    assert [(36, 39)] == [(note.first_offset, note.last_offset) for note in report.notes]


async def test_implausible_mark_is_a_problem(writer):
    """A durable end beyond the visible end is a problem."""
    await writer.fill()
    writer.mark.store(encode_committed(30, 36))
    report = await verify_directory(writer.disk)
    assert ["committed"] == [problem.kind for problem in report.problems]


async def test_without_slots_the_copy_says_what_was_synced(writer):
    """The slots are told as damaged; what is missing at the end is still named."""
    await writer.fill()
    path = "orders/0/committed"
    stored = encode_committed_file(36)
    writer.disk.plant_file(path, b"\xff" * 64 + stored[64:])
    report = await verify_directory(writer.disk)
    assert ["committed"] == [problem.kind for problem in report.problems]
    writer.disk.flip(writer.path(24), writer.segment.position - 1)
    report = await verify_directory(writer.disk)
    assert ("lost", 33, 35) in [(p.kind, p.first_offset, p.last_offset) for p in report.problems]


async def test_a_damaged_copy_is_a_note(writer):
    """It is only looked at when the slots are lost, and the next opening writes it anew."""
    await writer.fill()
    stored = encode_committed_file(36)
    writer.disk.plant_file("orders/0/committed", stored[:-1] + b"\xff")
    report = await verify_directory(writer.disk)
    assert report.ok
    assert [("committed", COMMITTED_COPY_AT)] == [(note.kind, note.position) for note in report.notes]


async def test_missing_segment_is_named(writer):
    """A segment that is gone from the middle is named by its offsets."""
    await writer.fill()
    writer.disk.tree.unlink(writer.path(12))
    report = await verify_directory(writer.disk)
    assert [(12, 23)] == [(p.first_offset, p.last_offset) for p in report.problems]


async def test_wrong_index_is_a_problem(writer):
    """An index of valid form that leads to the wrong frame is a problem; one that is torn is a note."""
    await writer.fill()
    path = index_path(writer.directory, 0)
    good = writer.disk.files()[path]
    writer.disk.flip(path, len(good) - 1)
    report = await verify_directory(writer.disk)
    assert report.ok
    assert ["index"] == [note.kind for note in report.notes]
    writer.index.segment_id = 101
    writer.disk.plant_file(path, writer.index.encode())
    report = await verify_directory(writer.disk)
    assert ["index"] == [problem.kind for problem in report.problems]


@pytest.mark.parametrize("damage", [True, False])
async def test_journal_of_one_incarnation(writer, damage):
    """Damage below what a later frame proves is a problem; a killed journal without damage is sound."""
    journal = await make_journal(writer.disk)
    data = writer.disk.files()[journal.segment.path]
    writer.disk.kill()
    if damage:
        writer.disk.flip(journal.segment.path, data.index(b"event-2"))
    report = await verify_directory(writer.disk)
    assert damage != report.ok
    assert [(4, 5)] * damage == [(p.first_offset, p.last_offset) for p in report.problems]


async def test_healed_journal_is_sound(writer):
    """What a healing snapshot replaced is no damage, even when it was never written."""
    journal = await make_journal(writer.disk)
    staged = journal.stage([b"never written"])
    journal.withdraw(staged)
    journal._next = staged.end_sequence
    await journal.heal(b"state")
    assert (await verify_directory(writer.disk)).ok


async def test_bytes_that_the_next_segment_supersedes_are_no_damage(writer):
    """A segment ends where the next one begins: what a write that failed has left behind that is not looked at."""
    await writer.append()
    await writer.append()
    await writer.append(publish=False, text=b"torn")
    await writer.append(publish=False)
    await writer.roll(6)
    await writer.append()
    writer.disk.flip(writer.path(0), writer.disk.files()[writer.path(0)].index(b"torn"))
    report = await verify_directory(writer.disk)
    assert report.problems == ()
    writer.disk.flip(writer.path(0), writer.disk.files()[writer.path(0)].index(b"value-3"))
    report = await verify_directory(writer.disk)
    assert [(3, 5)] == [(problem.first_offset, problem.last_offset) for problem in report.problems]


def test_every_kind_is_explained():
    """The how-to page explains each kind of problem in its table, and each kind of note below it."""
    page = (Path(__file__).parents[3] / "docs/how-to/verify-and-repair.md").read_text("utf-8")
    table = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    notes = {ProblemKind.TORN, ProblemKind.GAP, ProblemKind.RECORDED}
    assert sorted(set(ProblemKind) - notes) == sorted(table)
    assert all(f"`{kind}`" in page for kind in notes)
