"""Raw traffic becomes a recording: every line is accounted for. Counts of real traffic were taken with awk and wc."""

from __future__ import annotations

import bz2
import gzip
import json
import pathlib
from typing import Any

import pytest
import zstandard

from callboard.log.errors import InvalidArgument, LogCorrupt, RecordingInvalid
from callboard.simulations.workload.importing import import_traffic
from callboard.simulations.workload.storage import recording_rows, told_errors
from callboard.spark.partition_logs import read_manifest
from callboard.traffic.event import LINE_BYTES_MAX
from callboard.traffic.lines import LineColumns
from callboard.traffic.reading import Format, Tally, read_events

NASA_EVENTS = 30_969  # tail -n +2 nasa_19950801.tsv | wc -l
NASA_KEYS = 2_365  # ... | cut -f1 | sort -u | wc -l
NASA_FIRST_US, NASA_LAST_US = 807_256_800_000_000, 807_303_121_000_000  # ... | cut -f3 | sort -n
NASA_VALUE_BYTES = 2_308_189  # ... | tr -d '\n' | wc -c
CODE_EVENTS = 8_819  # grep -c ^2023 AzureLLMInferenceTrace_code.csv
CODE_FIRST_US = 1_700_158_623_979_960  # date -u -d '2023-11-16 18:17:03.979960 UTC' +%s%6N
CONV_EVENTS = 19_366

LINE = b'%b - - [01/Aug/1995:00:00:%02d +0000] "GET /%d HTTP/1.0" 200 7'


def rows_of(spark: Any, recording: pathlib.Path) -> list[tuple[int, bytes | None, bytes]]:
    """Times, keys and values by partition and offset."""
    rows, _ = recording_rows(spark, str(recording))
    found = rows.orderBy("partition", "offset").collect()
    return [(row["timestamp"], row["key"] and bytes(row["key"]), bytes(row["value"])) for row in found]


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def refuse(spark: Any, folder: pathlib.Path, files: list[pathlib.Path], **options: Any) -> str:
    """The message of an import that fails, and leaves nothing."""
    before = sorted(folder.iterdir())
    with pytest.raises(InvalidArgument) as caught:
        import_traffic(spark, list(map(str, files)), str(folder / "refused"), **options)
    assert sorted(folder.iterdir()) == before
    return str(caught.value)


def test_a_web_servers_day_is_imported_whole(
    spark: Any, nasa_log: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Every request of the recorded log is a record, in the order of time, in the partition of its key."""
    out = tmp_path / "nasa"
    report = import_traffic(spark, [str(nasa_log)], str(out), partitions=3)
    assert (report.lines, report.records, report.skipped) == (NASA_EVENTS + 1, NASA_EVENTS, 1)
    assert (report.bad, report.late, report.too_late, report.kept_aside) == (0, 0, 0, None)
    assert report.format == "tsv"
    manifest = read_manifest(str(out))
    assert manifest.records == NASA_EVENTS
    assert manifest.keys == (NASA_KEYS, True)
    assert (manifest.first_time_us, manifest.last_time_us) == (NASA_FIRST_US, NASA_LAST_US)
    assert [row.is_ordered for row in manifest.partitions] == [True] * 3
    assert manifest.digest == report.digest
    lines = nasa_log.read_bytes().splitlines()[1:]
    rows = rows_of(spark, out)
    assert sorted(value for _, _, value in rows) == sorted(lines)
    assert sum(len(value) for _, _, value in rows) == NASA_VALUE_BYTES
    assert list(tmp_path.iterdir()) == [out]


def test_the_division_among_tasks_leaves_no_trace(
    spark: Any, nasa_log: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The bytes of a recording are the same whether a file is read by one task or by twenty."""
    columns = LineColumns(key="referer")
    import_traffic(spark, [str(nasa_log)], str(tmp_path / "one"), partitions=2, columns=columns)
    split = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(split)
    spark.conf.set(split, "120000")
    try:
        import_traffic(spark, [str(nasa_log)], str(tmp_path / "two"), partitions=2, columns=columns)
    finally:
        spark.conf.set(split, before)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_many_files_take_as_many_jobs_as_one(spark: Any, tmp_path: pathlib.Path) -> None:
    """A job or a task costs more than a small file: formats are detected without any, and cores share the files."""
    counts = []
    for many in (2, 100):
        folder = tmp_path / f"files{many}"
        folder.mkdir()
        for number in range(many):
            (folder / f"{number:02}.csv").write_bytes(b"time,key\n%d,a\n%d,b\n" % (number, number + 1))
        files = sorted(map(str, folder.iterdir()))
        before = len(spark.sparkContext.statusTracker().getJobIdsForGroup())
        report = import_traffic(spark, files, str(tmp_path / f"recording{many}"))
        counts.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup()) - before)
        assert (report.files, report.records, report.skipped) == (many, 2 * many, many)
        assert spark.read.text(files).rdd.getNumPartitions() <= spark.sparkContext.defaultParallelism + 1
    assert counts[0] == counts[1] > 0


