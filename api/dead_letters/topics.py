"""Topics of dead letters: look at what was forwarded to one, have it delivered again, or be done with it.

A topic of dead letters is a topic like others. What was redriven or purged is settled in one group of it, `HANDLED`,
which is opened by the first redrive or purge: from then on the topic keeps what is not settled there, as for any group.

Invariants
----------
RV1  A message is settled as handled only when it is stored where it was sent to, synced.
RV2  It is sent by a producer of its own, so that a repetition after a crash stores nothing twice. When it is settled as
     handled, that producer is forgotten: else it would take the place of others that the partition knows.
RV3  One redrive of a topic runs at a time: another would send what this one has settled, and whose producer is gone.
RV4  A redrive with a rate begins to publish each message at the earliest 1/rate seconds after the one before it, give
     or take a timer's lateness: what it loses while a partition takes nothing does not come in a burst.
RV5  Right before a message is sent it is looked at again: its group may have been deleted, and it may have been purged,
     since it was read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from callboard.actors.catalog.commands import ListGroups
from callboard.actors.kernel import Question
from callboard.actors.names import HANDLED
from callboard.actors.partition import commands as c
from callboard.actors.partition.choice.addressing import FOR_GROUP
from callboard.actors.partition.companion_partitions import dead_letter_records as f
from callboard.actors.partition.publishing.source_ids import REDRIVE_EPOCH
from callboard.arguments import check_flag
from callboard.asking import ask_again
from callboard.consumer.fetcher import Fetcher
from callboard.dead_letters.kept import check_choose, check_limit
from callboard.dead_letters.reasons import ReasonCounts
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    GroupNotFound,
    InvalidArgument,
    TopicNotFound,
)
from callboard.log.format.columns import Columns
from callboard.log.plain import number, refuse_copy, shown, text
from callboard.message import Record
from callboard.publishing.publisher import publisher_of

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveTopic
    from callboard.actors.catalog.state import GroupRecord
    from callboard.actors.partition.port import PartitionPort
    from callboard.session import Session

READ_RECORDS: Final = 1000
HANDLED_S: Final = 5.0
"""How long a redrive that is cancelled, or raises, tries to note what it has published."""
LATE_S: Final = 0.001
"""A timer comes so late: a redrive with a rate makes up for that, and for no other delay."""


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


@attrs.frozen(kw_only=True)
class Redriven:
    """What a redrive did, or would do."""

    messages: int
    """How many were published, or would be."""
    passed_over: dict[str, int]
    """How many were not, by the reason."""


Chooses = Callable[[ForwardedLetter], bool]
Page = Sequence[ForwardedLetter]
Groups = Mapping[str, "GroupRecord"]

A = TypeVar("A")


class DeadLetterTopic:
    """What was forwarded to one topic and is neither redriven nor purged. From `Runtime.dead_letters`."""

    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        session: Session,
        live: LiveTopic,
        find: Callable[[str], LiveTopic | None],
        ends: Sequence[int] | None = None,
    ) -> None:
        self._session = session
        self._live = live
        self._find = find
        self._ends = ends
        """Of each partition, what lies from this offset on is left out; None: nothing is."""

    async def list(self, choose: Chooses | None = None, *, limit: int = 1000) -> tuple[ForwardedLetter, ...]:
        """The first `limit` dead letters that `choose` returns True for, partition by partition, oldest first."""
        found: list[ForwardedLetter] = []

        async def keep(_: int, letters: Page) -> int:
            found.extend(letters)
            return len(letters)

        await self._each(choose, limit, keep)
        return tuple(found)

    async def count(self, choose: Chooses | None = None, *, full: bool = False) -> dict[str | None, int]:
        """How many there are by reason, the most frequent first.

        Reasons that differ in numbers and quoted words only are one, and so are failures of handlers by exceptions of
        one type in one place; with `full` all that differ are counted apart. Beyond `REASONS_COUNTED_MAX`, 1,000, they
        are counted together, as "(other reasons)".
        """
        return (await self._counted(choose, full=full, is_by_group=False)).counts()

    async def _counted(self, choose: Chooses | None, *, full: bool, is_by_group: bool) -> ReasonCounts:
        counts = ReasonCounts(full=check_flag("full", full))

        async def note(_: int, letters: Page) -> int:
            for each in letters:
                counts.add(each.reason, each.group if is_by_group else None)
            return len(letters)

        await self._each(choose, None, note)
        return counts

    async def redrive(
        self,
        choose: Chooses | None = None,
        *,
        to: str | None = None,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Publish dead letters again: to where they are from, or to the topic `to`. Returns when that is synced.

        Sent back, a message is delivered only to the group that gave it up; the other groups of the topic settle it
        unseen. `choose` says which are redriven (None: all), at most `limit` of them, at most `rate` a second, evenly:
        after a delay they do not come in a burst. With `dry_run` nothing is done. What is redriven is not listed any
        more, so another redrive does not repeat it; one that was interrupted can simply be begun again.

        Messages whose topic or group is gone, or that were lost before they were forwarded, are passed over.
        Raises `TopicNotFound` for `to`, and as `publish` does: what was published until then is redriven.
        """
        check_choose(choose)
        check_flag("dry_run", dry_run)
        given_rate, rate = rate, number(rate)
        if given_rate is not None and not (rate is not None and 0 < rate < math.inf):
            raise InvalidArgument(
                f"rate is {shown(given_rate, 40)}, not messages a second. Nothing was redriven."
            )
        given_to, to = to, text(to)
        if given_to is not None and (to is None or self._find(to) is None):
            raise TopicNotFound(
                f"there is no topic {shown(given_to)}. Nothing was redriven. Create it.", topic=to
            )
        if to == self._live.name:
            raise InvalidArgument(
                f"to is {to!r}, the topic that the dead letters are in: there they would be no dead letters any more."
                " Nothing was redriven. Name another topic, or none."
            )
        redrive = _Redrive(self, choose, to, rate, dry_run=dry_run)
        async with publisher_of(self._session, self._live).redriving:
            await redrive.begin()
            sent = await self._each(redrive.goes_somewhere, limit, redrive.send)
        return Redriven(messages=sent, passed_over=dict(redrive.passed))

    async def purge(self, choose: Chooses | None = None, *, limit: int | None = None) -> int:
        """Remove dead letters for good, without doing anything with them; returns how many, once that is synced."""

        async def settle(partition: int, letters: Page) -> int:
            offsets = [each.record.offset for each in letters]
            await self._handle(partition, tuple([(offset, offset + 1) for offset in offsets]))
            return len(letters)

        return await self._each(choose, limit, settle)

    # -- parts of these

    async def _groups(self) -> Groups:
        """All groups as they are now, by name."""
        return {record.name: record for record in await self._session.ask_catalog(ListGroups())}

    def _target(
        self, letter: ForwardedLetter, to: str | None, groups: Groups
    ) -> tuple[LiveTopic | None, int | None, str]:
        """Where a letter goes, for which group only, or why it goes nowhere."""
        if letter.is_lost:
            return None, None, "the message was lost before it was forwarded"
        if to is not None:
            return self._find(to), None, ""
        origin = self._find(letter.topic)
        if origin is None:
            return None, None, f"there is no topic {letter.topic!r} any more"
        group = groups.get(letter.group)
        if group is None or origin.topic_id not in group.topic_ids:
            return None, None, f"there is no group {letter.group!r} of topic {letter.topic!r} any more"
        return origin, group.group_id, ""

    async def _publish(
        self, letter: ForwardedLetter, target: LiveTopic, group_id: int | None
    ) -> tuple[PartitionPort, int]:
        """Publish a letter with its own headers, once (RV2); returns where, and the id of its producer."""
        record = letter.record
        headers = f.own_headers(record.headers)
        if group_id is not None:
            headers[FOR_GROUP] = str(group_id).encode()
        place = f"{self._live.topic_id}/{record.partition}/{record.offset} to {target.topic_id}"
        producer_id = int.from_bytes(blake2b(place.encode(), digest_size=8).digest(), "little") or 1
        columns = Columns.build(
            [record.value],
            [record.key],
            [headers],
            [round(record.timestamp.timestamp() * 1e6)],
            priorities=[None if record.priority is None else record.priority + 1],
            producers=[(1, producer_id, REDRIVE_EPOCH, 0)],
        )
        port = target.ports[letter.partition % len(target.ports)]
        message = c.PublishMany(columns, c.Level.ALL, columns.size_bytes, c.Guard())
        while True:
            try:
                await publisher_of(self._session, target).send(port, message)
            except ActorCrashed:
                continue
            return port, producer_id

    async def _note_sent(
        self,
        partition: int,
        handled: Sequence[tuple[int, int]],
        producers: Sequence[tuple[PartitionPort, int]],
    ) -> None:
        """Settle what was sent, and forget its producers then."""
        if handled:
            await self._handle(partition, tuple(handled))
            await self._forget(producers)

    async def _forget(self, producers: Iterable[tuple[PartitionPort, int]]) -> None:
        """Nothing is sent by these any more. Where that is unknown, they are forgotten when they are old."""
        for port, producer_id in producers:
            with suppress(CallboardError):
                await port.ref.ask(c.ForgetProducer(producer_id))

    async def _unhandled(self, port: PartitionPort) -> Iterable[tuple[int, int]]:
        """The offsets of a partition, below its given end, that were neither redriven nor purged."""
        group_id = await self._handled_group()
        found: Iterable[tuple[int, int]]
        if group_id is None:
            statistics = await self._ask(port, c.Describe())
            found = [(statistics.start_offset, statistics.visible_end)]
        else:
            found = await self._ask_group(port, c.ListUnsettled(group_id))
        if self._ends is None:
            return found
        end = self._ends[port.index]
        return [(start, min(stop, end)) for start, stop in found if start < end]

    async def _is_unhandled(self, partition: int, offset: int, groups: Groups) -> bool:
        """Whether it was neither redriven nor purged until now."""
        group_id = self._handled_in(groups)
        if group_id is None:
            return True
        port = self._live.ports[partition]
        return bool(await self._ask_group(port, c.ListUnsettled(group_id, offset, offset + 1)))

    async def _handle(self, partition: int, ranges: c.Ranges) -> None:
        """Settle offsets as handled."""
        group_id = await self._handled_group()
        if group_id is None:
            group_id = await self._open_group()
        await self._ask_group(self._live.ports[partition], c.SettleOffsets(group_id, ranges))

    async def _handled_group(self) -> int | None:
        """The id of the group in which offsets are settled as handled, if there is one."""
        return self._handled_in(await self._groups())

    def _handled_in(self, groups: Groups) -> int | None:
        group = groups.get(HANDLED)
        return None if group is None or self._live.topic_id not in group.topic_ids else group.group_id

    async def _open_group(self) -> int:
        """Make sure that the group is there, in every partition."""
        async with Fetcher(self._session, (self._live,), HANDLED, {"group_expiry": None}) as consumer:
            return consumer.leases.group_id

    async def _ask_group(self, port: PartitionPort, command: Any) -> Any:
        """Ask a partition about the group, which it may lack when the process ended while the group was opened."""
        try:
            return await self._ask(port, command)
        except GroupNotFound:
            await self._open_group()
            return await self._ask(port, command)

    async def _each(
        self, choose: Chooses | None, limit: int | None, do: Callable[[int, Page], Awaitable[int]]
    ) -> int:
        """Call `do` with the chosen letters of each partition, as many as a read finds at a time, until it has done
        `limit` of them, as it returns; returns how many it has done.
        """
        check_choose(choose)
        limit = check_limit(limit)
        done = 0
        for port in self._live.ports:
            for start, stop in await self._unhandled(port):
                at = start
                while at < stop:
                    letters, at = await self._read(port, at, stop)
                    found = (each for each in letters if choose is None or choose(each))
                    while chosen := list(islice(found, None if limit is None else limit - done)):
                        done += await do(port.index, chosen)
                        if done == limit:
                            return done
        return done

    async def _read(self, port: PartitionPort, start: int, stop: int) -> tuple[Page, int]:
        """Letters from an offset on, and where to go on. What is no dead letter is left out."""
        answer = await self._ask(port, c.Read(start, min(stop - start, READ_RECORDS), 1 << 20))
        if answer is None:
            return [], stop
        batches, end, _ = answer
        records = [
            Record(port.topic, port.index, columns, index)
            for columns in batches
            for index in range(columns.count)
            if start <= columns.offset(index) < stop
        ]
        return [letter for record in records if (letter := _letter_of(record)) is not None], max(
            end, start + 1
        )

    async def _ask(self, port: PartitionPort, command: Question[A]) -> A:
        self._session.check_open()
        return await ask_again(port.ref, command, f"dead letters in {port.label}")


