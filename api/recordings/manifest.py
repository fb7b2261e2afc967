"""The manifest of a recording: what it holds, in words and numbers that can be checked.

`recording.json` is written last, and atomically: a folder without it is no recording. It is untrusted when read: every
number is checked before it is used, and names of files come from base offsets, never from text.

Invariants
----------
RM1  In each partition offsets begin with 0, and each segment begins where the one before it ends.
RM2  Sums agree: records and bytes of segments, partitions and the whole; the digest is that of the segments' digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from callboard.log.errors import RecordingInvalid
from callboard.log.format.fields import too_new
from callboard.log.limits import MIB, OFFSET_MAX
from callboard.log.segments.segment_file import base_offset_of, segment_path
from callboard.message import TIME_US_MAX

MANIFEST_NAME: Final = "recording.json"
MANIFEST_FORMAT: Final = "callboard-recording"
MANIFEST_VERSION: Final = 1
MANIFEST_BYTES_MAX: Final = 64 * MIB
PARTITIONS_MAX: Final = 10_000
DIGEST_DIGITS: Final = 64
HEX: Final = frozenset("0123456789abcdef")
TIME_US_MIN: Final = -(2**62)


@attrs.frozen(kw_only=True)
class SegmentRow:
    """One segment of a partition."""

    base_offset: int
    records: int
    size_bytes: int
    """Of the file."""
    sha256: str
    """Of the file, in hexadecimal."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return segment_path("", self.base_offset)[1:]


@attrs.frozen(kw_only=True)
class PartitionRow:
    """One partition. Times are microseconds since 1970, None when it is empty."""

    segments: tuple[SegmentRow, ...] = ()
    payload_bytes: int = 0
    """Of keys, values and headers."""
    first_time_us: int | None = None
    """The earliest time of a record."""
    last_time_us: int | None = None
    """The latest time of a record."""
    is_ordered: bool = True
    """Whether times never fall from one record to the next."""

    @property
    def records(self) -> int:
        """How many records there are: offsets 0 to `records` - 1."""
        return sum(segment.records for segment in self.segments)


