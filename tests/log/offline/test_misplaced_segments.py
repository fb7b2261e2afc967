"""Segments in the wrong place: swapped, copied, renamed, or named like an offset that no log can have reached."""

import random

import pytest

from callboard.log.errors import InvalidArgument, LogCorrupt
from callboard.log.format.columns import Columns
from callboard.log.format.committed import encode_committed
from callboard.log.format.segment import (
    UNBOUND,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    identity_of,
)
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, ignore
from callboard.log.limits import KIB, OFFSET_JUMP_MAX
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.partition.partition_log import LogSettings, PartitionLog
from callboard.log.segments.placing import place_segments, renames
from callboard.log.segments.segment_file import segment_path
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

ONE, OTHER, CATALOG = "topics/t1/0", "topics/t1/1", "catalog"
FAR = 2**64 - 2000


async def open_log(disk, directory=ONE, seed=1):
    files = await disk.incarnate(directory)
    log = await PartitionLog.open(
        files,
        directory,
        LogSettings(segment_bytes=64 * KIB),
        label=directory,
        clock=VirtualClock(),
        entropy=SeededEntropy(seed).fork(directory),
    )
    return files, log


async def append(files, log, values):
    staged = log.stage([Columns.build(values)], durable=True)
    await files.submit(staged.verbs)
    log.applied(staged)


async def filled(*directories, records=120, seed=1):
    """A disk with a catalog, and in each directory a closed partition whose values tell directory and offset."""
    disk = MemoryDisk()
    catalog = await open_journal(disk, CATALOG, seed)
    await catalog.close()
    for directory in directories:
        files, log = await open_log(disk, directory, seed)
        for first in range(0, records, 10):
            offsets = range(first, first + 10)
            await append(files, log, [value(directory, offset) for offset in offsets])
        await log.close()
    return disk


async def open_journal(disk, directory, seed=1, into=None):
    return await Journal.open(
        await disk.incarnate("journal" + directory),
        directory,
        Owner(ignore, ignore if into is None else into.append),
        clock=VirtualClock(),
        entropy=SeededEntropy(seed).fork(directory),
    )


def value(directory, offset):
    return b"%s %06d" % (directory.encode(), offset) + bytes(2000)


def copy_of(disk):
    """Another disk with the same files."""
    other = MemoryDisk()
    for path, data in disk.files().items():
        other.plant_file(path, data)
    return other


def segments(disk, directory=ONE):
    return sorted(path for path in disk.files() if path.startswith(directory) and path.endswith(".log"))


async def served(disk, directory=ONE):
    """Opens the partition; the values that it serves by offset, and the log."""
    _, log = await open_log(disk, directory, seed=2)
    records, offset = {}, log.start_offset
    while offset < log.visible_end:
        reading = await log.read(offset, max_records=1000)
        for columns in reading.batches:
            records.update(zip(columns.offset_list(), columns.value_list(), strict=True))
        offset = reading.next_offset
    return records, log


async def read_beside(disk):
    """What a reader without the lock finds, by offset."""
    reader = await LogReader.open(await disk.incarnate("reader"), ONE)
    found, offset = {}, reader.start_offset
    while offset < reader.visible_end:
        reading = await reader.read(offset)
        for columns in reading.batches:
            found.update(zip(columns.offset_list(), columns.value_list(), strict=True))
        offset = reading.next_offset
    return found


def swap(disk, one, other):
    files = disk.files()
    disk.plant_file(one, files[other])
    disk.plant_file(other, files[one])


# -- segments of another log ------------------------------------------------------------


async def test_swapped_partitions_are_not_served_as_each_other():
    """The segments of two partitions are swapped: verify says so, and neither serves the other's records."""
    disk = await filled(ONE, OTHER)
    for one, other in zip(segments(disk, ONE), segments(disk, OTHER), strict=True):
        swap(disk, one, other)
    report = await verify_directory(disk)
    assert any("belongs to another log" in problem.message for problem in report.problems)
    assert {ONE, OTHER} == {log.path for log in report.logs if log.problems}
    reader = await LogReader.open(await disk.incarnate("reader"), ONE)
    with pytest.raises(LogCorrupt, match="belongs to another log"):
        await reader.read(0)
    for directory in (ONE, OTHER):
        records, log = await served(disk, directory)
        assert {} == records
        assert "belongs to another log" in str(log.damages)
        assert log.next_offset == 120
        assert any(path.startswith("quarantine/") for path in disk.files())


