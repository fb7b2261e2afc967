"""Another process that reads the files of a partition while a runtime writes, rolls and drops them, as `peek` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import trio

from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import CallboardError, InternalError, OffsetOutOfRange
from callboard.log.offline.reader import LogReader
from callboard.simulations.checkers import reading
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.probing import stored_in
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.log.seams.disk import Entry, Handle, Incarnation, Plan
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

BESIDE: Final = "another process"
PAUSES_S: Final = (0.0, 0.01, 0.1, 0.5)
"""Between two reads: files come and go meanwhile."""
QUICK_S: Final = (0.002, 0.01)
"""The same of who stays where the log ends."""
STOPS_S: Final = (0.0, 0.0, 0.0, 0.01, 0.1)
READS: Final = 30
"""This many reads in all: a seed stays cheap."""


class _StandingStill:
    """The disk as a process uses it that stands still now and then, between any two of its steps."""

    def __init__(self, files: Incarnation, entropy: SeededEntropy) -> None:
        self._files = files
        self._entropy = entropy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def list(self, path: str) -> list[Entry]:
        await trio.sleep(one_of(self._entropy, STOPS_S))
        return await self._files.list(path)

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        await trio.sleep(one_of(self._entropy, STOPS_S))
        return await self._files.read(handle, offset, length)

    async def submit(self, plan: Plan) -> None:
        await trio.sleep(one_of(self._entropy, STOPS_S))
        await self._files.submit(plan)


async def read_beside(world: World, machine: Machine, topic: Any, entropy: SeededEntropy) -> None:
    """Read a partition from the beginning on, a little at a time; again when that is gone, or after an error.

    What is read lies where it was asked for, in order, and nothing that lies beyond the visible end is read. The
    history has it all: it is what the runtime's own readers see, or would have seen.
    """
    history, partition = world.history, between(entropy, 0, topic.partitions - 1)
    directory = partition_directory(topic.topic_id, partition)
    files = cast("Incarnation", _StandingStill(await machine.disk.incarnate("reader"), entropy))
    is_quick, left = one_of(entropy, (False, True)), READS
    while left > 0:
        left -= 1
        life = history.operation()
        try:
            reader = await LogReader.open(files, directory)
            offset = reader.start_offset
            while left > 0:
                left -= 1
                await trio.sleep(one_of(entropy, QUICK_S if is_quick else PAUSES_S))
                most = 100 if is_quick else one_of(entropy, (1, 5, 100))
                found = await reader.read(offset, max_records=most)
                for columns in found.batches:
                    for record in stored_in(history, columns):
                        if not offset <= record.offset < reader.visible_end:
                            words = (
                                f"{directory} read from another process gave {record.offset} after {offset}"
                            )
                            raise world.broken(Violation(reading.PROMISE, words))
                        offset = record.offset + 1
                        history.record(
                            machine.number,
                            "read",
                            BESIDE,
                            life,
                            topic=topic.name,
                            partition=partition,
                            ids=(record.number,),
                            offsets=(record.offset,),
                        )
                offset = max(offset, found.next_offset)
        except OffsetOutOfRange:
            continue
        except InternalError:
            raise
        except CallboardError as error:
            world.note(f"read from another process: {type(error).__name__}: {error}"[:200])
