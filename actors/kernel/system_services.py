"""SystemServices: what the actors of one tree share and do not change: the seams, dead letters, events, deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from callboard.actors.kernel.deadlines import Deadlines
from callboard.actors.kernel.events import DeadLetters, EventLog
from callboard.log.limits import USUAL, Limits

if TYPE_CHECKING:
    from callboard.actors.kernel.wire import Wire
    from callboard.log.seams.clock import Clock
    from callboard.log.seams.disk import Disk
    from callboard.log.seams.entropy import Entropy


@attrs.define(eq=False, kw_only=True)
class SystemServices:
    """What a cell uses of its system."""

    clock: Clock
    entropy: Entropy
    disk: Disk | None = None
    limits: Limits = USUAL
    wire: Wire | None = None
    """With one, what its actors send and answer is delivered as a copy."""
    dead_letters: DeadLetters = attrs.field(init=False)
    events: EventLog = attrs.field(init=False)
    deadlines: Deadlines = attrs.field(init=False, factory=Deadlines)

    def __attrs_post_init__(self) -> None:
        self.dead_letters, self.events = DeadLetters(self.clock), EventLog(self.clock)