async def test_a_journal_that_is_bound_to_no_log_is_no_part_of_a_partition():
    """The journal of a user's actor lies in place of a partition's segment: nobody serves its records as messages."""
    disk = await filled(ONE)
    journal = await open_journal(disk, "actors/one")
    await journal.close()
    (segment,) = segments(disk, "actors")
    disk.plant_file(segments(disk)[0], disk.files()[segment])
    report = await verify_directory(disk)
    assert any("belongs to another log" in problem.message for problem in report.problems)
    reader = await LogReader.open(await disk.incarnate("reader"), ONE)
    with pytest.raises(LogCorrupt, match="belongs to another log"):
        await reader.read(0)
    records, log = await served(disk)
    assert records
    assert all(value(ONE, offset) == found for offset, found in records.items())
    assert "belongs to another log" in str(log.damages)


async def test_repair_sets_swapped_segments_aside():
    """Repair moves segments of another log to quarantine, as opening does, and names what is missing."""
    disk = await filled(ONE, OTHER)
    first, second = segments(disk, ONE)[1], segments(disk, OTHER)[1]
    swapped = {disk.files()[first], disk.files()[second]}
    swap(disk, first, second)
    missing = copy_of(disk)
    expected, _ = await served(missing)
    report = await repair_directory(disk)
    files = disk.files()
    assert swapped <= {files[path] for path in report.quarantined}
    assert () == (await verify_directory(disk)).problems
    records, _ = await served(disk)
    assert expected == records
    assert all(value(ONE, offset) == found for offset, found in records.items())
    assert 0 < len(records) < 120


@pytest.mark.parametrize("check", [verify_directory, repair_directory])
async def test_a_folder_inside_a_directory_is_refused(check):
    """One folder too deep all sound files would seem to belong elsewhere: nothing is touched, and it is said."""
    disk, below = await filled(ONE), MemoryDisk()
    for path, data in disk.files().items():
        if path.startswith("topics/"):
            below.plant_file(path.removeprefix("topics/"), data)
    before = segments(below, "")
    with pytest.raises(InvalidArgument, match="begins further up"):
        await check(below)
    assert before == segments(below, "")


async def test_a_journal_of_another_partition_is_refused():
    """A delivery journal in another partition's place is damage, not state; repair gives both back what is theirs."""
    disk = await filled()
    for directory in (ONE, OTHER):
        journal = await open_journal(disk, f"{directory}/delivery")
        await journal.append([directory.encode()], sync=True)
        await journal.close()
    swap(disk, segments(disk, ONE)[0], segments(disk, OTHER)[0])
    with pytest.raises(LogCorrupt, match="belongs to another log"):
        await open_journal(disk, f"{ONE}/delivery")
    assert not (await verify_directory(disk)).ok
    await repair_directory(disk)
    assert (await verify_directory(disk)).ok
    state = []
    await open_journal(disk, f"{ONE}/delivery", into=state)
    assert [ONE.encode()] == state


async def test_unbound_segments_open_everywhere():
    """Segments that name no log, as older versions wrote them, are accepted where they lie."""
    disk = await filled(ONE)
    for path in segments(disk):
        data = disk.files()[path]
        header = decode_segment_header(data)
        assert header.identity == identity_of(ONE) != UNBOUND
        unbound = encode_segment_header(
            segment_id=header.segment_id,
            base_offset=header.base_offset,
            created_us=header.created_us,
            previous_end=header.previous_end,
            previous_base=header.previous_base,
        )
        disk.plant_file(path, unbound + data[len(unbound) :])
    assert (await verify_directory(disk)).ok
    records, _ = await served(disk)
    assert {offset: value(ONE, offset) for offset in range(120)} == records


