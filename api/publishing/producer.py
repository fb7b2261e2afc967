"""Producers: they publish under a name, and repeat what may have failed until they know.

A producer numbers what it publishes to each partition, so that the partition stores it once. It has one publish at a
time under way to a partition, in the order in which they were asked for: what fails for certain leaves no gap. After an
indefinite error it publishes the same again. When it cannot find out, because it was cancelled or has tried often
enough, it begins another life with the next publish: the partition then says what it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import trio

from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import Gathering
from callboard.actors.names import check_name
from callboard.actors.partition.commands import (
    Acks,
    BeginProducer,
    Guard,
    Level,
    PartitionCommand,
    ProducerChanges,
    PublishMany,
)
from callboard.log.errors import (
    CallboardError,
    DiskFull,
    InvalidArgument,
    PlanFailed,
    ProducerFenced,
    PublishFailed,
    SequenceOutOfOrder,
    lacks_space,
)
from callboard.log.format.columns import Columns
from callboard.log.plain import refuse_copy
from callboard.message import Headers, Message, Receipt, Receipts, message_of
from callboard.publishing.columns import batch_of, given_columns
from callboard.publishing.parts import Outcome, Part, summed_up
from callboard.publishing.publisher import Publisher

if TYPE_CHECKING:
    from callboard.session import Session

TRIES_MAX: Final = 6
"""How often a message is published until its fate is known; then the indefinite error is raised."""
PAUSE_S: Final = 0.02
"""Before the second try; doubled each time."""


def producer_id_of(name: str) -> int:
    """The id of the producers of that name; never 0, which stands for none."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"producer").digest()
    return int.from_bytes(digest, "little") or 1


@attrs.define(eq=False)
class _Line:
    """What goes to one partition, one after the other."""

    port: PartitionPort
    changes: Gathering[tuple[int, bool], PartitionCommand]
    """That its producer is entered, or left."""
    lock: trio.Lock = attrs.Factory(trio.Lock)
    epoch: int | None = None
    """Of the present life, or the last one."""
    next: int | None = None
    """The next sequence; None while it is unknown."""


