"""What the directory knows of a partition, and the address by which all reach it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from callboard.actors.catalog.commands import PartitionStands
from callboard.actors.catalog.partition_view import PartitionView
from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import ActorSystem, MailboxSpec, notify_all
from callboard.actors.partition.commands import FilesOpened, OpeningWaits, StateChanged
from callboard.log.errors import DiskFull, StorageError
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


def port_and_cell() -> tuple[PartitionPort, Any]:
    """A partition that is not started."""
    system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
    ref = system.register("orders/0", MailboxSpec(1))
    return PartitionPort("orders", "t1", 0, ref, holds="outbox"), ref._cell


def test_a_port_never_changes() -> None:
    """It is an address: what the partition does is heard from it."""
    port, _ = port_and_cell()
    for field in attrs.fields(PartitionPort):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(port, field.name, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        port.state = "failed"  # type: ignore[attr-defined]


async def test_a_view_is_what_the_partition_has_said_last() -> None:
    """State, files, and the failure of one that has failed for good, until it begins again. Mirrors hear the state."""
    port, cell = port_and_cell()
    said = list[PartitionStands]()
    view = PartitionView(port, said.append)
    assert (view.state, view.has_files) == ("starting", False)
    for notice in (
        StateChanged("recovering"),
        FilesOpened(True),
        StateChanged("running"),
        StateChanged("stuck"),
    ):
        notify_all(port.ref, notice)
    assert (view.state, view.has_files) == ("stuck", True)
    assert [(each.path, each.state) for each in said] == [
        ("orders/0", state) for state in ("recovering", "running", "stuck")
    ]
    cell.fail(ValueError("a bug"), None)
    assert (said[-1].state, str(said[-1].failure)) == ("failed", "a bug")
    assert "orders/0 (outbox) is failed (ValueError: a bug)" in str(view.unavailable())
    cell.revive()
    notify_all(port.ref, StateChanged("recovering"))
    assert (view.state, said[-1]) == ("recovering", PartitionStands("orders/0", "recovering"))
    assert "a bug" not in str(view.unavailable())
    view.close()
    notify_all(port.ref, StateChanged("running"))
    assert view.state == "recovering"


def test_who_waits_for_an_opening_hears_that_the_disk_is_full() -> None:
    """Only as long as it waits."""
    port, _ = port_and_cell()
    view, heard = PartitionView(port, lambda _: None), list[StorageError]()
    full = DiskFull("no space")
    with view.noting(heard.append), view.noting(lambda lack: None):
        notify_all(port.ref, OpeningWaits(full))
    notify_all(port.ref, OpeningWaits(full))
    assert heard == [full]
