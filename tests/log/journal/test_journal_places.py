"""Files of a journal in a wrong place: blank, copied, renamed, exchanged, or nothing of ours under a segment's name."""

from __future__ import annotations

from itertools import pairwise

import pytest

from callboard.log.errors import LogCorrupt
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header, encode_segment_header
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, read_journal
from callboard.log.limits import Limits
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Unlink
from callboard.log.segments.segment_file import segment_path
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

FOLDERS = ["catalog", "topics/t1/0/delivery", "actors/one"]
SHORT = Limits(journal_segment_bytes=2_000)
EVENTS = 60


def event(number):
    return b"event %03d" % number + bytes(100)


async def open_journal(disk, folder, events):
    return await Journal.open(
        await disk.incarnate("journal"),
        folder,
        Owner(lambda snapshot: events.append(snapshot), events.append),
        clock=VirtualClock(),
        entropy=SeededEntropy(1),
        limits=SHORT,
    )


async def filled(folder):
    """A disk with a journal of several segments, closed in order."""
    disk = MemoryDisk()
    await (await open_journal(disk, "catalog", [])).close()
    journal = await open_journal(disk, folder, [])
    for number in range(EVENTS):
        await journal.append([event(number)])
        if journal.needs_maintenance:
            await journal.maintain()
    await journal.close()
    assert len(segments(disk, folder)) > 3
    return disk


def segments(disk, folder):
    return sorted(path for path in disk.files() if path.startswith(folder) and path.endswith(".log"))


def base_of(path):
    return int(path[-24:-4])


async def replayed(disk, folder):
    """What opening finds."""
    events = []
    journal = await open_journal(disk, folder, events)
    await journal.close()
    return events


async def read(disk, folder):
    """What a reader without the lock finds."""
    events = []
    reading = await read_journal(await disk.incarnate("reader"), folder, Owner(events.append, events.append))
    assert [] == reading.faults
    return events


ALL = [event(number) for number in range(EVENTS)]


def blank_within(disk, folder):
    disk.plant_file(segment_path(folder, base_of(segments(disk, folder)[1]) + 3), b"")


def blank_behind(disk, folder):
    disk.plant_file(segment_path(folder, 2 * EVENTS), b"")


def blank_far_ahead(disk, folder):
    disk.plant_file(segment_path(folder, 10**15), bytes(SEGMENT_HEADER_BYTES))


def noise_within(disk, folder):
    disk.plant_file(segment_path(folder, base_of(segments(disk, folder)[-2]) + 3), b"\xa5" * 700)


def noise_at_an_end(disk, folder):
    """Under the number of the last record of a segment."""
    disk.plant_file(segment_path(folder, base_of(segments(disk, folder)[2]) - 1), b"\xa5" * 200)


def noise_at_an_end_without_links(disk, folder):
    """The same in a journal of an earlier version, whose headers do not name the segments before them."""
    for path in segments(disk, folder):
        content = disk.files()[path]
        header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
        unlinked = encode_segment_header(
            segment_id=header.segment_id,
            base_offset=header.base_offset,
            created_us=header.created_us,
            kind=header.kind,
            records_version=header.records_version,
            identity=header.identity,
        )
        disk.plant_file(path, unlinked + content[SEGMENT_HEADER_BYTES:])
    noise_at_an_end(disk, folder)


def copy_behind(disk, folder):
    disk.plant_file(segment_path(folder, 2 * EVENTS), disk.files()[segments(disk, folder)[0]])


def copy_within(disk, folder):
    paths = segments(disk, folder)
    disk.plant_file(segment_path(folder, base_of(paths[1]) + 5), disk.files()[paths[-1]])


def renamed_first(disk, folder):
    path = segments(disk, folder)[0]
    disk.plant_file(segment_path(folder, 2 * EVENTS), disk.files()[path])
    disk.tree.unlink(path)


def renamed_last(disk, folder):
    path = segments(disk, folder)[-1]
    disk.plant_file(segment_path(folder, 3), disk.files()[path])
    disk.tree.unlink(path)


def exchanged(disk, folder):
    permute(disk, segments(disk, folder)[1:3])


def exchanged_ends(disk, folder):
    paths = segments(disk, folder)
    permute(disk, [paths[0], paths[-1]])


def rotated(disk, folder):
    permute(disk, segments(disk, folder))


def permute(disk, paths):
    files = disk.files()
    for one, other in pairwise([*paths, paths[0]]):
        disk.plant_file(one, files[other])


MISPLACED = [
    blank_within,
    blank_behind,
    blank_far_ahead,
    noise_within,
    noise_at_an_end,
    noise_at_an_end_without_links,
    copy_behind,
    copy_within,
    renamed_first,
    renamed_last,
    exchanged,
    exchanged_ends,
    rotated,
]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("misplace", MISPLACED)
@pytest.mark.parametrize("by", ["opening", "repair"])
async def test_no_event_is_lost_to_a_file_in_a_wrong_place(folder, misplace, by):
    """Opening, repair and readers find every event by what the files hold, whatever their names say."""
    disk = await filled(folder)
    misplace(disk, folder)
    assert ALL == await read(disk, folder)
    report = await verify_directory(disk)
    assert {"stray", "name"} >= {problem.kind for problem in report.problems}
    assert report.problems
    if by == "repair":
        assert () == (await repair_directory(disk)).lost
    assert ALL == await replayed(disk, folder)
    assert () == (await verify_directory(disk)).problems or by == "opening"
    await repair_directory(disk)
    assert () == (await verify_directory(disk)).problems
    assert ALL == await replayed(disk, folder)


