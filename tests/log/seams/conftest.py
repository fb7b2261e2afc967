"""All disks, so that one contract suite runs on each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard.log.host.disk import HostDisk
from callboard.log.host.overlay_disk import OverlayDisk
from callboard.simulations.disk.memory_disk import MemoryDisk

KINDS = ("host", "host-inline", "host-unfused", "memory", "overlay")


@pytest.fixture(params=KINDS)
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """An empty, unlocked disk of each kind, closed at the end; the real one's root exists."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    made: Any
    match request.param:
        case "host":
            made = HostDisk(root)
        case "host-inline":
            made = HostDisk(root, inline=True)
        case "host-unfused":
            made = HostDisk(root, fuse=False)
        case "overlay":
            made = OverlayDisk(HostDisk(root, read_only=True))
        case _:
            made = MemoryDisk()
    yield made
    await made.aclose()


@pytest.fixture
async def life(disk: Any) -> Any:
    """One owner's incarnation on an empty disk."""
    return await disk.incarnate("owner")