def test_only_folders_of_our_own_have_an_identity():
    """Partitions and their journals are told apart; what users may move is bound to nothing."""
    bound = [CATALOG, ONE, OTHER, f"{ONE}/delivery", "topics/t2/0"]
    assert len(bound) == len({identity_of(directory) for directory in bound} - {UNBOUND})
    assert {UNBOUND} == {identity_of(directory) for directory in ("recording", "actors/counter", "topics/t1")}


# -- names that say something else than headers ------------------------------------------------------------


@pytest.mark.parametrize("name", [5, 55, 100, 115, 300, FAR])
async def test_repair_keeps_what_opening_serves_beside_a_stray_copy(name):
    """A copy of a segment under another base name costs nothing: neither opening nor repair believes its name."""
    disk = await filled(ONE)
    disk.plant_file(segment_path(ONE, name), disk.files()[segments(disk)[0]])
    everything = {offset: value(ONE, offset) for offset in range(120)}
    assert everything == await read_beside(disk)
    records, log = await served(copy_of(disk))
    assert (everything, 120) == (records, log.next_offset)
    assert any("copy" in problem.message for problem in (await verify_directory(disk)).problems)
    report = await repair_directory(disk)
    assert () == report.lost
    assert () == (await verify_directory(disk)).problems
    records, log = await served(disk)
    assert (everything, 120) == (records, log.next_offset)


@pytest.mark.parametrize("by", ["opening", "repair"])
@pytest.mark.parametrize("place", [0, 1, -1])
async def test_a_renamed_segment_gets_its_name_back(by, place):
    """A segment under a wrong name is believed by its header where exactly that one is missing."""
    disk = await filled(ONE)
    path = segments(disk)[place]
    disk.plant_file(segment_path(ONE, 777), disk.files()[path])
    disk.tree.unlink(path)
    if by == "repair":
        report = await repair_directory(disk)
        assert () == report.lost
        assert "rename" in {action.kind for action in report.actions}
        assert () == (await verify_directory(disk)).problems
    records, log = await served(disk)
    assert {offset: value(ONE, offset) for offset in range(120)} == records
    assert 120 == log.next_offset


@pytest.mark.parametrize("by", ["opening", "repair"])
@pytest.mark.parametrize("place", [0, 1, -1])
async def test_of_two_renamed_copies_one_gets_its_name_back(by, place):
    """No file takes the other's place: the second is set aside, and the first is served."""
    disk = await filled(ONE)
    path = segments(disk)[place]
    for name in (777, 888):
        disk.plant_file(segment_path(ONE, name), disk.files()[path])
    disk.tree.unlink(path)
    if by == "repair":
        report = await repair_directory(disk)
        assert () == report.lost
        assert ["quarantine", "rename"] == sorted(action.kind for action in report.actions)
        assert () == (await verify_directory(disk)).problems
    records, log = await served(disk)
    assert {offset: value(ONE, offset) for offset in range(120)} == records
    assert 120 == log.next_offset
    assert 1 == sum("quarantine" in name and name.endswith(".log") for name in disk.files())


@pytest.mark.parametrize("by", ["opening", "repair"])
@pytest.mark.parametrize("places", [(0, 1), (1, 2), (0, -1), (0, 1, 2), (-1, 0, 2, 1), "all"])
async def test_segments_that_have_exchanged_names_get_them_back(by, places):
    """What headers say decides where segments belong: nothing is lost or set aside."""
    disk = await filled(ONE)
    paths = segments(disk)
    chosen = paths if places == "all" else [paths[place] for place in places]
    files = disk.files()
    for one, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        disk.plant_file(one, files[other])
    assert {"name"} == {problem.kind for problem in (await verify_directory(disk)).problems}
    assert {offset: value(ONE, offset) for offset in range(120)} == await read_beside(disk)
    if by == "repair":
        report = await repair_directory(disk)
        assert ((), ()) == (report.lost, report.quarantined)
        assert {"rename"} == {action.kind for action in report.actions}
    records, log = await served(disk)
    assert {offset: value(ONE, offset) for offset in range(120)} == records
    assert (120, ()) == (log.next_offset, log.damages)
    await log.close()
    assert () == (await verify_directory(disk)).problems


