"""Observed members of an exclusive group: what each owns, waits for, is handed and settles is recorded.

Nothing is changed by that. The owners are read off the coordinator's assignment, from inside; before each entry of a
member anew, so that what an entry shows is not held against the owner before.

Entries
-------
=============  ========================================================================================
owns           the life `operation` has the partition from now on (0: nobody that is observed)
is to own      the life is to have it from now on, and another may have leases there
=============  ========================================================================================

All others are those of other observed clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from callboard.log.errors import InvalidArgument
from callboard.simulations.history.recorder import History
from callboard.simulations.insides import memberships
from callboard.simulations.violations import SENSIBLE, Violation

OWNS: Final = "owns"
IS_TO_OWN: Final = "is to own"
NO_LIFE: Final = ("", 0)
"""Of an owner that is not observed, or of none."""


class MemberSurroundings(Protocol):
    """What is needed of the world."""

    history: History
    machine: Any

    def broken(self, violation: Violation) -> Violation:
        """Keep the first broken promise."""


class ObservedMembers:
    """The members of one group, which is the only exclusive one."""

    def __init__(self, world: MemberSurroundings, group: str) -> None:
        self.group = group
        self.history = world.history
        self.broken = world.broken
        self._world = world
        self._lives: dict[tuple[object, int], tuple[str, int]] = {}
        """Names and lives, by runtime and consumer's id."""
        self._seen: dict[tuple[str, int], tuple[Any, ...]] = {}
        """By topic and partition: what was recorded last, and what it was decided by."""

    def look(self) -> None:
        """Record the partitions whose owner has changed."""
        machine = self._world.machine
        if machine is None or machine.runtime is None or machine.dead:
            return
        owners: dict[tuple[str, int], tuple[Any, ...]] = {}
        for membership in memberships(machine.runtime):
            rows = membership.assignment.rows if membership.settings.mode == "exclusive" else {}
            for (topic_id, index), row in rows.items():
                live = machine.runtime._session.mirror.by_id(topic_id)
                if live is not None:
                    owner = NO_LIFE
                    if row.owner is not None:
                        owner = self._lives.get((machine.runtime._session, row.owner), NO_LIFE)
                    kind = IS_TO_OWN if row.is_moving and row.holder != row.owner else OWNS
                    owners[live.name, index] = kind, owner, row.epoch, topic_id, machine.runtime
        gone = {place: (OWNS, NO_LIFE) for place in self._seen if place not in owners}
        for (topic, partition), owner in (gone | owners).items():
            if self._seen.get((topic, partition)) != owner:
                kind, (who, life), *_ = owner
                self.history.record(machine.number, kind, who, life, topic, partition, self.group)
        self._seen = owners

    async def publish(self, machine: int, topic: Any, value: bytes, **how: Any) -> None:
        """Publish a message, and record that it is stored."""
        who, history = "publisher", self.history
        number, operation = history.message(value, how.get("key")), history.operation()
        history.record(machine, "publish", who, operation, topic.name, ids=(number,), detail="all")
        receipt = await topic.publish(value, **how)
        self.look()
        place = operation, topic.name, receipt.partition
        history.record(
            machine, "published", who, *place, ids=(number,), offsets=(receipt.offset,), detail="all"
        )

    @contextmanager
    def member(self, machine: int, consumer: Any, who: str) -> Iterator[ObservedMember]:
        """A consumer that has joined, until it begins to leave."""
        life = self.history.operation()
        self._lives[consumer._fetcher.session, consumer._fetcher.member.id] = who, life
        member = ObservedMember(self, machine, consumer, who, life)
        member.record("joined")
        try:
            yield member
        finally:
            member.record("left")


class ObservedMember:
    """One life of a consumer. What the consumer raises, its calls raise."""

    def __init__(self, members: ObservedMembers, machine: int, inner: Any, who: str, life: int) -> None:
        self.inner = inner
        self._members = members
        self._machine = machine
        self._who = who
        self._life = life

    async def get(self, *, timeout: float | None = None) -> Any:
        """The next message, None when there is none within `timeout` seconds."""
        return await self.asked(lambda: self.inner.get(timeout=timeout))

    def receive(self, *, timeout: float | None = None) -> ObservedBody:
        """Keep one message leased while a body runs."""
        return ObservedBody(self, self.inner.receive(timeout=timeout))

    async def asked(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a message, and record that."""
        self.record("asks")
        try:
            message = await call()
        except InvalidArgument as error:  # recorded at once: its machine may end before it comes out
            raise self._members.broken(Violation(SENSIBLE, str(error))) from error
        except BaseException:
            self.record("gave up")
            raise
        if message is None:
            self.record("gave up")
        else:
            self.record("delivered", message, until=message.deadline)
        return message

    async def ack(self, message: Any) -> None:
        """Ack a message."""
        await message.ack()
        self.record("acked", message)

    async def nack(self, message: Any, delay: float) -> None:
        """Nack a message."""
        await message.nack(delay=delay)
        self.record("nacked", message, until=self._members.history.now() + delay)

    async def release(self, message: Any) -> None:
        """Give a message back."""
        await message.release()
        self.record("released", message)

    def record(self, kind: str, message: Any = None, until: float = 0.0) -> None:
        """Add an entry, behind what has become of the owners by now."""
        self._members.look()
        history, place = self._members.history, dict[str, Any]()
        if message is not None:
            place["topic"], place["partition"] = message.topic, message.partition
            place["ids"] = (history.identify(message.value, message.key),)
            place["offsets"], place["attempts"] = (message.offset,), (message.attempt,)
        history.record(
            self._machine, kind, self._who, self._life, group=self._members.group, until=until, **place
        )


class ObservedBody:
    """`async with member.receive() as message`, recorded; what is not acked in the end may be anything."""

    def __init__(self, member: ObservedMember, inner: Any) -> None:
        self._member = member
        self._inner = inner
        self._message: Any = None

    async def __aenter__(self) -> Any:
        self._message = await self._member.asked(self._inner.__aenter__)
        return self._message

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        absorbed = bool(await self._inner.__aexit__(kind, error, traceback))
        if error is None and self._message is not None:
            self._member.record("acked", self._message)
        return absorbed
