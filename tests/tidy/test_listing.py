"""Which files the tidy tests look at."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.tidy.conftest import files_of


def test_what_commands_have_made_in_a_clone_is_no_part_of_the_project(tmp_path: Path) -> None:
    """New files in the project's folders are looked at before they are added; a folder of the user's own is not."""
    names = (
        "log/old.py",
        "log/deep/new.py",
        "made/traffic/part.txt",
        "top.toml",
        "ignored.pyc",
        ".gitignore",
    )
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("*.pyc\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "log/old.py", "top.toml"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert files_of(tmp_path) == {"log/old.py", "log/deep/new.py", "top.toml"}