async def ends_of(letters: DeadLetterTopic) -> Sequence[int]:
    """Where each partition of the topic ends now."""
    return [(await letters._ask(port, c.Describe())).visible_end for port in letters._live.ports]


class _Redrive:
    """One redrive of a topic of dead letters: what it sends, where to, and how fast."""

    def __init__(
        self,
        letters: DeadLetterTopic,
        choose: Chooses | None,
        to: str | None,
        rate: float | None,
        *,
        dry_run: bool,
    ) -> None:
        self._letters = letters
        self._choose = choose
        self._to = to
        self._rate = rate
        self._dry_run = dry_run
        self._timers = letters._session.timers
        self._due = self._timers.clock.monotonic()
        """When the next message may be sent, if there is a rate (RV4)."""
        self._groups: Groups = {}
        self.passed: Counter[str] = Counter()
        """Letters that go nowhere, by the reason."""

    async def begin(self) -> None:
        """Learn which groups there are."""
        self._groups = await self._letters._groups()

    def goes_somewhere(self, letter: ForwardedLetter) -> bool:
        """Whether a letter is chosen, and has a target; one without is counted."""
        if self._choose is not None and not self._choose(letter):
            return False
        return self._target(letter)[0] is not None

    def _target(self, letter: ForwardedLetter) -> tuple[LiveTopic | None, int | None]:
        target, group_id, obstacle = self._letters._target(letter, self._to, self._groups)
        if target is None:
            self.passed[obstacle] += 1
        return target, group_id

    async def send(self, partition: int, letters: Page) -> int:
        """Send letters of a partition, then settle them, also when this is cut off. Returns how many were sent."""
        if self._dry_run:
            return len(letters)
        handled: list[tuple[int, int]] = []
        producers: list[tuple[PartitionPort, int]] = []
        try:
            for letter in letters:
                sent = await self._send_one(partition, letter)
                if sent is not None:
                    producers.append(sent)
                    handled.append((letter.record.offset, letter.record.offset + 1))
            await self._letters._note_sent(partition, handled, producers)
        except BaseException:
            # The settling is repeated when it was cut off itself: that settles nothing twice.
            with (
                suppress(CallboardError),
                trio.CancelScope(shield=True, deadline=trio.current_time() + HANDLED_S),
            ):
                await self._letters._note_sent(partition, handled, producers)
            raise
        return len(handled)

    async def _send_one(self, partition: int, letter: ForwardedLetter) -> tuple[PartitionPort, int] | None:
        """Send a letter when the rate allows; None when it goes nowhere by now (RV5)."""
        if self._rate is not None:
            await self._timers.sleep_until(self._due)
        self._groups = await self._letters._groups()
        target, group_id = self._target(letter)
        if target is None:
            return None
        if not await self._letters._is_unhandled(partition, letter.record.offset, self._groups):
            return None
        if self._rate is not None:
            self._due = max(self._due, self._timers.clock.monotonic() - LATE_S) + 1 / self._rate
        return await self._letters._publish(letter, target, group_id)


