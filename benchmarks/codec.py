"""How fast batches become bytes and records again, and how fast a segment is scanned.

Run it as `python benchmarks/codec.py`. Numbers of a shared machine vary by some 30 %: compare within one run only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from callboard.log.format.columns import Columns
from callboard.log.format.compression import NONE, Compression
from callboard.log.format.frame import decode_frame, encode_frame
from callboard.log.format.frame_walk import BEYOND_ALL, EVERYTHING, FrameWalk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, encode_segment_header

SEGMENT = 7
VALUE_BYTES = 100
BATCHES = (1, 10, 100, 1000)
FRAMES = 300_000
ROUNDS = 5
ROUND_S = 0.1


def seconds(work: Callable[[], object]) -> float:
    """The best time of one call over some rounds."""
    began = time.perf_counter()
    work()
    calls = max(1, int(ROUND_S / (time.perf_counter() - began)))
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def rates(count: int, compression: Compression) -> tuple[float, ...]:
    """Microseconds to build, encode, decode lazily, and decode to lists, for a batch of `count`."""
    chance = random.Random(count)
    words = [chance.randbytes(VALUE_BYTES // 4) for _ in range(16)]
    values = [b"".join(chance.choices(words, k=4)) for _ in range(count)]
    keys = [b"key-%05d" % number for number in range(count)]
    columns = Columns.build(values, keys)

    def encode() -> bytes:
        return b"".join(
            encode_frame(
                columns, segment_id=SEGMENT, base_offset=0, append_time_us=0, compression=compression
            )
        )

    frame = encode()

    def decode_to_lists() -> object:
        decoded = decode_frame(frame, 0, SEGMENT)[1]
        return decoded.value_list(), decoded.key_list()

    work: tuple[Callable[[], object], ...] = (
        lambda: Columns.build(values, keys),
        encode,
        lambda: decode_frame(frame, 0, SEGMENT),
        decode_to_lists,
    )
    return tuple(seconds(each) * 1e6 for each in work)


def main() -> None:
    """Print the tables."""
    for compression in (NONE, Compression("zstd"), Compression("gzip")):
        print(f"{VALUE_BYTES} B values, 9 B keys, compression {compression.codec}: microseconds (records/s)")
        print(f"{'batch':>6} {'build':>18} {'encode':>18} {'decode lazily':>18} {'decode to lists':>18}")
        for count in BATCHES:
            cells = (f"{us:8.1f} ({count / us:5.2f} M)" for us in rates(count, compression))
            print(f"{count:>6} " + " ".join(f"{cell:>18}" for cell in cells))
    parts = [encode_segment_header(segment_id=SEGMENT, base_offset=0, created_us=0)]
    columns = Columns.build([bytes(VALUE_BYTES)], [b"key-00000"])
    for offset in range(FRAMES):
        parts += map(
            bytes, encode_frame(columns, segment_id=SEGMENT, base_offset=offset, append_time_us=offset)
        )
    segment = b"".join(parts)
    for check_from in (EVERYTHING, BEYOND_ALL):

        def scan(check_from: int = check_from) -> None:
            walk = FrameWalk(SEGMENT, 0, file_end=len(segment), check_from=check_from)
            walk.feed(memoryview(segment)[SEGMENT_HEADER_BYTES:])

        took = seconds(scan)
        what = "headers only" if check_from else "frames with bodies"
        print(f"scan, {what}: {FRAMES / took / 1e6:.2f} M frames/s of {len(segment) // FRAMES} B")


if __name__ == "__main__":
    main()
