"""Things of the wrong kind: a file, a link or a pipe where a folder belongs, or a folder, a link or a pipe where a file
belongs.

Nothing below, or in, them can be read, and nothing can be written there. `verify` names each, and checks the rest as if
there were nothing in that place; repair moves each to quarantine as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from callboard.log.format.committed import COMMITTED_NAME, PUBLISHERS
from callboard.log.format.segment import CATALOG, TOPICS
from callboard.log.journal.journal_floor import DEPTH_MAX, FLOOR_NAME, FLOORS, floor_folder, floored_journals
from callboard.log.offline.inspected_log import Problem, ProblemKind
from callboard.log.seams.disk import Entry, Incarnation
from callboard.log.segments.damage_record import DAMAGES_NAME
from callboard.log.segments.quarantine import ASIDE
from callboard.log.segments.quarantine import DIRECTORY as QUARANTINE
from callboard.log.segments.segment_file import INDEX_SUFFIX, SEGMENT_SUFFIX, base_offset_of
from callboard.log.segments.small_files import listed

ACTORS: Final = "actors/"
"""Where journals of users' actors are, unless they say otherwise."""
JOURNAL: Final = "delivery"
TOPIC: Final = re.compile(r"[0-9a-f]{16}")
PARTITION_KINDS: Final = ("", "delayed-", "outbox-")
"""What precedes the index in the name of a partition's folder."""
PARTITION: Final = re.compile(f"({'|'.join(PARTITION_KINDS)})[0-9]{{1,9}}")
SMALL_FILES: Final = frozenset({COMMITTED_NAME, DAMAGES_NAME})
BESIDE_JOURNALS: Final = frozenset({PUBLISHERS.rpartition("/")[2], "clock"})
"""Small files that lie beside a delivery journal."""

FOLDER: Final = (
    "a file belongs here, and it is a folder: what the file said is gone, and the log cannot be opened. Repair moves"
    " the folder to quarantine"
)
NOT_A_FILE: Final = (
    "a file belongs here, and it is a symbolic link, a pipe or the like, which is not followed: put the file itself"
    " here, or else repair moves what is here to quarantine, and what the file said is lost"
)
NOT_A_FOLDER: Final = (
    "a folder belongs here, and it is a file, a symbolic link or the like: nothing that was in the folder can be read."
    " Put the folder itself here, or else repair moves what is here to quarantine"
)


def is_wrong_file(entry: Entry) -> bool:
    """Whether an entry of a log's folder has the name of a file, and is none."""
    name = entry.name.removesuffix(".new")
    return not entry.is_file and (
        name in SMALL_FILES
        or any(base_offset_of(name, suffix) is not None for suffix in (SEGMENT_SUFFIX, INDEX_SUFFIX))
    )


def is_wrong_beside(entry: Entry) -> bool:
    """Whether an entry of a delivery journal's folder has the name of a file that lies beside it, and is none."""
    return not entry.is_file and entry.name.removesuffix(".new") in BESIDE_JOURNALS


def lies_below(path: str, wrong: Iterable[Problem]) -> bool:
    """Whether something is wrong in the place of the folder `path`, or of one above it."""
    return any(f"{path}/".startswith(f"{problem.path}/") for problem in wrong)


def problem_of(path: str, entry: Entry) -> Problem:
    """What to say of an entry that is no file."""
    if entry.is_directory:
        return Problem(path, ProblemKind.FOLDER, FOLDER)
    return Problem(path, ProblemKind.NOT_A_FILE, NOT_A_FILE)


async def wrong_folders(files: Incarnation) -> list[Problem]:
    """What is in the places of folders, all over the directory, and in those of floors. Raises `StorageError`."""
    found = _FolderCheck(files)
    for name in (CATALOG, TOPICS, ACTORS.rstrip("/"), FLOORS, QUARANTINE):
        await found.expect(name)
    if _named(await found.entries(""), QUARANTINE + ASIDE) is not None:  # a repair was interrupted
        found.report(QUARANTINE + ASIDE)
    for topic in await found.named(TOPICS, TOPIC):
        for partition in await found.named(topic, PARTITION):
            await found.expect(f"{partition}/{JOURNAL}")
    for journal in await floored_journals(files):
        await found.expect(journal)
    for journal in await _folders_below(files, ACTORS.rstrip("/")):
        if any(base_offset_of(entry.name) is not None for entry in await found.entries(journal)):
            await found.expect(floor_folder(journal))
            if not lies_below(floor_folder(journal), found.problems.values()):
                await found.expect_floor(floor_folder(journal))
    return sorted(found.problems.values(), key=lambda problem: problem.path)


class _FolderCheck:
    """Looks at each place once."""

    def __init__(self, files: Incarnation) -> None:
        self._files = files
        self._listed: dict[str, list[Entry]] = {}
        self.problems: dict[str, Problem] = {}

    async def entries(self, folder: str) -> list[Entry]:
        """What is in a folder."""
        if folder not in self._listed:
            self._listed[folder] = await listed(self._files, folder)
        return self._listed[folder]

    async def named(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """The entries of a folder that are folders by their names; those that are none are problems."""
        paths = [
            f"{folder}/{entry.name}" for entry in await self.entries(folder) if pattern.fullmatch(entry.name)
        ]
        for path in paths:
            await self.expect(path)
        return [path for path in paths if path not in self.problems]

    async def expect(self, path: str) -> None:
        """If there is something at the path, or at one above it, it is a folder."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            above, name, here = "/".join(parts[: depth - 1]), parts[depth - 1], "/".join(parts[:depth])
            entry = _named(await self.entries(above), name)
            if entry is not None and not entry.is_directory:
                self.report(here)
            if entry is None or not entry.is_directory:
                return

    def report(self, path: str) -> None:
        """There is something in the place of a folder."""
        self.problems[path] = Problem(path, ProblemKind.NOT_A_FOLDER, NOT_A_FOLDER)

    async def expect_floor(self, folder: str) -> None:
        """If there is something in the place of the floor in a folder, it is a file, or holds a floor of its own."""
        path, entry = f"{folder}/{FLOOR_NAME}", _named(await self.entries(folder), FLOOR_NAME)
        if entry is None or entry.is_file:
            return
        below = await _folders_below(self._files, path) if entry.is_directory else []
        if not any([_named(await self.entries(each), FLOOR_NAME) for each in below]):
            self.problems[path] = problem_of(path, entry)


def _named(entries: Iterable[Entry], name: str) -> Entry | None:
    return next((entry for entry in entries if entry.name == name), None)


async def _folders_below(files: Incarnation, folder: str) -> list[str]:
    """The folder and all folders below it, as deep as logs are looked for."""
    found, pending = list[str](), [folder]
    while pending:
        path = pending.pop()
        found.append(path)
        if path.count("/") < DEPTH_MAX:
            pending += [f"{path}/{entry.name}" for entry in await listed(files, path) if entry.is_directory]
    return found