def test_events_without_keys_are_spread(spark: Any, azure_code: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Of traffic without keys every partition gets a share, and the last line counts although it has no end."""
    report = import_traffic(spark, [str(azure_code)], str(tmp_path / "code"), partitions=4)
    manifest = read_manifest(str(tmp_path / "code"))
    assert (report.records, report.format) == (CODE_EVENTS, "csv")
    assert manifest.first_time_us == CODE_FIRST_US
    assert manifest.keys == (0, True)
    assert all(row.records > CODE_EVENTS // 8 for row in manifest.partitions)


def test_several_files_are_merged_by_time(
    spark: Any, azure_code: pathlib.Path, azure_conv: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Files whose times overlap make one recording in the order of time; none of their lines is late."""
    report = import_traffic(spark, [str(azure_conv), str(azure_code)], str(tmp_path / "both"), window_s=0)
    assert (report.records, report.late, report.too_late) == (CODE_EVENTS + CONV_EVENTS, 0, 0)
    manifest = read_manifest(str(tmp_path / "both"))
    assert [row.is_ordered for row in manifest.partitions] == [True]


def test_bad_and_late_lines_are_accounted_for(spark: Any, tmp_path: pathlib.Path) -> None:
    """Each line is a record, kept aside with its number and a reason, or skipped; bytes stay as they were."""
    lines = [
        LINE % (b"h1", 1, 1),
        b"a broken line",
        b"",
        LINE % (b"h2", 30, 2) + b"\r",
        LINE % (b"h3", 25, 3),
        LINE % (b"h4", 2, 4),
        b"\xff\xfe is no UTF-8",
        LINE.replace(b"GET", b"GET\xe9") % (b"h5", 31, 5),
        b"x" * 70_000,
    ]
    (tmp_path / "odd [1].log").write_bytes(b"\n".join(lines))
    (tmp_path / "empty.log").write_bytes(b"")
    out = tmp_path / "out"
    files = [str(tmp_path / "odd [1].log"), str(tmp_path / "empty.log")]
    report = import_traffic(spark, files, str(out), window_s=10)
    assert (report.lines, report.records, report.skipped) == (9, 4, 1)
    assert (report.bad, report.too_late, report.late, report.latest_late_us) == (3, 1, 1, 28_000_000)
    assert (report.not_utf8, report.files, report.empty_files) == (2, 2, 1)
    assert [value for _, _, value in rows_of(spark, out)] == [lines[0], lines[4], lines[3][:-1], lines[7]]
    aside = [json.loads(line) for line in (tmp_path / "out.bad.jsonl").read_text().splitlines()]
    assert report.kept_aside == str(tmp_path / "out.bad.jsonl")
    assert [line["line"] for line in aside] == [2, 6, 7, 9]
    assert {line["file"] for line in aside} == {files[0]}
    assert aside[0]["text"] == "a broken line"
    assert aside[1]["reason"].startswith("28.000 s later than")
    assert aside[2]["base64"] == "//4gaXMgbm8gVVRGLTg="
    assert aside[3]["reason"] == "longer than 65536 bytes"
    message = refuse(spark, tmp_path, [tmp_path / "odd [1].log"], is_strict=True)
    assert "3 are bad and 2 are late" in message


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("t.csv", b'\xef\xbb\xbfwhen,who,what\r\n13,ann,"a,b"\r\n15,bob,c\r\n', {"time": "when"}),
        ("t.tsv", b"when\twho\twhat\n13\tann\ta,b\n15\tbob\tc\n", {"time": "when"}),
        (
            "t.jsonl",
            b'{"when":13,"who":"ann","what":"a,b"}\n{"when":15.0,"who":"bob","what":"c"}\n',
            {"time": "when"},
        ),
        ("n.csv", b'13,ann,"a,b"\n15,bob,c\n', {"time": "1", "key": "2", "value": "3"}),
    ],
)
def test_columns_are_named(
    spark: Any, tmp_path: pathlib.Path, name: str, content: bytes, options: dict[str, str]
) -> None:
    """Time, key and value come from the columns named, by name or by number, in plain and in packed files."""
    with gzip.open(tmp_path / f"{name}.gz", "wb") as file:
        file.write(content)
    columns = LineColumns(**({"key": "who", "value": "what"} | options))
    report = import_traffic(spark, [str(tmp_path / f"{name}.gz")], str(tmp_path / "out"), columns=columns)
    assert report.bad == 0
    assert rows_of(spark, tmp_path / "out") == [(13_000_000, b"ann", b"a,b"), (15_000_000, b"bob", b"c")]


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"time,user\n13,ann\n15,\n"),
        ("t.jsonl", b'{"time":13,"user":"ann"}\n{"time":15,"user":""}\n'),
    ],
)
def test_records_without_a_key_are_counted(
    spark: Any, tmp_path: pathlib.Path, name: str, content: bytes, keeps: bool
) -> None:
    """An empty key field is no key, unless it is to be one."""
    (tmp_path / name).write_bytes(content)
    columns = LineColumns(key="user", keeps_empty_keys=keeps)
    report = import_traffic(spark, [str(tmp_path / name)], str(tmp_path / "out"), columns=columns)
    assert (report.records, report.keyless, report.bad) == (2, 0 if keeps else 1, 0)
    assert [key for _, key, _ in rows_of(spark, tmp_path / "out")] == [b"ann", b"" if keeps else None]


