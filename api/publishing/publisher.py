"""The publisher: checks all that is published to a topic, chooses its partitions, and has it sent.

A message or batch becomes parts, each a command for one partition (`parts`). All checks come before anything is sent.
The parts that are delayed are put off (`delaying`), and `sender` sends them all;
`callboard.actors.partition.partition` takes over from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from callboard.actors.clients.account import Account
from callboard.actors.clients.port import PartitionPort
from callboard.actors.mirror import MirroredTopic
from callboard.actors.names import topic_read_only
from callboard.actors.partition.commands import LEVELS, Guard, Level, PublishMany, PublishOne
from callboard.log.errors import CallboardError, InvalidArgument, MessageTooLarge, TopicReadOnly
from callboard.log.format.columns import Columns
from callboard.log.limits import KEY_BYTES_MAX
from callboard.message import Message, Receipt, Receipts, check_bytes, check_key
from callboard.publishing.allowed import (
    check_batch_expects,
    check_expected_offset,
    check_first_offsets,
    check_ids,
    check_is_one,
    check_level_reports,
    check_priority,
    expecting,
    first_given,
    level_of,
    refuse_ids_and_offsets,
)
from callboard.publishing.choice import PartitionChoice
from callboard.publishing.columns import (
    FRAME_BYTES_TARGET,
    Checked,
    Unpacked,
    batch_of,
    checked_message,
    chunked,
    columns_of,
    halves,
    plain_columns,
    unpacked,
)
from callboard.publishing.delaying import NO_IDS, NO_OFFSETS, Delays
from callboard.publishing.partitioning import (
    Partitioner,
    consistent,
)
from callboard.publishing.parts import Part, summed_up
from callboard.publishing.sender import TopicSender

if TYPE_CHECKING:
    from callboard.session import Session

BY_SEQUENCE = "a producer's message has a dedup_id, and is known by its sequence already"
EXPECTED_BY_SEQUENCE = (
    "a producer's message has an expected_offset, and its place is known by its sequence already"
)


def publisher_of(session: Session, live: MirroredTopic, partitioner: Partitioner | None = None) -> Publisher:
    """The publisher of a live topic: a runtime has one, however often it is asked for.

    Raises `InvalidArgument` when `partitioner` is given and keys go, or may have gone, by another.
    """
    publisher: Publisher | None = session.publishers.get(live)
    if publisher is None:
        if (count := len(session.publishers)) & (count - 1) == 0:
            for other in [other for other in session.publishers if other.deleted]:
                del session.publishers[other]  # handles of the topic have theirs
        publisher = session.publishers[live] = Publisher(live)
    if partitioner is not None:
        publisher.choice.choose_by(partitioner)
    return publisher


class Publisher:
    """Publishes to one live topic."""

    def __init__(self, live: MirroredTopic) -> None:
        self.live = live
        self.sender = TopicSender(live)
        self.choice = PartitionChoice(live, self.sender.accounts)
        self._owners = 0
        self.replays: set[object] = set()
        """Which replays into the topic run now: each runs once."""
        self.redriving = trio.Lock()
        """Held by the task that redrives its dead letters."""

    def account_of(self, port: PartitionPort) -> Account:
        """The client's account with a partition of the topic, or with one beside it."""
        return self.sender.account_of(port)

    def accounts(self) -> Sequence[Account]:
        """All that there are."""
        return self.sender.all_accounts()

    # -- one message

    def plain_command(
        self, value: bytes, key: bytes | None, partition: int | None, acks: str
    ) -> tuple[Account, PublishOne]:
        """What publishes bytes and perhaps a key, nothing else. Raises `InvalidArgument`, `MessageTooLarge`."""
        level = LEVELS[acks] if type(acks) is str and acks in LEVELS else level_of(acks)
        size = len(value)
        if key is not None:
            if type(key) is not bytes or len(key) > KEY_BYTES_MAX:
                check_key(key)
                key = check_bytes("key", key)
            size += len(key)
        if size > self.live.bytes_max:
            raise self._refused(size)
        accounts = self.sender.accounts
        if partition is None and len(accounts) == 1 and self.choice.partitioner is consistent:
            account = accounts[0]
        else:
            account = accounts[self.choice.of_one(key, size, partition)]
        return account, PublishOne(value, key, None, level, size, account.number)

    async def publish(self, message: Message, partition: int | None, acks: str, delays: Delays) -> Receipt:
        """Publish a message; `partition` is for one that names none. See `Topic.publish`."""
        level, due = level_of(acks), delays.due(message.delay, message.deliver_at)
        one = self.checked(message)
        if due is None and message.dedup_id is None and message.expected_offset is None:
            place = self.choice.of_one(one.key, one.size_bytes, _place(message, partition))
            account = self.sender.accounts[place]
            command = PublishOne(
                one.value, one.key, one.stored or None, level, one.size_bytes, account.number
            )
            return Receipt(self.live.name, account.port.index, await self.sender.send(account, command))
        check_level_reports(level)
        part = self.part_of(message, one, partition, is_delayed=due is not None)
        if due is not None:
            (part,) = await delays.put_off([part], [due])
        account = self.sender.account_of(part.port)
        answer = await self.sender.send(account, part.command(level, account.number))
        return part.receipt(self.live.name, answer)

    def checked(self, message: Message) -> Checked:
        """A message that the topic takes. Raises `InvalidArgument`, `MessageTooLarge`."""
        one = checked_message(message)
        if one.size_bytes > self.live.bytes_max:
            raise self._refused(one.size_bytes)
        if "priorities" in one.stored:
            check_priority(self.live, None)
        return one

    def part_of(
        self, message: Message, one: Checked, partition: int | None, *, is_delayed: bool = False
    ) -> Part:
        """A checked message as a part, with the guard that it needs. Raises `InvalidArgument`."""
        place, expected = _place(message, partition), message.expected_offset
        dedup_id = one.stored.get("dedup_ids")
        if is_delayed and (dedup_id is not None or expected is not None):
            why = NO_IDS if expected is None else NO_OFFSETS
            raise InvalidArgument(f"{why}. Nothing was written. Leave one of the two out.")
        if dedup_id is not None:
            check_ids(self.live, None)
        if expected is not None:
            is_placed = one.key is not None or place is not None
            expected = check_expected_offset(self.live, expected, is_placed=is_placed, index=None)
        if place is None and one.key is None and dedup_id is not None:
            place = consistent(dedup_id, len(self.live.ports))
        guard = None if dedup_id is None and expected is None else Guard(expected)
        port = self.live.ports[self.choice.of_one(one.key, one.size_bytes, place)]
        return Part(port, range(1), one.columns(), one.size_bytes, guard)

    def placed(self, message: Message, partition: int | None) -> tuple[int, Checked]:
        """A message that is published with an ack, checked, and the index of its partition."""
        if self.live.deleted:
            raise self.sender.cannot_publish()
        if message.expected_offset is not None:
            raise InvalidArgument(
                "a message that is published with an ack has an expected_offset, and its offset is decided after"
                " the ack. Nothing was written. Leave it out, or call topic.publish, with a dedup_id, and ack."
            )
        one = self.checked(message)
        if "dedup_ids" in one.stored:
            raise InvalidArgument(
                "a message that is published with an ack has a dedup_id, and comes once already. Nothing was written."
                " Leave it out."
            )
        return self.choice.of_one(one.key, one.size_bytes, _place(message, partition)), one

    def _refused(self, size: int, index: int | None = None) -> MessageTooLarge | TopicReadOnly:
        """The error for a message that is larger than the topic takes; a read-only topic takes none."""
        if self.live.settings.read_only:
            return topic_read_only(self.live.name)
        where = "the message" if index is None else f"message {index} of the batch"
        limit = self.live.settings.max_message_bytes
        return MessageTooLarge(
            f"{where} has {size} bytes with its key and headers; topic {self.live.name!r} allows {limit}."
            " Nothing was written. Raise max_message_bytes, or store the payload elsewhere and publish its name.",
            size_bytes=size,
            limit_bytes=limit,
            index=index,
        )

    # -- batches

    async def publish_batch(
        self,
        values: Sequence[bytes | Message],
        columns: Mapping[str, Sequence[Any]],
        partition: int | None,
        acks: str,
        expected_offset: int | None,
        delays: Delays,
    ) -> Receipts:
        """Publish many messages. See `Topic.publish_batch`; `columns` are the attributes, by their plurals."""
        values = batch_of(values)
        count = len(values)
        plain = None
        if expected_offset is None and (not columns or columns.keys() == {"keys"}):
            plain = self._plain_part(values, columns.get("keys"), partition)
        level = level_of(acks)
        if plain is not None:
            return await self._publish([plain], level, count)
        index = None if partition is None else self.choice.named(partition)
        batch, dues = unpacked(values, columns), None
        if not count:
            await trio.lowlevel.checkpoint()
            return Receipts(self.live.name, 0, ())
        if batch.has_delays:
            if expected_offset is not None:
                raise InvalidArgument(
                    "publish_batch was given an expected_offset and delayed messages, which get their offsets when they"
                    " are due. Nothing was written. Publish them in another batch."
                )
            check_level_reports(level)
            dues = delays.dues(batch)
        if index is None and self.choice.is_none:
            index = 0
        if expected_offset is not None:
            batch = expecting(self.live, batch, index, expected_offset)
        parts = self._parts(batch, index, level, None if dues is None else [due is not None for due in dues])
        if expected_offset is not None:
            check_is_one(self.live, [part.port.index for part in parts])
        if dues is not None:
            parts = await delays.put_off(parts, dues)
        return await self._publish(parts, level, count)

    def _plain_part(
        self,
        values: Sequence[bytes | Message],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
    ) -> Part | None:
        """A batch of values, or of values and keys, for one partition, when it is so small in all that no message can
        be too large. None for any other, right or wrong, which is looked at message by message.
        """
        if partition is None and not self.choice.is_none:
            return None
        columns = plain_columns(values, keys, min(self.live.bytes_max, FRAME_BYTES_TARGET))
        if columns is None:
            return None
        port = self.live.ports[0 if partition is None else self.choice.named(partition)]
        return Part(port, range(columns.count), columns, columns.size_bytes)

    async def publish_columns(self, index: int, columns: Columns, level: Level) -> None:
        """Publish a batch whose columns the caller has built; they are the partition's from now on.

        They are within all limits, which are not checked again. Otherwise as `publish_batch`.
        """
        part = Part(self.live.ports[index], range(columns.count), columns, columns.size_bytes)
        await self._publish([part], level, columns.count)

    async def _publish(self, parts: Sequence[Part], level: Level, count: int) -> Receipts:
        """Send the parts of a batch of `count`, and wait for them as the level asks."""
        sender = self.sender
        if len(parts) == 1:
            part = parts[0]
            account = sender.account_of(part.port)
            answer = await sender.send(account, part.command(level, account.number))
            return Receipts(self.live.name, count, part.ranges(answer))
        accounts = [sender.account_of(part.port) for part in parts]
        answers = await sender.send_all(
            [
                (account, part.command(level, account.number))
                for part, account in zip(parts, accounts, strict=True)
            ]
        )
        outcomes = [
            answer if isinstance(answer, CallboardError) else part.ranges(answer)
            for part, answer in zip(parts, answers, strict=True)
        ]
        return summed_up(self.live.name, parts, outcomes, count)

    def _parts(
        self, batch: Unpacked, partition: int | None, level: Level, waits: Sequence[bool] | None = None
    ) -> list[Part]:
        """The batch in parts, checked. Messages of which `waits` says that they wait make parts of their own."""
        live, values = self.live, batch.values
        size = batch.sizes(live.bytes_max, self._refused)
        stored = batch.stored()
        with_priority, with_id = first_given(stored.get("priorities")), first_given(stored.get("dedup_ids"))
        if with_priority is not None:
            check_priority(live, with_priority)
        guard = None
        if batch.expected:
            check_level_reports(level)
            batch = check_batch_expects(live, batch, partition)
        if with_id is not None:
            check_level_reports(level)
            check_ids(live, with_id)
            guard = Guard()
            if partition is None:
                count_of = len(live.ports)
                batch = batch.placed_by_ids(stored["dedup_ids"], lambda key: consistent(key, count_of))
        found = self.choice.of_batch(batch, size, partition)
        if waits is not None:
            found = [(place, half) for place, indexes in found for half in halves(indexes, waits)]
        if batch.expected:
            check_first_offsets(batch.expected, found)
        parts = []
        for place, indexes in found:
            chunks, expected = chunked(indexes, values, size), batch.expected.get(indexes[0])
            if expected is not None and len(chunks) > 1:
                raise InvalidArgument(
                    f"message {indexes[0]} of the batch has an expected_offset, and what goes with it to partition"
                    f" {place} has more than {FRAME_BYTES_TARGET} bytes, which are not stored in one piece. Nothing was"
                    " written. Split the batch.",
                    index=indexes[0],
                )
            for chunk in chunks:
                columns = columns_of(chunk, values, stored)
                bytes_here = size if len(chunk) == len(values) else columns.size_bytes
                checked_then = guard if expected is None else Guard(expected)
                parts.append(Part(live.ports[place], chunk, columns, bytes_here, checked_then))
        return parts

    # -- for producers, and others whose commands are their own

    def next_owner(self) -> int:
        """A number for a producer, which no other of the topic has in this process."""
        self._owners += 1
        return self._owners

    def parted(
        self,
        values: Sequence[bytes | Message],
        columns: Mapping[str, Sequence[Any]],
        partition: int | None,
        acks: str,
    ) -> tuple[Level, list[Part]]:
        """A batch as a producer publishes it: in parts, checked. Raises `InvalidArgument` and `MessageTooLarge`."""
        level = level_of(acks)
        check_level_reports(level)
        values = batch_of(values)
        index = None if partition is None else self.choice.named(partition)
        batch = unpacked(values, columns)
        if batch.has_delays:
            raise InvalidArgument(
                "a message of a producer has a delay or deliver_at, which no producer takes. Nothing was written."
                " Publish it with topic.publish."
            )
        refuse_ids_and_offsets(batch, BY_SEQUENCE, EXPECTED_BY_SEQUENCE)
        return level, self._parts(batch, index, level)

    async def send(self, port: PartitionPort, command: PublishMany) -> Any:
        """Send a command of the caller's; what the partition answers. Raises as `publish` does."""
        account = self.sender.account_of(port)
        return await self.sender.send(account, command._replace(client=account.number))


def _place(message: Message, partition: int | None) -> int | None:
    """The partition that a message names, or else `partition`."""
    return partition if message.partition is None else message.partition
