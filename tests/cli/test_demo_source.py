"""The demo's sources and files: the same events each time, bounded lines, records that end in a torn line."""

import bz2
import gzip
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from callboard.demo.files import RecordFile, read_lines, read_record_lines, read_traffic
from callboard.demo.stage import Stage
from callboard.log.errors import InvalidArgument, StorageError
from callboard.traffic import Format, LineColumns, Tally, read_events


def _several(data: bytes) -> bytes:
    """Two Zstandard frames, one behind the other."""
    return zstandard.compress(data[:7]) + zstandard.compress(data[7:])


PACKERS = [bytes, gzip.compress, bz2.compress, zstandard.compress, _several]


@pytest.mark.parametrize("pack", PACKERS[1:])
def test_a_packed_file_that_is_torn_is_told_of(tmp_path, pack):
    """Wherever it ends: nothing is taken for the whole."""
    packed = pack(b"".join(b"%d\n" % number for number in range(3000)))
    for length in (len(packed) - 1, len(packed) // 2):
        path = tmp_path / "torn"
        path.write_bytes(packed[:length])
        with pytest.raises((StorageError, InvalidArgument)):
            list(read_lines(str(path), line_bytes_max=100))


def test_a_small_file_that_unpacks_to_much_is_read_in_pieces(tmp_path):
    """100 MB of zeros in a few kilobytes: no more than some megabytes are in memory at once."""
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstandard.compress(b"x\n" + bytes(100_000_000)))
    with pytest.raises(InvalidArgument, match="zero bytes"):
        list(read_lines(str(path), line_bytes_max=100))
    path.write_bytes(zstandard.compress(b"x\n" * 9000 + b"y" * 100_000_000))
    tracemalloc.start()
    assert len(list(read_lines(str(path), line_bytes_max=100))) == 9001
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()


def _source(path=None, limit=None):
    return Stage(seed=3, path=path, events=limit)


def test_a_synthetic_source_gives_the_same_events_each_time():
    """Parent and child, which both run it, see one and the same day."""
    source = _source(limit=50)
    everything = list(source.traffic())
    assert len(everything) == 50
    assert list(source.traffic(first=20, last=30)) == everything[20:30]
    assert list(source.digests(Tally())) == [event.digest for event in everything]


def test_a_file_is_taken_up_to_the_limit(tmp_path):
    """--events cuts a file short."""
    path = tmp_path / "a.csv"
    path.write_text("time,host\n" + "".join(f"{n},h\n" for n in range(1, 10)))
    assert [event.value for event in _source(str(path), 2).traffic()] == [b"1,h", b"2,h"]


@pytest.mark.parametrize("pack", PACKERS)
def test_long_lines_are_cut_and_the_next_line_is_whole(tmp_path, pack):
    """One byte more than allowed is handed over, the rest of the line is dropped, and reading goes on."""
    path = tmp_path / "lines"
    path.write_bytes(pack(b"ab\n" + b"x" * 1000 + b"\nabcd\n" + b"y" * 7))
    assert list(read_lines(str(path), line_bytes_max=4)) == [b"ab\n", b"xxxxx", b"abcd\n", b"yyyyy"]


def test_a_torn_last_line_of_a_record_is_left_out(tmp_path):
    """What a kill cut off is no fact."""
    path = tmp_path / "records" / "one.txt"
    file = RecordFile(str(path))
    file.write("S 1")
    file.write("P 0 0 1")
    file.close()
    with path.open("ab") as torn:
        torn.write(b"K 0 1")
    assert list(read_record_lines(str(path))) == ["S 1", "P 0 0 1"]


def test_an_array_is_read_as_its_elements_and_lines_as_lines(tmp_path: Path) -> None:
    """However it is packed; blank lines before it do not hide it."""
    array = b'\n[\n  {"a": "]"},\n  {"b": 2}\n]\n'
    (tmp_path / "array.json").write_bytes(array)
    (tmp_path / "array.json.gz").write_bytes(gzip.compress(array))
    for name in ("array.json", "array.json.gz"):
        assert list(read_traffic(str(tmp_path / name))) == [b'{"a": "]"}', b'{"b": 2}']
    (tmp_path / "lines").write_bytes(b'\n\n{"a": 1}\nlast')
    assert list(read_traffic(str(tmp_path / "lines"))) == [b"\n", b"\n", b'{"a": 1}\n', b"last"]
    (tmp_path / "empty").write_bytes(b"")
    assert not list(read_traffic(str(tmp_path / "empty")))


def test_what_is_bad_in_an_array_is_an_element(tmp_path: Path) -> None:
    """Not a line: the array may be laid out in any way."""
    path = tmp_path / "array"
    path.write_bytes(b'[ {"a": 1},\n\n  7, {"a": 2}, 8 ]')
    tally = Tally()
    lines = read_traffic(str(path), tally)
    list(read_events(lines, form=Format.JSONL, columns=LineColumns(time="a"), tally=tally))
    assert (2, 2) == (tally.events, tally.bad)
    assert tally.reasons().startswith("elements 2, 4: ")
