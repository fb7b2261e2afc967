"""Whatever is typed, a command answers with one line and a documented exit code, never with a traceback.

The tree of commands is walked, so a new command or option is tested here by itself. Commands run in this process; those
that would work for long are stopped where they have accepted their arguments.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import trio

from callboard.actors.settings import GROUP_FIELDS, TOPIC_FIELDS
from callboard.cli import exits
from callboard.cli.command_line import callboard, run_command_line
from callboard.cli.options import FiniteFloat

LONG = ("bench", "demo", "simulate")
"""Commands that are stopped before their work."""
GIVEN = {
    "consume": ["orders"],
    "dead-letters count": ["orders"],
    "dead-letters list": ["orders"],
    "dead-letters purge": ["orders", "--yes"],
    "dead-letters redrive": ["orders"],
    "delayed cancel": ["orders", "0", "0"],
    "delayed count": ["orders"],
    "delayed list": ["orders"],
    "demo": ["--events=2"],
    "group alter": ["billing", "backoff=5"],
    "group delete": ["billing", "--yes"],
    "group describe": ["billing"],
    "group pause": ["billing"],
    "group reset": ["billing"],
    "group resume": ["billing"],
    "group seek": ["billing", "end"],
    "peek": ["orders"],
    "publish": ["orders", "value"],
    "record": ["--topic=orders", "--out=made"],
    "recording cut": ["recording", "--out=made"],
    "recording head": ["recording"],
    "recording info": ["recording"],
    "recording merge": ["recording", "--out=made"],
    "recording verify": ["recording"],
    "rehearse": ["data", "--topic=orders", "--group=billing", "--handler=json:loads"],
    "replay": ["recording", "--into=data", "--topic=copied"],
    "schedule add": ["orders", "beat", "value", "--every=3600"],
    "schedule next": ["orders", "hourly"],
    "schedule pause": ["orders", "hourly"],
    "schedule remove": ["orders", "hourly"],
    "schedule resume": ["orders", "hourly"],
    "simulate replay": ["recording"],
    "topic alter": ["orders", "retention_age=60"],
    "topic create": ["other"],
    "topic delete": ["orders", "--yes"],
    "topic describe": ["orders"],
    "workload analyse": ["data"],
    "workload compare": ["recording", "recording"],
    "workload generate": ["file", "--out=made"],
    "workload import": ["file", "--out=made"],
    "workload pipeline": ["--out=made"],
    "workload profile": ["recording", "--out=made"],
    "workload rescale": ["recording", "--out=made"],
}
"""What makes sense to each command that must be told something; what is tested comes on top."""
TEXTS = (
    *("", "file", "file/below", "nosuch", "data", "\n", "\t", "[b]", "[/b]", "\udcff", "0" * 5_000),
    *(
        "=,=",
        "-1",
        "0",
        "nan",
        "1/0",
        "1e999999999",
        "9" * 19,
        "9" * 20,
        "x@1,for=1",
        "hot-key@-1,for=inf,share=nan",
    ),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30"),
)
"""What somebody might give for a text. "\\udcff" is a byte that is not UTF-8, as Python takes it from a shell."""
NO_NUMBERS = ("", "x", "1.5.5", "nan", "inf", "-inf", "0x1", "1e400", "\udcff", "\n")
"""What no option and no setting that is a number takes."""
NUMBERS = (*NO_NUMBERS, "-1", "9" * 40, "٣")


class Accepted(Exception):
    """The work would begin now."""


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words it is called by."""
    below: dict[str, click.Command | None] = getattr(command, "below", dict)()
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}
    else:
        yield " ".join(path), command
    for name, inner in below.items():
        assert inner is not None
        yield from commands(inner, *path, name)


COMMANDS = dict(commands(callboard))
OPTIONS = [
    pytest.param(words, parameter, id=f"{words} {parameter.opts[0]}")
    for words, command in COMMANDS.items()
    for parameter in command.params
]


def is_number(parameter: click.Parameter) -> bool:
    """Whether this is a number, for click or in words of its own: `--speed=max`."""
    return parameter.type.name.startswith(("integer", "float")) or parameter.name == "speed"


