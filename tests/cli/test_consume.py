"""`callboard consume` and `callboard peek`."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Any

import pytest


@pytest.fixture
def ten(command: Any) -> Any:
    """Ten messages, 0 to 9, in one partition."""
    command.run("publish", "orders", "--create", stdin=b"".join(b"%d\n" % number for number in range(10)))
    return command


def test_consume_starts_where_it_is_told(ten: Any) -> None:
    """From an offset, from the end, from beyond it, for so many."""
    assert ten.run("consume", "orders", "--from", "7").lines == [b"7", b"8", b"9"]
    assert ten.run("consume", "orders", "--from", "end").lines == []
    assert ten.run("consume", "orders", "--from", "1000").lines == []
    assert ten.run("consume", "orders", "--from", "2", "--max", "3").lines == [b"2", b"3", b"4"]


def test_consume_starts_at_a_time(ten: Any) -> None:
    """An instant means the first message appended then or later."""
    ten.run("publish", "orders", "later")
    found = ten.run("consume", "orders", "--json").documents
    instant = found[-1]["append_time"]
    assert datetime.fromisoformat(found[0]["append_time"]) < datetime.fromisoformat(instant)
    assert ten.run("consume", "orders", "--from", instant).lines == [b"later"]
    assert ten.run("consume", "orders", "--from", "1995-08-01", "--max", "1").lines == [b"0"]
    assert ten.run("consume", "orders", "--from", "2999-01-01").lines == []


@pytest.mark.parametrize("place", ["soon", "-5", "1.5", "\u00b2", "9" * 19, "9" * 40, "2026-13-01"])
def test_a_place_that_is_none_is_refused(ten: Any, place: str) -> None:
    """Places are words, offsets and instants."""
    assert ten.run("consume", "orders", f"--from={place}", code=2).err


def test_a_group_goes_on_where_it_was_if_it_is_durable(ten: Any) -> None:
    """What was printed is acknowledged; a durable group keeps that, without being asked again."""
    assert ten.run("consume", "orders", "--group", "g", "--durable", "--max", "3").lines == [b"0", b"1", b"2"]
    assert ten.run("consume", "orders", "--group", "g", "--max", "2").lines == [b"3", b"4"]
    rest = ten.run("consume", "orders", "--group", "g", "--from", "end")
    assert rest.lines == [b"5", b"6", b"7", b"8", b"9"]
    assert "no effect" in rest.err
    assert ten.run("consume", "orders", "--group", "g").lines == []


def test_a_group_is_ephemeral_unless_named_durable(ten: Any) -> None:
    """It ends with the command and leaves nothing behind."""
    assert len(ten.run("consume", "orders", "--group", "g").lines) == 10
    assert len(ten.run("consume", "orders", "--group", "g").lines) == 10
    assert ten.run("stats", "--json").json["groups"] == []


def test_a_group_reads_everything_there_is(orders: Any) -> None:
    """All partitions to their ends, many batches, each message once."""
    text = b"".join(b"%d\n" % number for number in range(12_345))
    orders.run("publish", "orders", stdin=text)
    found = orders.run("consume", "orders", "--group", "g", "--durable", "--json").documents
    assert sorted(int(document["value"]) for document in found) == list(range(12_345))
    assert {document["attempt"] for document in found} == {1}
    assert orders.run("consume", "orders", "--group", "g").lines == []


def test_a_new_group_may_start_elsewhere(ten: Any) -> None:
    """--from says where a new group starts."""
    assert ten.run("consume", "orders", "--group", "g", "--from", "8").lines == [b"8", b"9"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("orders", "--durable"),
        ("orders", "--group", "g", "--partition", "0"),
        ("orders", "--group", "a b"),
        ("orders", "--max", "0"),
        ("orders", "--partition", "1"),
    ],
)
def test_what_makes_no_sense_is_refused(ten: Any, arguments: tuple[str, ...]) -> None:
    """Combinations and numbers that cannot be meant end in exit code 2."""
    assert ten.run("consume", *arguments, code=2).err


def test_an_unknown_topic_is_named(ten: Any) -> None:
    """With a group and without one, and for peek, the nearest known topic is offered."""
    for arguments in (("consume", "order"), ("consume", "order", "--group", "g"), ("peek", "order")):
        assert "Did you mean 'orders'" in ten.run(*arguments, code=1).err


def test_a_reader_that_goes_away_is_no_drama(orders: Any) -> None:
    """`| head -1` is quiet, with the exit code that shells expect of a closed pipe; a group acks nothing unprinted."""
    orders.run("publish", "orders", stdin=b"line\n" * 50_000)
    for extra in ("", "--json", "--group g --durable"):
        found = orders.shell(f"callboard consume orders {extra} | head -1")
        assert (found.code, found.err) == (141, "")
        assert len(found.lines) == 1
    assert orders.run("verify", "--json").json["ok"]


def test_help_for_a_reader_that_went_away_is_quiet(ten: Any) -> None:
    """`--help | true` ends as any command does whose reader is gone, also that of the group itself."""
    for command in ("--help", "--version", "topic --help", "consume --help"):
        found = ten.shell(f"(sleep 0.2; callboard {command}) | true")
        assert (found.code, found.err) == (141, ""), command


def test_output_that_cannot_be_written_is_an_error(ten: Any) -> None:
    """A full disk at the other end is said, whatever was to be printed."""
    for arguments in ("consume orders", "consume orders --group g", "topic list", "stats --json"):
        found = ten.shell(f"callboard {arguments} > /dev/full")
        assert found.code == 1
        assert "standard output cannot be written" in found.err


def test_follow_prints_what_another_process_publishes(ten: Any) -> None:
    """Without a group no lock is taken: another process publishes meanwhile. Ctrl-C ends it with 130."""
    follower = ten.start("consume", "orders", "-f", "--from", "8")
    assert [follower.line(), follower.line()] == [b"8\n", b"9\n"]
    ten.run("publish", "orders", "new")
    assert follower.line() == b"new\n"
    done = follower.end(signal.SIGINT)
    assert (done.code, done.err) == (130, "")


def test_a_followed_topic_that_is_deleted_ends_the_following(ten: Any) -> None:
    """The follower says so instead of waiting for ever."""
    follower = ten.start("consume", "orders", "-f", "--from", "9")
    assert follower.line() == b"9\n"
    ten.run("topic", "delete", "orders", "--yes")
    done = follower.end()
    assert done.code == 1
    assert "was deleted" in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_following_group_closes_in_good_order(ten: Any, number: signal.Signals, code: int) -> None:
    """A signal ends it without a traceback; what it printed is acknowledged, the directory free and sound."""
    follower = ten.start("consume", "orders", "--group", "g", "--durable", "-f")
    assert [follower.line() for _ in range(10)] == [b"%d\n" % value for value in range(10)]
    ten.run("tree")
    done = follower.end(number)
    assert (done.code, done.err) == (code, "")
    assert ten.run("consume", "orders", "--group", "g").lines == []
    assert ten.run("verify", "--json").json["ok"]


def test_peek_looks_at_one_partition(ten: Any) -> None:
    """A few messages from a place on, ten unless told."""
    ten.run("publish", "orders", "ten")
    assert len(ten.run("peek", "orders").lines) == 10
    assert ten.run("peek", "orders", "--from", "4", "--max", "2").lines == [b"4", b"5"]
    assert ten.run("peek", "orders", "--json", "--max", "1").documents[0]["offset"] == 0
    assert "has no partition 1" in ten.run("peek", "orders", "--partition", "1", code=2).err
