"""What people see on a terminal of 80 columns: tables, bars, sizes."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

from callboard.cli import output
from callboard.cli.bench import Measured, noise
from callboard.cli.files import BareFile
from callboard.log.host.verbs import RWF_DSYNC

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLUMNS = 80


def printed(found: str) -> list[str]:
    """The lines of a terminal's input, each time they are drawn, without colours."""
    return [line.rstrip() for line in CONTROLS.sub("", found).replace("\r", "\n").split("\n")]


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *things: Any) -> list[str]:
    """What `show` prints on a narrow paper."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    output.show(*things)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_json_has_no_numbers_that_are_not_finite() -> None:
    """Strict readers refuse `Infinity` and `NaN`."""
    found = {"a": [math.inf, 1.5, (math.nan,)], "b": {"c": -math.inf, "d": b"x"}}
    assert output.to_json(found) == '{"a": [null, 1.5, [null]], "b": {"c": null, "d": "x"}}'


# -- tables


def test_numbers_stand_to_the_right_and_words_to_the_left(capsys: Any, monkeypatch: Any) -> None:
    """The first column holds words unless others are named."""
    found = output.table(("topic", "records"), [("orders", "12"), ("a", "1,234")], title="all of them")
    assert shown(capsys, monkeypatch, found) == [
        "all of them",
        "topic   records",
        "orders       12",
        "a         1,234",
    ]


def test_a_narrow_terminal_folds_words_and_cuts_nothing(capsys: Any, monkeypatch: Any) -> None:
    """Numbers and the words of heads stay whole at 80 columns; what does not fit in a cell goes on below."""
    name, number = "a-name-" * 20, f"{2**40:,}"
    heads = ("partition", "start offset", "end", "redelivered", "note")
    lines = shown(
        capsys,
        monkeypatch,
        output.table(heads, [(name, number, number, "7", "a remark " * 9)], words=("partition", "note")),
    )
    assert all(len(line) <= COLUMNS for line in lines)
    for word in " ".join(heads).split():
        assert sum(word in line for line in lines[:2]) == 1, word
    assert sum(line.count(number) for line in lines) == 2
    assert "".join(line.split(" ")[0] for line in lines[1:]) == name
    assert "…" not in "".join(lines)


def test_a_narrow_terminal_breaks_no_time(capsys: Any, monkeypatch: Any) -> None:
    """Where words have to be folded, times stay whole."""
    heads, times = (
        ("name", "next", "last", "waits because"),
        ("2026-11-27T13:32:20", "2026-11-27T13:32:20+00:00"),
    )
    row = ("a-name-that-is-long" * 2, *times, "why " * 9)
    lines = shown(capsys, monkeypatch, output.table(heads, [row], words=heads))
    assert all(any(f"{time} " in line for line in lines) for time in times)


def test_a_table_wider_than_the_terminal_is_not_cut(capsys: Any, monkeypatch: Any) -> None:
    """A number that cannot fit goes on below."""
    number = str(2**500)
    lines = shown(capsys, monkeypatch, output.table(("a", "b"), [("x", number)]))
    assert "".join(line.split()[-1] for line in lines[1:]) == number


@pytest.mark.parametrize("told", ["60", "0", "-5", "wide", "", None])
def test_a_pipe_is_as_wide_as_the_environment_says(
    orders: Any, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    """COLUMNS is the width of tables in pipes and files too; where it is no width, lines stay whole."""
    if told is not None:
        monkeypatch.setenv("COLUMNS", told)
    name = "a-topic-with-a-name-that-is-longer-than-most-" + "x" * 60
    orders.run("topic", "create", name)
    lines = orders.run("topic", "list").out.decode().splitlines()
    assert (name in "\n".join(lines)) == (told != "60")
    assert max(map(len, lines)) <= 60 if told == "60" else len(lines) == 3


def test_the_environment_may_be_narrower_than_the_words(orders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command prints what it can."""
    monkeypatch.setenv("COLUMNS", "1")
    assert orders.run("topic", "describe", "orders").out != b""


