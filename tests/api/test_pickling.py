"""What users hold crosses to another process, or is copied, or says that it cannot."""

from __future__ import annotations

import concurrent.futures
import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import callboard

EXPORTED = {
    name: getattr(module, name)
    for module in (callboard, callboard.events, callboard.statistics, callboard.hints)
    for name in module.__all__
}
ERRORS = [each for each in EXPORTED.values() if isinstance(each, type) and issubclass(each, Exception)]
VALUES = [each for each in EXPORTED.values() if isinstance(each, type) and attrs.has(each)]
HANDLES = (
    *(
        "Runtime",
        "Topic",
        "Group",
        "Consumer",
        "Producer",
        "DelayedMessages",
        "Schedule",
        "KeptLetters",
        "DeadLetterTopic",
    ),
    *(
        "BatchReader",
        "RecordReader",
        "Receiving",
        "Batches",
        "ReceivedMessage",
        "ReceivedBatch",
        "MixedBatch",
    ),
    *("Reply", "ActorRef", "Context", "Batch"),
)
RECORDS = ("Record", "RecordBatch", "Receipts")
"""Tested with real ones."""
OTHERS = (
    *("Actor", "DurableActor", "Envelope", "Question", "Clock", "Disk", "Entropy", "Partitioner"),
    *("GroupChanges", "GroupOptions", "TopicChanges", "TopicOptions"),
)
"""Classes of users, seams, and what is only named in annotations."""


def _again(value: Any) -> list[Any]:
    """The value pickled, copied, and copied deeply."""
    return [pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)]


def test_every_public_class_is_a_value_or_a_handle() -> None:
    """What is exported later has to be decided on."""
    known = {*HANDLES, *RECORDS, *OTHERS, *(each.__name__ for each in (*ERRORS, *VALUES))}
    classes = {name for name, each in EXPORTED.items() if isinstance(each, type) and inspect.isclass(each)}
    assert classes - known == set()


def _made(kind: type[Exception]) -> Exception:
    if issubclass(kind, callboard.Retry):
        return kind(after=5, reason="busy")
    if issubclass(kind, callboard.Reject):
        return kind("broken")
    if issubclass(kind, callboard.InternalError):
        return kind("odd", invariant="X1")
    return kind("what happened", topic="orders", index=3, indefinite=True)


@pytest.mark.parametrize("kind", ERRORS, ids=[each.__name__ for each in ERRORS])
def test_every_error_is_pickled_and_copied(kind: type[Exception]) -> None:
    """With its words, its fields and its notes."""
    error = _made(kind)
    error.add_note("on the way")
    for found in _again(error):
        assert type(found) is kind
        assert found.args == error.args
        assert found.__dict__ == error.__dict__


@pytest.mark.parametrize("kind", VALUES, ids=[each.__name__ for each in VALUES])
def test_every_value_is_pickled_and_copied(kind: type[Any]) -> None:
    """With each of its fields."""
    value = kind.__new__(kind)
    names = [field.name for field in attrs.fields(kind)]
    for name in names:
        object.__setattr__(value, name, f"the {name}")
    for found in _again(value):
        assert [getattr(found, name) for name in names] == [f"the {name}" for name in names]


@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_handles_refuse_in_words(name: str, take: Callable[[Any], object]) -> None:
    """They belong to one runtime."""
    kind = EXPORTED[name]
    with pytest.raises(TypeError, match=f"a {name} belongs to the runtime"):
        take(kind.__new__(kind))


async def test_records_and_receipts_are_pickled_and_copied(world: Any) -> None:
    """What was read or published is a value."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        receipts = await orders.publish_batch([b"1", callboard.Message(b"2", key=b"k", headers={"a": b"b"})])
        delayed = await orders.publish(b"3", delay=5)
        (batch,) = [batch async for batch in orders.read_batches()]
        for found in _again(receipts):
            assert list(found) == list(receipts)
        assert _again(delayed) == [delayed] * 3
        for found in _again(batch):
            assert (found.values(), found.keys(), found.headers()) == (
                batch.values(),
                batch.keys(),
                batch.headers(),
            )
        for found in _again(batch[1]):
            assert (found.offset, found.value, found.key, found.headers) == (1, b"2", b"k", {"a": b"b"})


async def test_a_batch_is_indexed_like_a_list(world: Any) -> None:
    """From the end, and by slices."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"0", b"1", b"2"])
        (batch,) = [batch async for batch in orders.read_batches()]
        assert [batch[-1].value, batch[-3].value] == [b"2", b"0"]
        assert [record.value for record in batch[1:]] == [b"1", b"2"]
        assert [record.value for record in batch[::-1]] == [b"2", b"1", b"0"]
        for index in (3, -4):
            with pytest.raises(IndexError):
                batch[index]


def busy(number: int) -> int:
    """What a pool of processes does."""
    if number == 1:
        raise callboard.Retry(after=5, reason="busy")
    return number


def test_a_retry_comes_out_of_a_pool_of_processes() -> None:
    """And the pool works on."""
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        with pytest.raises(callboard.Retry) as caught:
            pool.submit(busy, 1).result(timeout=60)
        assert (caught.value.after, caught.value.reason) == (5, "busy")
        assert pool.submit(busy, 2).result(timeout=60) == 2
