"""SystemServices: what the actors of one tree share and do not change: the seams, dead letters, events, deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.kernel.deadlines import Deadlines
from callboard.actors.kernel.events import DeadLetters, EventLog
from callboard.log.limits import USUAL, Limits

if TYPE_CHECKING:
    from callboard.actors.kernel.wire import Wire
    from callboard.log.seams.clock import Clock
    from callboard.log.seams.disk import Disk
    from callboard.log.seams.entropy import Entropy


class SystemServices:
    """What a cell uses of its system."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        disk: Disk | None = None,
        limits: Limits = USUAL,
        wire: Wire | None = None,
    ) -> None:
        self.clock = clock
        self.entropy = entropy
        self.disk = disk
        self.limits = limits
        self.wire = wire
        """With one, what its actors send and answer is delivered as a copy."""
        self.dead_letters = DeadLetters(clock)
        self.events = EventLog(clock)
        self.deadlines = Deadlines()