def test_a_title_is_no_part_of_the_table(capsys: Any, monkeypatch: Any) -> None:
    """A long title does not break at the table's edge."""
    title = "a title that is longer than what it stands above"
    assert shown(capsys, monkeypatch, output.facts([("a", "b")], title=title)) == [title, "a  b"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 << 20, "64 MiB"),
        (10_000_000, "9.5 MiB"),
        (3 << 40, "3 TiB"),
        (1023 << 40, "1,023 TiB"),
        (5000 << 40, "5,000 TiB"),
    ],
)
def test_sizes_are_told_in_units(size: int, text: str) -> None:
    """In powers of 1,024, with one decimal where it says something."""
    assert output.size_text(size) == text


# -- commands


def test_a_topic_is_described_one_setting_per_line(orders: Any) -> None:
    """Each with its value as it can be given, and bytes in larger units too."""
    orders.run("topic", "alter", "orders", "retention_age=90000", "retention_bytes=10000000")
    lines = [line.split() for line in printed(orders.on_terminal("topic", "describe", "orders"))]
    assert ["topic", "orders"] in lines
    assert ["partitions", "2"] in lines
    assert ["segment_bytes", "67108864", "(64", "MiB)"] in lines
    assert ["retention_bytes", "10000000", "(9.5", "MiB)"] in lines
    assert ["retention_age", "90000", "s", "(1", "day", "1", "h)"] in lines
    assert ["segment_age", "none"] in lines


def test_inspecting_commands_fit_a_terminal(orders: Any) -> None:
    """Whole heads and whole numbers at 80 columns, also with a topic whose name is long."""
    long = "a-topic-with-a-name-that-is-longer-than-most-but-still-a-name-of-a-topic-and-goes-on"
    orders.run("topic", "create", long)
    orders.run("publish", "orders", *map(str, range(500)))
    for group in ("billing", "another-group-of-consumers-with-a-long-name"):
        orders.run("consume", "orders", "--group", group, "--durable", "--max", "1")
    for command, heads in {
        (
            "stats",
        ): "partition state start end size commits* failed* lost group floor ready leased lag redelivered"
        " expired",
        ("topic", "list"): "topic partitions records files",
        (
            "topic",
            "describe",
            "orders",
        ): "partition state start end synced to size segments group floor lag",
    }.items():
        lines = printed(orders.on_terminal(*command))
        assert max(map(len, lines)) <= COLUMNS, command
        words = {word for line in lines for word in line.split()}
        assert set(heads.split()) <= words, command
        assert "…" not in "".join(lines)
    assert "500" in {word for line in printed(orders.on_terminal("topic", "list")) for word in line.split()}


def test_a_sweep_shows_bar_rate_and_time(command: Any) -> None:
    """At 80 columns; below the bar is a line of words, whose end may be missing, but not its beginning."""
    lines = printed(
        command.on_terminal("simulate", "publish-and-recover", "plain-actors", "--seeds=12", "--jobs=1")
    )
    bars = [line for line in lines if "sweeping" in line]
    assert max(map(len, bars)) <= COLUMNS
    assert all(re.search(r"━{20,}.* \d+:\d\d:\d\d$", bar) for bar in bars)
    assert "100%" in bars[-1]
    words = [line for line in lines if re.match(r"  \d+/12 seeds, [\d,.]+/s, [\d,]+ faults? hit", line)]
    assert words[-1].startswith("  12/12")
    assert max(map(len, words)) <= COLUMNS


def test_faults_and_points_are_folded(command: Any) -> None:
    """How many were met, and the names of those that were not; with `--verbose` a row for each, and its count."""
    arguments = ("simulate", "plain-actors", "--seeds=3", "--jobs=1", "--fresh")
    lines = command.screen(*arguments)
    assert max(map(len, lines)) <= COLUMNS
    counts = [re.fullmatch(r"faults +(\d+) of (\d+) kinds? hit, [\d,]+ times?", line) for line in lines]
    met, known = next((int(found[1]), int(found[2])) for found in counts if found)
    assert any(line.startswith("points ") for line in lines)
    assert not any(re.match(r"fault [A-Z]", line) for line in lines)
    verbose = command.screen(*arguments, "--verbose")
    rows = [line.split() for line in verbose if re.match(r"fault [A-Z]", line)]
    assert len(rows) == known
    assert sum("never met" not in line for line in verbose if re.match(r"fault [A-Z]", line)) == met
    told = " ".join(lines)
    for row in rows:
        if row[-1] == "met":
            assert row[1].split(":")[-1] in told
    as_json = command.run(*arguments, "--json").json
    assert len(as_json["faults"]) == known