@attrs.frozen(kw_only=True)
class Manifest:
    """What a recording holds. `keys` are (how many differ, whether that is exact)."""

    source: Mapping[str, str] = attrs.field(factory=dict)
    """What it was made from, for people."""
    keys: tuple[int, bool] = (0, True)
    partitions: tuple[PartitionRow, ...]
    unknown: Mapping[str, Any] = attrs.field(factory=dict)
    """Optional fields of a newer version, kept."""

    @property
    def records(self) -> int:
        """How many records there are in all."""
        return sum(partition.records for partition in self.partitions)

    @property
    def payload_bytes(self) -> int:
        """The bytes of all keys, values and headers."""
        return sum(partition.payload_bytes for partition in self.partitions)

    @property
    def first_time_us(self) -> int | None:
        """The earliest time of a record; None when there is none."""
        times = [row.first_time_us for row in self.partitions if row.first_time_us is not None]
        return min(times, default=None)

    @property
    def last_time_us(self) -> int | None:
        """The latest time of a record; None when there is none."""
        times = [row.last_time_us for row in self.partitions if row.last_time_us is not None]
        return max(times, default=None)

    @property
    def digest(self) -> str:
        """The recording's id: SHA-256 over the segments' sizes and digests, in order of partition and offset."""
        state = hashlib.sha256()
        for index, partition in enumerate(self.partitions):
            for segment in partition.segments:
                state.update(f"{index}/{segment.name} {segment.size_bytes} {segment.sha256}\n".encode())
        return state.hexdigest()

    def encode(self) -> bytes:
        """The bytes of `recording.json`: equal manifests have equal bytes."""
        found = dict(self.unknown) | {
            "format": MANIFEST_FORMAT,
            "version": MANIFEST_VERSION,
            "source": dict(self.source),
            "records": self.records,
            "payload_bytes": self.payload_bytes,
            "keys": {"distinct": self.keys[0], "is_exact": self.keys[1]},
            "first_time_us": self.first_time_us,
            "last_time_us": self.last_time_us,
            "digest": self.digest,
            "partitions": [
                {
                    "records": row.records,
                    "payload_bytes": row.payload_bytes,
                    "first_time_us": row.first_time_us,
                    "last_time_us": row.last_time_us,
                    "is_ordered": row.is_ordered,
                    "segments": [attrs.asdict(segment) | {"name": segment.name} for segment in row.segments],
                }
                for row in self.partitions
            ],
        }
        return json.dumps(found, indent=1, sort_keys=True).encode() + b"\n"


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest that the file at `path` holds.

    Raises `RecordingInvalid` naming the field that is wrong, and `FormatTooNew`.
    """
    if len(data) > MANIFEST_BYTES_MAX:
        raise _invalid(path, f"it has {len(data)} bytes, a manifest at most {MANIFEST_BYTES_MAX}")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"it is no JSON ({error})") from None
    if type(found) is not dict or found.get("format") != MANIFEST_FORMAT:
        raise _invalid(path, f"its format is not {MANIFEST_FORMAT!r}")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise _invalid(path, "it has no version")
    if version > MANIFEST_VERSION:
        raise too_new(
            f"the recording has version {version}", found=version, supported=MANIFEST_VERSION, path=path
        )
    return _Fields(path, "", found).manifest()


def _invalid(path: str, why: str) -> RecordingInvalid:
    return RecordingInvalid(
        f"{path} is not the manifest of a recording: {why}. Nothing was read."
        " Take another copy, or make the recording again.",
        path=path,
    )


@attrs.frozen
class _Fields:
    """Reads the fields of one object of the manifest, each with its type and range."""

    path: str
    where: str
    found: dict[str, Any]

    def manifest(self) -> Manifest:
        """The whole."""
        partitions = [fields.partition() for fields in self.rows("partitions", PARTITIONS_MAX)]
        source = self.found.get("source", {})
        if type(source) is not dict or any(type(text) is not str for text in source.values()):
            raise self.wrong("source", "an object of texts")
        keys = self.below("keys")
        known = {
            "format",
            "version",
            "source",
            "records",
            "payload_bytes",
            "keys",
            "first_time_us",
            "last_time_us",
        }
        known |= {"digest", "partitions"}
        manifest = Manifest(
            source=source,
            keys=(keys.number("distinct"), keys.flag("is_exact")),
            partitions=tuple(partitions),
            unknown={name: value for name, value in self.found.items() if name not in known},
        )
        for name in ("records", "payload_bytes", "first_time_us", "last_time_us", "digest"):
            if self.found.get(name) != getattr(manifest, name):
                raise self.wrong(name, f"{getattr(manifest, name)!r}, as the partitions say")
        return manifest

    def partition(self) -> PartitionRow:
        """One of `partitions`."""
        segments: list[SegmentRow] = []
        for fields in self.rows("segments", OFFSET_MAX):
            segment = SegmentRow(
                base_offset=fields.number("base_offset"),
                records=fields.number("records"),
                size_bytes=fields.number("size_bytes"),
                sha256=fields.digest("sha256"),
            )
            following = segments[-1].base_offset + segments[-1].records if segments else 0
            if segment.base_offset != following or not segment.records:
                raise fields.wrong("base_offset", f"{following}, with records")
            if base_offset_of(str(fields.found.get("name"))) != segment.base_offset:
                raise fields.wrong("name", repr(segment.name))
            segments.append(segment)
        row = PartitionRow(
            segments=tuple(segments),
            payload_bytes=self.number("payload_bytes"),
            first_time_us=self.time("first_time_us") if segments else None,
            last_time_us=self.time("last_time_us") if segments else None,
            is_ordered=self.flag("is_ordered"),
        )
        if self.number("records") != row.records:
            raise self.wrong("records", f"{row.records}, as the segments say")
        return row

    def rows(self, name: str, most: int) -> Sequence[_Fields]:
        rows = self.found.get(name)
        if type(rows) is not list or len(rows) > most or any(type(row) is not dict for row in rows):
            raise self.wrong(name, f"an array of at most {most} objects")
        return [_Fields(self.path, f"{self.where}{name}[{index}].", row) for index, row in enumerate(rows)]

    def below(self, name: str) -> _Fields:
        found = self.found.get(name)
        if type(found) is not dict:
            raise self.wrong(name, "an object")
        return _Fields(self.path, f"{self.where}{name}.", found)

    def number(self, name: str) -> int:
        found = self.found.get(name)
        if type(found) is not int or not 0 <= found <= OFFSET_MAX:
            raise self.wrong(name, f"a number from 0 to {OFFSET_MAX}")
        return found

    def time(self, name: str) -> int:
        found = self.found.get(name)
        if type(found) is not int or not TIME_US_MIN <= found <= TIME_US_MAX:
            raise self.wrong(name, "a time in microseconds since 1970")
        return found

    def flag(self, name: str) -> bool:
        found = self.found.get(name)
        if type(found) is not bool:
            raise self.wrong(name, "true or false")
        return found

    def digest(self, name: str) -> str:
        found = self.found.get(name)
        if type(found) is not str or len(found) != DIGEST_DIGITS or not HEX.issuperset(found):
            raise self.wrong(name, f"{DIGEST_DIGITS} hexadecimal digits")
        return found

    def wrong(self, name: str, should: str) -> RecordingInvalid:
        return _invalid(
            self.path, f"{self.where}{name} is {self.found.get(name)!r:.60} and should be {should}"
        )
