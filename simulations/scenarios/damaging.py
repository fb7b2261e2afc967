"""Damaging the files of a partition at rest, at chosen places, with the offsets that this costs known exactly."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from callboard.log.format.committed import (
    COMMITTED_NAME,
    HAS_START,
    decode_committed,
    encode_committed_file,
)
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.frame import (
    BASE_OFFSET,
    FRAME_HEADER_BYTES,
    LAST_OFFSET,
    FrameFields,
    FrameHeader,
    decode_body,
)
from callboard.log.format.frame_walk import FrameWalk, run_walk_cached
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.segments.segment_file import base_offset_of, segment_path
from callboard.simulations.scenarios.draws import between, one_of

if TYPE_CHECKING:
    from callboard.simulations.disk.memory_disk import MemoryDisk
    from callboard.simulations.entropy import SeededEntropy

KINDS: Final = (
    "flip",
    "flip",
    "neighbours",
    "bare",
    "zeros",
    "zeros",
    "cut",
    "copy",
    "index",
    "missing",
    "headless",
    "journal",
    "journal end",
    "journal snapshot",
    "exchanged",
    "stray",
    "journal exchanged",
    "journal stray",
    "catalog stray",
    "publishers",
)
"""A bit of a frame, of some frames one behind the other, of frames of a segment without its index, frames that are
zeros, the end of a file, one of the two copies of a segment's header, an index, a segment, both copies of a header with
the index; a bit of any frame of the delivery journal, of one of the last ones that was synced, of its last snapshot;
two segments of the log or the journal that have exchanged names, a blank file, a copy or noise with the name of a
segment there, or in the catalog; the record of publishers, of which a bit is
wrong, or which is cut or gone. "beginning" is "headless" for the first segment."""
PLACES: Final = ("exchanged", "stray", "journal exchanged", "journal stray", "catalog stray")
"""Those that cost nothing: files in a wrong place."""
AT_REPAIRED: Final = ("copy", "index", "journal", "journal end", "journal snapshot", "publishers", *PLACES)
"""Those whose places a repair does not move."""
LAST_FRAMES: Final = 3


@attrs.frozen
class StoredFrame:
    """Where a frame lies, and the offsets in it."""

    path: str
    start: int
    end: int
    first: int
    last: int


@attrs.frozen
class JournalFrame:
    """Where a frame of a journal lies, and what it is: a snapshot has no kind."""

    path: str
    base: int
    start: int
    end: int
    kind: Kind | None
    is_superfluous: bool
    """Whether it is a snapshot that equals all that lies before it."""


def frames_of(disk: MemoryDisk, directory: str) -> list[StoredFrame]:
    """All frames of an undamaged partition, in order; of a damaged one those that can be read."""
    files = disk.files()
    found: list[StoredFrame] = []
    for path in sorted(path for path in files if path.rpartition("/")[0] == directory):
        base = base_offset_of(path.rpartition("/")[2])
        if base is None:
            continue
        content, here = files[path], list[tuple[int, int, int]]()
        try:
            header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
        except SegmentHeaderInvalid:
            continue

        def visit(
            position: int, fields: FrameFields, body: memoryview, here: list[tuple[int, int, int]] = here
        ) -> bool:
            del body
            here.append((position, fields[BASE_OFFSET], fields[LAST_OFFSET]))
            return False

        walk = FrameWalk(header.segment_id, base, file_end=len(content), visit=visit)
        run_walk_cached(walk, partial(_piece, content))
        ends = [position for position, *_ in here[1:]] + [walk.end]
        found += [
            StoredFrame(path, start, end, first, last)
            for (start, first, last), end in zip(here, ends, strict=False)
        ]
    return found


def journal_frames(disk: MemoryDisk, directory: str) -> list[JournalFrame]:
    """All frames of an undamaged journal, in order, and whether each is a snapshot that the events before it equal."""
    files = disk.files()
    found: list[JournalFrame] = []
    for path in sorted(path for path in files if path.rpartition("/")[0] == directory):
        base = base_offset_of(path.rpartition("/")[2])
        if base is None:
            continue
        content, here = files[path], list[tuple[int, Kind | None]]()
        header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])

        def visit(
            position: int, fields: FrameFields, body: memoryview, here: list[tuple[int, Kind | None]] = here
        ) -> bool:
            is_behind_snapshot = bool(here) and here[-1][1] in (Kind.SNAPSHOT, Kind.HEAL)
            record = None if is_behind_snapshot else decode_body(FrameHeader(*fields), body).value(0)
            control = decode_control(record)
            here.append((position, None if control is None else control.kind))
            return False

        walk = FrameWalk(header.segment_id, base, file_end=len(content), visit=visit)
        run_walk_cached(walk, partial(_piece, content))
        ends = [position for position, _ in here[1:]] + [walk.end]
        before: Kind | None = None
        for (start, kind), end in zip(here, ends, strict=False):
            found.append(JournalFrame(path, base, start, end, kind, before is Kind.SNAPSHOT))
            before = kind
    return found


def last_number(disk: MemoryDisk, path: str) -> int:
    """The last number that a segment's frames have, or that of the segment when it has none."""
    content, base = disk.file(path), base_of(path)
    numbers = [base]

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        del position, body
        numbers.append(fields[LAST_OFFSET])
        return False

    header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
    run_walk_cached(
        FrameWalk(header.segment_id, base, file_end=len(content), visit=visit), partial(_piece, content)
    )
    return max(numbers)


