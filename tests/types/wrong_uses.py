"""How programs must not use Callboard: the end of each wrong line says what mypy and basedpyright call the mistake.

`test_checkers.py` asks both; neither may find anything else. Nothing here runs.
"""
# pyright: standard

from __future__ import annotations

import attrs

import callboard


async def names_what_is_not_there(runtime: callboard.Runtime) -> None:
    """Misspelt names of the package and its methods."""
    _ = callboard.open_runtme("data")  # attr-defined, reportAttributeAccessIssue
    _ = await runtime.create_tpoic("orders")  # attr-defined, reportAttributeAccessIssue


async def returns_nothing(runtime: callboard.Runtime) -> int:  # return, reportReturnType
    """A block that swallows no error does not hide a return that is really missing."""
    async with runtime.topic("orders").subscribe("billing") as consumer, consumer.receive() as message:
        await message.ack()


async def forgets_that_there_may_be_none(consumer: callboard.Consumer) -> bytes | None:
    """With a timeout, a message may not come."""
    message = await consumer.get(timeout=5)
    await message.ack()  # union-attr, reportOptionalMemberAccess
    async with consumer.receive(timeout=5) as received:
        return received.value  # union-attr, reportOptionalMemberAccess


async def misspells_settings(runtime: callboard.Runtime, topic: callboard.Topic) -> None:
    """Names and values of settings."""
    _ = await runtime.create_topic("orders", partitons=6)  # call-arg, reportCallIssue
    _ = await runtime.create_topic("orders", partitions="6")  # arg-type, reportArgumentType
    _ = await runtime.create_topic("orders", compression="zip")  # arg-type, reportArgumentType
    _ = await runtime.create_topic("orders", retention_bytes=1.5)  # arg-type, reportArgumentType
    _ = await runtime.create_topic("orders", visibility_timeout=30)  # call-arg, reportCallIssue
    _ = await runtime.alter_topic("orders", partitions=7)  # call-arg, reportCallIssue
    _ = await runtime.group("billing").alter(start="end")  # call-arg, reportCallIssue
    _ = topic.subscribe("billing", visibilty_timeout=30)  # call-arg, reportCallIssue
    _ = topic.subscribe("billing", visibility_timeout=None)  # arg-type, reportArgumentType
    _ = topic.subscribe("billing", mode="exclusiv")  # arg-type, reportArgumentType
    _ = topic.subscribe("billing", ordering="keys")  # arg-type, reportArgumentType
    _ = topic.subscribe("billing", start="earliest")  # arg-type, reportArgumentType
    _ = runtime.subscribe([], "b", max_inflight=7)  # call-overload, call-overload, reportCallIssue
    _ = topic.read("first")  # arg-type, reportArgumentType
    wrong: callboard.hints.TopicOptions = {"partitons": 6}  # typeddict-unknown-key, reportAssignmentType
    _ = await runtime.create_topic("orders", **wrong)


async def publishes_what_is_no_message(topic: callboard.Topic) -> None:
    """Levels, values, keys, batches."""
    _ = await topic.publish(b"two teas", acks="al")  # call-overload, reportArgumentType
    _ = await topic.publish_batch([b"two teas"], acks=1)  # arg-type, reportArgumentType
    _ = await topic.publish("two teas")  # call-overload, reportArgumentType
    _ = await topic.publish(b"a tea", delay=1, expected_offset=3)  # call-overload, reportArgumentType
    _ = await topic.publish({"teas": 2})  # call-overload, reportArgumentType
    _ = await topic.publish(b"two teas", key="alice")  # call-overload, reportArgumentType
    _ = await topic.publish_batch(callboard.Message(b"two teas"))  # arg-type, reportArgumentType
    _ = callboard.Message("two teas")  # arg-type, reportArgumentType


@attrs.frozen
class Add:
    """A message."""

    amount: int


class Total(callboard.Question[int]):
    """A question."""


class Counter(callboard.Actor[Add | Total]):
    """An actor."""


async def tally(context: callboard.Context[Add]) -> None:
    """An actor that is a function."""
    message, _ = await context.next()
    print(message.sum)  # attr-defined, reportAttributeAccessIssue


async def sends_what_the_actor_does_not_take(runtime: callboard.Runtime) -> str:
    """Messages, references and answers."""
    counter = await runtime.spawn(Counter)
    await counter.tell(5)  # arg-type, reportArgumentType
    _ = await counter.ask("total")  # call-overload, reportCallIssue, reportArgumentType
    adder = await runtime.spawn(tally)
    await adder.tell(Total())  # arg-type, reportArgumentType
    both: callboard.ActorRef[Add | Total] = adder  # assignment, reportAssignmentType
    await both.tell(Add(1))
    _ = await runtime.spawn(Add)  # arg-type, reportCallIssue, reportArgumentType
    other: callboard.ActorRef[str] = await runtime.spawn(Counter)  # arg-type, reportAssignmentType
    await other.tell("one")
    total: str = await counter.ask(Total())  # assignment, reportAssignmentType
    print(len(await counter.ask(Total())))  # arg-type, reportArgumentType
    return total
