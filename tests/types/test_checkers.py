"""What type checkers tell users: nothing of `right_uses.py`, and each mistake in `wrong_uses.py` on its line.

Both run as a user would run them, away from the project's folder and its settings, on the installed package.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FILES = ("right_uses.py", "wrong_uses.py", "readme.py", "front_page.py")
PAGES = {"readme.py": "README.md", "front_page.py": "docs/index.md"}
"""Their first example."""
MYPY_LINE = re.compile(r"(?P<file>\w+\.py):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]")
MARK = re.compile(r"  # (?P<mypy>[a-z-]+(?:, [a-z-]+)*)(?P<rules>(?:, report\w+)+)$")

Findings = Counter[tuple[int, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two files, where nothing of the project is near."""
    folder = tmp_path_factory.mktemp("program")
    for name in FILES:
        if page := PAGES.get(name):
            text = (HERE.parents[1] / page).read_text(encoding="utf-8")
            (folder / name).write_text(text.split("```python\n", 1)[1].split("```", 1)[0], encoding="utf-8")
        else:
            shutil.copyfile(HERE / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def by_mypy(folder: Path) -> dict[str, Findings]:
    """What `mypy --strict` finds, by file."""
    done = _run(folder, "mypy", "--strict", "--config-file=", *FILES)
    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    told = [(line, MYPY_LINE.match(line)) for line in errors]
    assert [line for line, match in told if match is None] == [], "in another file than ours"
    return _by_file(
        (match["file"], int(match["line"]), match["code"]) for _, match in told if match is not None
    )


@pytest.fixture(scope="module")
def by_basedpyright(folder: Path) -> dict[str, Findings]:
    """What basedpyright finds, in the strict mode that it shares with pyright; by file."""
    settings = {"typeCheckingMode": "strict", "include": list(FILES)}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = _run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    return _by_file(
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["rule"])
        for found in report["generalDiagnostics"]
    )


def _run(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(command)
    done = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1, f"{command} is to find the mistakes: {done.stdout}{done.stderr}"
    return done


def _by_file(found: Any) -> dict[str, Findings]:
    findings: dict[str, Findings] = {name: Counter() for name in FILES}
    for file, line, code in found:
        findings[file][line, code] += 1
    return findings


def _marked(group: str) -> Findings:
    """What the marks of `wrong_uses.py` promise."""
    lines = (HERE / "wrong_uses.py").read_text(encoding="utf-8").splitlines()
    marks = [(number, MARK.search(line)) for number, line in enumerate(lines, 1)]
    return Counter(
        (number, code)
        for number, mark in marks
        if mark is not None
        for code in mark[group].removeprefix(", ").split(", ")
    )


def test_mypy_finds_nothing_in_right_uses(by_mypy: dict[str, Findings]) -> None:
    """A program that uses Callboard as documented passes `mypy --strict`, without casts and ignores."""
    assert by_mypy["right_uses.py"] == Counter()


def test_basedpyright_finds_nothing_in_right_uses(by_basedpyright: dict[str, Findings]) -> None:
    """The same in basedpyright's strict mode: nothing public has a type that is partly unknown."""
    assert by_basedpyright["right_uses.py"] == Counter()


def test_neither_finds_anything_in_the_first_examples(
    by_mypy: dict[str, Findings], by_basedpyright: dict[str, Findings]
) -> None:
    """What the README and the front page show is typed."""
    for name in PAGES:
        assert by_mypy[name] == by_basedpyright[name] == Counter()


def test_mypy_finds_every_wrong_use(by_mypy: dict[str, Findings]) -> None:
    """Each marked line has its error, and no other line has any."""
    assert by_mypy["wrong_uses.py"] == _marked("mypy")


def test_basedpyright_finds_every_wrong_use(by_basedpyright: dict[str, Findings]) -> None:
    """The same by basedpyright's names."""
    assert by_basedpyright["wrong_uses.py"] == _marked("rules")


def test_there_are_marks() -> None:
    """The marks are read: most lines of `wrong_uses.py` have one."""
    assert len(_marked("mypy")) > 30