def test_parquet_is_imported(spark: Any, tmp_path: pathlib.Path) -> None:
    """Rows of Parquet are imported by columns; a row without a time or with too large a key is kept aside."""
    table = [(2.5, "ann", b"\x00\x01"), (None, "bob", b"x"), (1.25, None, b"y"), (3.0, "k" * 1_000_000, b"z")]
    frame = spark.createDataFrame(table, "ts double, user string, body binary").coalesce(1)
    frame.write.parquet(str(tmp_path / "in.parquet"))
    columns = LineColumns(value="Body")
    report = import_traffic(spark, [str(tmp_path / "in.parquet")], str(tmp_path / "out"), columns=columns)
    assert (report.format, report.lines, report.records, report.bad, report.late) == ("parquet", 4, 2, 2, 1)
    assert rows_of(spark, tmp_path / "out") == [
        (1_250_000, None, b"y"),
        (2_500_000, b"ann", b"\x00\x01"),
    ]
    aside = [json.loads(line) for line in (tmp_path / "out.bad.jsonl").read_text().splitlines()]
    assert [(line["line"], line["reason"]) for line in aside] == [
        (2, "the time is null"),
        (4, "the key has 1000000 bytes, more than 65536"),
    ]
    message = refuse(spark, tmp_path, [tmp_path / "in.parquet"], columns=LineColumns(key="host"))
    assert "no column 'host'; there are: ts, user, body" in message


