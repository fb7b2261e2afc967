"""What commands say when something is wrong: in commands, all of it at once, and where options stand."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.cli.hints import as_commands
from callboard.cli.interruption import telling_end


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Create it with create_topic.", "Create it with `callboard topic create`."),
        (
            "Create it: await runtime.create_topic('returns'). Nothing was changed.",
            "Create it: `callboard topic create returns`. Nothing was changed.",
        ),
        (
            "await runtime.alter_topic('a', dedup_window=3600).",
            "`callboard topic alter a dedup_window=3600`.",
        ),
        ("`Group.describe` tells what it reads.", "`callboard group describe` tells what it reads."),
        (
            "await runtime.group('a').delete(drop_dead_letters=True).",
            "`callboard group delete a --drop-dead-letters`.",
        ),
        ("name another with runtime.group('a').alter.", "name another with `callboard group alter a`."),
        (
            "`groups()`, and `callboard group list`, tell which there are.",
            "`callboard group list` shows which there are.",
        ),
        ("there is no topic 'alter_topic'", "there is no topic 'alter_topic'"),
    ],
)
def test_calls_become_commands(error: str, told: str) -> None:
    """With their arguments; names in quotes stay."""
    assert as_commands(error) == told


def test_errors_name_commands(orders: Any) -> None:
    """Of topics that differ: also that partitions are never altered."""
    fixed = orders.run("topic", "create", "orders", "partitions=4", code=1).err
    assert "partitions is 2, which cannot be changed." in fixed
    assert "alter" not in fixed
    other = orders.run("topic", "create", "orders", "retention_age=77", code=1).err
    assert "`callboard topic alter orders retention_age=77.0` changes them; or name no settings." in other
    lost = orders.run("group", "alter", "nosuch", "max_in_flight=5", code=1).err
    assert "`callboard group list` shows which there are." in lost


def test_all_mistakes_of_settings_are_told_at_once(command: Any) -> None:
    """Those of form beside those of names and values."""
    told = command.run("topic", "create", "x", "partitions=0", "foo=3", "retention", code=2).err
    for part in ("'retention' is not of the form name=value", "partitions is 0", "unknown setting 'foo'"):
        assert part in told
    assert "unknown setting 'foo'" in command.run("group", "alter", "g", "foo=3", "x", code=2).err


def test_a_topic_that_is_made_is_told_from_one_that_was_there(command: Any) -> None:
    """For people and scripts."""
    assert b"topic orders is created" in command.run("topic", "create", "orders").out
    assert b"topic orders was there already" in command.run("topic", "create", "orders").out
    assert command.run("topic", "create", "orders", "--json").json["created"] is False
    assert command.run("topic", "create", "others", "--json").json["created"] is True


def test_an_option_before_its_command_is_told_its_place(command: Any) -> None:
    """-d stands behind the command."""
    assert "`callboard COMMAND -d DIRECTORY`" in command.run("-d", "data", "stats", code=2).err
    assert "`callboard topic COMMAND --json`" in command.run("topic", "--json", "list", code=2).err


def test_a_place_beyond_the_end_is_told(orders: Any) -> None:
    """Nothing is printed, and why."""
    told = orders.run("peek", "orders", "--from", "999")
    assert (told.out, told.err) == (b"", "orders/0 ends before offset 999: its next offset is 0\n")


def test_options_that_a_mode_does_not_take_are_refused(command: Any) -> None:
    """Instead of being ignored."""
    told = command.run("simulate", "plain-actors", "--seeds", "3", "--prove", "log sync", code=2).err
    assert "--prove takes no SCENARIO and no --seeds. Nothing was run." in told
    told = command.run("simulate", "plain-actors", "--exhaustive", "1", code=2).err
    assert "--exhaustive takes no SCENARIO." in told
    told = command.run("recording", "cut", "a", "--out", "b", "--to", "yesterday", code=2).err
    assert "is no instant such as" in told
    assert "offset" not in told


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("topc", "list"), "Did you mean 'topic'?"),
        (("topic", "lst"), "Did you mean 'list'?"),
        (("dead-letters", "redrve"), "Did you mean 'redrive'?"),
        (("zzz",), "`callboard --help` lists them."),
        (("simulate", "delivries"), "Did you mean deliveries?"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(command: Any, typed: Any, meant: str) -> None:
    """Of a command, of one in a group of commands, and of a scenario."""
    assert meant in command.run(*typed, code=2).err


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("--folow", "No such option '--folow'. Did you mean '--follow'?"),
        ("--count", "No such option '--count'. See `callboard consume --help`."),
    ],
)
def test_an_option_is_meant_when_the_names_are_alike(command: Any, typed: str, told: str) -> None:
    """The dashes, which all of them have, are no part of a name."""
    assert told in command.run("consume", "orders", typed, code=2).err


def test_bad_lines_of_traffic_have_one_number_each(command: Any) -> None:
    """JSON's own count of lines, which is always 1, is left out."""
    (command.folder / "bad.jsonl").write_bytes(b'{"time": 1}\n{"time": 2,\nnojson\n{"time": 1}\n')
    told = command.run("demo", "--input", "bad.jsonl", "--value-column", "zzz", code=2).err
    assert "lines 1, 4: no field 'zzz' for the value" in told
    assert "line 3: not JSON: Expecting value, at character 1" in told


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(130), SystemExit(143)])
def test_a_command_that_is_interrupted_says_so(
    capsys: pytest.CaptureFixture[str], ending: BaseException
) -> None:
    """It has nothing else to show for it; the exit code stays."""
    with pytest.raises(type(ending)), telling_end("the demo"):
        raise ending
    assert capsys.readouterr().err == "callboard: the demo was interrupted\n"