@pytest.mark.parametrize("by", ["opening", "repair"])
@pytest.mark.parametrize("name", [5, 55, 120, 300, FAR])
@pytest.mark.parametrize("content", [b"", bytes(128)])
async def test_a_blank_file_with_the_name_of_a_segment_costs_nothing(by, name, content):
    """A segment gets its name only with all that it began with: what is blank is none, and no offset begins there."""
    disk = await filled(ONE)
    disk.plant_file(segment_path(ONE, name), content)
    everything = {offset: value(ONE, offset) for offset in range(120)}
    assert everything == await read_beside(disk)
    assert ["stray"] == [problem.kind for problem in (await verify_directory(disk)).problems]
    if by == "repair":
        assert () == (await repair_directory(disk)).lost
        assert () == (await verify_directory(disk)).problems
    records, log = await served(disk)
    assert (everything, 120, ()) == (records, log.next_offset, log.damages)
    assert () == (await verify_directory(disk)).problems


@pytest.mark.parametrize("by", ["opening", "repair"])
async def test_segments_whose_link_was_cut_get_their_names_back(by):
    """A repair has given up the segment before the last one, which is exchanged with another: both are known."""
    disk = await filled(ONE)
    *_, last = segments(disk)
    damaged = bytearray(disk.files()[last])
    for byte in range(140, len(damaged), 50):
        damaged[byte] ^= 1
    disk.plant_file(last, bytes(damaged))
    await repair_directory(disk)
    records, log = await served(disk)
    await append(log._files, log, [b"more"])
    await log.close()
    swap(disk, *segments(disk)[-2:])
    if by == "repair":
        assert () == (await repair_directory(disk)).lost
    assert {**records, 120: b"more"} == (await served(disk))[0]


async def test_a_name_that_a_foreign_file_has_taken_is_given_back():
    """A segment of another log has the name of one of ours, which lies under another: ours gets its name back."""
    disk = await filled(ONE, OTHER)
    path = segments(disk)[1]
    disk.plant_file(segment_path(ONE, 777), disk.files()[path])
    disk.plant_file(path, disk.files()[segments(disk, OTHER)[1]])
    for by in (disk, copy_of(disk)):
        if by is disk:
            await repair_directory(by)
        records, _ = await served(by)
        assert {offset: value(ONE, offset) for offset in range(120)} == records


@pytest.mark.parametrize("seed", range(40))
def test_renames_that_are_broken_off_are_taken_up_again(seed):
    """After any of the renames the files left are placed as before, so that a crash among them loses nothing."""
    source = random.Random(seed)
    bases = [0, *sorted(source.sample(range(1, 1000), source.randrange(1, 7)))]
    names = source.sample(bases, len(bases))
    kept = dict(zip(names, [header_at(bases, base) for base in bases], strict=True))
    steps = 0
    while any(name != header.base_offset for name, header in kept.items()):
        placing = place_segments(ONE, dict(sorted(kept.items())), None)
        assert {} == placing.refused
        (name, target), *_ = renames(placing.renamed, kept)
        assert target not in kept
        kept[target] = kept.pop(name)
        steps += 1
    assert sorted(kept) == bases
    assert steps < 2 * len(bases)


def header_at(bases, base):
    place = bases.index(base)
    return SegmentHeader(
        base + 1,
        base,
        0,
        previous_end=base,
        previous_base=bases[max(place - 1, 0)],
        identity=identity_of(ONE),
    )


# -- offsets that no log has reached ------------------------------------------------------------


def far_header(base):
    return encode_segment_header(
        segment_id=7, base_offset=base, created_us=1, previous_end=120, previous_base=base, gap=2
    )


def forged_name(disk):
    disk.plant_file(segment_path(ONE, FAR), b"\xa5" * 5000)


def forged_segment(disk):
    disk.plant_file(segment_path(ONE, FAR), far_header(FAR))


def distant_segment(disk):
    base = 2 * OFFSET_JUMP_MAX
    disk.plant_file(segment_path(ONE, base), far_header(base))


def forged_committed(disk):
    disk.plant_file(f"{ONE}/committed", encode_committed(FAR, FAR))


