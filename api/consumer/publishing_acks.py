"""Acks that publish: what a message publishes is kept in memory until it is acked, and goes with the ack or not at all.

`StagedPublishes` is what one message, or batch, publishes. When the message is acked, `PublishingAcks` stores the
payloads in the outbox of the message's partition, synced. It then asks the partition to ack and to name them, which is
one record of the partition's journal. A message that is nacked, rejected or released, or whose lease is lost, writes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from callboard.actors.names import topic_read_only
from callboard.actors.partition import commands as c
from callboard.actors.records.delayed_records import check_no_due, with_due
from callboard.actors.records.outbox_records import Payload, Target, payload_columns
from callboard.consumer.losses import cannot_settle, lease_lost
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    InvalidArgument,
    MessageTooLarge,
    OutboxFull,
    RuntimeClosed,
    TopicFull,
    TopicNotFound,
)
from callboard.log.limits import HEADERS_COUNT_MAX, PUBLISHES_BYTES_MAX, PUBLISHES_MAX
from callboard.log.plain import shown, text
from callboard.message import message_of
from callboard.publishing.delaying import Delays
from callboard.publishing.publisher import publisher_of

if TYPE_CHECKING:
    from datetime import datetime

    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.companions import Outbox
    from callboard.actors.mirror import MirroredTopic
    from callboard.consumer.leases import ConsumerLease, ConsumerLeases, Settled
    from callboard.message import Headers, Message
    from callboard.session import Session


@attrs.define(eq=False)
class StagedPublishes:
    """What is published with one ack."""

    payloads: list[Payload] = attrs.Factory(list)
    size_bytes: int = 0

    def add(self, payload: Payload, size_bytes: int) -> None:
        """One more. Raises `InvalidArgument`, `MessageTooLarge`."""
        if len(self.payloads) >= PUBLISHES_MAX:
            raise InvalidArgument(
                f"one ack publishes at most {PUBLISHES_MAX} messages, and this is one more. Nothing was written."
                " Publish some of them with topic.publish, or put several into one."
            )
        total = self.size_bytes + size_bytes
        if total > PUBLISHES_BYTES_MAX:
            raise MessageTooLarge(
                f"what one ack publishes would have {total} bytes, and {PUBLISHES_BYTES_MAX} are allowed. Nothing was"
                " written. Store the payloads elsewhere and publish their names.",
                size_bytes=total,
                limit_bytes=PUBLISHES_BYTES_MAX,
                index=None,
            )
        if len(payload.attributes.get("headers") or ()) >= HEADERS_COUNT_MAX:
            kind, most = "delayed message", HEADERS_COUNT_MAX - 2
            if not payload.target.waits:
                kind, most = "message", HEADERS_COUNT_MAX - 1
            raise InvalidArgument(
                f"a {kind} that is published with an ack has at most {most} headers. Nothing was written."
            )
        self.payloads.append(payload)
        self.size_bytes = total


class NamedTopic(Protocol):
    """What a `Topic` is to an ack that publishes to it."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def topic_id(self) -> str:
        """The id that names its files."""


class Publishing(Protocol):
    """A received message, or batch: `publish` is a method of both."""

    _settlements: Any

    def _staging(self) -> StagedPublishes:
        """What its ack publishes. Raises `InvalidArgument` when it is settled."""


async def publish(
    self: Publishing,
    topic: str | NamedTopic,
    value: bytes | Message,
    *,
    key: bytes | None = None,
    headers: Headers | None = None,
    timestamp: datetime | None = None,
    ttl: float | None = None,
    priority: int | None = None,
    partition: int | None = None,
    delay: float | None = None,
    deliver_at: datetime | None = None,
) -> None:
    """Publish to a topic of the same runtime, or to the one of that name, together with the ack: both, or neither.

    Nothing is written before the ack, which then waits until both are synced. What is nacked, rejected, released,
    or whose lease is lost, publishes nothing; nor does a body of `receive`, or a handler, that fails. After the ack
    the message comes to its topic once, whatever crashes, soon and not at once. The partition is chosen now.

    With a `delay`, which begins now, or with `deliver_at`, it waits beside its topic until it is due, as what
    `Topic.publish` delays: it comes once, after the ack and not before it is due. A `Message` with a `dedup_id` or
    an `expected_offset` is refused.

    Raises `InvalidArgument`, `MessageTooLarge`, `TopicNotFound`, `TopicReadOnly`. Acking raises `OutboxFull` when too
    much that was published so waits for its topics, and `TopicReadOnly` when the topic was made so meanwhile.
    """
    session: Session = self._settlements.session
    live = _target(session, topic)
    message = message_of(
        value,
        key=key,
        headers=headers,
        timestamp=timestamp,
        ttl=ttl,
        priority=priority,
        delay=delay,
        deliver_at=deliver_at,
    )
    delays = Delays(session, live)
    due = delays.due(message.delay, message.deliver_at)
    index, one = publisher_of(session, live).placed(message, partition)
    stored = one.stored
    if due is not None:
        check_no_due(stored.get("headers"))
        self._staging()
        live = await delays.ready()
        stored = with_due(stored, due._replace(run=live.stands.run))
    target = Target(live.topic_id, index, waits=due is not None)
    self._staging().add(Payload(target, one.value, one.key, stored), one.size_bytes)
    await trio.lowlevel.checkpoint_if_cancelled()


