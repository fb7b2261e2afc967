"""Closing a runtime in good order under way, and what is on the disk then.

A program ends while messages are published and consumed, and starts again. When closing raised nothing, and no disk
had refused anything, everything is on the disk: a power cut right after it takes nothing. Some programs have that too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
import trio.lowlevel

from callboard.log.format.frame import encode_frame, frame_length
from callboard.log.journal.journal_records import Kind, columns_of_control
from callboard.log.segments.segment_file import NEW_SUFFIX
from callboard.simulations.checkers import closed_well
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.scenarios.moments import draw_survival

if TYPE_CHECKING:
    from callboard.simulations.disk.inodes import Content
    from callboard.simulations.scenarios.traffic import Traffic
    from callboard.simulations.world import Machine, World

MAPPED: Final = "committed"
"""The name of files that are mapped, and never synced: an older one is good enough."""

MARK_BYTES: Final = frame_length(
    encode_frame(columns_of_control(Kind.MARK, 0), segment_id=1, base_offset=0, append_time_us=0)
)
"""How long the mark is with which a journal is closed: it says that nothing before it is in doubt, and may be lost."""


class Closings:
    """Ends sessions early, as often as the traffic says."""

    def __init__(self, world: World, traffic: Traffic) -> None:
        self._world = world
        self._left = max(0, traffic.closings)
        self._after_s = traffic.close_after_s
        self._entropy = world.entropy.fork("closings")
        self.was_early = False
        """Whether the session was ended here, so that another follows."""
        self.closed_at_s = 0.0
        """When one was ended last: a consumer that joins again then has all the time again."""
        self._begun = 0
        """How much of the history there was when one was ended last."""

    async def close_soon(self, scope: trio.CancelScope) -> None:
        """End the session after a while, if it is to be: nothing of it goes on but its closing."""
        if self._left <= 0:
            return
        await trio.sleep(max(0.0, self._after_s))
        self._left -= 1
        self.was_early, self.closed_at_s = True, self._world.now
        self._begun = len(self._world.history)
        scope.cancel()

    async def closed(self, machine: Machine, *, has_refused: bool) -> None:
        """The runtime was closed, and nothing was raised. `has_refused`: the disk had refused something before."""
        world = self._world
        if has_refused:
            detail = closed_well.REFUSED
        elif self._has_crashed():
            detail = closed_well.CRASHED
        else:
            detail = ", ".join(unsynced_files(world))
        world.history.record(machine.number, closed_well.CLOSED, "program", detail=detail)
        world.probe("close")
        world.sometimes("the runtime was closed under way", self.was_early)
        if self.was_early and one_of(self._entropy, (False, True)):
            world.cut_power(draw_survival(self._entropy), down_s=0.1)
            await trio.lowlevel.checkpoint()

    def _has_crashed(self) -> bool:
        """Whether a partition crashed while the runtime closed, and was not started again."""
        begun = self._begun if self.was_early else 0
        crashed = {
            entry.who: entry.kind == "IncarnationCrashed"
            for entry in self._world.history.of("IncarnationCrashed", "ActorStarted")
            if entry.number >= begun and entry.who.startswith("topics/")
        }
        return any(crashed.values())


def unsynced_files(world: World) -> list[str]:
    """Files whose bytes, or names, a power cut might change now. What can be made again from others is left out.

    So are files that were never finished, the mark that a closed journal ends with, and zeros at the end; and what a
    killed process left in a partition that was closed before it could be opened.
    """
    seen, durable = world.disk.contents(), world.disk.contents(durable=True)
    is_redundant = world.disk.damage_budget.is_redundant
    found = []
    owners = world.disk.owners
    for path in sorted({*seen, *durable}):
        if path.startswith("topics/") and path.count("/") > 2 and _partition(path) not in owners:
            continue
        is_unfinished = path.endswith(NEW_SUFFIX)
        if "/" not in path or path.rpartition("/")[2] == MAPPED or is_unfinished or is_redundant(path):
            continue
        one, other = seen.get(path), durable.get(path)
        if one is None or other is None or _differing(one, other) > (MARK_BYTES if _is_journal(path) else 0):
            found.append(path)
    return found


def _partition(path: str) -> str:
    """The folder of the partition that a file belongs to."""
    return "/".join(path.split("/")[:3])


def _is_journal(path: str) -> bool:
    return path.startswith("catalog/") or "/delivery/" in path


def _differing(seen: Content, durable: Content) -> int:
    """How many bytes lie from the first to the last in which what is there differs from what is durable.

    What is durable behind the end of what is there was cut off: it is never read.
    """
    if seen == durable:
        return 0
    there = seen.stored.rstrip(b"\0")
    differing = int.from_bytes(there, "little") ^ int.from_bytes(durable.stored[: len(there)], "little")
    if not differing:
        return 0
    first, last = ((bits.bit_length() - 1) // 8 for bits in (differing & -differing, differing))
    return last + 1 - first
