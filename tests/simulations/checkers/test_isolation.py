"""The checker of isolation."""

import pytest

from callboard.simulations.checkers import isolation
from callboard.simulations.history.surviving import Surviving


def call(script, topic: str, took_s: float | None, error: str = "") -> None:
    """A call, and its answer after so long; None: there is none."""
    operation = script.history.operation()
    script.history.record(script.machine, "call", "user", operation, topic, detail="publish")
    if took_s is not None:
        script.at(script.time + took_s)
        script.history.record(script.machine, "answer", "user", operation, topic, detail=error)


def broken(script) -> bool:
    return bool(isolation.check(script.history, Surviving(())))


@pytest.mark.parametrize(("took_s", "error"), [(1.5, ""), (0.1, "StorageError"), (None, "")])
def test_only_the_failing_topic_may_be_late_or_refuse(script, took_s, error):
    """What is asked of another is answered within a second, and without an error."""
    call(script, isolation.FAILING, took_s, error)
    script.at(script.time + 5.0)
    script.event("ActorStarted", "topics/orders/0")
    assert not broken(script)
    call(script, "orders", took_s, error)
    script.at(script.time + 5.0)
    script.event("ActorStarted", "topics/orders/0")
    assert broken(script)


def test_a_machine_that_ends_answers_nothing(script):
    """A call that its machine's end cut short was not late."""
    call(script, "orders", None)
    script.at(0.5).cut().at(9.0)
    call(script, "orders", 0.1)
    assert not broken(script)


def test_a_later_delivery_is_no_late_answer(script):
    """What was handed over in time may come again at any time, also on the next machine."""
    call(script, "orders", 0.1)
    operation = script.history.entries[-1].operation
    script.at(5.0)
    script.history.record(script.machine, "answer", "user", operation, "orders")
    script.cut().at(9.0)
    script.history.record(script.machine, "answer", "user", operation, "orders")
    assert not broken(script)


def test_what_the_next_machine_answers_was_not_late(script):
    """A call that its machine's end cut short was not late when a message is handed over after that."""
    call(script, "orders", None)
    operation = script.history.entries[-1].operation
    script.at(0.5).cut().at(9.0)
    script.history.record(script.machine, "answer", "user", operation, "orders")
    assert not broken(script)
