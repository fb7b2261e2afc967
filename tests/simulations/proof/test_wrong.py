"""What is switched off is really off: without each safeguard something small behaves differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import GroupEvents
from callboard.actors.delivery.receipts import LeaseState
from callboard.actors.partition.commands import Level, PublishOne
from callboard.actors.partition.committer import DiskEngine
from callboard.actors.partition.effects import AppendsStored
from callboard.actors.partition.group_states import Group, GroupStates
from callboard.actors.partition.openings import Openings
from callboard.actors.partition.partition import Partition
from callboard.actors.partition.port import PartitionPort
from callboard.actors.partition.record_window import WindowBudget
from callboard.actors.partition.sequencer import Sequencer
from callboard.actors.partition.spec import PartitionSpec
from callboard.actors.settings import TopicSettings
from callboard.log.errors import PlanFailed
from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid, IndexInvalid
from callboard.log.format.frame import FRAME_HEADER_BYTES, decode_frame, encode_frame
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.format.walk_drivers import walk_buffer
from callboard.log.seams.disk import Create, Sync, SyncDirectory, Write
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.proof.patches import patched
from callboard.simulations.proof.safeguards import SAFEGUARDS
from callboard.supervision.policies import RestartWindow

SEGMENT = 77


@pytest.fixture
def without() -> Callable[[str], Any]:
    """Switches a safeguard off by name: `with without("lease check"): ...`."""
    return lambda name: patched(SAFEGUARDS[name].patches)


def frame(value: bytes, offset: int, segment_id: int = SEGMENT) -> bytes:
    """A whole frame of one record."""
    return b"".join(
        encode_frame(Columns.build([value]), segment_id=segment_id, base_offset=offset, append_time_us=1)
    )


def found(data: bytes) -> list[int]:
    """Where a scan of a segment with this content finds frames, counted from its header."""
    scan = walk_buffer(bytes(SEGMENT_HEADER_BYTES) + data, SEGMENT, 0)
    return [position - SEGMENT_HEADER_BYTES for position in scan.positions]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("log sync", "topics/x/0/1.log"),
        ("journal sync", "topics/x/0/delivery/1.log"),
        ("directory sync", "topics/x/0/1.log"),
    ],
)
async def test_syncs_are_left_out(without: Any, name: str, path: str) -> None:
    """A synced file survives a power cut, and without the sync it does not."""
    directory = path.rpartition("/")[0]
    kept = await _kept(path, directory)
    with without(name):
        lost = await _kept(path, directory)
    assert (kept, lost) == (True, False)


async def _kept(path: str, directory: str) -> bool:
    disk = MemoryDisk()
    place = ""
    for part in directory.split("/"):
        disk.tree.make_directory(f"{place}/{part}".lstrip("/"))
        place = f"{place}/{part}".lstrip("/")
    files = await disk.incarnate("owner")
    handle = files.handle(path)
    parents = ["", *("/".join(directory.split("/")[:depth]) for depth in range(1, directory.count("/") + 2))]
    await files.submit(
        [
            Create(handle),
            Write(handle, 0, (b"data",)),
            Sync(handle),
            *(SyncDirectory(name) for name in parents),
        ]
    )
    disk.crash()
    return disk.files().get(path) == b"data"


def test_garbled_bodies_are_believed(without: Any) -> None:
    """A frame with a wrong byte in its body is refused, and without the checksum found."""
    garbled = bytearray(frame(b"value", 0))
    garbled[-1] ^= 1
    assert found(bytes(garbled)) == []
    with without("checksum of bodies"):
        assert found(bytes(garbled)) == [0]


def test_a_frame_is_found_by_its_magic_alone(without: Any) -> None:
    """Behind a damaged header a forged frame in the payload is passed, and without checksums found."""
    forged = frame(b"forged", 5, segment_id=1)
    outer = bytearray(frame(forged, 0))
    outer[20] ^= 1
    assert found(bytes(outer)) == []
    with without("frames by checksum"):
        assert found(bytes(outer)) != []


def test_frames_of_other_segments_are_taken(without: Any) -> None:
    """A frame is valid in its own segment only, and without the seed in all."""
    with pytest.raises(FrameInvalid):
        decode_frame(frame(b"value", 0, segment_id=1), 0, SEGMENT)
    with without("seed of checksums"):
        header, _ = decode_frame(frame(b"value", 0, segment_id=1), 0, SEGMENT)
    assert header.frame_bytes > FRAME_HEADER_BYTES


async def test_a_failed_sync_is_repeated(without: Any) -> None:
    """A plan whose sync fails fails, and without the safeguard the second sync is believed."""

    async def submit() -> None:
        disk = MemoryDisk()
        files = await disk.incarnate("owner")
        handle = files.handle("file")
        await files.submit([Create(handle)])
        disk.fail_next(Sync, OSError(5, "broken"))
        await DiskEngine(files)._submit([Write(handle, 0, (b"data",)), Sync(handle)])

    with pytest.raises(PlanFailed):
        await submit()
    with without("no belief in a second sync"):
        await submit()


def test_a_damaged_index_is_believed(without: Any) -> None:
    """An index with a wrong byte is refused, and without its checksums decoded."""
    index = SegmentIndex(SEGMENT, 0)
    index.note(SEGMENT_HEADER_BYTES, 100, 0, 3, 4, 1)
    data = bytearray(index.encode())
    data[24] ^= 1
    with pytest.raises(IndexInvalid):
        SegmentIndex.decode(bytes(data), SEGMENT)
    with without("check of the stored index"):
        assert SegmentIndex.decode(bytes(data), SEGMENT).next_offset != 4


def test_acks_do_not_reach_the_journal(without: Any) -> None:
    """What was acked is settled after a replay, and without the event pending."""

    def pending() -> int:
        states = GroupStates()
        group, opened = states.open(1, True, 0)
        lease = group.delivery.lease(now=0.0, deadline=9.0, consumer=1, max_records=1, visible_end=1)
        group.delivery.ack(lease.lease_id, [(0, 1)], 0.0)
        record = GroupEvents(1, group.delivery.take_events()).record(0.0)
        replayed = GroupStates()
        replayed.apply(opened)
        replayed.apply(record)
        return int(replayed.groups[1].delivery.pending_count(1))

    assert pending() == 0
    with without("acks in the journal"):
        assert pending() == 1


def test_held_messages_are_handed_out(without: Any) -> None:
    """What one consumer holds no other gets, and without the check it does."""

    def second() -> Any:
        delivery = Delivery(0)
        delivery.lease(now=0.0, deadline=9.0, consumer=1, max_records=1, visible_end=1)
        return delivery.lease(now=0.0, deadline=9.0, consumer=2, max_records=1, visible_end=1)

    assert second() is None
    with without("lease check"):
        assert second().ranges[0][:2] == (0, 1)


def test_small_functions_are_wrong(without: Any) -> None:
    """Attempts, intensity, retention: each says another thing without its safeguard."""
    lease = LeaseState(1, 9.0, False, [(0, 1, 0)])
    group = Group(1, True, Delivery(3))
    states = GroupStates()
    states.groups[1] = group

    def told() -> tuple[Any, ...]:
        window = RestartWindow(1, 10.0)
        return (
            lease.counted(lease.rows)[0][2] >> 1,
            window.admit(0.0) and window.admit(0.0),
            states.unsettled_from(9),
        )

    assert told() == (1, False, 3)
    with without("attempts are counted"), without("restart intensity"), without("retention waits for groups"):
        assert told() == (0, True, 9)


class Heard:
    """A publisher that remembers what it was told."""

    done = False

    def __init__(self) -> None:
        self.offset: int | None = None

    def answer(self, value: Any = None) -> bool:
        self.offset = value
        return True

    def fail(self, error: BaseException) -> bool:
        raise error


def test_publishers_hear_of_others_offsets(without: Any) -> None:
    """The first of two publishers in a commit hears the first offset, and without the safeguard the second."""

    def first() -> int | None:
        sequencer, heard = Sequencer(), [Heard(), Heard()]
        for one in heard:
            sequencer.add_one(PublishOne(b"", None, None, Level.ALL, 0), one)
        appends = sequencer.take()
        assert appends is not None
        partition = Partition(
            PartitionSpec(
                "orders", "1", 0, TopicSettings(), PartitionPort("orders", 0), Openings(), WindowBudget(1000)
            )
        )
        partition._appends_stored(AppendsStored(appends, [5]))
        return heard[0].offset

    assert first() == 5
    with without("answers in the order of offsets"):
        assert first() == 6
