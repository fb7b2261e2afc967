"""Watching what retention drops: at the unlinking of a partition's oldest segment, how large it was, and how old."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.frame import BASE_OFFSET, FrameFields, FrameHeader, decode_body
from callboard.log.format.frame_walk import FrameWalk, run_walk_cached
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from callboard.log.format.stamps import is_ahead
from callboard.log.segments.segment_file import base_offset_of, segment_path
from callboard.simulations.checkers import retention
from callboard.simulations.disk.inodes import Inode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from callboard.log.format.columns import Columns
    from callboard.simulations.world import World


DECIDED_US: Final = 1_000_000
"""Microseconds between the decision that a segment goes and its unlink, at most."""


@attrs.frozen
class Sizes:
    """A partition's files: bytes of all segments, the last one without the zeros ahead, and where each begins.

    A segment that was abandoned after a failed sync may keep its zeros, which count then.
    """

    size_bytes: int
    bases: tuple[int, ...]


class RetentionWatch:
    """Records each segment that is dropped. `places`: topic and partition by directory, as they become known."""

    def __init__(self, world: World, places: dict[str, tuple[str, int]]) -> None:
        self._world = world
        self._places = places
        self._observer = world.disk.observer
        self._dropped_bytes: dict[str, int] = {}
        """By directory: of all segments dropped so far."""
        world.disk.observer = self._observe

    def _observe(self, owner: str, verb: str, path: str) -> None:
        if verb == "unlink" and path.endswith(".log"):
            self._unlinked(path)
        if self._observer is not None:
            self._observer(owner, verb, path)

    def sizes(self, directory: str) -> Sizes:
        """How large the partition is now; one whose folder a power cut took has nothing."""
        try:
            node = self._world.disk.tree.directory(directory)
        except FileNotFoundError:
            return Sizes(0, ())
        found: dict[int, int] = {}
        for name, inode in node.volatile.items():
            base = base_offset_of(name)
            if base is not None and isinstance(inode, Inode):
                found[base] = inode.volatile.length
        if found:
            last = self._world.disk.tree.inode(segment_path(directory, max(found)))
            found[max(found)] = len(last.volatile.stored.rstrip(b"\0"))
        return Sizes(sum(found.values()), tuple(sorted(found)))

    def _unlinked(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        base = base_offset_of(name)
        if base is None or directory not in self._places:
            return
        sizes = self.sizes(directory)
        if len(sizes.bases) < 2 or sizes.bases[0] != base:
            return  # what a failed plan left, at the end
        content = bytes(self._world.disk.tree.inode(segment_path(directory, base)).volatile)
        self._dropped_bytes[directory] = self._dropped_bytes.get(directory, 0) + len(content)
        times_us = [frame.max_time_us for frame in _frames(content, sizes.bases[1])]
        clock = self._world.clock
        now_us = clock.wall_us()
        behind_us = self._begun_us(segment_path(directory, sizes.bases[1]))
        age_us = oldest_us(max(times_us), behind_us, now_us, clock.jumps) if times_us else now_us
        topic, partition = self._places[directory]
        self._world.history.record(
            0,
            retention.DROPPED,
            "retention",
            0,
            topic,
            partition,
            offsets=tuple(range(base, sizes.bases[1])),
            attempts=(sizes.size_bytes, now_us - age_us, now_us),
        )

    def _begun_us(self, path: str) -> int | None:
        """When that segment was begun; None when its header is damaged."""
        content = bytes(self._world.disk.tree.inode(path).volatile)
        try:
            return decode_segment_header(content[:SEGMENT_HEADER_BYTES]).created_us
        except SegmentHeaderInvalid:
            return None

    # -- publishes that are refused

    def before(self) -> dict[str, tuple[int, Sizes]]:
        """What is known of each partition before a publish: bytes dropped so far, and its sizes."""
        return {
            directory: (self._dropped_bytes.get(directory, 0), self.sizes(directory))
            for directory in self._places
        }

    def refused(self, who: str, topic: str, begun: int, before: dict[str, tuple[int, Sizes]]) -> None:
        """A publish that began at entry `begun` was refused for a full topic."""
        operation = self._world.history.operation()
        for directory, (dropped, earlier) in before.items():
            name, partition = self._places[directory]
            if name != topic or len(earlier.bases) < 1:
                continue
            now = self.sizes(directory)
            most = now.size_bytes + self._dropped_bytes.get(directory, 0) - dropped
            end = now.bases[1] if len(now.bases) > 1 else self._end(directory, now, earlier.bases[0])
            self._world.history.record(
                0,
                retention.FULL,
                who,
                operation,
                topic,
                partition,
                offsets=tuple(range(earlier.bases[0], end)),
                attempts=(begun, most),
            )

    def _end(self, directory: str, sizes: Sizes, first: int) -> int:
        """The end of the only segment that a partition has, which may be in use; past `first` in any case."""
        ends = [first + 1]
        if sizes.bases:
            content = bytes(self._world.disk.tree.inode(segment_path(directory, sizes.bases[0])).volatile)
            ends += [frame.last_offset + 1 for frame in _frames(content, None)]
        return max(ends)


def oldest_us(newest_us: int, behind_us: int | None, now_us: int, jumps: Sequence[tuple[int, int]]) -> int:
    """How old a segment with that newest stamp may count as when it is unlinked, at most; the segment behind it was
    begun at `behind_us`.

    That was decided by the clock of now, or by the one before a jump of the last moment.
    """
    ages_us, left_us = [_age_us(newest_us, behind_us, now_us, jumps)], DECIDED_US
    for number in reversed(range(len(jumps))):
        before_us, after_us = jumps[number]
        left_us -= now_us - after_us
        if left_us < 0:
            break
        now_us = before_us
        ages_us.append(_age_us(newest_us, behind_us, now_us, jumps[:number]))
    return max(ages_us)


def _age_us(newest_us: int, behind_us: int | None, now_us: int, jumps: Sequence[tuple[int, int]]) -> int:
    """By the clock of now. A segment that holds a stamp of a clock that was wrong counts as of when the one behind it
    was begun. If such a clock stamped that, too, it counts as of when that is noticed, which may follow another jump
    back: it is no older than the earliest time that the clock was set to since.
    """
    if is_ahead(newest_us, now_us) and behind_us is not None:
        newest_us = behind_us
    if not is_ahead(newest_us, now_us):
        return now_us - newest_us
    since = next(
        (number for number, (before_us, _) in enumerate(jumps) if before_us >= newest_us), len(jumps)
    )
    noticed_us = (after_us for _, after_us in jumps[since:] if is_ahead(newest_us, after_us))
    return now_us - min(noticed_us, default=newest_us)


class DroppedRecords:
    """Keeps what was in the segments that are dropped: a world in which nothing goes without being known.

    What a power cut brings back is in both, here and in the log.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._observer = world.disk.observer
        self._found: dict[str, list[Columns]] = {}
        world.disk.observer = self._observe

    def of(self, directory: str) -> list[Columns]:
        """What was dropped of a partition."""
        return self._found.get(directory, [])

    def _observe(self, owner: str, verb: str, path: str) -> None:
        if verb == "unlink" and path.endswith(".log"):
            self._unlinked(path)
        if self._observer is not None:
            self._observer(owner, verb, path)

    def _unlinked(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        names = self._world.disk.tree.directory(directory).volatile
        bases = sorted(base for base in map(base_offset_of, names) if base is not None)
        if len(bases) < 2 or bases[0] != base_offset_of(name):
            return  # what a failed plan left, at the end
        content = bytes(self._world.disk.tree.inode(path).volatile)
        found = self._found.setdefault(directory, [])

        def visit(fields: FrameFields, body: memoryview) -> None:
            if fields[BASE_OFFSET] < bases[1]:
                found.append(decode_body(FrameHeader(*fields), bytes(body)))

        _walk(content, visit)


def _frames(content: bytes, end: int | None) -> list[FrameHeader]:
    """Those of a segment that begin below offset `end`."""
    found: list[FrameHeader] = []

    def visit(fields: FrameFields, body: memoryview) -> None:
        del body
        if end is None or fields[BASE_OFFSET] < end:
            found.append(FrameHeader(*fields))

    _walk(content, visit)
    return found


def _walk(content: bytes, visit: Callable[[FrameFields, memoryview], None]) -> None:
    """Look at each frame of a segment; at none when its header is damaged."""
    try:
        header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
    except SegmentHeaderInvalid:
        return

    def look(position: int, fields: FrameFields, body: memoryview) -> bool:
        del position
        visit(fields, body)
        return False

    walk = FrameWalk(header.segment_id, header.base_offset, file_end=len(content), visit=look)
    run_walk_cached(walk, partial(_piece, content))


def _piece(content: bytes, position: int, length: int) -> bytes:
    return content[position : position + length]