def letters_below(letters: DeadLetterTopic, ends: Sequence[int]) -> DeadLetterTopic:
    """The same dead letters without those appended after the partitions ended at `ends`."""
    live = letters._live
    if len(ends) != len(live.ports):
        raise InvalidArgument(
            f"there are {len(ends)} ends of partitions, and topic {live.name!r} has {len(live.ports)} partitions."
            " Nothing was done. Ask for them again."
        )
    return DeadLetterTopic(letters._session, live, letters._find, ends)


async def count_by_group(
    letters: DeadLetterTopic, choose: Chooses | None = None, *, full: bool = False
) -> Sequence[tuple[str | None, str | None, int]]:
    """As `DeadLetterTopic.count`, but for each group by itself, as (group, reason, messages)."""
    return (await letters._counted(choose, full=full, is_by_group=True)).by_group()


def _letter_of(record: Record) -> ForwardedLetter | None:
    """A record as a dead letter; None for one that the router has not forwarded."""
    headers = record.headers
    first = headers.get(f.FIRST_FAILED_AT)
    try:
        return ForwardedLetter(
            record=record,
            topic=headers[f.TOPIC].decode(),
            partition=int(headers[f.PARTITION]),
            offset=int(headers[f.OFFSET]),
            group=headers[f.GROUP].decode(),
            attempts=int(headers[f.ATTEMPTS]),
            failed_at=datetime.fromisoformat(headers[f.FAILED_AT].decode()),
            first_failed_at=None if first is None else datetime.fromisoformat(first.decode()),
            consumer_name=_text(headers.get(f.CONSUMER)),
            consumers=tuple((_text(headers.get(f.CONSUMERS)) or "").split()),
            reason=_text(headers.get(f.REASON)),
            is_lost=f.LOST in headers,
        )
    except (KeyError, ValueError):
        return None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
