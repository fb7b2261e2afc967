"""The sequencer: gathers what publishers want appended and forms the next commit's appends. Pure.

What arrives while a commit is in flight forms the next one (group commit), so the busier the partition, the larger its
commits and the fewer its syncs. Single records that stand next to each other become one frame; a publisher's batch,
whose columns it has built itself, stays a frame of its own. The order of arrival is the order of offsets.

Invariants
----------
S1  Records leave in the order in which they came, each exactly once; but for those that are dropped because everybody
    who waited for them has given up. Records that nobody waits for (level NONE) are never dropped.
S2  Appends are durable when any record in them wants level ALL; the whole commit then waits for the sync.
S3  Every token that came in goes out with exactly one `Appends`, or was dropped with its record.
S4  The sizes of all `Appends` that left and of what waits add up to the sizes of all that came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from callboard.actors.partition.commands import Level, PublishMany, PublishOne
from callboard.log.format.columns import Columns
from callboard.log.limits import KIB, USUAL, Limits

GATHER_S: Final = 0.001
GATHER_BYTES: Final = 64 * KIB
"""Records that nobody waits for are written when the first has waited so long, or so many bytes have come."""
NEVER: Final = float("inf")

Token = Any


class Singles:
    """Neighbouring single records on their way into one frame."""

    __slots__ = ("level", "messages", "size_bytes", "tokens")

    def __init__(self) -> None:
        self.messages: list[PublishOne] = []
        self.tokens: list[Token | None] = []
        self.level = Level.NONE
        self.size_bytes = 0

    def columns(self) -> Columns:
        """The records as one frame."""
        if len(self.messages) == 1:
            value, key, given, _, _ = self.messages[0]
            if given is None:
                return Columns.build((value,), None if key is None else (key,))
        values, keys, attributes, _, _ = zip(*self.messages, strict=True)
        names = dict.fromkeys(name for given in attributes if given for name in given)
        others: dict[str, Any] = {
            name: [given.get(name) if given else None for given in attributes] for name in names
        }
        return Columns.build(
            values,
            keys,
            **others,
        )

    def drop(self, is_cancelled: Callable[[Token], bool]) -> int:
        """Leave out the records whose publishers gave up; returns how many."""
        kept = [
            (message, token)
            for message, token in zip(self.messages, self.tokens, strict=True)
            if token is None or not is_cancelled(token)
        ]
        dropped = len(self.messages) - len(kept)
        if dropped:
            self.messages = [message for message, _ in kept]
            self.tokens = [token for _, token in kept]
            self.level = max([message.level for message in self.messages], default=Level.NONE)
        return dropped


class PublishedBatch:
    """A publisher's own batch."""

    __slots__ = ("level", "size_bytes", "source", "token")

    def __init__(self, columns: Columns, level: Level, size_bytes: int, token: Token | None) -> None:
        self.source = columns
        self.level = level
        self.size_bytes = size_bytes
        self.token = token

    def columns(self) -> Columns:
        """The records as the publisher made them."""
        return self.source


@attrs.define(eq=False)
class Appends:
    """What one commit appends to the log, and who is told afterwards."""

    parts: Sequence[Singles | PublishedBatch]
    batches: list[Columns]
    durable: bool
    records: int
    size_bytes: int
    """Of what was taken from the queue, dropped records included: to be returned to the budget."""
    cancelled: int = 0
    """Records dropped on the way."""
    flushes: list[Token] = attrs.field(factory=list)
    """Who waits for everything up to here to be durable."""

    @property
    def unawaited(self) -> int:
        """Records of which nobody hears."""
        return sum(
            part.tokens.count(None)
            if isinstance(part, Singles)
            else part.source.count
            if part.token is None
            else 0
            for part in self.parts
        )


class Sequencer:
    """The queue of appends between the partition's mailbox and its commits."""

    __slots__ = (
        "_is_awaited",
        "_parts",
        "_since",
        "_singles",
        "cancelled",
        "limits",
        "records",
        "size_bytes",
    )

    def __init__(self, limits: Limits = USUAL) -> None:
        self.limits = limits
        self._parts: deque[Singles | PublishedBatch] = deque()
        self._singles: Singles | None = None
        self._is_awaited = False
        self._since = 0.0
        self.records = 0
        self.size_bytes = 0
        self.cancelled = 0
        """Records dropped since the start."""

    @property
    def due_at(self) -> float:
        """When what waits is to be written: at once when somebody waits for it; `NEVER` when nothing waits."""
        if not self.records:
            return NEVER
        if self._is_awaited or self.size_bytes >= GATHER_BYTES:
            return 0.0
        return self._since + GATHER_S

    def add_one(self, message: PublishOne, token: Token | None, now: float = 0.0) -> None:
        """Queue one record."""
        if not self.records:
            self._since = now
        singles = self._singles
        if singles is None:
            singles = self._singles = Singles()
            self._parts.append(singles)
        singles.messages.append(message)
        singles.tokens.append(token)
        _, _, _, level, size = message
        if level > singles.level:
            singles.level = level
            self._is_awaited = True
        singles.size_bytes += size
        self.size_bytes += size
        self.records += 1
        if (
            singles.size_bytes >= self.limits.commit_bytes
            or len(singles.messages) >= self.limits.frame_records
        ):
            self._singles = None

    def add_many(self, message: PublishMany, token: Token | None, now: float = 0.0) -> None:
        """Queue a publisher's batch."""
        if not self.records:
            self._since = now
        if message.level > Level.NONE:
            self._is_awaited = True
        self._singles = None
        self._parts.append(PublishedBatch(message.columns, message.level, message.size_bytes, token))
        self.records += message.columns.count
        self.size_bytes += message.size_bytes

    def take(self, is_cancelled: Callable[[Token], bool] | None = None) -> Appends | None:
        """The next commit's appends, oldest first, up to `Limits.commit_bytes`; None when nothing waits.

        Records whose token `is_cancelled` are dropped, so there may be no batches in what is returned.
        """
        if not self._parts:
            return None
        parts: list[Singles | PublishedBatch] = []
        size = cancelled = 0
        while self._parts and (not parts or size + self._parts[0].size_bytes <= self.limits.commit_bytes):
            part = self._parts.popleft()
            size += part.size_bytes
            if is_cancelled is not None:
                if isinstance(part, Singles):
                    cancelled += part.drop(is_cancelled)
                    if not part.messages:
                        continue
                elif part.token is not None and is_cancelled(part.token):
                    cancelled += part.source.count
                    continue
            parts.append(part)
        if not self._parts:
            self._singles = None
        self._is_awaited = any(part.level > Level.NONE for part in self._parts)
        batches = [part.columns() for part in parts]
        records = sum([batch.count for batch in batches])
        self.records -= records + cancelled
        self.cancelled += cancelled
        self.size_bytes -= size
        durable = any(part.level is Level.ALL for part in parts)
        return Appends(parts, batches, durable, records, size, cancelled)
