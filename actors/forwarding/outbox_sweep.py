"""What of an outbox may be settled although no entry names it: payloads of acks that have failed. Pure.

The forwarder sweeps an outbox when it begins, and when a client says that an ack has ended without naming what it had
stored. It takes the end of the outbox, tells its clients that it sweeps below that, and hears which acks are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from callboard.actors.forwarding.commands import OpenAcks


@attrs.define(eq=False)
class OutboxSweep:
    """One sweep of an outbox: from where on the open acks of each client may still name payloads."""

    is_wanted: bool = True
    """There may be payloads that no ack has named."""
    below: int = 0
    """They lie below this; 0: all that were looked for are named, or settled."""
    _end: int = 0
    _starts: dict[int, int] = attrs.Factory(dict)
    """By client, of those that have open acks: where the first payload of these may lie."""

    @property
    def is_owed(self) -> bool:
        """Whether there may be something to settle."""
        return self.is_wanted or self.below > 0

    def begin(self, end: int) -> None:
        """The outbox ends here, and clients are about to say which acks are open."""
        self._end = end
        self._starts.clear()
        if self.is_wanted:
            self.is_wanted, self.below = False, end

    def hear(self, message: OpenAcks) -> bool:
        """A client says this; whether it is worth another look."""
        if message.start is None:
            self._starts.pop(message.client, None)
        else:
            self._starts[message.client] = message.start
        self.is_wanted = self.is_wanted or message.is_unnamed
        return message.has_ended and self.is_owed

    def unclaimed_below(self) -> int:
        """Below this no ack will name anything that the source was not asked to name already."""
        return min([self._end, *self._starts.values()])

    def end(self, below: int) -> None:
        """Payloads below this are named, or settled."""
        if below >= self.below:
            self.below = 0
