"""The actors of a program: each does what its messages say, and records in the history what happens to it.

What they tell: `begins` (a life has begun), `handled` (a message is in hand), `done` (it left the hand), `writes` and
`written` (`persist` began and returned), `replied` (an answer was given), `free` (the actor takes the next message),
`stops itself`, `stopping` and `stopped` (the hook began and ended), `left` (a function ended while it waited for a
message), `journal read` (a durable actor has read its journal: which events there are).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs
import trio

from callboard.actors.kernel import Actor, ActorStart, Batch, Context, DurableActor, Envelope, Reply
from callboard.log.errors import CallboardError, StorageError
from callboard.simulations.scenarios.actor_plans import ActorPlan
from callboard.simulations.scenarios.actor_workload import Poisoned

if TYPE_CHECKING:
    from callboard.simulations.world import World

WORK: Final = ("answer", "answer", "sleep", "persist", "persist", "defer", "refuse", "later")
"""What a message may ask for: an answer, at once, after a while, after a write, from a task; a refusal."""
EVENTS_MAX: Final = 3
BATCH: Final = "of a batch"
"""A message that left the hand in a batch: the actor is not free yet."""


class Refused(CallboardError):
    """What an actor answers when it refuses."""


@attrs.frozen
class Order:
    """A message of a client: `work` is one of `WORK`, or "crash", "crash late", "crash beside", "stop"."""

    number: int
    work: str = "answer"
    for_s: float = 0.0
    events: int = 1


@attrs.define
class ActorSurroundings:
    """What an actor of one machine knows of the run."""

    world: World
    machine: int
    handling_s: float
    bad_start_every: int
    starts: Counter[str]
    """By path, over all machines."""

    def tell(self, kind: str, path: str, *, number: int = -1, life: int = 0, **more: Any) -> None:
        """Tell the history what happened to the actor."""
        ids = more.pop("ids", (number,) if number >= 0 else ())
        self.world.history.record(self.machine, kind, path, ids=ids, attempts=(life,), **more)


class Told(Protocol):
    """What the kinds of actors have in common."""

    around: ActorSurroundings
    context: Context[Order]

    async def write(self, order: Order) -> None:
        """Write what the order asks to be written."""


async def begin(actor: Told, plan: ActorPlan) -> None:
    """A life begins: some end here."""
    around, context = actor.around, actor.context
    around.tell("begins", context.path, life=context.incarnation)
    around.starts[context.path] += 1
    if plan.starting_s > 0:
        await trio.sleep(plan.starting_s)
    every = around.bad_start_every
    if every > 0 and around.starts[context.path] % every == every - 1:
        raise Poisoned("no good start")


async def end(actor: Told, plan: ActorPlan) -> None:
    """A life ends in order."""
    around, context = actor.around, actor.context
    around.tell("stopping", context.path, life=context.incarnation)
    if plan.stopping_s > 0:
        await trio.sleep(plan.stopping_s)


async def obey(actor: Told, order: Order) -> int:
    """Do what the order says, but for answering it."""
    around, context = actor.around, actor.context
    path, life = context.path, context.incarnation
    if order.work == "crash":
        raise Poisoned(f"order {order.number}")
    await trio.sleep(around.handling_s)
    if order.work in ("sleep", "crash late"):
        await trio.sleep(order.for_s)
    if order.work == "crash late":
        raise Poisoned(f"order {order.number}, late")
    if order.work == "persist":
        await actor.write(order)
    if order.work == "stop":
        around.tell("stops itself", path, number=order.number, life=life)
        context.stop()
    if order.work == "crash beside":
        context.start_task(crash_after, order.for_s, name="crash beside")
    return order.number


async def crash_after(seconds: float) -> None:
    """A task beside the loop that fails."""
    await trio.sleep(seconds)
    raise Poisoned("beside")


async def answer_later(actor: Told, order: Order, reply: Reply) -> None:
    """A task beside the loop that answers what was deferred."""
    await trio.sleep(order.for_s)
    give(actor, order, reply)


def give(actor: Told, order: Order, reply: Reply | None) -> None:
    """Answer the order, if it is a question."""
    if reply is None:
        return
    around, context = actor.around, actor.context
    around.tell("replied", context.path, number=order.number, life=context.incarnation)
    if order.work == "refuse":
        reply.fail(Refused("no", order=order.number))
    else:
        reply.answer(order.number)


class Plain(Actor[Order]):
    """One message after the other."""

    def __init__(self, around: ActorSurroundings, plan: ActorPlan) -> None:
        self.around = around
        self.plan = plan

    async def started(self) -> None:
        """A life begins."""
        await begin(self, self.plan)

    async def receive(self, message: Order) -> int:
        """Do what it says."""
        around, path, life = self.around, self.context.path, self.context.incarnation
        around.tell("handled", path, number=message.number, life=life)
        await obey(self, message)
        if message.work in ("defer", "later", "refuse"):
            reply = self.context.defer_reply()
            if message.work == "refuse":
                give(self, message, reply)
            else:
                self.context.start_task(answer_later, self, message, reply, name="answers later")
        else:
            around.tell("replied", path, number=message.number, life=life)
        around.tell("done", path, number=message.number, life=life)
        return message.number

    async def stopping(self) -> None:
        """A life ends."""
        await end(self, self.plan)
        self.around.tell("stopped", self.context.path, life=self.context.incarnation)

    async def write(self, order: Order) -> None:
        """Nothing: this one has no journal."""


class BatchedOrders(Plain):
    """All that waits, and then the answers."""

    async def receive_batch(self, batch: Batch[Order]) -> None:
        """Take them all, and answer them together."""
        around, path, life = self.around, self.context.path, self.context.incarnation
        taken: list[Envelope[Order]] = []
        for envelope in batch:
            if taken:
                around.tell("done", path, number=taken[-1].message.number, life=life, detail=BATCH)
            taken.append(envelope)
            around.tell("handled", path, number=envelope.message.number, life=life)
            if envelope.message.work.startswith(("crash", "stop")):
                await obey(self, envelope.message)
        if taken:
            around.tell("done", path, number=taken[-1].message.number, life=life, detail=BATCH)
        await trio.sleep(around.handling_s)
        for envelope in taken:
            if envelope.message.work == "later" and envelope.reply is not None:
                self.context.start_task(
                    answer_later, self, envelope.message, envelope.reply, name="answers later"
                )
            else:
                give(self, envelope.message, envelope.reply)
        around.tell("free", path, life=life)


class DurableOrders(DurableActor[Order, "list[int]"]):
    """Keeps the numbers of all orders that were to be written."""

    def __init__(self, around: ActorSurroundings, plan: ActorPlan) -> None:
        self.around = around
        self.plan = plan
        self.snapshot_every = max(1, plan.snapshot_every)
        self.written: list[int] = []

    async def started(self) -> None:
        """Read the journal."""
        await begin(self, self.plan)
        await super().started()
        self.around.tell(
            "journal read", self.context.path, ids=tuple(self.written), life=self.context.incarnation
        )

    async def receive(self, message: Order) -> int:
        """Do what it says, by the state that the journal has."""
        self.around.tell("finds", self.context.path, ids=tuple(self.written), life=self.context.incarnation)
        return await Plain.receive(cast(Any, self), message)

    async def write(self, order: Order) -> None:
        """This many events, all or none; a disk that fails is nothing to crash for, as this program sees it."""
        around, path = self.around, self.context.path
        around.tell("writes", path, number=order.number, offsets=(order.events,))
        try:
            await self.persist(*([order.number, index] for index in range(order.events)))
        except StorageError:
            around.tell("not written", path, number=order.number)
        else:
            around.tell("written", path, number=order.number)

    def apply(self, event: list[int]) -> None:
        """One more."""
        self.written.append(event[0])

    def snapshot(self) -> list[int]:
        """All of them."""
        return list(self.written)

    def restore(self, state: list[int]) -> None:
        """All of them."""
        self.written = list(state)

    async def stopping(self) -> None:
        """A life ends, and with it the journal."""
        await end(self, self.plan)
        await super().stopping()
        self.around.tell("stopped", self.context.path, life=self.context.incarnation)


class _Function:
    """What a function of an actor shares with the others."""

    def __init__(self, around: ActorSurroundings, context: Context[Order]) -> None:
        self.around = around
        self.context = context

    async def write(self, order: Order) -> None:
        """Nothing: this one has no journal."""


def function(around: ActorSurroundings, plan: ActorPlan) -> ActorStart:
    """An actor that is a function."""

    async def loop(context: Context[Order]) -> None:
        actor = _Function(around, context)
        path, life = context.path, context.incarnation
        is_in_order = False
        try:
            while True:
                is_in_order = True
                message, reply = await context.next()
                is_in_order = False
                around.tell("handled", path, number=message.number, life=life)
                await obey(actor, message)
                if message.work == "later" and reply is not None:
                    context.start_task(answer_later, actor, message, reply, name="answers later")
                else:
                    give(actor, message, reply)
                around.tell("done", path, number=message.number, life=life)
        finally:
            if is_in_order:
                around.tell("left", path, life=life)

    return loop


def maker(around: ActorSurroundings) -> Callable[[str, ActorPlan], ActorStart]:
    """What starts the actors of a machine."""

    def make(_: str, plan: ActorPlan) -> ActorStart:
        if plan.kind == "function":
            return function(around, plan)
        if plan.kind == "durable":
            return lambda: DurableOrders(around, plan)
        if plan.kind == "batch":
            return lambda: BatchedOrders(around, plan)
        return lambda: Plain(around, plan)

    return make