async def test_what_is_really_missing_stays_damage():
    """A blank file in place of a segment that held synced events is a loss, and is said to be one."""
    folder = "catalog"
    disk = await filled(folder)
    blank = segments(disk, folder)[-2]
    disk.plant_file(blank, b"")
    with pytest.raises(LogCorrupt, match="cannot be read"):
        await replayed(disk, folder)
    assert not (await verify_directory(disk)).ok
    (lost,) = (await repair_directory(disk)).lost
    assert (folder, base_of(blank)) == lost[:2]
    events = await replayed(disk, folder)
    assert len(events) < EVENTS
    assert events == [each for each in ALL if each in events]


async def test_noise_under_the_number_of_the_last_record_costs_nothing():
    """Also where the journal was not closed, so that no mark follows its last record, and that is a snapshot."""
    disk = await filled("catalog")
    journal = await open_journal(disk, "catalog", [])
    await journal.snapshot(b"all")
    disk.plant_file(segment_path("catalog", base_of(segments(disk, "catalog")[-1]) + 1), b"\xa5" * 200)
    assert {problem.kind for problem in (await verify_directory(disk)).problems} == {"stray"}
    assert await read(disk, "catalog") == [*ALL, b"all"]
    assert await replayed(disk, "catalog") == [b"all"]
    assert (await verify_directory(disk)).problems == ()


async def test_the_mark_of_a_clean_end_does_not_make_the_next_segment_noise():
    """The next segment takes the number of the mark, which power loss may bring back: its lost header is damage."""
    disk = await filled("catalog")
    journal = await open_journal(disk, "catalog", [])
    await journal.append([b"before the mark"])
    await journal.close()
    marked = segments(disk, "catalog")[-1]
    before = disk.files()[marked]
    journal = await open_journal(disk, "catalog", [])
    await journal.snapshot(b"all")
    await journal.append([b"one more"])
    await journal.close()
    disk.plant_file(marked, before)
    last = segments(disk, "catalog")[-1]
    assert last != marked
    disk.plant_file(last, b"\xa5" * SEGMENT_HEADER_BYTES + disk.files()[last][SEGMENT_HEADER_BYTES:])
    problems = (await verify_directory(disk)).problems
    assert {(problem.path, problem.kind) for problem in problems} == {(last, "header"), (last, "lost")}
    with pytest.raises(LogCorrupt, match="its header"):
        await replayed(disk, "catalog")


async def test_segments_name_the_one_before_them():
    """The header of each segment of a journal links it to the one before, also where journals have no identity."""
    disk = await filled("actors/one")
    headers = [decode_segment_header(disk.files()[path]) for path in segments(disk, "actors/one")]
    assert [header.base_offset for header in headers[:-1]] == [header.previous_base for header in headers[1:]]


@pytest.mark.parametrize("folder", FOLDERS)
async def test_exchanged_segments_that_a_snapshot_replaces_are_named_and_put_back(folder):
    """Opening does not read them; verify names both, and repair gives them their names again."""
    disk = await filled(folder)
    journal = await open_journal(disk, folder, [])
    await journal.snapshot(b"all")
    await journal.close()
    before = disk.files()
    exchanged(disk, folder)
    assert await replayed(disk, folder) == [b"all"]
    report = await verify_directory(disk)
    assert [(each.path, each.kind) for each in report.problems] == [
        (path, "name") for path in reversed(segments(disk, folder)[1:3])
    ]
    repaired = await repair_directory(disk)
    assert ({action.kind for action in repaired.actions}, repaired.lost) == ({"rename"}, ())
    assert {path: disk.files()[path] for path in before} == before | {
        f"{folder}/committed": disk.files()[f"{folder}/committed"]
    }


async def test_a_reader_names_all_records_when_the_beginning_and_the_snapshot_behind_it_are_gone():
    """They are lost from the first on, not from the snapshot on."""
    disk = await filled("catalog")
    journal = await open_journal(disk, "catalog", [])
    await journal.snapshot(b"all of them" * 10)
    snapshot_at = journal.next_sequence - 1
    await journal.append([b"behind it"])
    await journal.close()
    *earlier, newest = segments(disk, "catalog")
    await (await disk.incarnate("hand")).submit([Unlink(path) for path in earlier])
    disk.flip(newest, disk.files()[newest].index(b"all of them"))
    events, lost = [], []
    owner = Owner(events.append, events.append, lost=lambda first, last: lost.append((first, last)))
    await read_journal(await disk.incarnate("reader"), "catalog", owner)
    assert (events, lost) == ([b"behind it"], [(0, snapshot_at)])
