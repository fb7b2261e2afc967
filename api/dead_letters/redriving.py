"""A redrive: dead letters published again, to where they are from or to another topic.

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

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import attrs
import trio

from callboard.actors.partition.commands import ForgetProducer, Guard, Level, PublishMany
from callboard.actors.records.dead_letter_records import own_headers
from callboard.actors.source_ids import FOR_GROUP, REDRIVE_EPOCH
from callboard.dead_letters.forwarded import Chooses, ChosenLetters, ForwardedLetter
from callboard.log.errors import ActorCrashed, CallboardError
from callboard.log.format.columns import Columns
from callboard.publishing.publisher import publisher_of

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.mirror import MirroredTopic
    from callboard.dead_letters.handled import Groups, HandledLetters
    from callboard.session import Session

HANDLED_S: Final = 5.0
"""How long a redrive that is cancelled, or raises, tries to note what it has published."""
LATE_S: Final = 0.001
"""A timer comes so late: a redrive with a rate makes up for that, and for no other delay."""


Sent = tuple[ForwardedLetter, "PartitionPort", int]
"""A letter, the partition that has it now, and the id of its producer there."""


@attrs.frozen(kw_only=True)
class Redriven:
    """What a redrive did, or would do."""

    messages: int
    """How many were published, or would be."""
    passed_over: dict[str, int]
    """How many were not, by the reason."""


class Redrive:
    """One redrive of a topic of dead letters: what it sends, where to, and how fast."""

    def __init__(
        self,
        session: Session,
        live: MirroredTopic,
        handled: HandledLetters,
        *,
        find: Callable[[str], MirroredTopic | None],
        choose: Chooses | None,
        to: str | None,
        rate: float | None,
        dry_run: bool,
    ) -> None:
        self._session = session
        self._live = live
        self._handled = handled
        self._find = find
        self._choose = choose
        self._to = to
        self._rate = rate
        self._dry_run = dry_run
        self._timers = session.timers
        self._due = self._timers.clock.monotonic()
        """When the next message may be sent, if there is a rate (RV4)."""
        self._groups: Groups = {}
        self._passed_over: Counter[str] = Counter()
        """Letters that go nowhere, by the reason."""

    async def run(self, limit: int | None) -> Redriven:
        """Send the letters that are chosen and have a target, `limit` at most, alone (RV3)."""
        letters = ChosenLetters(self._handled, self._goes_somewhere, limit)
        async with publisher_of(self._session, self._live).redriving:
            self._groups = await self._handled.groups()
            while page := await letters.next():
                letters.done += len(page) if self._dry_run else await self._send(page)
        return Redriven(messages=letters.done, passed_over=dict(self._passed_over))

    def _goes_somewhere(self, letter: ForwardedLetter) -> bool:
        """Whether a letter is chosen, and has a target; one without is counted."""
        if self._choose is not None and not self._choose(letter):
            return False
        return self._target(letter)[0] is not None

    def _target(self, letter: ForwardedLetter) -> tuple[MirroredTopic | None, int | None]:
        """Where a letter goes, and for which group only; one that goes nowhere is counted."""
        name = letter.topic if self._to is None else self._to
        target, group = self._find(name), self._groups.get(letter.group)
        if letter.is_lost:
            obstacle = "the message was lost before it was forwarded"
        elif target is None:
            obstacle = f"there is no topic {name!r} any more"
        elif target.settings.read_only:
            obstacle = f"topic {name!r} is read-only"
        elif self._to is not None:
            return target, None
        elif group is None or target.topic_id not in group.topic_ids:
            obstacle = f"there is no group {letter.group!r} of topic {letter.topic!r} any more"
        else:
            return target, group.group_id
        self._passed_over[obstacle] += 1
        return None, None

    async def _send(self, letters: Sequence[ForwardedLetter]) -> int:
        """Send letters of a partition, then settle them, also when this is cut off. Returns how many were sent."""
        sent: list[Sent] = []
        try:
            for letter in letters:
                producer = await self._send_one(letter)
                if producer is not None:
                    sent.append((letter, *producer))
            await self._note(sent)
        except BaseException:
            # The settling is repeated when it was cut off itself: that settles nothing twice.
            with (
                suppress(CallboardError),
                trio.CancelScope(shield=True, deadline=trio.current_time() + HANDLED_S),
            ):
                await self._note(sent)
            raise
        return len(sent)

    async def _send_one(self, letter: ForwardedLetter) -> tuple[PartitionPort, int] | None:
        """Send a letter when the rate allows; None when it goes nowhere by now (RV5)."""
        if self._rate is not None:
            await self._timers.sleep_until(self._due)
        self._groups = await self._handled.groups()
        target, group_id = self._target(letter)
        if target is None:
            return None
        record = letter.record
        if not await self._handled.is_unhandled(record.partition, record.offset, self._groups):
            return None
        if self._rate is not None:
            self._due = max(self._due, self._timers.clock.monotonic() - LATE_S) + 1 / self._rate
        return await self._publish(letter, target, group_id)

    async def _publish(
        self, letter: ForwardedLetter, target: MirroredTopic, group_id: int | None
    ) -> tuple[PartitionPort, int]:
        """Publish a letter with its own headers, once (RV2); returns where, and the id of its producer."""
        record = letter.record
        headers = own_headers(record.headers)
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
        message = PublishMany(columns, Level.ALL, columns.size_bytes, Guard())
        while True:
            try:
                await publisher_of(self._session, target).send(port, message)
            except ActorCrashed:
                continue
            return port, producer_id

    async def _note(self, sent: Sequence[Sent]) -> None:
        """Settle what was sent, then forget its producers. Where that fails, they are forgotten when they are old."""
        if not sent:
            return
        await self._handled.settle([letter.record for letter, _, _ in sent])
        for _, port, producer_id in sent:
            with suppress(CallboardError):
                await port.ref.ask(ForgetProducer(producer_id))
