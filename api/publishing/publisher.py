"""The publisher's half of a publish: check everything, choose the partition, build columns, wait for the receipt.

All checks come before anything is sent. What leaves here is one message to one partition's actor per partition touched;
`callboard.actors.partition.partition` takes over from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import trio

from callboard.actors.catalog.directory import LiveTopic
from callboard.actors.kernel import Reply
from callboard.actors.partition.account import Account
from callboard.actors.partition.commands import (
    LEVELS,
    BeginProducer,
    Guard,
    Level,
    Offsets,
    PublishMany,
    PublishOne,
)
from callboard.actors.partition.port import PartitionPort
from callboard.log.errors import (
    ActorStopped,
    CallboardError,
    InvalidArgument,
    MailboxFull,
    MessageTooLarge,
    PartialPublish,
    RuntimeClosed,
    TopicNotFound,
)
from callboard.log.format.columns import Columns
from callboard.log.limits import KEY_BYTES_MAX
from callboard.log.plain import shown, whole
from callboard.message import (
    Message,
    Receipt,
    Receipts,
    StoredRange,
    check_bytes,
    check_key,
    stored_ranges,
)
from callboard.publishing.allowed import (
    check_begins,
    check_expected,
    check_expecting,
    check_guarded,
    check_ids,
    check_is_one,
    check_priority,
    expecting,
    first_given,
    level_of,
)
from callboard.publishing.columns import (
    FRAME_BYTES_TARGET,
    Part,
    Unpacked,
    batch_of,
    chunked,
    columns_of,
    halves,
    of_message,
    opened,
    plain_columns,
    stored_attributes,
    unpacked,
)
from callboard.publishing.partitioning import (
    Partitioner,
    StickyRoundRobin,
    check_partitioner,
    checked,
    consistent,
    is_same,
    split,
)

TELLS_PER_PASS = 32
"""Records that no task awaits, published in one step of a task at most; then other tasks run."""
BY_SEQUENCE = "a producer's message has a dedup_id, and is known by its sequence already"
EXPECTED_BY_SEQUENCE = (
    "a producer's message has an expected_offset, and its place is known by its sequence already"
)


Outcome = Sequence[StoredRange] | CallboardError
"""What came of a part of a batch."""


class _Sent(NamedTuple):
    """A part of a batch that was handed over: what came of it is known, or a reply says it (None: not awaited)."""

    partition: int
    chunk: Sequence[int]
    started: Reply | CallboardError | None


def publisher_of(live: LiveTopic, partitioner: Partitioner | None = None) -> Publisher:
    """The publisher of a live topic: there is one, however often it is asked for.

    Raises `InvalidArgument` when `partitioner` is given and keys go, or may have gone, by another.
    """
    if live.publisher is None:
        live.publisher = Publisher(live)
    publisher: Publisher = live.publisher
    if partitioner is not None:
        publisher.choose_by(partitioner)
    return publisher


class Publisher:
    """Publishes to one live topic: its partitioner, and whose turn it is among its partitions."""

    def __init__(self, live: LiveTopic) -> None:
        self.live = live
        self.partitioner: Partitioner = consistent
        self._is_chosen = False
        """Whether the partitioner was named, or has chosen: it stays then."""
        self._tells = 0
        """Publishes that were not awaited, since the last one that let other tasks run."""
        self._sticky = StickyRoundRobin(len(live.ports))
        self._accounts = [Account(port) for port in live.ports]
        self._beside: dict[PartitionPort, Account] = {}
        """Accounts with partitions of the topic that hold something besides what was published."""
        self._owners = 0
        self.replays: set[object] = set()
        """Which replays into the topic run now: each runs once."""

    def choose_by(self, partitioner: Partitioner) -> None:
        """Let `partitioner` choose from now on. Raises `InvalidArgument` when it cannot, or another does already."""
        check_partitioner(partitioner, self.live.name)
        if self._is_chosen and not is_same(self.partitioner, partitioner):
            raise InvalidArgument(
                f"topic {self.live.name!r} has another partitioner in this process: with two of them one key would go"
                " to two partitions. Give the same function each time, before the first message with a key, or none.",
                topic=self.live.name,
            )
        self.partitioner = partitioner
        self._is_chosen = True

    def account_of(self, port: PartitionPort) -> Account:
        """The client's account with a partition of the topic, or with one beside it."""
        if not port.holds:
            return self._accounts[port.index]
        account = self._beside.get(port)
        if account is None:
            account = self._beside[port] = Account(port)
        return account

    def accounts(self) -> Sequence[Account]:
        """All that there are."""
        return (*self._accounts, *self._beside.values())

    # -- one record

    async def publish(
        self,
        value: bytes | Message,
        key: bytes | None,
        given: Mapping[str, Any] | None,
        partition: int | None,
        acks: str,
    ) -> Receipt:
        """See `Topic.publish`; `given` are the attributes other than `key`, None for none."""
        level = LEVELS[acks] if type(acks) is str and acks in LEVELS else level_of(acks)
        if type(value) is not bytes:
            if isinstance(value, Message):
                if value.dedup_id is not None or value.expected_offset is not None:
                    return await self.publish_guarded(value, key, given, partition, acks, None)
                value, key, given, partition = opened(value, key, given, partition)
            value = check_bytes("value", value)
        size = len(value)
        if key is not None:
            if type(key) is not bytes or len(key) > KEY_BYTES_MAX:
                check_key(key)
                key = check_bytes("key", key)
            size += len(key)
        attributes: dict[str, Any] | None = None
        if given is not None:
            attributes, more = stored_attributes(given)
            self._check_priority(attributes)
            size += more
        live = self.live
        if size > live.settings.max_message_bytes:
            raise self._too_large(size)
        accounts = self._accounts
        if partition is None and len(accounts) == 1 and self.partitioner is consistent:
            account = accounts[0]
        else:
            account = self._account(key, size, partition)
        message, index = PublishOne(value, key, attributes, level, size, account.number), account.port.index
        credit = account.credit
        if account.state != "running" or not credit.take_nowait(size):
            return Receipt(live.name, index, await self._send(account, message, 1))
        # `_send` once more, without its call: with many publishers the processor is what bounds them.
        if level is Level.NONE:
            await self._tell(account, message, 1)
            return Receipt(live.name, index, None)
        try:
            try:
                reply = account.ref.ask_nowait(message)
            except MailboxFull:
                reply = await self._sent(account, message)
            except BaseException:
                credit.give_back(size)
                raise
            offset = await reply.settled()
        except ActorStopped as error:
            raise self._stopped() from error
        return Receipt(live.name, index, offset)

    async def publish_guarded(
        self,
        value: bytes | Message,
        key: bytes | None,
        given: Mapping[str, Any] | None,
        partition: int | None,
        acks: str,
        expected_offset: int | None,
    ) -> Receipt:
        """As `publish`, when the message has an id, or its offset is decided already."""
        level, live = level_of(acks), self.live
        if isinstance(value, Message):
            if value.expected_offset is not None:
                if expected_offset is not None:
                    raise InvalidArgument(
                        "publish was given an expected_offset and a Message that has one. Nothing was written. Give"
                        " one."
                    )
                expected_offset = value.expected_offset
            value, key, given, partition = opened(value, key, given, partition)
        value = check_bytes("value", value)
        stored, more = stored_attributes(given or {})
        size = len(value) + check_key(key) + more
        key = None if key is None else check_bytes("key", key)
        if size > live.settings.max_message_bytes:
            raise self._too_large(size)
        dedup_id = (stored or {}).get("dedup_ids")
        self._check_priority(stored)
        check_guarded(level)
        if dedup_id is not None:
            check_ids(live, None)
        if expected_offset is not None:
            is_placed = key is not None or partition is not None
            expected_offset = check_expected(live, expected_offset, is_placed=is_placed, index=None)
        if partition is None and key is None and dedup_id is not None:
            partition = consistent(dedup_id, len(live.ports))
        account = self._account(key, size, partition)
        columns = Columns.build(
            (value,),
            None if key is None else (key,),
            **{name: (item,) for name, item in (stored or {}).items()},
        )
        message = PublishMany(columns, level, size, Guard(expected_offset))
        answer: Offsets = await self._send(account, message, 1)
        return Receipt(live.name, account.index, answer.offsets[0], duplicate=bool(answer.duplicates))

    def placed(
        self,
        value: bytes | Message,
        key: bytes | None,
        given: Mapping[str, Any] | None,
        partition: int | None,
    ) -> tuple[int, int, bytes, bytes | None, dict[str, Any]]:
        """A message that is published later, checked: its partition, bytes, value, key and stored attributes."""
        live = self.live
        if live.deleted:
            raise self._stopped()
        if isinstance(value, Message):
            if value.expected_offset is not None:
                raise InvalidArgument(
                    "a message that is published with an ack has an expected_offset, and its offset is decided after"
                    " the ack. Nothing was written. Leave it out, or call topic.publish, with a dedup_id, and ack."
                )
            value, key, given, partition = opened(value, key, given, partition)
        value = check_bytes("value", value)
        stored, more = stored_attributes(given or {})
        size = len(value) + check_key(key) + more
        if size > live.settings.max_message_bytes:
            raise self._too_large(size)
        if stored is not None and "dedup_ids" in stored:
            raise InvalidArgument(
                "a message that is published with an ack has a dedup_id, and comes once already. Nothing was written."
                " Leave it out."
            )
        self._check_priority(stored)
        key = None if key is None else check_bytes("key", key)
        return self._account(key, size, partition).index, size, value, key, stored or {}

    def _check_priority(self, stored: Mapping[str, Any] | None) -> None:
        """Raise `InvalidArgument` for a single message with a priority, where the topic has none."""
        if stored is not None and "priorities" in stored:
            check_priority(self.live, None)

    def _account(self, key: bytes | None, size: int, partition: int | None) -> Account:
        """That with the partition of a message."""
        accounts = self._accounts
        if partition is not None:
            return accounts[self.checked_partition(partition)]
        if key is None:
            self._pass_refusing()
            return accounts[self._sticky.choose(1, size)]
        self._is_chosen = True
        if self.partitioner is consistent:
            return accounts[consistent(key, len(accounts))]
        return accounts[checked(self.partitioner, key, len(accounts))]

    def _pass_refusing(self) -> None:
        """It is not the turn of partitions that take nothing now, unless all are such."""
        sticky, accounts = self._sticky, self._accounts
        for _ in accounts:
            if not accounts[sticky.partition].refuses:
                return
            sticky.move_on()

    def checked_partition(self, partition: int) -> int:
        """`partition`, if the topic has it. Raises `InvalidArgument`."""
        count = len(self.live.ports)
        index = whole(partition)
        if index is None or not 0 <= index < count:
            raise InvalidArgument(
                f"topic {self.live.name!r} has no partition {shown(partition, 40)}. Nothing was written."
                f" Its partitions are 0 to {count - 1}."
            )
        return index

    async def _send(self, account: Account, message: PublishOne | PublishMany, records: int) -> Any:
        """Hand the message to the partition and wait as its level asks; what it answers (an offset), or None."""
        await self._take(account, message.size_bytes)
        if not message.client:
            message = message._replace(client=account.number)
        if message.level is Level.NONE:
            await self._tell(account, message, records)
            return None
        try:
            try:
                reply = account.ref.ask_nowait(message)
            except MailboxFull:
                reply = await self._sent(account, message)
            except BaseException:
                account.credit.give_back(message.size_bytes)
                raise
            return await reply.settled()
        except ActorStopped as error:
            raise self._stopped() from error

    async def _sent(self, account: Account, message: PublishOne | PublishMany) -> Reply:
        """Enqueue the message, whose credit was taken: the partition returns it, unless it never gets the message."""
        reply = account.ref.question()
        try:
            await account.ref.send(message, reply)
        except BaseException:
            account.credit.give_back(message.size_bytes)
            raise
        return reply

    async def _take(self, account: Account, size_bytes: int) -> None:
        """Take credit, or wait for some, unless the partition refuses everything, or gets to meanwhile."""
        while True:
            if account.state != "running":
                if account.refuses:
                    raise self._refused(account)
                account.want()
            if account.credit.take_nowait(size_bytes) or await account.credit.take(size_bytes):
                return

    async def _tell(self, account: Account, message: PublishOne | PublishMany, records: int) -> None:
        """Enqueue what is not awaited, and whose credit was taken; the account counts what fails.

        A checkpoint for cancellation, and once in `TELLS_PER_PASS` times one that lets other tasks run.
        """
        account.unawaited_waiting += records
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                account.ref.tell_nowait(message)
            except MailboxFull:
                await account.ref.tell(message)
                return
        except BaseException as error:
            account.unawaited_ended(records)
            account.credit.give_back(message.size_bytes)
            if isinstance(error, ActorStopped):
                raise self._stopped() from error
            raise
        self._tells += 1
        if self._tells >= TELLS_PER_PASS or records > 1:
            self._tells = 0
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _refused(self, account: Account) -> CallboardError:
        return self._stopped() if self.live.deleted else account.unavailable()

    def _stopped(self) -> CallboardError:
        if self.live.deleted:
            return TopicNotFound(
                f"topic {self.live.name!r} was deleted. Nothing was written.", topic=self.live.name
            )
        return RuntimeClosed("the runtime is closed. Nothing was written. Open it again.")

    def _too_large(self, size: int, index: int | None = None) -> MessageTooLarge:
        where = "the message" if index is None else f"message {index} of the batch"
        limit = self.live.settings.max_message_bytes
        return MessageTooLarge(
            f"{where} has {size} bytes with its key and headers; topic {self.live.name!r} allows {limit}."
            " Nothing was written. Raise max_message_bytes, or store the payload elsewhere and publish its name.",
            size_bytes=size,
            limit_bytes=limit,
            index=index,
        )

    # -- for producers

    def next_owner(self) -> int:
        """A number for a producer, which no other of the topic has in this process."""
        self._owners += 1
        return self._owners

    def parted(
        self,
        values: Sequence[bytes | Message],
        given: Mapping[str, Sequence[Any]],
        partition: int | None,
        acks: str,
        *,
        by: str = BY_SEQUENCE,
        expected_by: str = EXPECTED_BY_SEQUENCE,
        waits: Sequence[bool] | None = None,
    ) -> tuple[Level, list[Part]]:
        """A batch as a producer publishes it, or one in which messages wait: in parts, checked.

        Raises `InvalidArgument` and `MessageTooLarge`. `by` and `expected_by` are why no message may have a `dedup_id`
        or an `expected_offset`: none of those of which `waits` says that it waits, or none at all. Such messages make
        parts of their own.
        """
        level = level_of(acks)
        check_guarded(level)
        values = batch_of(values)
        index = None if partition is None else self.checked_partition(partition)
        batch = unpacked(values, given)
        refused = dict.fromkeys(batch.expected, expected_by)
        ids = batch.given.get("dedup_id") or ()
        refused |= {at: by for at, item in enumerate(ids) if item is not None}
        at = min((at for at in refused if waits is None or waits[at]), default=None)
        if at is not None:
            raise InvalidArgument(
                f"message {at} of the batch: {refused[at]}. Nothing was written. Leave one of the two out.",
                index=at,
            )
        return level, self._cut(batch, index, level, waits)

    def check_one(self, value: bytes, key: bytes | None, given: Mapping[str, Any]) -> None:
        """Raise what is wrong with a single message, `InvalidArgument` or `MessageTooLarge`."""
        stored, more = stored_attributes(given)
        size = len(check_bytes("value", value)) + check_key(key) + more
        if size > self.live.settings.max_message_bytes:
            raise self._too_large(size)
        self._check_priority(stored)

    async def send(self, port: PartitionPort, message: PublishMany) -> Any:
        """Publish a part of it; what the partition answers. Raises as `publish` does."""
        return await self._send(self.account_of(port), message, message.columns.count)

    async def ask(self, port: PartitionPort, command: BeginProducer) -> tuple[int, int]:
        """Ask a partition; what it answers. Raises as `publish` does."""
        account = self.account_of(port)
        if account.refuses:
            raise self._refused(account)
        account.want()
        try:
            return await account.ref.ask(command)
        except ActorStopped as error:
            raise self._stopped() from error

    # -- batches

    async def publish_columns(self, index: int, columns: Columns, level: Level) -> None:
        """Publish a batch whose columns somebody else has built; they are the partition's from now on.

        They are within all limits, which are not checked again. Otherwise as `publish_batch`.
        """
        size = columns.size_bytes
        await self._send(self._accounts[index], PublishMany(columns, level, size), columns.count)

    async def publish_batch(
        self,
        values: Sequence[bytes | Message],
        keys: Sequence[bytes | None] | None,
        given: Mapping[str, Sequence[Any]],
        partition: int | None,
        acks: str,
        expected_offset: int | None = None,
    ) -> Receipts:
        """See `Topic.publish_batch`; `given` are the columns of attributes other than `key`."""
        level = level_of(acks)
        values = batch_of(values)
        count = len(values)
        if count == 0:
            return Receipts(self.live.name, 0, ())
        index = None if partition is None else self.checked_partition(partition)
        if index is None and self._is_alone:
            index = 0
        batch = unpacked(values, given if keys is None else {"key": keys, **given})
        if expected_offset is not None:
            batch = expecting(self.live, batch, index, expected_offset)
        return await self._publish_checked(batch, index, level, is_one=expected_offset is not None)

    def plain_columns(
        self,
        values: Sequence[bytes | Message],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
    ) -> Columns | None:
        """The columns of a batch of values, or of values and keys, for one partition, when it is so small in all that
        no message can be too large. None for any other, right or wrong, which `publish_batch` takes.
        """
        if partition is None and not self._is_alone:
            return None
        return plain_columns(values, keys, min(self.live.settings.max_message_bytes, FRAME_BYTES_TARGET))

    @property
    def _is_alone(self) -> bool:
        """Whether there is one partition, and no choice to make."""
        return len(self.live.ports) == 1 and self.partitioner is consistent

    async def publish_plain(self, columns: Columns, partition: int | None, acks: str) -> Receipts:
        """Publish what `plain_columns` made. Otherwise as `publish_batch`."""
        level, count = level_of(acks), columns.count
        index = 0 if partition is None else self.checked_partition(partition)
        account = self._accounts[index]
        message = PublishMany(columns, level, columns.size_bytes, None, account.number)
        offset = await self._send(account, message, count)
        return Receipts(self.live.name, count, (StoredRange(index, offset, range(count)),))

    async def _publish_checked(
        self, batch: Unpacked, index: int | None, level: Level, *, is_one: bool
    ) -> Receipts:
        count = len(batch.values)
        parts = self._cut(batch, index, level)
        if is_one:
            check_is_one(self.live, [part.partition for part in parts])
        sendings = [(self.live.ports[part.partition], part.chunk, part.message(level)) for part in parts]
        if len(sendings) == 1:
            port, chunk, message = sendings[0]
            answer = await self._send(self.account_of(port), message, len(chunk))
            return Receipts(self.live.name, count, stored_ranges(port.index, answer, chunk))
        outcomes = await self.outcomes(sendings)
        return self.summed_up(outcomes, [chunk for _, chunk, _ in sendings], count)

    def _cut(
        self, batch: Unpacked, partition: int | None, level: Level, waits: Sequence[bool] | None = None
    ) -> list[Part]:
        """The batch in parts, checked. Messages of which `waits` says that they wait make parts of their own."""
        live, values = self.live, batch.values
        size = batch.sizes(live.settings.max_message_bytes, self._too_large)
        stored = batch.stored()
        with_priority, with_id = first_given(stored.get("priorities")), first_given(stored.get("dedup_ids"))
        if with_priority is not None:
            check_priority(live, with_priority)
        guard = None
        if batch.expected:
            check_guarded(level)
            batch = check_expecting(live, batch, partition)
        if with_id is not None:
            check_guarded(level)
            check_ids(live, with_id)
            guard = Guard()
            if partition is None:
                count_of = len(live.ports)
                batch = batch.placed_by_ids(stored["dedup_ids"], lambda key: consistent(key, count_of))
        found = self._parts(batch, size, partition)
        if waits is not None:
            found = [(place, half) for place, indexes in found for half in halves(indexes, waits)]
        if batch.expected:
            check_begins(batch.expected, found)
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
                parts.append(Part(place, chunk, columns, bytes_here, checked_then))
        return parts

    def _parts(self, batch: Unpacked, size: int, partition: int | None) -> list[tuple[int, Sequence[int]]]:
        """The indexes of the batch by partition: `partition` for messages that choose none, else by key or in turn."""
        chosen: dict[int, list[int]] = {}
        others: Sequence[int] = range(len(batch.values))
        if batch.partitions is not None:
            for index, place in enumerate(batch.partitions):
                if place is not None:
                    chosen.setdefault(of_message(index, self.checked_partition, place), []).append(index)
            others = [index for index, place in enumerate(batch.partitions) if place is None]
        if not others:
            return list(chosen.items())
        if partition is not None:
            found: Mapping[int, Sequence[int]] = {partition: others}
        else:
            keys = batch.given.get("key")
            self._pass_refusing()
            if keys is None:
                found = {self._sticky.choose(len(others), size): others}
            else:
                self._is_chosen = True
                found = split(
                    keys if len(others) == len(keys) else [keys[index] for index in others],
                    len(self.live.ports),
                    sticky=self._sticky,
                    size_bytes=size,
                    partitioner=self.partitioner,
                    indexes=others,
                )
                if len(others) < len(keys):
                    found = {place: [others[at] for at in indexes] for place, indexes in found.items()}
        if not chosen:
            return list(found.items())
        for place, indexes in found.items():
            chosen[place] = sorted([*chosen.get(place, ()), *indexes])
        return list(chosen.items())

    async def outcomes(
        self, sendings: Sequence[tuple[PartitionPort, Sequence[int], PublishMany]]
    ) -> list[Outcome]:
        """What came of all parts, in this task: send as many as there is credit for, then wait for them, then go on.

        Before it waits for room it waits for all that it has sent: two batches would wait for each other, or a large
        one for itself.
        """
        sent: deque[_Sent] = deque()
        outcomes: list[Outcome] = []
        for port, chunk, message in sendings:
            account = self.account_of(port)
            if not account.credit.has_room(message.size_bytes):
                while sent:
                    outcomes.append(await self._outcome(sent.popleft()))
            sent.append(await self._start(account, chunk, message))
        while sent:
            outcomes.append(await self._outcome(sent.popleft()))
        return outcomes

    async def _outcome(self, sent: _Sent) -> Outcome:
        """Wait for a part."""
        index, chunk, started = sent
        if isinstance(started, CallboardError):
            return started
        try:
            first = await started.wait() if isinstance(started, Reply) else started
        except ActorStopped:
            return self._stopped()
        except CallboardError as error:
            return error
        return stored_ranges(index, first, chunk)

    async def _start(self, account: Account, chunk: Sequence[int], message: PublishMany) -> _Sent:
        """Hand a part over."""
        index, message = account.index, message._replace(client=account.number)
        try:
            await self._take(account, message.size_bytes)
            if message.level is Level.NONE:
                await self._tell(account, message, len(chunk))
                return _Sent(index, chunk, None)
            return _Sent(index, chunk, await self._sent(account, message))
        except ActorStopped:
            return _Sent(index, chunk, self._stopped())
        except CallboardError as error:
            return _Sent(index, chunk, error)

    def summed_up(self, outcomes: Sequence[Outcome], chunks: Sequence[Sequence[int]], count: int) -> Receipts:
        """The receipts of a batch of `count` from what came of its parts, or the error that says which are stored."""
        errors = [outcome for outcome in outcomes if isinstance(outcome, CallboardError)]
        if not errors:
            stored = [
                part for outcome in outcomes if not isinstance(outcome, CallboardError) for part in outcome
            ]
            return Receipts(self.live.name, count, stored)
        if len(errors) == len(outcomes) and not any(error.indefinite for error in errors):
            raise errors[0]
        fates: dict[int, Receipt | CallboardError] = {}
        for outcome, chunk in zip(outcomes, chunks, strict=True):
            if isinstance(outcome, CallboardError):
                fates.update(dict.fromkeys(chunk, outcome))
            else:
                fates.update(pair for part in outcome for pair in part.receipts(self.live.name))
        failed = sum(isinstance(fate, CallboardError) for fate in fates.values())
        raise PartialPublish(
            f"{failed} of {count} messages for topic {self.live.name!r} are not, or not certainly, stored:"
            f" {errors[0]} `receipts` holds the fate of each; publish those that failed again.",
            receipts=tuple(fates[index] for index in range(count)),
            topic=self.live.name,
        )