def bad_values(parameter: click.Parameter) -> list[str]:
    """What may be wrong for a parameter of this type."""
    if getattr(parameter, "is_flag", False):
        return ["x"]
    if isinstance(parameter.type, click.Choice):
        return [*TEXTS, "AUTO"]
    return [*(NUMBERS if is_number(parameter) else TEXTS)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a runtime's directory, a recording and a plain file."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "file").write_bytes(b"this is no recording, no profile and no plan\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for arguments in (
            ["topic", "create", "orders"],
            ["publish", "orders", "a", "b"],
            ["schedule", "add", "orders", "hourly", "value", "--cron=0 * * * *"],
            ["consume", "orders", "--group=billing", "--durable", "--max=1"],
            ["record", "--topic=orders", "--out=recording"],
        ):
            assert run(arguments, patch) == exits.OK, arguments
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it, which is where commands run. Spark is not to be had there."""
    copied = tmp_path / "work"
    shutil.copytree(prepared, copied)
    monkeypatch.chdir(copied)
    monkeypatch.setenv("JAVA_HOME", "/nosuch")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    yield copied
    signal.signal(signal.SIGTERM, before)


def run(arguments: list[str], patch: pytest.MonkeyPatch) -> int:
    """Run a command as its entry point does; its exit code."""
    patch.setattr(sys, "argv", ["callboard", *arguments])
    with open(os.devnull, encoding="utf-8") as nothing, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "stdin", nothing)
        run_command_line()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def check(
    words: str,
    arguments: list[str],
    folder: Path,
    capfd: Any,
    patch: pytest.MonkeyPatch,
    *,
    is_refused: bool = False,
) -> None:
    """Run, and hold it to what this file promises; `is_refused`: before the work begins."""
    before = sorted(folder.iterdir())
    command = [*words.split(), *arguments]
    if words.startswith(LONG):
        patch.setattr(trio, "run", begin)
    try:
        code = run(command, patch)
    except Accepted:
        assert not is_refused, f"{command} was accepted"
        return
    finally:
        said = capfd.readouterr().err
    assert code in exits.MEANINGS, command
    assert "Traceback" not in said, command
    assert code == exits.USAGE or not is_refused, (command, code)
    if code in (exits.FAILED, exits.USAGE):
        line, end = said[:-1], said[-1:]
        assert (end, line.isprintable()) == ("\n", True), (command, said)
    if code == exits.USAGE:
        assert sorted(folder.iterdir()) == before, f"{command} was refused and made something"


def begin(*_arguments: object) -> None:
    raise Accepted


@pytest.mark.parametrize("words", [words for words in COMMANDS if words not in GIVEN])
def test_a_command_that_is_not_listed_here_needs_nothing(words: str) -> None:
    """GIVEN has whatever command must be told something: add yours."""
    assert not any(parameter.required for parameter in COMMANDS[words].params)


@pytest.mark.parametrize(("words", "parameter"), OPTIONS)
def test_a_bad_value_gets_one_line(
    words: str, parameter: click.Parameter, folder: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option of each command with values that are, or may be, wrong for it, beside others that are right."""
    given = GIVEN.get(words, [])
    for value in bad_values(parameter):
        if isinstance(parameter, click.Option):
            arguments = [*given, f"{parameter.opts[-1]}={value}"]
        else:  # in the place of the arguments that are right
            arguments = [*(one for one in given if one.startswith("--")), "--", value, value]
        is_refused = is_number(parameter) and value in NO_NUMBERS
        check(words, arguments, folder, capfd, monkeypatch, is_refused=is_refused)


def test_numbers_with_a_fraction_are_finite() -> None:
    """One type is that of all of them."""
    found = {
        f"{words} {parameter.opts[-1]}": type(parameter.type)
        for words, command in COMMANDS.items()
        for parameter in command.params
        if isinstance(parameter.type, click.types.FloatParamType)
    }
    assert set(found.values()) == {FiniteFloat}, found
    assert "bench --seconds" in found


SETTINGS = [("topic create", ["other"], name) for name in TOPIC_FIELDS]
SETTINGS += [("topic alter", ["orders"], name) for name in TOPIC_FIELDS]
SETTINGS += [("group alter", ["billing"], name) for name in GROUP_FIELDS]
SETTINGS += [("replay", ["recording", "--into=data", "--topic=copied"], name) for name in TOPIC_FIELDS]


@pytest.mark.parametrize(("words", "given", "name"), SETTINGS)
def test_a_bad_setting_gets_one_line(
    words: str, given: list[str], name: str, folder: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting of topics and groups with values that no setting has."""
    kind = (TOPIC_FIELDS | GROUP_FIELDS)[name].kind
    for value in NUMBERS:
        is_refused = kind in ("int", "seconds", "delays") and value in NO_NUMBERS
        check(words, [*given, f"{name}={value}"], folder, capfd, monkeypatch, is_refused=is_refused)


@pytest.mark.parametrize("words", COMMANDS)
def test_what_does_not_fit_gets_one_line(
    words: str, folder: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown option, an option without its value, nothing at all, and a directory that is none."""
    given = GIVEN.get(words, [])
    wrong = [[*given, "--nosuch"], [*given, "--nosuch=\n"], [*given, "-\udcff"], [*given, "x", "y", "z"]]
    valued = [one for one in COMMANDS[words].params if isinstance(one, click.Option) and not one.is_flag]
    wrong += [[*given, option.opts[-1]] for option in valued]
    if words in GIVEN:
        wrong.append([])
    for arguments in wrong:
        check(words, arguments, folder, capfd, monkeypatch)


def test_the_real_command_says_one_line(command: Any) -> None:
    """As the entry point does it: bench in a folder that is missing, an unknown command, an option's bad value."""
    for arguments in (
        ["bench", "--in", "missing/below"],
        ["nosuch"],
        ["topic", "nosuch"],
        ["demo", "--events", "1"],
    ):
        said = command.run(*arguments, code=exits.USAGE).err
        assert (said[:9], said.count("\n")) == ("callboard", 1), said
    assert list(command.folder.iterdir()) == []