def test_what_cannot_be_imported_is_told(
    spark: Any, azure_code: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Each mistake has its own message, and leaves nothing behind."""
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "header.csv").write_bytes(b"time,key\n\n")
    (tmp_path / "utf16.csv").write_bytes("time,key\n1,a\n".encode("utf-16"))
    (tmp_path / "text.log").write_bytes(b"once upon a time\n")
    (tmp_path / "_hidden.log").write_bytes(b"x\n")
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    assert "holds no lines" in refuse(spark, tmp_path, [tmp_path / "empty.log"])
    assert "only 2 empty lines and headers" in refuse(spark, tmp_path, [tmp_path / "header.csv"])
    assert "zero bytes" in refuse(spark, tmp_path, [tmp_path / "utf16.csv"])
    assert "not recognised" in refuse(spark, tmp_path, [tmp_path / "text.log"])
    assert "rename them" in refuse(spark, tmp_path, [tmp_path / "_hidden.log"])
    assert "there is none" in refuse(spark, tmp_path, [tmp_path / "nothing.log"])
    assert "None of 1 lines" in refuse(spark, tmp_path, [tmp_path / "text.log"], form="common")
    assert "there is no column 'host'" in refuse(
        spark, tmp_path, [azure_code], columns=LineColumns(key="host")
    )
    (tmp_path / "quakes.json").write_bytes(b'{"features": [{"time": 1}, {"time": 2}]}')
    assert "the records in an array, name that: --records" in refuse(
        spark, tmp_path, [tmp_path / "quakes.json"]
    )
    assert "Correct --partitions" in refuse(spark, tmp_path, [azure_code], partitions=0)
    assert "Give --window" in refuse(spark, tmp_path, [azure_code], window_s=float("nan"))
    (tmp_path / "broken.log.gz").write_bytes(gzip.compress(LINE % (b"h", 1, 1) * 500)[:-20])
    assert "broken.parquet cannot be read" in refuse(spark, tmp_path, [tmp_path / "broken.parquet"])
    assert "broken.log.gz cannot be read" in refuse(spark, tmp_path, [tmp_path / "broken.log.gz"])
    (tmp_path / "refused").mkdir()
    assert "is there already" in refuse(spark, tmp_path, [azure_code])


def test_a_damaged_recording_is_not_read(spark: Any, tmp_path: pathlib.Path) -> None:
    """A segment that is missing, shorter, or damaged inside is told by an error of ours, never read as less."""
    (tmp_path / "a.log").write_bytes(b"\n".join(LINE % (b"h", second, second) for second in range(60)))
    out = tmp_path / "out"
    import_traffic(spark, [str(tmp_path / "a.log")], str(out))
    segment = next((out / "0").glob("*.log"))
    content = segment.read_bytes()
    with pytest.raises(RecordingInvalid, match="no recording"):
        read_manifest(str(tmp_path))
    segment.write_bytes(content[:-1])
    with pytest.raises(RecordingInvalid, match="bytes"):
        recording_rows(spark, str(out))
    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(LogCorrupt, match="out/0: offsets 0 to 59 are damaged"), told_errors():
        rows_of(spark, out)


def test_more_formats_are_imported(spark: Any, tmp_path: pathlib.Path) -> None:
    """Virtual hosts by client, syslog, packed files, any delimiter, nested fields; not options that do not fit."""
    vhost = b'shop.example:443 %b - - [01/Aug/1995:00:00:%02d +0000] "GET / HTTP/1.0" 200 7'
    syslog = b"<34>Aug  1 00:00:%02d %b cron[7]: done"
    table = [b"at;who;text"] + [b'80723520%d;k%d;"a;b"' % (number, number) for number in range(5)]
    nested = [b'{"at": {"s": 80723520%d}, "who": {"id": "k%d"}}' % (number, number) for number in range(5)]
    cases: list[tuple[str, list[bytes], str, dict[str, Any]]] = [
        ("vhost.log", [vhost % (b"k%d" % number, number) for number in range(5)], "vhost", {}),
        (
            "sys.log.bz2",
            [syslog % (number, b"k%d" % number) for number in range(5)],
            "syslog",
            {"year": 1995},
        ),
        ("table.csv.gz", table, "csv", {"delimiter": ";", "time": "at", "key": "who"}),
        ("nested.jsonl.zst", nested, "jsonl", {"time": "at.s", "key": "who.id"}),
    ]
    packers = {".bz2": bz2.compress, ".gz": gzip.compress, ".zst": zstandard.compress}
    for name, lines, form, columns in cases:
        path = tmp_path / name
        path.write_bytes(packers.get(path.suffix, bytes)(b"\n".join([*lines, b"", b""])))
        out = tmp_path / f"{name}.recording"
        report = import_traffic(spark, [str(path)], str(out), columns=LineColumns(**columns))
        assert (report.format, report.records, report.bad) == (form, 5, 0)
        assert report.skipped == (2 if form == "csv" else 1)
        assert [key for _, key, _ in rows_of(spark, out)] == [b"k%d" % number for number in range(5)]
        told = refuse(spark, tmp_path, [path], columns=LineColumns(value="nosuch", year=1995, delimiter=";"))
        assert "is for" in told
    told = refuse(spark, tmp_path, [tmp_path / "sys.log.bz2"])
    assert told.count("the time has no year") == 5
    assert "line 1: the time has no year" in told


def test_zstandard_beside_plain_files(spark: Any, tmp_path: pathlib.Path) -> None:
    """A packed file gives what it gives unpacked, beside others; one that is damaged or too large is named."""
    lines = [LINE % (b"h%d" % (second % 7), second % 60, second) for second in range(3_000)]
    text = b"\n".join(sorted(lines, key=lambda line: line.split(b" ")[3]))
    (tmp_path / "a.log").write_bytes(text)
    (tmp_path / "b.log").write_bytes(text)
    import_traffic(spark, [str(tmp_path / "a.log"), str(tmp_path / "b.log")], str(tmp_path / "plain"))
    (tmp_path / "b.log").unlink()
    frames = zstandard.compress(text[:50_000]) + zstandard.compress(text[50_000:])
    (tmp_path / "b.log.zst").write_bytes(frames)
    import_traffic(spark, [str(tmp_path / "a.log"), str(tmp_path / "b.log.zst")], str(tmp_path / "packed"))
    assert rows_of(spark, tmp_path / "packed") == rows_of(spark, tmp_path / "plain")
    (tmp_path / "broken.log.zst").write_bytes(frames[:-20])
    assert "broken.log.zst cannot be read" in refuse(spark, tmp_path, [tmp_path / "broken.log.zst"])
    (tmp_path / "text.log.zst").write_bytes(text)
    assert "text.log.zst cannot be read" in refuse(spark, tmp_path, [tmp_path / "text.log.zst"])
    with (tmp_path / "large.log.zst").open("wb") as large:
        large.truncate(129 * 2**20)
    assert "Unpack it (zstd -d)" in refuse(spark, tmp_path, [tmp_path / "large.log.zst"])


def test_json_arrays_are_imported(spark: Any, tmp_path: pathlib.Path) -> None:
    """Elements are records, however the array is laid out or packed, and beside lines; each bad one has its number."""
    texts = ["[1]", 'a "quoted" ]', "two\nlines", "\u20ac"]
    events = [{"time": 10 + second, "id": f"k{second}", "text": text} for second, text in enumerate(texts)]
    wide = json.dumps(events[:3])[:-1] + f', 5, , {{"time": 1, "text": "{"x" * 70_000}"}}, {{"id": "k"}}] end'
    contents = {
        "a.json": b"\xef\xbb\xbf\n \n" + json.dumps(events, indent=2, ensure_ascii=False).encode(),
        "b.json.gz": gzip.compress(wide.encode()),
        "c.json.bz2": bz2.compress(b"[]"),
        "d.json.zst": zstandard.compress(json.dumps(events).encode()),
        "e.jsonl": b"\n".join(json.dumps(event).encode() for event in events),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    out = tmp_path / "out"
    report = import_traffic(
        spark, [str(tmp_path / name) for name in contents], str(out), columns=LineColumns(value="text")
    )
    assert (report.format, report.records, report.bad, report.skipped) == ("jsonl", 15, 4, 1)
    assert (report.lines, report.files, report.empty_files, report.not_utf8) == (20, 5, 1, 0)
    assert rows_of(spark, out) == sorted(
        [
            (event["time"] * 1_000_000, event["id"].encode(), event["text"].encode())
            for event in [*events * 4]
            if event["time"] < 13
        ]
        + [(13_000_000, b"k3", "\u20ac".encode())] * 3
    )
    aside = [json.loads(line) for line in (tmp_path / "out.bad.jsonl").read_text().splitlines()]
    assert [(line["line"], line["reason"]) for line in aside] == [
        (4, "not a JSON object"),
        (6, f"longer than {LINE_BYTES_MAX} bytes"),
        (7, "no time field"),
        (8, "not JSON: Expecting value, at character 1"),
    ]
    assert {line["file"] for line in aside} == {str(tmp_path / "b.json.gz")}
    told = refuse(spark, tmp_path, [tmp_path / "a.json"], form="common")
    assert "None of" in told
    (tmp_path / "broken.json.gz").write_bytes(gzip.compress(b"[\n" + b"{},\n" * 500)[:-8])
    assert "broken.json.gz cannot be read" in refuse(spark, tmp_path, [tmp_path / "broken.json.gz"])
    split = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(split)
    (tmp_path / "f.json").write_text(
        json.dumps([event | {"time": 1 + n} for n in range(500) for event in events])
    )
    import_traffic(spark, [str(tmp_path / "f.json")], str(tmp_path / "once"))
    spark.conf.set(split, "9000")
    try:
        report = import_traffic(spark, [str(tmp_path / "f.json")], str(tmp_path / "divided"))
    finally:
        spark.conf.set(split, before)
    assert (report.records, report.late) == (2_000, 0)
    assert files_of(tmp_path / "once") == files_of(tmp_path / "divided")


def test_csv_with_line_breaks_between_quotes_is_imported_as_the_demo_reads_it(
    spark: Any, tmp_path: pathlib.Path
) -> None:
    """Records of several lines have the number of their first line, however Spark divides the file; quotes that are
    never closed spoil one line.
    """
    lines = [b"time;key;text\r\n"]
    for second in range(1_500):
        text = (b'"a;""b""\r\n\r\n%d;c;d"', b'5" pipe', b'"one; line"')[second % 3] % (
            (second,) if second % 3 == 0 else ()
        )
        lines += (b"%d;k%d;%s\r\n" % (second, second % 7, text)).splitlines(keepends=True)
    lines += [b'1500;k;"open\n', b"1501;k;behind\n", b"no fields\n"]
    columns = LineColumns(value="text", delimiter=";")
    tally = Tally()
    events = [
        (event.time_us, event.key, event.value)
        for event in read_events(lines, form=Format.CSV, columns=columns, tally=tally)
    ]
    assert (len(events), tally.bad) == (1_501, 2)
    (tmp_path / "a.csv").write_bytes(b"".join(lines))
    (tmp_path / "b.csv").write_bytes(b'time;key;text\n2000;k;"closed"\n')
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    report = import_traffic(spark, files, str(tmp_path / "one"), partitions=2, columns=columns)
    assert (report.records, report.bad, report.skipped, report.lines) == (1_502, 2, 2, 1_506)
    assert sorted(rows_of(spark, tmp_path / "one")) == [*events, (2_000_000_000, b"k", b"closed")]
    aside = [json.loads(line) for line in (tmp_path / "one.bad.jsonl").read_text().splitlines()]
    assert [(line["line"], line["reason"]) for line in aside] == tally.named
    split = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(split)
    spark.conf.set(split, "9000")
    try:
        import_traffic(spark, files, str(tmp_path / "two"), partitions=2, columns=columns)
    finally:
        spark.conf.set(split, before)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.csv.zst").write_bytes(zstandard.compress(b"".join(lines)))
    packed = [str(tmp_path / "a.csv.zst"), files[1]]
    import_traffic(spark, packed, str(tmp_path / "packed"), partitions=2, columns=columns)
    assert rows_of(spark, tmp_path / "packed") == rows_of(spark, tmp_path / "one")
