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
    from collections.abc import Callable

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
        self._latest_us = 0
        self._dropped_bytes: dict[str, int] = {}
        """By directory: of all segments dropped so far."""
        world.disk.observer = self._observe

    def _observe(self, owner: str, verb: str, path: str) -> None:
        self._latest_us = max(self._latest_us, self._world.clock.wall_us())
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
        age_us = min(map(self._age_us, times_us), default=self._latest_us)
        topic, partition = self._places[directory]
        self._world.history.record(
            0,
            retention.DROPPED,
            "retention",
            0,
            topic,
            partition,
            offsets=tuple(range(base, sizes.bases[1])),
            attempts=(sizes.size_bytes, self._latest_us - age_us, self._latest_us),
        )

    def _age_us(self, stamp_us: int) -> int:
        """How old what was stamped then may count as: by the latest wall time that there was, or if the clock was wrong
        that stamped it, from when it was set back, which is when that can be noticed.
        """
        clock, was_shown = self._world.clock, False
        now_us, believed_us = clock.wall_us(), stamp_us
        if not is_ahead(stamp_us, now_us):
            return self._latest_us - stamp_us
        for before_us, after_us in clock.jumps:
            was_shown = was_shown or before_us >= stamp_us
            if was_shown and is_ahead(believed_us, after_us):
                believed_us = after_us
        age_us = now_us - believed_us
        before_us, after_us = clock.jumps[-1] if clock.jumps else (stamp_us, now_us)
        if not is_ahead(stamp_us, before_us) and 0 <= now_us - after_us <= DECIDED_US:
            age_us = max(age_us, before_us - stamp_us)  # it was decided before the clock was set back
        return age_us

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