def test_the_bars_of_the_demo_end_full_but_for_the_act_that_is_killed(command: Any) -> None:
    """Each act's bar is about what is to do, and stays when the act is over: full, but for the act that is killed."""
    lines = printed(command.on_terminal("demo", "--events=400"))
    for act in ("act one", "act two", "act three"):
        bars = [line for line in lines if act in line and "━" in line]
        share = int(bars[-1].split()[-2].removesuffix("%"))
        assert (0 < share < 100) if act == "act two" else share == 100, act
    assert "The account balances." in lines
    assert max(map(len, lines)) <= COLUMNS


def test_a_bench_warns_of_noise() -> None:
    """Where the best pair is more than ten times the worst, the median says nothing."""
    quiet = Measured("quiet", 1.0, 1.0, 1.0, 1.0, worst=0.5, best=5.0)
    loud = Measured("loud", 1.0, 1.0, 2.31, 1.0, worst=0.79, best=12.8)
    assert noise([quiet]) is None
    told = noise([quiet, loud])
    assert told is not None
    assert told.startswith("this disk is too noisy to compare")
    assert "in loud." in told


def test_the_bare_file_is_synced_as_callboard_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one call where the system has it: otherwise the two would not be measured alike."""
    if not RWF_DSYNC:
        pytest.skip("the system has no RWF_DSYNC")
    calls: list[int] = []
    write = os.pwritev

    def pwritev(descriptor: int, buffers: Any, offset: int, flags: int = 0) -> int:
        calls.append(flags)
        return write(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)
    assert BareFile(str(tmp_path)).rate(100, 0.01) > 0
    assert set(calls) == {RWF_DSYNC}


def test_a_bench_explains_its_columns(command: Any) -> None:
    """Whoever does not know what is compared reads it below the table."""
    arguments = ("--pairs=1", "--seconds=0.05", "--only=publish_batch of 100")
    lines = printed(command.on_terminal("bench", *arguments))
    assert max(map(len, lines)) <= COLUMNS
    for name in ("msg/s", "append msg/s", "of append", "worst to best", "of overwrite"):
        assert any(line.startswith(f"{name}  ") for line in lines), name


# -- lines


def test_long_lines_are_broken_between_words(capsys: Any, monkeypatch: Any) -> None:
    """On a terminal; indented to where the words of the line began. A command to copy stays whole."""
    command = "  callboard simulate post_office:PostOffice --repro .callboard-simulate/failures/post_office-1.failure"
    story = (
        "What happened:\n >  3      0.000 s  life waits at post_office.py:32 for its runtime to open: async with"
        f" machine.open_runtime() as runtime:\n{command}"
    )
    assert output.folded(story, COLUMNS).split("\n") == [
        "What happened:",
        " >  3      0.000 s  life waits at post_office.py:32 for its runtime to open:",
        "                    async with machine.open_runtime() as runtime:",
        command,
    ]


def test_a_head_is_broken_only_where_the_table_is_too_wide(capsys: Any, monkeypatch: Any) -> None:
    """There is room for the others."""
    found = output.table(("group", "in flight"), [("kitchen", "0")])
    assert shown(capsys, monkeypatch, found) == ["group    in flight", "kitchen          0"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.5, "0.5 s"), (30.0, "30 s"), (300.0, "300 s (5 min)"), (604_800.0, "604800 s (7 days)")],
)
def test_durations_are_told_in_larger_units_too(seconds: float, told: str) -> None:
    """The first number is what the setting is given as."""
    assert output.duration_text(seconds) == told