def _target(session: Session, topic: object) -> MirroredTopic:
    """The topic that is named, or given as itself. Raises `TopicNotFound`, `InvalidArgument`."""
    session.check_open()
    live = session.live_of(topic)
    if live is not None:
        if live.deleted or session.mirror.by_id(live.topic_id) is not live:
            raise TopicNotFound(
                f"topic {live.name!r} was deleted, or is another runtime's. Nothing was written.",
                topic=live.name,
            )
    elif text(topic) is not None:
        live = session.find(topic)
    else:
        raise InvalidArgument(f"{shown(topic, 80)} is no topic, nor the name of one. Nothing was written.")
    publisher_of(session, live)
    return live


class PublishingAcks:
    """Those of one consumer."""

    def __init__(self, leases: ConsumerLeases) -> None:
        self._leases = leases
        self._session = leases.session

    async def ack(self, settled: Settled, payloads: Sequence[Payload]) -> None:
        """Ack all of it, which is of one partition, and publish these: both, or neither.

        Raises `LeaseLost`, `OutboxFull`, `TopicNotFound`, `TopicReadOnly`, and what the disk refuses with: indefinite
        once the payloads were stored.
        """
        self._session.check_open()
        if not settled:
            raise InvalidArgument(
                "all messages of the batch are settled, and what the batch publishes goes with an ack. Nothing was"
                " written. Publish it with one of the messages, or with topic.publish."
            )
        for topic_id in dict.fromkeys(payload.target.topic_id for payload in payloads):
            target = self._session.mirror.by_id(topic_id)
            if target is not None and target.settings.read_only:
                raise topic_read_only(target.name)
        port: PartitionPort = settled[0][0].port
        delays = any(payload.target.waits for payload in payloads)
        outbox = await self._session.outbox(port, delays=delays)
        counted: list[tuple[ConsumerLease, int]] = []
        is_valid, now = True, self._session.clock.monotonic()
        lost: c.Ranges = ()
        client = self._session.outbox_client()
        ack, is_named, is_refused = client.begin((port.topic_id, port.index)), False, False
        try:
            for lease, ranges in settled:
                count = min(lease.left, sum([stop - start for start, stop in ranges]))
                counted.append((lease, count))
                is_valid = self._leases.count_out(lease, count) and lease.deadline > now and is_valid
            parts = tuple([(lease.lease_id, tuple(ranges)) for lease, ranges in settled])
            start = await self._store(outbox, payloads, parts[0][0])
            message = c.AckAndPublish(self._leases.group_id, parts, start, start + len(payloads))
            lost = await self._name(port, outbox, message, is_valid=is_valid)
            is_named = not lost
        except BaseException as error:  # it is there to be settled once more
            for lease, count in counted:
                self._leases.count_in_again(lease, count)
            is_refused = isinstance(error, OutboxFull)
            raise
        finally:
            client.end(ack, is_named=is_named, is_refused=is_refused)
        if lost:
            found = [self._leases.causes(port, lease_id, lost) for lease_id, _ in parts]
            raise lease_lost(
                {port: lost}, "ack, with what it publishes,", self._leases.group, set().union(*found)
            )

    async def _store(self, outbox: Outbox, payloads: Sequence[Payload], lease_id: int) -> int:
        """Have the payloads stored, synced; returns where the first is. Nothing is published by that."""
        port, columns = outbox.port, payload_columns(payloads, self._leases.group_id, lease_id)
        publisher = publisher_of(self._session, self._session.topic_of_id(port.topic_id, port.topic))
        command = c.PublishMany(columns, c.Level.ALL, columns.size_bytes)
        while True:
            try:
                first: int = await publisher.send(port, command)
            except ActorCrashed:
                continue  # if it is there, no ack names it
            except (TopicNotFound, RuntimeClosed) as error:
                raise cannot_settle(self._session, port) from error
            except TopicFull as error:
                raise OutboxFull(
                    f"what acks of {outbox.source.label} have published fills their outbox: it could not be forwarded"
                    " yet. Nothing was acked, and nothing will be published. `stats().outbox` tells more; then ack"
                    " again.",
                    topic=port.topic,
                    partition=outbox.source.label,
                ) from error
            except CallboardError as error:
                raised = error.again()
                raised.indefinite = False  # whatever is stored, no ack names it
                raised.add_note("Nothing was acked, and nothing will be published. Ack again, or nack.")
                raise raised from error
            return first

    async def _name(
        self, port: PartitionPort, outbox: Outbox, message: c.AckAndPublish, *, is_valid: bool
    ) -> c.Ranges:
        """Ack, and name the payloads, through restarts of the partition; returns what was lost."""
        crashed = False
        while True:
            try:
                lost: c.Ranges = (await port.ref.ask(message)).lost
                self._leases.loop_pass.waited()
            except ActorCrashed:
                crashed = True
                message = message._replace(again=is_valid)
                continue
            except ActorStopped as error:
                raised = cannot_settle(self._session, port)
                # One that is not deleted may have done it, and ended before it could say so.
                raised.indefinite = self._session.mirror.is_live(port)
                raise raised from error
            except OutboxFull:
                raise
            except CallboardError as error:
                raised = error.again()
                raised.indefinite = crashed or error.indefinite  # the first try may have done it
                raise raised from error
            if lost and crashed and await self._is_forwarded(outbox, message.start):
                return ()
            return lost

    async def _is_forwarded(self, outbox: Outbox, offset: int) -> bool:
        """Whether a payload that the partition does not name any more was named: then it is settled by now."""
        while True:
            with suppress(ActorCrashed):
                try:
                    unsettled = await outbox.port.ref.ask(c.ListUnsettled(c.OWN_GROUP))
                except ActorStopped as error:
                    raise cannot_settle(self._session, outbox.port) from error
                return not any(start <= offset < stop for start, stop in unsettled)
