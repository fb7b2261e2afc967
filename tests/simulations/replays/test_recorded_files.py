"""The files of a recording inside a run: read as they are, and never changed."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.log.errors import PlanFailed, StorageError
from callboard.log.seams.disk import Create, Open, Unlink, Write
from callboard.simulations.replays import files
from callboard.simulations.replays.files import RecordedFiles


async def test_files_are_read_and_listed(tmp_path: Any, monkeypatch: Any) -> None:
    """However many there are, a few are open."""
    monkeypatch.setattr(files, "OPEN_MAX", 2)
    for number in range(5):
        (tmp_path / f"f{number}").write_bytes(b"%d" % number * 10)
    (tmp_path / "folder").mkdir()
    found = RecordedFiles(str(tmp_path))
    for number in (0, 1, 2, 3, 4, 0):
        handle = found.handle(f"f{number}")
        await found.submit((Open(handle),))
        assert await found.size(handle) == 10
        assert await found.read(handle, 8, 10) == b"%d" % number * 2
        assert found.read_cached(handle, 0, 1) is None
    names = [(entry.name, entry.is_directory) for entry in await found.list("")]
    assert names == [*((f"f{number}", False) for number in range(5)), ("folder", True)]
    assert await found.list("nowhere") == []
    found.close()


@pytest.mark.parametrize("verb", [Create, lambda handle: Write(handle, 0, (b"x",)), lambda _: Unlink("f")])
async def test_nothing_is_changed(tmp_path: Any, verb: Any) -> None:
    """Every verb but opening and closing is refused."""
    (tmp_path / "f").write_bytes(b"whole")
    found = RecordedFiles(str(tmp_path))
    with pytest.raises(PlanFailed, match="only read"):
        await found.submit((verb(found.handle("f")),))
    assert (tmp_path / "f").read_bytes() == b"whole"
    with pytest.raises(StorageError):
        await found.mark("f", 5)
    assert await found.free_bytes() == 0


async def test_what_is_missing_is_told(tmp_path: Any) -> None:
    """As on any disk."""
    found = RecordedFiles(str(tmp_path))
    with pytest.raises(PlanFailed) as caught:
        await found.submit((Open(found.handle("f")),))
    assert isinstance(caught.value.error, FileNotFoundError)