class Producer:
    """Publishes under a name, each message once. Get one from `Topic.producer`, and enter it.

    Of several producers of one name the one that was entered last publishes; the others get `ProducerFenced`.
    """

    __reduce_ex__ = refuse_copy

    def __init__(self, session: Session, publisher: Publisher, name: str) -> None:
        self.name = check_name(name, "producer")
        self.producer_id: Final = producer_id_of(self.name)
        """What its records carry."""
        self._session = session
        self._publisher = publisher
        self._lines = [_Line(port, Gathering(port.ref, ProducerChanges)) for port in publisher.live.ports]
        self._owner = publisher.next_owner()
        self._is_open = False

    def __repr__(self) -> str:
        return f"<Producer {self.name!r} of {self._publisher.live.name!r}>"

    async def __aenter__(self) -> Self:
        """Begin in every partition that can be reached, which fences earlier producers of the name there; in the others
        with the first publish.
        """
        self._session.check_open()
        self._open()
        try:
            for line in self._lines:
                if not self._publisher.account_of(line.port).refuses:
                    async with line.lock:
                        await self._begun(line)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def _open(self) -> None:
        """The partitions remember from now on which life of the name began last."""
        if not self._is_open:
            self._is_open = True
            for line in self._lines:
                line.changes.add((self.producer_id, True))

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            for line in self._lines:
                line.changes.add((self.producer_id, False))

    async def publish(
        self,
        value: bytes | Message,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: datetime | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        partition: int | None = None,
        acks: Acks = "all",
    ) -> Receipt:
        """As `Topic.publish`; after an indefinite error the same is published again, until it is known to be stored.

        Raises `ProducerFenced` when another producer of the name has begun. An indefinite error means that it was tried
        often enough; then, and when this is cancelled, the message may be stored, once.
        """
        message = message_of(value, key=key, headers=headers, timestamp=timestamp, ttl=ttl, priority=priority)
        _, (outcome,) = await self._publish([message], {}, partition, acks)
        if isinstance(outcome, CallboardError):
            raise outcome
        return next(outcome[0].receipts(self._publisher.live.name))[1]

    async def publish_batch(
        self,
        values: Sequence[bytes | Message],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps: Sequence[datetime | None] | None = None,
        ttls: Sequence[float | None] | None = None,
        priorities: Sequence[int | None] | None = None,
        partition: int | None = None,
        acks: Acks = "all",
    ) -> Receipts:
        """As `Topic.publish_batch`, once, like `publish`. Its parts go to their partitions one after the other."""
        columns = given_columns(
            keys=keys, headers=headers, timestamps=timestamps, ttls=ttls, priorities=priorities
        )
        values = batch_of(values)
        parts, outcomes = await self._publish(values, columns, partition, acks)
        if not values:
            await trio.lowlevel.checkpoint()
            return Receipts(self._publisher.live.name, 0, ())
        return summed_up(self._publisher.live.name, parts, outcomes, len(values))

    async def next_sequence(self, partition: int = 0) -> int:
        """How many messages the producers of this name have stored in a partition, over all processes.

        Where a source is published in order to one partition, that is where to go on.
        """
        self._check_open()
        line = self._lines[self._publisher.choice.named(partition)]
        async with line.lock:
            return await self._begun(line)

    def _check_open(self) -> None:
        self._session.check_open()
        if not self._is_open:
            raise InvalidArgument(
                f"producer {self.name!r} is not entered. Nothing was written. Use `async with topic.producer(...)`."
            )

    async def _publish(
        self,
        values: Sequence[bytes | Message],
        columns: Mapping[str, Sequence[Any]],
        partition: int | None,
        acks: Acks,
    ) -> tuple[list[Part], list[Outcome]]:
        """A batch in parts, and what came of each."""
        self._check_open()
        level, parts = self._publisher.parted(values, columns, partition, acks)
        outcomes: list[Outcome] = []
        for part in parts:
            line = self._lines[part.port.index]
            async with line.lock:
                try:
                    answer = await self._store(line, part.columns, level)
                except CallboardError as error:
                    outcomes.append(error)
                else:
                    outcomes.append(part.ranges(answer))
        return parts, outcomes

    async def _store(self, line: _Line, columns: Columns, level: Level) -> Any:
        """Every record's offset, once they are stored; `line` is locked."""
        size, pause_s = columns.size_bytes, PAUSE_S
        sequence = await self._begun(line)
        columns.producers = [(columns.count, self.producer_id, line.epoch or 0, sequence)]
        message, line.next = PublishMany(columns, level, size, Guard()), None
        tries = 0
        while True:
            tries += 1
            try:
                answer = await self._publisher.send(line.port, message)
            except CallboardError as failure:
                error = self._explained(failure)
                if not error.indefinite and tries == 1:
                    # A producer that was forgotten begins again, with the next publish.
                    line.next = None if isinstance(error, SequenceOutOfOrder) else sequence
                    raise error from failure.__cause__
                if not error.indefinite or tries == TRIES_MAX:
                    raised = error.again()
                    raised.indefinite = True  # of an earlier try nothing is known
                    raise raised from failure
                await trio.sleep(pause_s)
                pause_s *= 2
            else:
                line.next = sequence + columns.count
                return answer

    async def _begun(self, line: _Line) -> int:
        """The next sequence in the partition, after beginning another life there if need be; `line` is locked."""
        if line.next is None:
            try:
                begun = await self._publisher.sender.ask(
                    line.port, BeginProducer(self.producer_id, self._owner, line.epoch)
                )
            except CallboardError as error:
                raised = self._explained(error).again()
                raised.indefinite = False  # it asked only: nothing was to be stored
                raise raised from error
            line.epoch, line.next = begun
        sequence: int = line.next or 0
        return sequence

    def _explained(self, error: CallboardError) -> CallboardError:
        """The error, with the producer's name where a partition knows its id only, and what a disk refused in words."""
        if isinstance(error, PlanFailed):
            refused = DiskFull if lacks_space(error) else PublishFailed
            failed = refused(
                f"producer {self.name!r} could not publish to {self._publisher.live.name!r}: {error} Publish it again.",
                topic=self._publisher.live.name,
                indefinite=True,
            )
            failed.__cause__ = error
            return failed
        if not isinstance(error, ProducerFenced):
            return error
        raised = error.again()
        words = (
            f"producer {self.name!r} of topic {self._publisher.live.name!r} has epoch {error.epoch}, and epoch"
            f" {error.latest} has begun: another one has taken its place. Nothing was written. Stop this one."
        )
        raised.args = (words,)
        return raised
