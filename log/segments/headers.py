"""What the headers of all files in a folder that are named like segments say."""

from __future__ import annotations

from collections.abc import Mapping

from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    belongs_to,
    decode_segment_header,
)
from callboard.log.seams.disk import Close, Incarnation, Open
from callboard.log.segments.open_segment import frames_end
from callboard.log.segments.placing import passed_over
from callboard.log.segments.segment_file import segment_path


def is_blank(head: bytes, size_bytes: int) -> bool:
    """Whether a file of that size which begins with `head` holds nothing."""
    return size_bytes <= SEGMENT_HEADER_BYTES and not any(head)


async def read_headers(
    files: Incarnation, directory: str, sizes: Mapping[int, int]
) -> tuple[dict[int, SegmentHeader | None], list[int]]:
    """What the headers of the files of these `sizes` say, None where they cannot be read; and which files are blank.

    All are named by the offset in their name. Raises `PlanFailed`, `FormatTooNew`.
    """
    headers: dict[int, SegmentHeader | None] = {}
    blanks: list[int] = []
    for name, size_bytes in sizes.items():
        handle = files.handle(segment_path(directory, name))
        await files.submit((Open(handle),))
        try:
            data = await files.read(handle, 0, SEGMENT_HEADER_BYTES)
            if is_blank(data, size_bytes):
                blanks.append(name)
                continue
            headers[name] = None
            headers[name] = decode_segment_header(data)
        except SegmentHeaderInvalid:
            pass
        finally:
            await files.submit((Close(handle),))
    return headers, blanks


async def holds_another(files: Incarnation, directory: str, sizes: Mapping[int, int]) -> bool:
    """Whether there are segments in a folder, all can be read, and all belong to other logs."""
    headers, _ = await read_headers(files, directory, sizes)
    known = [header for header in headers.values() if header is not None]
    return len(known) == len(headers) > 0 and not any(belongs_to(header, directory) for header in known)


async def find_covered(
    files: Incarnation, headers: Mapping[int, SegmentHeader | None], paths: Mapping[int, str]
) -> set[int]:
    """The files of a partition, by base offset, that have nothing but a name, and no place in the log.

    No offset is used twice: what the segment before holds from that name on is in the log, and the file is not.
    `paths` are those of all files by base offset, whatever their names. Raises `PlanFailed`.
    """
    found = passed_over(headers)
    before: SegmentHeader | None = None
    end: int | None = None
    for base in sorted(headers):
        header = headers[base]
        if header is not None:
            before, end = header, None
        elif before is not None and base not in found:
            if end is None:
                end = await frames_end(files, paths[before.base_offset], before)
            if end > base:
                found.add(base)
    return found
