"""What may not be in the repository at all: big files, names of machines, names of package registries."""

from __future__ import annotations

import re
from typing import Any

FILE_BYTES_MAX = 1_000_000

# The names have a gap each, so that this file passes its own test.
REGISTRIES = re.compile(r"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|crates[.]io")
MACHINE_PATHS = re.compile(r"(?<![\w./$}-])/(?:root|work|home|Users)[/](?=\w)")
LOCK_FILES = {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"}


def _is_binary(path: str, content: bytes) -> bool:
    return b"\0" in content[:8192] or path.endswith(".bin")


def _matches(house: Any, pattern: re.Pattern[str]) -> list[str]:
    problems = []
    for path in house.files:
        content = (house.root / path).read_bytes()
        if not _is_binary(path, content):
            lines = content.decode("utf-8").splitlines()
            problems += [
                f"{path}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if pattern.search(line)
            ]
    return problems


def test_no_file_is_big(house: Any) -> None:
    """No file is larger than 1 MB: recorded traffic and build results live elsewhere."""
    sizes = {path: (house.root / path).stat().st_size for path in house.files}
    problems = [f"{path}: {size} bytes" for path, size in sizes.items() if size > FILE_BYTES_MAX]
    house.demand_none(problems)


def test_no_registry_is_named(house: Any) -> None:
    """Where packages come from is the user's business: no file names a registry's host, and none is a lock file."""
    problems = _matches(house, REGISTRIES)
    problems += [path for path in house.files if path.rpartition("/")[2] in LOCK_FILES]
    house.demand_none(problems)


def test_no_machine_is_named(house: Any) -> None:
    """No file holds a path that exists on one machine only."""
    problems = _matches(house, MACHINE_PATHS)
    house.demand_none(problems)


def test_text_files_end_with_a_newline_and_have_no_trailing_space(house: Any) -> None:
    """Text ends with one newline, and no line ends with a space."""
    problems = []
    for path in house.files:
        content = (house.root / path).read_bytes()
        if content and not _is_binary(path, content):
            if not content.endswith(b"\n") or content.endswith(b"\n\n"):
                problems.append(f"{path}: its end")
            spaced = [
                n for n, line in enumerate(content.split(b"\n"), 1) if line.endswith((b" ", b"\t", b"\r"))
            ]
            problems += [f"{path}:{number}: trailing space" for number in spaced]
    house.demand_none(problems)
