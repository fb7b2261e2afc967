"""The sequencer: gathers what publishers want appended and forms the next commit. Pure.

What arrives while a commit is in flight forms the next one (group commit), so the busier the partition, the larger its
commits and the fewer its syncs. Single records that stand next to each other become one frame; a publisher's batch,
whose columns it has built itself, stays a frame of its own. The order of arrival is the order of offsets.

Invariants
----------
S1  Records leave in the order in which they came, each exactly once.
S2  A commit is durable when any record in it wants level ALL; its whole content then waits for the sync.
S3  Every reply that came in goes out with exactly one commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import attrs

from callboard.actors.partition.commands import Level, PublishMany, PublishOne, ReplyLike
from callboard.log.errors import CallboardError
from callboard.log.format.columns import Columns
from callboard.log.limits import USUAL, Limits


class _Singles:
    """Neighbouring single records on their way into one frame."""

    __slots__ = ("level", "messages", "replies", "size_bytes")

    def __init__(self) -> None:
        self.messages: list[PublishOne] = []
        self.replies: list[ReplyLike | None] = []
        self.level = Level.NONE
        self.size_bytes = 0

    def columns(self) -> Columns:
        messages = self.messages
        names = dict.fromkeys(name for message in messages for name in message.attributes or ())
        others: dict[str, Any] = {
            name: [(message.attributes or {}).get(name) for message in messages] for name in names
        }
        return Columns.build(
            [message.value for message in messages],
            [message.key for message in messages],
            **others,
        )


class _Batch:
    """A publisher's own batch."""

    __slots__ = ("level", "replies", "size_bytes", "source")

    def __init__(self, columns: Columns, level: Level, size_bytes: int, reply: ReplyLike | None) -> None:
        self.source = columns
        self.level = level
        self.size_bytes = size_bytes
        self.replies = reply

    def columns(self) -> Columns:
        return self.source


@attrs.define(eq=False)
class Commit:
    """What goes to the log in one plan, and who is told afterwards."""

    parts: Sequence[_Singles | _Batch]
    batches: list[Columns]
    durable: bool
    records: int
    size_bytes: int

    def answer(self, base_offsets: Sequence[int]) -> None:
        """Tell every publisher its offset; `base_offsets` has one entry per batch."""
        for part, base in zip(self.parts, base_offsets, strict=True):
            if isinstance(part, _Batch):
                if part.replies is not None:
                    part.replies.answer(base)
                continue
            for offset, reply in enumerate(part.replies, base):
                if reply is not None:
                    reply.answer(offset)

    def fail(self, error: CallboardError) -> None:
        """Tell every publisher that it failed, each with an error of its own to raise."""
        for part in self.parts:
            replies = (part.replies,) if isinstance(part, _Batch) else part.replies
            for reply in replies:
                if reply is not None:
                    reply.fail(error.again())


class Sequencer:
    """The queue of appends between the partition's mailbox and its committer."""

    __slots__ = ("_parts", "_singles", "limits", "records", "size_bytes")

    def __init__(self, limits: Limits = USUAL) -> None:
        self.limits = limits
        self._parts: deque[_Singles | _Batch] = deque()
        self._singles: _Singles | None = None
        self.records = 0
        self.size_bytes = 0

    def add_one(self, message: PublishOne, reply: ReplyLike | None) -> None:
        """Queue one record."""
        singles = self._singles
        if singles is None:
            singles = self._singles = _Singles()
            self._parts.append(singles)
        singles.messages.append(message)
        singles.replies.append(message.unheard if reply is None else reply)
        if message.level > singles.level:
            singles.level = message.level
        size = message.size_bytes
        singles.size_bytes += size
        self.size_bytes += size
        self.records += 1
        if (
            singles.size_bytes >= self.limits.commit_bytes
            or len(singles.messages) >= self.limits.frame_records
        ):
            self._singles = None

    def add_many(self, message: PublishMany, reply: ReplyLike | None) -> None:
        """Queue a publisher's batch."""
        self._singles = None
        waiting = message.unheard if reply is None else reply
        self._parts.append(_Batch(message.columns, message.level, message.size_bytes, waiting))
        self.records += message.columns.count
        self.size_bytes += message.size_bytes

    def take(self) -> Commit | None:
        """The next commit, oldest parts first, up to `Limits.commit_bytes`; None when nothing waits."""
        if not self._parts:
            return None
        parts: list[_Singles | _Batch] = []
        size = 0
        while self._parts and (not parts or size + self._parts[0].size_bytes <= self.limits.commit_bytes):
            part = self._parts.popleft()
            parts.append(part)
            size += part.size_bytes
        if not self._parts:
            self._singles = None
        batches = [part.columns() for part in parts]
        records = sum(batch.count for batch in batches)
        self.records -= records
        self.size_bytes -= size
        durable = any(part.level is Level.ALL for part in parts)
        return Commit(parts, batches, durable, records, size)