def base_of(path: str) -> int:
    """The base offset in the path of a segment."""
    base = base_offset_of(path.rpartition("/")[2])
    if base is None:
        raise ValueError(f"{path} is no segment")
    return base


def _piece(content: bytes, position: int, length: int) -> bytes:
    return content[position : position + length]


class Damaging:
    """Damages one partition. `lost` are the offsets that this has cost so far."""

    def __init__(self, disk: MemoryDisk, directory: str, entropy: SeededEntropy) -> None:
        self.lost: set[int] = set()
        self.has_headless = False
        """Whether a segment has lost both copies of its header."""
        self.has_lost_publishers = False
        """Whether the record of publishers was lost, and that is not accepted."""
        self.may_salvage = False
        """Whether the journal may have lost what nothing else says."""
        self._disk = disk
        self._directory = directory
        self._entropy = entropy
        self._frames = frames_of(disk, directory)
        self._paths = sorted({frame.path for frame in self._frames})
        self._gone: set[str] = set()
        self._flipped: set[tuple[str, int, int]] = set()
        """Paths, bytes and bits."""
        self._is_snapshot_damaged = False
        self._has_missing = False
        """Whether a segment is gone, or cannot be distinguished from others by its header."""
        self._has_misplaced = False
        """Whether a segment of the log has another's name, or a second one."""
        self._is_journal_misplaced = False
        self._is_unmarked = False
        """Whether nothing says where the log begins: then a first segment that is gone is not missed."""
        self._exchanged: list[dict[str, str]] = []

    def unmark(self) -> None:
        """Take from the file `committed` of a log that was closed where the log begins: that costs nothing."""
        self._is_unmarked = True
        path = f"{self._directory}/{COMMITTED_NAME}"
        found = decode_committed(self._disk.file(path))
        self._disk.plant_file(path, encode_committed_file(found.durable_end, found.marks & ~HAS_START))

    def appended(self, end: int) -> None:
        """The directory was used, and records were appended, from offset `end` on."""
        for exchanged in reversed(self._exchanged):
            self._swap_names(exchanged)
        self._exchanged.clear()
        self._has_misplaced = False
        known = {frame.first for frame in self._frames}
        self._frames += [
            frame
            for frame in frames_of(self._disk, self._directory)
            if frame.first >= end and frame.first not in known
        ]
        self._paths = sorted({frame.path for frame in self._frames})

    def damage(self, kind: str) -> str | None:
        """Damage something; in words what, or None when there was nothing of that kind."""
        there = set(self._disk.paths()) - self._gone
        frames = [frame for frame in self._frames if frame.path in there]
        if not frames:
            return None
        if kind == "missing":
            return self._remove()
        if kind in PLACES:
            return self._misplace(kind)
        frame = self._choose(frames)
        if kind.startswith("journal"):
            return self._damage_journal(kind)
        if kind == "publishers":
            return self._damage_publishers()
        if kind in ("headless", "beginning"):
            return self._behead(frame.path if kind == "headless" else self._paths[0])
        if kind == "neighbours":
            place = frames.index(frame)
            here = [other for other in frames[place : place + 4] if other.path == frame.path]
            words = [self._flip_in(other) for other in here[: between(self._entropy, 2, 4)]]
            return "; ".join(words)
        if kind == "bare":
            self._unlink(frame.path.removesuffix(".log") + ".index")
            of_one = [other for other in frames if other.path == frame.path]
            words = [self._flip_in(one_of(self._entropy, of_one)) for _ in range(2)]
            return "; ".join(["its index is gone", *words])
        if kind == "copy":
            return self._flip(frame.path, between(self._entropy, 0, SEGMENT_HEADER_BYTES // 2 - 1))
        if kind == "index":
            path = frame.path.removesuffix(".log") + ".index"
            size = len(self._disk.files().get(path, b""))
            return self._flip(path, between(self._entropy, 0, size - 1)) if size else None
        if kind == "flip":
            return self._flip_in(frame)
        start = between(self._entropy, frame.start, frame.end - 1)
        end = len(self._disk.files()[frame.path])
        if kind == "zeros":
            place = bisect_right([other.start for other in frames if other.path == frame.path], start)
            behind = [other for other in frames if other.path == frame.path][place - 1 :]
            start, end = frame.start, one_of(self._entropy, behind[:3]).end
        self._lose(frame.path, start, end)
        inode = self._disk.tree.inode(frame.path)
        for content in (inode.volatile, inode.durable):
            if kind == "cut":
                content.resize(start)
            else:
                content.zero(start, end)
        return f"{frame.path}: {kind} from {start} to {end}"

    def _choose(self, frames: list[StoredFrame]) -> StoredFrame:
        """Any frame, or the first or the last of a segment, or the very last."""
        path = one_of(self._entropy, frames).path
        of_one = [frame for frame in frames if frame.path == path]
        return one_of(self._entropy, (one_of(self._entropy, frames), of_one[0], of_one[-1], frames[-1]))

    def _lose(self, path: str, start: int, end: int) -> None:
        for frame in self._frames:
            if frame.path == path and frame.start < end and start < frame.end:
                self.lost.update(range(frame.first, frame.last + 1))

    def _flip_in(self, frame: StoredFrame) -> str:
        """Flip a bit of a frame: of its header as often as of its body."""
        self._lose(frame.path, frame.start, frame.end)
        end = one_of(self._entropy, (frame.end, frame.start + FRAME_HEADER_BYTES))
        return self._flip(frame.path, between(self._entropy, frame.start, end - 1))

    def _behead(self, path: str) -> str | None:
        """Spoil both copies of a segment's header, and its index, but never those of the one in use."""
        if path == self._paths[-1] or path in self._gone or self._has_misplaced:
            return None
        self._gone.add(path)
        self.has_headless = self._has_missing = True
        self._lose(path, 0, 1 << 62)
        inode = self._disk.tree.inode(path)
        for content in (inode.volatile, inode.durable):
            content.zero(0, SEGMENT_HEADER_BYTES)
        self._unlink(path.removesuffix(".log") + ".index")
        return f"{path} has neither header nor index"

    def _misplace(self, kind: str) -> str | None:
        """Exchange the names of two segments, or put a file that is none beside them: that costs nothing."""
        folder = {"j": f"{self._directory}/delivery", "c": "catalog"}.get(kind[0], self._directory)
        files = self._disk.files()
        paths = [
            path
            for path in sorted(files)
            if path.rpartition("/")[0] == folder
            and path.endswith(".log")
            and path not in self._gone
            and any(files[path][:SEGMENT_HEADER_BYTES])
        ]
        if not paths or (kind.startswith("journal") and self.may_salvage):
            return None
        if kind.endswith("stray"):
            highest = base_of(paths[-1]) + 30
            target = f"{folder}/{between(self._entropy, base_of(paths[0]) + 1, highest):020d}.log"
            if target in files:
                return None
            contents = [b"", bytes(SEGMENT_HEADER_BYTES)]
            last = base_of(paths[-1]) if folder == self._directory else last_number(self._disk, paths[-1])
            if base_of(target) < last:  # what else has its number is there, so it is none
                contents.append(self._entropy.bytes(200))
            if not (self._has_missing and folder == self._directory):
                contents.append(files[one_of(self._entropy, paths)])
            content = one_of(self._entropy, contents)
            self._disk.plant_file(target, content)
            self._gone.add(target)
            self._note_misplaced(folder)
            return f"{target} is {'no segment' if any(content) else 'blank'}"
        if len(paths) < 2 or self._has_missing:
            return None
        one = one_of(self._entropy, paths[:-1])
        other = one_of(self._entropy, paths[paths.index(one) + 1 :])
        self._disk.plant_file(one, files[other])
        self._disk.plant_file(other, files[one])
        self._note_misplaced(folder)
        if folder == self._directory:
            self._exchanged.append({one: other, other: one})
            self._swap_names(self._exchanged[-1])
        return f"{one} and {other} have exchanged names"

    def plant_name(self) -> str:
        """Put a file behind the end of the log, or amid it, that has the name of a segment and nothing else: that costs
        nothing.
        """
        end = decode_committed(self._disk.file(f"{self._directory}/{COMMITTED_NAME}")).visible_end
        path = segment_path(self._directory, end + between(self._entropy.fork("name"), 31, 60))
        offset = between(self._entropy.fork("amid"), 1, end)
        amid = segment_path(self._directory, offset)
        is_free = offset not in self.lost and amid not in {*self._disk.files(), *self._gone}
        if is_free and self._entropy.fork("where").random() < 0.5:
            path = amid
        self._disk.plant_file(path, self._entropy.fork("noise").bytes(200))
        self._gone.add(path)
        return f"{path} is no segment"

    def _note_misplaced(self, folder: str) -> None:
        self._has_misplaced |= folder == self._directory
        self._is_journal_misplaced |= folder.endswith("delivery")

    def _swap_names(self, names: dict[str, str]) -> None:
        self._frames = [attrs.evolve(frame, path=names.get(frame.path, frame.path)) for frame in self._frames]

    def _damage_journal(self, kind: str) -> str | None:
        """Flip a bit of a frame of the delivery journal, chosen by its kind."""
        is_known = not (self.may_salvage or self._is_journal_misplaced)
        frames = journal_frames(self._disk, f"{self._directory}/delivery") if is_known else []
        if not frames:
            return None
        if kind == "journal snapshot":
            if self._is_snapshot_damaged:
                return None
            self._is_snapshot_damaged = True
            # All that was ever said is there, so that the snapshot is only a shorter way to say it.
            last = [frame for frame in frames if frame.is_superfluous][-1:]
            if frames[0].base != 0 or not last or Kind.GAP in {frame.kind for frame in frames}:
                return None
            frame = last[0]
        else:
            events = [frame for frame in frames if frame.kind is Kind.EVENTS]
            if not events:
                return None
            frame = one_of(self._entropy, events[-LAST_FRAMES:] if kind == "journal end" else events)
            self.may_salvage = True
        return self._flip(frame.path, between(self._entropy, frame.start, frame.end - 1))

    def _damage_publishers(self) -> str | None:
        path = f"{self._directory}/delivery/publishers"
        size = len(self._disk.files().get(path, b""))
        if not size:
            return None
        self.has_lost_publishers = True
        how = one_of(self._entropy, ("gone", "gone", "cut", "flipped"))
        if how == "gone":
            self.remove_file(path)
        elif how == "cut":
            self._disk.plant_file(path, self._disk.file(path)[: between(self._entropy, 0, size - 1)])
        else:
            self._flip(path, between(self._entropy, 0, size - 1))
        return f"{path} is {how}"

    def remove_file(self, path: str) -> None:
        """Remove a file, durably."""
        self._disk.tree.unlink(path)
        self._disk.tree.directory(path.rpartition("/")[0]).sync()

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        for each in self._disk.paths():
            folder = each.rpartition("/")[0]
            if folder == path or folder.startswith(f"{path}/"):
                self.remove_file(each)

    def _unlink(self, path: str) -> None:
        if path in self._disk.paths():
            self.remove_file(path)

    def _flip(self, path: str, byte: int) -> str:
        bit = self._entropy.integer(3)
        while (path, byte, bit) in self._flipped:  # once more, and it would be as it was
            bit = (bit + 1) % 8
        self._flipped.add((path, byte, bit))
        self._disk.flip(path, byte, 1 << bit)
        return f"{path}: a bit of byte {byte}"

    def _remove(self) -> str | None:
        """Remove a segment, which is not the last that is there."""
        there = set(self._disk.paths())
        in_place = [path for path in self._paths if path in there]
        found = [path for path in in_place if path not in self._gone and path != self._paths[-1]]
        if self._is_unmarked and self._paths[0] in found:
            found.remove(self._paths[0])
        if not found or self._has_misplaced:
            return None
        path = one_of(self._entropy, found)
        self._gone.add(path)
        self._has_missing = True
        self._lose(path, 0, 1 << 62)
        self._unlink(path)
        return f"{path} is gone"
