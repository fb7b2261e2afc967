"""Dead letters in the topics that they were forwarded to, and how those are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from callboard.actors.partition.commands import Read
from callboard.actors.records import dead_letter_records
from callboard.dead_letters.kept import check_choose, check_limit
from callboard.log.limits import MIB
from callboard.message import Record

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.dead_letters.handled import HandledLetters

READ_RECORDS: Final = 1000
READ_BYTES: Final = 1 * MIB


@attrs.frozen(kw_only=True)
class ForwardedLetter:
    """A dead letter in the topic it was forwarded to."""

    record: Record
    """As it stands there, with all headers."""
    topic: str
    """Where the message is from."""
    partition: int
    offset: int
    group: str
    """The group that gave it up."""
    attempts: int
    failed_at: datetime
    """The last failure, or when it was found expired."""
    first_failed_at: datetime | None
    """None when that was not known."""
    consumer_name: str | None
    """The name of the consumer that it failed in last, or its id as text when it had none; None when that was not
    known.
    """
    consumers: tuple[str, ...]
    """All that it failed in, the first eight: their names, or the ids of those that had none."""
    reason: str | None
    is_lost: bool
    """The message itself was gone when it was forwarded."""


Chooses = Callable[[ForwardedLetter], bool]


class ChosenLetters:
    """The letters of a topic that are neither redriven nor purged, and that `choose` returns True for (None: all), in
    pages: partition by partition, oldest first, until `done` of them make up the limit.
    """

    def __init__(self, handled: HandledLetters, choose: Chooses | None, limit: int | None) -> None:
        check_choose(choose)
        self._handled = handled
        self._choose = choose
        self._limit = check_limit(limit)
        self.done = 0
        """How many count towards the limit, by what the caller has done with them."""
        self._ports = deque(handled.ports)
        self._port: PartitionPort = self._ports[0]
        self._ranges: deque[tuple[int, int]] = deque()
        """Offsets of the partition that are still to be read."""
        self._letters: Iterator[ForwardedLetter] = iter(())

    async def next(self) -> Sequence[ForwardedLetter]:
        """The next page, all of one partition; none at the end, or when the limit is reached."""
        if self.done == self._limit:
            return ()
        while True:
            most = None if self._limit is None else self._limit - self.done
            if page := list(islice(self._letters, most)):
                return page
            if self._ranges:
                await self._read(*self._ranges.popleft())
            elif self._ports:
                self._port = self._ports.popleft()
                self._ranges.extend(await self._handled.unhandled(self._port))
            else:
                return ()

    async def _read(self, start: int, stop: int) -> None:
        """Read letters from an offset on. What is no dead letter is left out."""
        answer = await self._handled.ask(self._port, Read(start, min(stop - start, READ_RECORDS), READ_BYTES))
        if answer is None:
            return
        batches, end, _ = answer
        if max(end, start + 1) < stop:
            self._ranges.appendleft((max(end, start + 1), stop))
        records = [
            Record(self._port.topic, self._port.index, columns, index)
            for columns in batches
            for index in range(columns.count)
            if start <= columns.offset(index) < stop
        ]
        self._letters = filter(self._choose, filter(None, map(_letter_of, records)))


def _letter_of(record: Record) -> ForwardedLetter | None:
    """A record as a dead letter; None for one that the router has not forwarded."""
    headers = record.headers
    first = headers.get(dead_letter_records.FIRST_FAILED_AT)
    try:
        return ForwardedLetter(
            record=record,
            topic=headers[dead_letter_records.TOPIC].decode(),
            partition=int(headers[dead_letter_records.PARTITION]),
            offset=int(headers[dead_letter_records.OFFSET]),
            group=headers[dead_letter_records.GROUP].decode(),
            attempts=int(headers[dead_letter_records.ATTEMPTS]),
            failed_at=datetime.fromisoformat(headers[dead_letter_records.FAILED_AT].decode()),
            first_failed_at=None if first is None else datetime.fromisoformat(first.decode()),
            consumer_name=_text(headers.get(dead_letter_records.CONSUMER)),
            consumers=tuple((_text(headers.get(dead_letter_records.CONSUMERS)) or "").split()),
            reason=_text(headers.get(dead_letter_records.REASON)),
            is_lost=dead_letter_records.LOST in headers,
        )
    except (KeyError, ValueError):
        return None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