FORGERIES = [forged_name, forged_segment, distant_segment, forged_committed]


@pytest.mark.parametrize("by", ["opening", "repair"])
@pytest.mark.parametrize("forge", FORGERIES)
async def test_no_file_makes_a_log_jump_to_the_end_of_offsets(forge, by):
    """What claims an offset far ahead of the log is named as damage; the next record gets the next offset."""
    disk = await filled(ONE)
    forge(disk)
    report = await verify_directory(disk)
    assert not report.ok
    if by == "repair":
        repaired = await repair_directory(disk)
        assert () == repaired.lost
        assert () == (await verify_directory(disk)).problems
    records, log = await served(disk)
    assert {offset: value(ONE, offset) for offset in range(120)} == records
    assert (120, 120) == (log.next_offset, log.visible_end)
    if by == "opening":
        assert log.damages
    assert () == (await verify_directory(disk)).problems


async def test_a_journal_that_names_an_offset_far_ahead_is_not_believed():
    """A delivery journal that names an offset near the end of all offsets does not end the partition."""
    disk = await filled(ONE)
    files = await disk.incarnate("partition")
    log = await PartitionLog.open(
        files,
        ONE,
        LogSettings(),
        label=ONE,
        clock=VirtualClock(),
        entropy=SeededEntropy(3),
        named_end=FAR,
    )
    assert 120 == log.next_offset
    assert "named by a journal" in str(log.damages)


# -- whatever happens to the files ------------------------------------------------------------


def tamper(disk, source):
    """One thing that befalls a directory: flipped bits, or a file that is copied, renamed, removed, swapped or cut."""
    paths = segments(disk)
    path = source.choice(paths)
    data = disk.files()[path]
    what = source.choice(
        ["flip", "flip", "flip", "header", "copy", "copy", "rename", "remove", "swap", "cut", "far"]
    )
    if what == "flip":
        disk.flip(path, source.randrange(len(data.rstrip(b"\0"))), 1 << source.randrange(8))
    elif what == "header":
        for byte in (20, 84):
            disk.flip(path, byte)
    elif what == "copy":
        disk.plant_file(segment_path(ONE, source.randrange(150)), data)
    elif what == "rename":
        disk.tree.unlink(path)
        disk.plant_file(segment_path(ONE, source.randrange(150)), data)
    elif what == "remove":
        disk.tree.unlink(path)
    elif what == "swap":
        swap(disk, path, source.choice(paths))
    elif what == "cut":
        disk.plant_file(path, data[: source.randrange(len(data))])
    else:
        source.choice(FORGERIES)(disk)


@pytest.mark.parametrize("seed", range(120))
async def test_what_opening_serves_repair_keeps(seed):
    """Whatever befalls the files: every record that opening serves is served after a repair as well, and no other."""
    source = random.Random(seed)
    disk = await filled(ONE, OTHER, seed=seed)
    for _ in range(source.randrange(1, 4)):
        if segments(disk):
            tamper(disk, source)
    before, log = await served(copy_of(disk))
    assert all(value(ONE, offset) == found for offset, found in before.items())
    await repair_directory(disk)
    assert () == (await verify_directory(disk)).problems
    assert () == (await repair_directory(disk)).actions
    after, repaired = await served(disk)
    assert before.items() <= after.items()
    assert all(value(ONE, offset) == found for offset, found in after.items())
    assert repaired.next_offset <= max(120, log.next_offset) + 150


@pytest.mark.parametrize("content", [bytes(4096), b"\xa5" * 4096])
async def test_a_file_with_nothing_but_a_name_behind_the_end_costs_no_offsets(content):
    """The log ends where its committed file and its frames say: repair sets the file aside, as opening does."""
    disk = await filled(ONE)
    disk.plant_file(segment_path(ONE, 100_000), content)
    (problem,) = (await verify_directory(disk)).problems
    assert (problem.kind, problem.first_offset) == ("stray", None)
    report = await repair_directory(disk)
    assert ([action.kind for action in report.actions], report.lost) == (["quarantine"], ())
    _, log = await open_log(disk)
    assert (log.next_offset, log.record.lost_records) == (120, 0)
