"""Callboard's own code, as a file that Spark hands to its workers: they then need not have it installed."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = "callboard"


@contextlib.contextmanager
def shipped(session: SparkSession) -> Iterator[None]:
    """Let the workers of a session run this very version, also where another is installed.

    It is for a session that ends with the block: workers that start later do not find the file any more.
    """
    # A session takes each name once, and may have been given a file of ours before.
    with tempfile.NamedTemporaryFile(prefix=f"{PACKAGE}-", suffix=".zip") as file:
        write_package(file.name)
        session.sparkContext.addPyFile(file.name)
        yield


def write_package(path: str) -> None:
    """Write a zip file from which Python imports this package, for `addPyFile` or `--py-files`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _contents(files(PACKAGE), PACKAGE):
            archive.writestr(name, data)


def _contents(folder: Any, name: str) -> Iterator[tuple[str, bytes]]:
    """All files below a folder, by name, but for what Python has compiled."""
    for entry in sorted(folder.iterdir(), key=lambda entry: str(entry.name)):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _contents(entry, f"{name}/{entry.name}")
        else:
            yield f"{name}/{entry.name}", entry.read_bytes()
