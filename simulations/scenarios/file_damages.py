"""Damaging any file of a directory at rest: what rots, what people and programs do to files that are not theirs.

`Damaging` in `damaging.py` damages the frames of one partition so that it is known what that costs. Here nothing is
known: journals, the catalog, ends of logs and indexes are changed, cut, moved, copied and put back as they once were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from callboard.log.format.committed import COMMITTED_NAME
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.segments.segment_file import SEGMENT_SUFFIX, base_offset_of
from callboard.simulations.scenarios.draws import between, one_of

if TYPE_CHECKING:
    from callboard.simulations.disk.memory_disk import MemoryDisk
    from callboard.simulations.entropy import SeededEntropy

PLACES: Final = (
    "log",
    "log",
    "delivery",
    "delivery",
    "delivery",
    "catalog",
    "committed",
    "index",
    "actors",
    "",
)
"""Whose file is damaged: parts of its path; "" any."""
KINDS: Final = (
    "flip",
    "flip",
    "flip in header",
    "flip at beginning",
    "zeros at beginning",
    "zeros",
    "zeros",
    "cut",
    "longer",
    "blank",
    "headless",
    "gone",
    "exchanged",
    "misnamed",
    "copied",
    "far",
    "earlier",
    "folder earlier",
    "folder gone",
    "half-made",
)
"""A bit, a bit of a segment's header, a bit or bytes of its first frames, some bytes, the end, bytes behind the end,
all bytes, both copies of the header, a file that is gone, one in place of another, under another name, under two, under
a name far ahead, as it once was, a whole folder as it once was, a folder that is gone, a file that was not finished.
"""
WRONG_PLACES: Final = (
    "file for folder",
    "folder for file",
    "folders exchanged",
    "committed exchanged",
    "folder missing",
)
"""What has the wrong place, or none: a file has that of a folder, a folder that of a file, two folders of logs, or
their files `committed`, have each other's, a folder of a log is gone.
"""
CONTENT: Final = b"what somebody has put here"
"""What is in a file, or a folder, that has another's place."""
FIRST_BYTES: Final = 500
"""Within these lie the first frames of a segment."""
FAR: Final = (10**6, 1 << 40, 1 << 62)


