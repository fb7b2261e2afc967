"""A topic as its users hold it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Never, Unpack, overload

import trio

from callboard.actors.mirror import MirroredTopic
from callboard.actors.names import check_not_own_group
from callboard.actors.partition.commands import Acks, Flush, PartitionStatistics
from callboard.actors.settings import GroupOptions, Start, TopicSettings
from callboard.consumer.consumer import Consumer
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.handler_calls import Handler
from callboard.consumer.reader import BatchReader, RecordReader
from callboard.consumer.work import GRACE_S, Working, check_settings_of_work
from callboard.dead_letters.kept import KeptLetters
from callboard.log.errors import ActorStopped, CallboardError, PublishFailed
from callboard.log.plain import refuse_copy
from callboard.message import Headers, Message, Receipt, Receipts, ScheduledReceipt, message_of
from callboard.publishing.columns import given_columns
from callboard.publishing.delayed import DelayedMessages
from callboard.publishing.delaying import Delays
from callboard.publishing.partitioning import Partitioner
from callboard.publishing.producer import Producer
from callboard.publishing.publisher import Publisher, publisher_of
from callboard.publishing.schedules import Missed, Schedule, add_schedule

if TYPE_CHECKING:
    from callboard.session import Session


class Topic:
    """A durable, partitioned log of messages. Get one from `Runtime.create_topic` or `Runtime.topic`."""

    __reduce_ex__ = refuse_copy

    def __init__(self, session: Session, live: MirroredTopic, partitioner: Partitioner | None = None) -> None:
        self._session = session
        self._live = live
        self._publisher = publisher_of(session, live, partitioner)
        self._delays = Delays(session, live)

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._live.name

    @property
    def topic_id(self) -> str:
        """The id that names its files; a topic created again under the same name has another."""
        return self._live.topic_id

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self._live.ports)

    @property
    def settings(self) -> TopicSettings:
        """Its settings now."""
        return self._live.settings

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} with {self.partitions} partitions>"

    @overload
    async def publish(
        self,
        value: bytes | Message,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: datetime | None = None,
        dedup_id: bytes | str | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        partition: int | None = None,
        expected_offset: int | None = None,
        delay: None = None,
        deliver_at: None = None,
        acks: Acks = "all",
    ) -> Receipt: ...
    @overload
    async def publish(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: datetime | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        partition: int | None = None,
        delay: float,
        deliver_at: None = None,
        acks: Acks = "all",
    ) -> ScheduledReceipt: ...
    @overload
    async def publish(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: datetime | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        partition: int | None = None,
        delay: None = None,
        deliver_at: datetime,
        acks: Acks = "all",
    ) -> ScheduledReceipt: ...
    async def publish(
        self,
        value: bytes | Message,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: datetime | None = None,
        dedup_id: bytes | str | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        partition: int | None = None,
        expected_offset: int | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        acks: Acks = "all",
    ) -> Receipt:
        """Publish one message and return where it is stored; `value` may be a `Message` that carries the rest.

        `key` decides the partition (CRC-32 modulo partitions), and messages of one key keep their order; `partition`
        overrides it. Without either, partitions take turns of 100 messages or 64 KiB, beginning with partition 0 in
        each program: one that publishes a few messages and ends gives a key or a partition. `timestamp` is the event's
        own time. `acks` says what the return means: "all", synced, survives power loss; "leader", with the operating
        system, survives a crash of this process; "none", not waited for: `flush` and closing tell of failures.

        `dedup_id` stands for the message, so that it can be repeated: within the topic's `dedup_window` the partition
        stores it once, and returns the receipt of the first to all. Without a key the id decides the partition. With
        `expected_offset` the message is stored only if the partition's next offset is this one. A message with a `ttl`
        is delivered to no group this many seconds after its append; without one the topic's `default_ttl` counts, with
        `math.inf` it never expires. In a topic with `priorities` the messages of a higher `priority`, 0 (low) to 9
        (high) and 4 without one, are delivered first.

        With a `delay` in seconds, or `deliver_at`, a datetime with a time zone, the message waits beside the topic,
        and the receipt is a `ScheduledReceipt`. When it is due it comes to its partition, with the next offset; time to
        live and retention count from then on. A delay does not follow a clock that is set anew, an instant does.

        Raises `OffsetMismatch` when it is another one; `InvalidArgument` and `MessageTooLarge` before anything is
        written; `TopicReadOnly`, `TopicFull`, `DiskFull` when nothing was stored; `PublishFailed`, `ActorCrashed` with
        `indefinite` set when it may be; `PartitionUnavailable`; `RuntimeClosed`. A cancelled publish is indefinite too.
        """
        self._session.check_open()
        if (
            type(value) is bytes
            and headers is None
            and timestamp is None
            and dedup_id is None
            and ttl is None
            and priority is None
            and expected_offset is None
            and delay is None
            and deliver_at is None
        ):
            account, command = self._publisher.plain_command(value, key, partition, acks)
            offset = await self._publisher.sender.send(account, command)
            return Receipt(self._live.name, account.port.index, offset)
        message = message_of(
            value,
            key=key,
            headers=headers,
            timestamp=timestamp,
            dedup_id=dedup_id,
            ttl=ttl,
            priority=priority,
            delay=delay,
            deliver_at=deliver_at,
            expected_offset=expected_offset,
        )
        return await self._publisher.publish(message, partition, acks, self._delays)

    async def publish_batch(
        self,
        values: Sequence[bytes | Message],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps: Sequence[datetime | None] | None = None,
        dedup_ids: Sequence[bytes | str | None] | None = None,
        ttls: Sequence[float | None] | None = None,
        priorities: Sequence[int | None] | None = None,
        delays: Sequence[float | None] | None = None,
        deliver_ats: Sequence[datetime | None] | None = None,
        partition: int | None = None,
        expected_offset: int | None = None,
        acks: Acks = "all",
    ) -> Receipts:
        """Publish many messages at once: by far the quickest way.

        `values` and the optional columns beside it are sequences of one length; `values` may hold `Message`s instead.
        `partition` is for messages that name none. With `expected_offset` the batch, which must go to one partition, is
        stored only if the partition's next offset is this one; the first `Message` for each of several partitions may
        have one for all that follow it there.

        The part of a batch that goes to one partition is stored in order. Messages that are delayed are a part of their
        own for each partition, and have `ScheduledReceipt`s; the others are stored at once, with offsets. A batch of
        several parts is not atomic. If no part is stored, and that is certain, the first part's error is raised, and
        all may be published again. Otherwise `PartialPublish` is raised; its `receipts` hold the fate of each message:
        its receipt, or its error, which is `indefinite` where the message may be stored, or wait, all the same. Publish
        only those with an error again. Otherwise raises as `publish` does.
        """
        self._session.check_open()
        columns = given_columns(
            keys=keys,
            headers=headers,
            timestamps=timestamps,
            dedup_ids=dedup_ids,
            ttls=ttls,
            priorities=priorities,
            delays=delays,
            deliver_ats=deliver_ats,
        )
        return await self._publisher.publish_batch(
            values, columns, partition, acks, expected_offset, self._delays
        )

    def delayed(self) -> DelayedMessages:
        """The messages that wait until they are due: to be listed, counted and cancelled."""
        self._session.check_open()
        return DelayedMessages(self._session, self._live)

    async def schedule(
        self,
        name: str,
        *,
        value: bytes,
        cron: str | None = None,
        zone: str | None = None,
        every: float | None = None,
        missed: Missed = "latest",
        key: bytes | None = None,
        headers: Headers | None = None,
        ttl: float | None = None,
        priority: int | None = None,
        partition: int | None = None,
    ) -> Schedule:
        """Publish something again and again: `await topic.schedule("report", cron="0 9 * * MON-FRI", value=b"now")`.

        Make the schedule of that name, or find it if it has the same settings. It is durable, and published for by
        whatever process has the directory open. `cron` is an expression of five fields (minute, hour, day of the month,
        month, day of the week; six: seconds first), whose times are those of `zone`, "UTC" without one. In its place
        `every` says how many seconds lie between due instants. Each due instant is published once, with headers
        `callboard-schedule` and `callboard-due`; `timestamp` is the due instant. `missed` says what becomes of those
        that passed while the directory was closed: at the next opening the "latest" comes, or "all" (the latest 100),
        or none ("skip"). `key`, `headers`, `ttl`, `priority` and `partition` are as in `publish`; without a key
        and a partition the name decides the partition. Returns when the schedule is synced.

        Raises `InvalidArgument` for what cannot be published, or is never due; `ScheduleExists` when the name has other
        settings; `TopicNotFound`.
        """
        self._session.check_open()
        return await add_schedule(
            self._session,
            self._live,
            name,
            value=value,
            cron=cron,
            zone=zone,
            every=every,
            missed=missed,
            key=key,
            headers=headers,
            ttl=ttl,
            priority=priority,
            partition=partition,
        )

    def schedules(self) -> tuple[Schedule, ...]:
        """The recurring publishes of the topic, by name."""
        self._session.check_open()
        return tuple(Schedule(self._session, live) for live in self._session.schedules_of(self.topic_id))

    def producer(self, name: str) -> Producer:
        """A producer, which publishes under a name, each message once whatever fails: `async with
        topic.producer("import")`.

        The name lives on in the log: a producer of that name that begins later, also in another process, goes on where
        this one ended, and fences it.
        """
        self._session.check_open()
        return Producer(self._session, self._publisher, name)

    async def flush(self) -> None:
        """Return once everything published so far is synced, delayed messages too.

        Raises `PublishFailed` when messages published with `acks="none"` failed since the last call (`failed` counts
        them), `StorageError` when what was published with `acks="leader"` cannot be synced, `PartitionUnavailable`;
        all other partitions are flushed all the same. Raises `TopicNotFound` when the topic is deleted.
        """
        self._session.check_open()
        refusals: list[CallboardError] = []
        for port in (*self._live.ports, *self._live.waiting):
            try:
                await port.ref.ask(Flush())
            except ActorStopped:
                refusals.append(self._publisher.sender.cannot_publish())
            except CallboardError as error:
                refusals.append(error)
        raise_unawaited(self._publisher)
        if refusals:
            raise refusals[0]

    def subscribe(self, group: str, *, name: str | None = None, **settings: Unpack[GroupOptions]) -> Consumer:
        """A consumer of this topic in a group: `async with topic.subscribe("billing") as consumer`.

        `name` is a display name: `Runtime.groups` shows it beside the consumer's id.

        Settings belong to the group. Its first subscriber decides on them, `Group.alter` changes them; one that
        names others is refused, as a topic's are (`GroupExists`). They are `visibility_timeout` (30 s),
        `max_deliveries` (None), `max_in_flight` (10,000), `start` ("beginning", "end", an offset, a zoned datetime),
        `durable` (True), `group_expiry` (7 days), `backoff` (1 s), `max_backoff` (60 s) or in their place `retry`
        (seconds after each failure, or a list: after the first, the second, ...), and `ordering`: with "key" a message
        waits until all earlier ones of its key are settled, with "partition" of its partition, with "none" (the
        default) for nothing. Of a topic with priorities, `priority_window` (100,000) and `starvation_after` (None)
        belong to it too. `mode` is "shared" (the default; `distribution` says which consumer is next: "round-robin") or
        "exclusive": each partition is one consumer's, with `rebalance_timeout` (60 s) and `session_timeout` (300 s).
        `dead_letter_topic` (None) takes what is given up, `dead_letter_expired` (False) also what expires. A group that
        is `paused` (False) gets nothing until `Group.resume`.

        An offset as `start` holds in every partition: below the oldest record it means that one, past the end the end.
        Entering raises `ConfigurationError` with every problem.
        """
        self._session.check_open()
        check_not_own_group(group)
        return Consumer(Fetcher(self._session, (self._live,), group, settings, name))

    async def work(
        self,
        handler: Handler,
        group: str,
        *,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never:
        """Call `handler(message)` for each message of the group, at most `concurrency` at a time, until cancelled.

        A handler that returns acks its message, one that raises nacks it: it is delivered again after the group's
        backoff, or after `Retry(after=seconds)`; `Reject(reason)` gives it up, and so does the last of the group's
        `max_deliveries`. A failure is reported as the event `HandlerFailed`, which is logged. The lease is renewed
        while the handler runs; when it is lost all the same, the handler is cancelled. It may settle its message
        itself. What it publishes with `message.publish` goes with the ack.

        Messages of one key are handled one after the other, whatever `concurrency`. Later ones may overtake one that
        failed, or was given back because handlers are slow; with `ordering="key"` none ever does, whichever consumer
        has it.

        Cancelled, it takes no further message, gives back what no handler has, and waits up to `grace` seconds for
        handlers to end; then they are cancelled, and their messages released. `nursery.start` returns once it has
        joined. `name` and settings as in `subscribe`.

        Raises as `subscribe` does; `RuntimeClosed` and `TopicNotFound` when there is nothing more to come; and
        `InvalidArgument`.
        """
        check_settings_of_work(settings)
        self._session.check_open()
        check_not_own_group(group)
        fetcher = Fetcher(self._session, (self._live,), group, settings, name)
        await Working(fetcher, handler, concurrency, grace).run(task_status)

    def read(
        self,
        start: Start = "beginning",
        *,
        stop: Start | None = None,
        partition: int | None = None,
        follow: bool = False,
        skip_dropped: bool = False,
    ) -> RecordReader:
        """Iterate records without a group: `async for record in topic.read(start=0)`.

        `start` and `stop` (exclusive) are offsets, zoned datetimes (by append time), "beginning" or "end"; an
        offset below the oldest kept record means that record. Ends at what was visible at the first step, unless
        `follow`. Partitions are read one after the other.

        Retention does not wait for a reader. When it drops what the reader has not read yet, `OffsetOutOfRange` is
        raised once; asked again, the same reader goes on with the first record kept. With `skip_dropped` it goes on at
        once. `dropped` counts the offsets in both cases.
        """
        batches = self.read_batches(
            start, stop=stop, partition=partition, follow=follow, skip_dropped=skip_dropped
        )
        return RecordReader(batches)

    def read_batches(
        self,
        start: Start = "beginning",
        *,
        stop: Start | None = None,
        partition: int | None = None,
        follow: bool = False,
        skip_dropped: bool = False,
    ) -> BatchReader:
        """Like `read`, a batch at a time, as columns."""
        self._session.check_open()
        return BatchReader(
            self._session,
            self._live,
            start=start,
            stop=stop,
            partition=partition,
            follow=follow,
            skip_dropped=skip_dropped,
        )

    def dead_letters(self, group: str) -> KeptLetters:
        """The messages that `group` has given up on, because they were rejected or failed `max_deliveries` times:
        `await topic.dead_letters("billing").list()`.
        """
        self._session.check_open()
        return KeptLetters(self._session, self._live, group)

    async def describe(self) -> tuple[PartitionStatistics, ...]:
        """Offsets, sizes, state and groups of every partition."""
        self._session.check_open()
        return await self._session.partition_statistics(self._live.ports)


def raise_unawaited(publisher: Publisher) -> None:
    """Raise `PublishFailed` for the `acks="none"` publishes that have failed and are not reported yet."""
    failures = [account.take_unawaited() for account in publisher.accounts()]
    failed = sum(count for count, _ in failures)
    if failed:
        topic, cause = publisher.live.name, next(error for _, error in failures if error is not None)
        raise PublishFailed(
            f"{failed} messages that were published to {topic!r} with acks='none' are not, or not certainly,"
            f" stored: {cause} Publish them again, or use acks='leader' to hear of each.",
            failed=failed,
            topic=topic,
            indefinite=True,
        ) from cause


def publisher_to(topic: Topic) -> Publisher:
    """What publishes to a topic, for what works on one in this package."""
    return topic._publisher


def live_of(topic: object) -> MirroredTopic | None:
    """The live topic that a `Topic` is the handle of; None for anything else."""
    return topic._live if isinstance(topic, Topic) else None
