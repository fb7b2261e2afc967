"""Another process that reads the files of a partition while a runtime writes, rolls and drops them, as `peek` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from callboard.log.errors import CallboardError, InternalError, OffsetOutOfRange
from callboard.log.offline.reader import LogReader
from callboard.simulations.checkers import reading
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

PAUSES_S: Final = (0.0, 0.01, 0.1, 0.5)
"""Between two reads: files come and go meanwhile."""
READS: Final = 30
"""So many reads in all: a seed stays cheap."""


async def read_beside(world: World, machine: Machine, directory: str, entropy: SeededEntropy) -> None:
    """Read from the beginning on, a little at a time; from the beginning again when that is gone, or after an error.

    What is read lies where it was asked for, in order, and nothing that lies beyond the visible end is read.
    """
    files = await machine.disk.incarnate("reader")
    left = READS
    while left > 0:
        left -= 1
        try:
            reader = await LogReader.open(files, directory)
            offset = reader.start_offset
            while left > 0:
                left -= 1
                await trio.sleep(one_of(entropy, PAUSES_S))
                found = await reader.read(offset, max_records=one_of(entropy, (1, 5, 100)))
                for columns in found.batches:
                    for record in columns.offset_list():
                        if not offset <= record < reader.visible_end:
                            words = f"{directory} read from another process gave {record} after {offset}"
                            raise world.broken(Violation(reading.PROMISE, words))
                        offset = record + 1
                offset = max(offset, found.next_offset)
        except OffsetOutOfRange:
            continue
        except InternalError:
            raise
        except CallboardError as error:
            world.note(f"read from another process: {type(error).__name__}: {error}"[:200])