class FileDamaging:
    """Damages the files of a disk. `earlier` are files as they once were, by path."""

    def __init__(self, disk: MemoryDisk, earlier: dict[str, bytes], entropy: SeededEntropy) -> None:
        self._disk = disk
        self._earlier = earlier
        self._entropy = entropy

    def damage(self, kind: str) -> str | None:
        """Damage some file; in words what, or None when there was nothing of that kind."""
        files = self._disk.files()
        files.pop("lock", None)
        place = one_of(self._entropy, PLACES)
        paths = sorted(path for path in files if self._is_in(place, path))
        if not paths:
            return None
        path = one_of(self._entropy, paths)
        folder, _, name = path.rpartition("/")
        if kind.startswith("folder"):
            return self._change_folder(kind, folder, files)
        if kind in ("misnamed", "copied", "far"):
            return self._name(kind, path, folder, name, files)
        if kind == "half-made":
            self._disk.plant_file(f"{path}.new", files[path][: between(self._entropy, 0, len(files[path]))])
            return f"{path}.new was not finished"
        content = self._changed(kind, path, bytearray(files[path]), files)
        if content is None:
            self._remove(path)
        else:
            self._disk.plant_file(path, bytes(content))
        return f"{path}: {kind}"

    @staticmethod
    def _is_in(place: str, path: str) -> bool:
        if place == "log":
            return path.endswith(SEGMENT_SUFFIX) and path.startswith("topics/") and "delivery" not in path
        return place in path

    def _changed(self, kind: str, path: str, content: bytearray, files: dict[str, bytes]) -> bytearray | None:
        """The content after the damage; None when the file goes."""
        entropy, size = self._entropy, len(content)
        at = between(entropy, 0, max(0, size - 1))
        if kind == "flip in header":
            at = between(entropy, 0, max(0, min(size, SEGMENT_HEADER_BYTES) - 1))
        elif kind.endswith("at beginning"):
            at = between(entropy, min(size, SEGMENT_HEADER_BYTES), max(0, min(size, FIRST_BYTES) - 1))
        at = min(at, max(0, size - 1))
        if kind.startswith("flip") and size:
            content[at] ^= 1 << entropy.integer(3)
        elif kind.startswith("zeros"):
            end = min(size, at + one_of(entropy, (8, 64, 512, size)))
            content[at:end] = bytes(end - at)
        elif kind == "cut":
            del content[at:]
        elif kind == "longer":
            content += entropy.bytes(between(entropy, 1, 600))
        elif kind == "blank":
            content[:] = bytes(one_of(entropy, (0, SEGMENT_HEADER_BYTES, size)))
        elif kind == "headless":
            content[:SEGMENT_HEADER_BYTES] = bytes(min(size, SEGMENT_HEADER_BYTES))
        elif kind == "gone":
            return None
        elif kind == "exchanged":
            name = path.rpartition("/")[2]
            content[:] = files[one_of(entropy, sorted(other for other in files if other.endswith(name)))]
        elif kind == "earlier":
            content[:] = self._earlier.get(path, b"")
        return content

    def _name(self, kind: str, path: str, folder: str, name: str, files: dict[str, bytes]) -> str | None:
        """Give a segment another name, or a second one."""
        base = base_offset_of(name)
        if base is None:
            return None
        other = base + (one_of(self._entropy, FAR) if kind == "far" else between(self._entropy, 1, 3))
        if other >= 1 << 63:
            return None
        suffix = name.partition(".")[2]
        target = f"{folder}/{other:0{len(name.partition('.')[0])}}.{suffix}"
        if target in files:
            return None
        self._disk.plant_file(target, files[path])
        if kind == "misnamed":
            self._remove(path)
        return f"{path}: {kind}, {target}"

    def _change_folder(self, kind: str, folder: str, files: dict[str, bytes]) -> str:
        for path in sorted(files):
            if path.rpartition("/")[0] == folder:
                self._remove(path)
        if kind == "folder earlier":
            for path, content in sorted(self._earlier.items()):
                if path.rpartition("/")[0] == folder:
                    self._disk.plant_file(path, content)
        return f"{folder}: {kind}"

    def misplace(self, kind: str) -> list[str]:
        """Put something in a wrong place; returns the places that are to be named as wrong."""
        files = self._disk.files()
        logs = sorted({path.rpartition("/")[0] for path in files if path.endswith(SEGMENT_SUFFIX)})
        of_topics = [log for log in logs if log.startswith("topics/")]
        if not of_topics:
            return []
        match kind:
            case "file for folder":
                parts = one_of(self._entropy, logs).split("/")
                place = "/".join(parts[: between(self._entropy, 1, len(parts))])
                self._drop(place)
                self._disk.plant_file(place, CONTENT)
                return [place]
            case "folder for file":
                place = one_of(
                    self._entropy, sorted(path for path in files if path.rpartition("/")[0] in logs)
                )
                self._drop(place)
                self._disk.plant_file(f"{place}/inside", CONTENT)
                return [place]
            case "folder missing":
                place = one_of(self._entropy, of_topics)
                self._drop(place)
                return [place]
        is_journal = one_of(self._entropy, of_topics).endswith("/delivery")
        alike = [log for log in of_topics if log.endswith("/delivery") == is_journal]
        if is_journal and "catalog" in logs:
            alike.insert(0, "catalog")
        if len(alike) < 2:
            return []
        one = one_of(self._entropy, alike[:-1])
        other = one_of(self._entropy, alike[alike.index(one) + 1 :])
        if kind == "folders exchanged":
            self._exchange(one, other)
            return [one, other]
        one, other = f"{one}/{COMMITTED_NAME}", f"{other}/{COMMITTED_NAME}"
        self._exchange(one, other)
        # A file that says nothing is nobody's.
        return [place for place, content in ((one, files[other]), (other, files[one])) if any(content)]

    def _drop(self, place: str) -> None:
        """Remove a file or a folder with all that is in it, durably."""
        folder, _, name = place.rpartition("/")
        self._disk.tree.directory(folder).change({name: None})
        self._disk.tree.directory(folder).sync()

    def _exchange(self, one: str, other: str) -> None:
        nodes = self._disk.tree.node(other), self._disk.tree.node(one)
        for place, node in zip((one, other), nodes, strict=True):
            folder, _, name = place.rpartition("/")
            self._disk.tree.directory(folder).change({name: node})
            self._disk.tree.directory(folder).sync()

    def _remove(self, path: str) -> None:
        self._disk.tree.unlink(path)
        self._disk.tree.directory(path.rpartition("/")[0]).sync()
