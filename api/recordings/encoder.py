"""From batches of columns to the files of one partition of a recording. Does no I/O: it says what to write.

The bytes depend on the batches, the partition and the seed alone: the same batches give the same files, wherever and
however often they are made. How records are cut into batches is part of that.

The writer of the files carries out what `add` and `finish` return, in order: `Begin` opens a file of that name in the
partition's folder, `Append` adds bytes to it, `Whole` is a file of its own.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import attrs

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.log.format.committed import COMMITTED_NAME, encode_committed
from callboard.log.format.compression import NONE, Compression
from callboard.log.format.frame import encode_frame
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import encode_segment_header
from callboard.log.limits import SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from callboard.log.seams.disk import Buffer
from callboard.log.segments.index_file import new_index
from callboard.log.segments.segment_file import index_path, segment_path
from callboard.recordings.key_count import KeyCount
from callboard.recordings.manifest import PartitionRow, SegmentRow
from callboard.recordings.tally import PartitionTally

SEGMENT_ID_BYTES: Final = 8


class Begin(NamedTuple):
    """Open a new file of this name; what follows is appended to it."""

    name: str


class Append(NamedTuple):
    """Append the buffers to the file that was begun last."""

    buffers: list[Buffer]


class Whole(NamedTuple):
    """Write a file of this name, whole."""

    name: str
    data: bytes


Output = Begin | Append | Whole


@attrs.define(eq=False)
class _Segment:
    """The segment in hand."""

    base_offset: int
    index: SegmentIndex
    sha256: hashlib._Hash


class PartitionEncoder:
    """Encodes one partition. `seed` distinguishes recordings whose records are the same."""

    def __init__(
        self,
        partition: int,
        *,
        seed: str = "",
        segment_bytes: int = SEGMENT_BYTES_DEFAULT,
        compression: Compression = NONE,
    ) -> None:
        if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX:
            raise InvalidArgument(
                f"segment_bytes is {segment_bytes}, not from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}."
            )
        self.partition = partition
        self.keys = KeyCount()
        self.next_offset = 0
        self._seed = seed
        self._segment_bytes = segment_bytes
        self._compression = compression
        self._segment: _Segment | None = None
        self._segments: list[SegmentRow] = []
        self._tally = PartitionTally()

    @property
    def row(self) -> PartitionRow:
        """The partition's row of the manifest, once it is finished."""
        return PartitionRow(segments=tuple(self._segments), **self._tally.fields())

    def add(self, columns: Columns) -> list[Output]:
        """Append a batch as one frame. Its offsets are given anew; its append times are kept.

        Raises `InvalidArgument` for a batch that is too large for a frame.
        """
        if not columns.count:
            return []
        if columns.offset_deltas is not None or columns.span != columns.count - 1:
            columns = attrs.evolve(columns, offset_deltas=None, span=columns.count - 1)
        outputs: list[Output] = []
        segment = self._segment
        if segment is not None and segment.index.end_position >= self._segment_bytes:
            outputs += self._seal(segment)
            segment = None
        if segment is None:
            segment = self._begin(columns.append_time_us, outputs)
        frame = encode_frame(
            columns,
            segment_id=segment.index.segment_id,
            base_offset=self.next_offset,
            append_time_us=columns.append_time_us,
            compression=self._compression,
        )
        for buffer in frame:
            segment.sha256.update(buffer)
        index, last = segment.index, self.next_offset + columns.span
        appended = columns.append_times
        latest = columns.append_time_us if appended is None else max(appended)
        size = sum(map(len, frame))
        index.note(index.end_position, size, self.next_offset, last, columns.count, latest)
        self.next_offset = last + 1
        self._tally.add(columns)
        self.keys.add(columns.key_list())
        outputs.append(Append(frame))
        return outputs

    def finish(self) -> list[Output]:
        """Seal the last segment, and name the partition's end. An empty partition has its `committed` file only."""
        outputs: list[Output] = [] if self._segment is None else self._seal(self._segment)
        outputs.append(Whole(COMMITTED_NAME, encode_committed(self.next_offset, self.next_offset)))
        return outputs

    def _begin(self, created_us: int, outputs: list[Output]) -> _Segment:
        base = self.next_offset
        named = f"{self._seed}/{self.partition}/{base}".encode()
        digest = hashlib.blake2b(named, digest_size=SEGMENT_ID_BYTES).digest()
        segment_id = int.from_bytes(digest, "little") or 1
        header = encode_segment_header(
            segment_id=segment_id,
            base_offset=base,
            created_us=created_us,
            previous_base=self._segments[-1].base_offset if self._segments else None,
        )
        outputs += Begin(segment_path("", base)[1:]), Append([header])
        self._segment = _Segment(base, new_index(segment_id, base), hashlib.sha256(header))
        return self._segment

    def _seal(self, segment: _Segment) -> list[Output]:
        index = segment.index
        index.sealed = True
        self._segments.append(
            SegmentRow(
                base_offset=segment.base_offset,
                records=index.records,
                size_bytes=index.end_position,
                sha256=segment.sha256.hexdigest(),
            )
        )
        self._segment = None
        return [Whole(index_path("", segment.base_offset)[1:], index.encode())]
