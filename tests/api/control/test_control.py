"""The control socket: what it answers, and that nothing sent to it disturbs the runtime."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import cbor2
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import callboard
from callboard.control import frames as control_frames
from callboard.control import server as control
from callboard.control import socket_file
from callboard.control.client import ControlClient
from callboard.control.verbs import VERBS


@contextlib.asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Any]:
    """A runtime that listens, with a topic of two partitions."""
    async with callboard.open_runtime(directory, control=True) as runtime:
        await runtime.create_topic("orders", partitions=2)
        yield runtime


async def connected(directory: Path) -> trio.SocketStream:
    """A bare connection to its socket."""
    return await trio.open_unix_socket(directory / "control.sock")


async def listening(directory: Path) -> None:
    """Returns once somebody listens there."""
    while True:
        with contextlib.suppress(OSError):
            await (await connected(directory)).aclose()
            return
        await trio.lowlevel.checkpoint()


async def answer(stream: trio.SocketStream) -> Any:
    """The next answer on it; None when it is closed."""
    with trio.fail_after(60):
        return await control_frames.receive_frame(stream, control_frames.ANSWER_BYTES_MAX)


async def test_it_tells_what_the_runtime_knows(tmp_path: Path) -> None:
    """tree, stats, describe and events say what the runtime says, as maps and lists."""
    async with opened(tmp_path) as runtime:
        await runtime.topic("orders").publish(b"x", partition=1)
        client = ControlClient(str(tmp_path))
        assert await client.request("ping") == 1
        tree = await client.request("tree")
        names = [child["name"] for child in tree["children"]]
        assert names[:5] == ["timer-wheel", "openings", "topics", "groups", "catalog"]
        stats = await client.request("stats")
        assert [partition["visible_end"] for partition in stats["partitions"]] == [0, 1]
        described = await client.request("describe", topic="orders")
        assert described["settings"]["partitions"] == 2
        assert described["topic_id"] == runtime.topic("orders").topic_id
        assert "ActorStarted" in {event["kind"] for event in await client.request("events")}


async def test_it_restarts_actors(tmp_path: Path) -> None:
    """restart does what Runtime.restart does, and refuses what it refuses."""
    async with opened(tmp_path) as runtime:
        client = ControlClient(str(tmp_path))
        assert await client.request("restart", path="topics/orders/1") is None
        found = {event["path"] for event in await client.request("events") if event.get("incarnation") == 2}
        assert found == {"topics/orders/1"}
        for path in ("", "nosuch", "topics/nosuch/1", "topics/orders/9", "/", "catalog/x"):
            with pytest.raises(callboard.ControlError) as caught:
                await client.request("restart", path=path)
            assert caught.value.kind == "InvalidArgument"
        await runtime.topic("orders").publish(b"still here", partition=1)


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        ({}, "unknown verb"),
        ({"verb": "dance"}, "known are ping, tree"),
        ({"verb": 3}, "unknown verb"),
        ({"verb": ["tree"]}, "unknown verb"),
        ([], "a request is a map"),
        ("tree", "a request is a map"),
        ({"verb": "tree", "deep": "x"}, "arguments of 'tree' are none"),
        ({"verb": "describe"}, "arguments of 'describe' are ['topic']"),
        ({"verb": "describe", "topic": 3}, "as text"),
        ({"verb": "describe", "topic": None}, "as text"),
        ({"verb": "describe", "topic": "nosuch"}, "no topic 'nosuch'"),
        ({"verb": "restart", "path": {}}, "as text"),
        ({"verb": "describe", 3: "x"}, "arguments of 'describe'"),
    ],
)
async def test_a_request_that_makes_no_sense_is_answered(tmp_path: Path, request_: Any, part: str) -> None:
    """The answer says what is wrong, and the connection goes on."""
    async with opened(tmp_path), await connected(tmp_path) as stream:
        await control_frames.send_frame(stream, request_)
        refused = await answer(stream)
        assert not refused["ok"]
        assert part in refused["error"]
        await control_frames.send_frame(stream, {"verb": "ping"})
        assert (await answer(stream)) == {"ok": True, "result": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff",
        b"",
        cbor2.dumps(datetime(2026, 1, 1, tzinfo=UTC)),
        cbor2.dumps({"verb": 2**70}),
        b"\xd8\x23\x67(((((((",
        b"\x81" * 10_000 + b"\x00",
        b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xa1\x80\x80\xf7",
        b"\x5f\x41a\xff",
        cbor2.dumps("ping") * 2,
    ],
    ids=["garbage", "empty", "date", "bignum", "pattern", "deep", "long", "keys", "indefinite", "two"],
)
async def test_bytes_that_are_no_plain_cbor_close_the_connection(tmp_path: Path, body: bytes) -> None:
    """They are refused in words; other connections do not notice."""
    async with opened(tmp_path):
        async with await connected(tmp_path) as stream:
            await stream.send_all(struct.pack("<I", len(body)) + body)
            refused = await answer(stream)
            assert "plain CBOR" in refused["error"]
            assert await answer(stream) is None
        assert await ControlClient(str(tmp_path)).request("ping") == 1


async def test_a_huge_frame_is_refused_by_its_length(tmp_path: Path) -> None:
    """Nothing is allocated for it."""
    async with opened(tmp_path), await connected(tmp_path) as stream:
        await stream.send_all(b"\xff\xff\xff\xff")
        refused = await answer(stream)
        assert "4294967295 bytes" in refused["error"]
        assert await answer(stream) is None


async def test_half_a_frame_is_no_request(tmp_path: Path) -> None:
    """A client that goes away in mid-frame, or before the answer, leaves no trace."""
    frame = control_frames.encode({"verb": "stats"})
    async with opened(tmp_path):
        for length in (0, 2, 4, len(frame) - 1, len(frame)):
            async with await connected(tmp_path) as stream:
                await stream.send_all(frame[:length])
        assert await ControlClient(str(tmp_path)).request("ping") == 1


async def test_a_hundred_connections_are_served_in_turn(tmp_path: Path) -> None:
    """More than are served at a time wait, and all are answered."""
    answers = []

    async def ask() -> None:
        async with await connected(tmp_path) as stream:
            await control_frames.send_frame(stream, {"verb": "ping"})
            answers.append(await answer(stream))

    async with opened(tmp_path):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(ask)
        assert answers == [{"ok": True, "result": 1}] * 100


async def test_idle_connections_are_closed(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    """Whoever asks nothing gives way in time to those who wait."""
    served = control.ControlServer(FakeRuntime(str(tmp_path)), print)  # type: ignore[arg-type]
    answers = []

    async def ask() -> None:
        answers.append(await ControlClient(str(tmp_path)).request("ping"))

    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        await served.listen()
        stack.callback(served.close)
        nursery.start_soon(served.accept_all)
        for _ in range(control.CONNECTIONS_MAX):
            await stack.enter_async_context(await connected(tmp_path))
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(control_frames.REQUEST_TIMEOUT_S / 2)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert answers == []
        mock_clock.jump(control_frames.REQUEST_TIMEOUT_S / 2)
        while not answers:
            await trio.lowlevel.checkpoint()
        assert answers == [1]
        nursery.cancel_scope.cancel()


@attrs.frozen
class FakeRuntime:
    """What pings need of a runtime."""

    directory: str


async def test_the_socket_is_private_and_goes_away(tmp_path: Path) -> None:
    """Mode 0600 while it is there; closing removes it."""
    path = tmp_path / "control.sock"
    async with opened(tmp_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    with pytest.raises(callboard.ControlError, match="no runtime listens") as caught:
        await ControlClient(str(tmp_path)).request("ping")
    assert not caught.value.is_listening


async def test_it_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    """Closing need not wait for a grace to run out and kill it, even while somebody is connected."""
    events: list[Any] = []
    async with opened(tmp_path) as runtime:
        runtime.subscribe_events(events.append)
        stream = await connected(tmp_path)
    await stream.aclose()
    (ended,) = [event for event in events if event.path == "user/control" and hasattr(event, "cause")]
    assert ended.cause is None


async def test_what_ends_the_program_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting the group of its worker: the runtime closes after the answer, however late that is."""
    ended, closing = trio.Event(), trio.Event()
    delete = callboard.Group.delete

    async def delete_late(group: Any, **given: Any) -> None:
        await delete(group, **given)
        await ended.wait()  # the program has met what was deleted
        await closing.wait()

    monkeypatch.setattr(callboard.Group, "delete", delete_late)

    async def run(task_status: trio.TaskStatus[None]) -> None:
        async with opened(tmp_path) as runtime:
            topic = runtime.topic("orders")
            with pytest.raises(callboard.GroupNotFound):
                async with topic.subscribe("billing") as consumer:
                    task_status.started()
                    await consumer.get()
            ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        nursery.start_soon(_let_go, ended, closing)
        assert await ControlClient(str(tmp_path)).request("delete_group", group="billing") is None


async def _let_go(ended: trio.Event, closing: trio.Event) -> None:
    await ended.wait()
    await trio.testing.wait_all_tasks_blocked()
    closing.set()


async def test_a_path_too_long_for_a_socket_is_refused_at_open(tmp_path: Path) -> None:
    """The error says what to do, nothing stays open, and without control=True the directory works."""
    directory = tmp_path / ("d" * 100)
    with pytest.raises(callboard.ControlError, match="without control=True"):
        async with callboard.open_runtime(directory, control=True):
            raise AssertionError("it opened")
    assert not directory.exists()
    with pytest.raises(callboard.ControlError, match="too long"):
        await ControlClient(str(directory)).request("ping")
    async with callboard.open_runtime(directory):
        assert socket_file.socket_problem(str(directory)) is not None


async def test_a_long_path_is_reached_from_nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too long as it was given may be short enough from where the process is."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    monkeypatch.chdir(directory)
    async with opened(directory):
        assert await ControlClient(str(directory)).request("ping") == 1


async def test_something_else_of_that_name_is_not_removed(tmp_path: Path) -> None:
    """A file called control.sock that is no socket stops the opening, and stays."""
    path = tmp_path / "control.sock"
    path.write_bytes(b"precious")
    with pytest.raises(callboard.ControlError, match="is no socket"):
        async with callboard.open_runtime(tmp_path, control=True):
            raise AssertionError("it opened")
    assert path.read_bytes() == b"precious"


async def test_a_directory_whose_name_is_no_text_can_be_looked_at(tmp_path: Path) -> None:
    """File names are bytes; what is not UTF-8 is shown escaped."""
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    async with opened(directory):
        found = await ControlClient(str(directory)).request("stats")
        assert found["directory"].endswith("\\udcff")


@pytest.mark.parametrize(
    "reply", [b"", b"\x01", struct.pack("<I", 1) + b"\xff", struct.pack("<I", 1) + b"\xf5"]
)
async def test_a_client_survives_whatever_answers(tmp_path: Path, reply: bytes) -> None:
    """What is no answer becomes a ControlError."""

    async def serve(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.socket.socket(trio.socket.AF_UNIX) as socket:
            await socket.bind(str(tmp_path / "control.sock"))
            socket.listen(1)
            task_status.started()
            stream = trio.SocketStream((await socket.accept())[0])
            async with stream:
                await stream.receive_some()
                await stream.send_all(reply)

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        with pytest.raises(callboard.ControlError):
            await ControlClient(str(tmp_path)).request("ping")


async def test_a_program_of_an_earlier_version_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know the verb: the error says so, and what to do, in place of the verbs that it knows."""
    monkeypatch.delitem(VERBS, "list_delayed")
    async with opened(tmp_path):
        with pytest.raises(callboard.ControlError) as caught:
            await ControlClient(str(tmp_path)).request("list_delayed", topic="orders", count="1")
        assert "a version of Callboard that does not know 'list_delayed' yet" in str(caught.value)
        assert "known are" not in str(caught.value)
        assert caught.value.is_listening


@pytest.mark.parametrize(
    "settings", ["[]", "{", "[" * 20_000, '{"name": "x"}', '{"partitioner": 1}', '{"partitions": 0}']
)
async def test_settings_that_make_no_sense_change_nothing(tmp_path: Path, settings: str) -> None:
    """Of topics and groups, whatever is sent: they are refused, and the socket goes on."""
    async with opened(tmp_path) as runtime:
        client = ControlClient(str(tmp_path))
        for verb, given in (
            ("create_topic", {"name": "bills"}),
            ("alter_topic", {"topic": "orders"}),
            ("alter_group", {"group": "billing"}),
        ):
            with pytest.raises(callboard.ControlError) as caught:
                await client.request(verb, **given, settings=settings)
            assert caught.value.kind in ("InvalidArgument", "ConfigurationError")
        assert [topic.name for topic in runtime.topics()] == ["orders"]
        assert not any(event["kind"] == "ActorCrashed" for event in await client.request("events"))


async def test_a_bug_in_one_answer_is_told_and_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is met: the request is refused as a bug, and logged; whoever changes is told to look."""

    def broken(*_: Any, **__: Any) -> None:
        raise OverflowError("date value out of range")

    async with opened(tmp_path) as runtime:
        client = ControlClient(str(tmp_path))
        monkeypatch.setattr(runtime, "tree", broken)
        monkeypatch.setattr(runtime, "restart", broken)
        for _ in range(8):
            with pytest.raises(callboard.ControlError, match="a bug in Callboard") as caught:
                await client.request("tree")
            assert "OverflowError: date value out of range" in str(caught.value)
            assert caught.value.is_listening
        with pytest.raises(callboard.ControlError, match="look before you try again"):
            await client.request("restart", path="topics/orders/1")
        assert await client.request("ping") == 1
        failed = [
            entry.event
            for entry in runtime.events()
            if isinstance(entry.event, callboard.events.RequestFailed)
        ]
        assert [event.verb for event in failed] == ["tree"] * 8 + ["restart"]
        assert "broken" in str(failed[0].place)
        assert not any(event["kind"] == "IncarnationCrashed" for event in await client.request("events"))
    assert "user/control could not answer 'tree' (OverflowError: date value out of range" in caplog.text


async def test_what_a_client_asked_that_has_gone_is_not_done_later(tmp_path: Path) -> None:
    """A redrive that waits behind another one ends with the command that asked for it."""
    async with opened(tmp_path) as runtime:
        await runtime.create_topic("dead")
        orders = runtime.topic("orders")
        await orders.publish_batch([b"%d" % number for number in range(6)], partition=0)
        async with orders.subscribe("billing", dead_letter_topic="dead") as consumer:
            for _ in range(6):
                await (await consumer.get()).reject(reason="bad")
        letters = runtime.dead_letters("dead")
        with trio.fail_after(60):
            while sum((await letters.count()).values()) < 6:
                await trio.lowlevel.checkpoint()
        request = {"verb": "redrive_dead", "topic": "dead", "limit": "4", "rate": "", "dry_run": "", "to": ""}
        request |= {"group": "", "origin": "", "reason": ""}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: letters.redrive(lambda letter: letter.offset < 2, rate=2))
            await trio.sleep(0.1)
            async with await connected(tmp_path) as stream:
                await control_frames.send_frame(stream, request)
                await trio.sleep(0.2)
        await trio.sleep(0.5)
        assert sum((await letters.count()).values()) == 4


async def test_requests_that_are_sent_at_once_are_answered_in_turn(tmp_path: Path) -> None:
    """Watching for a client that goes away takes nothing of its next request."""
    async with opened(tmp_path), await connected(tmp_path) as stream:
        ping = control_frames.encode({"verb": "ping"})
        await stream.send_all(
            ping + control_frames.encode({"verb": "count_delayed", "topic": "orders"}) + ping
        )
        assert [(await answer(stream))["result"] for _ in range(3)] == [1, 0, 1]


async def test_an_answer_that_is_too_large_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for many delayed messages is told to ask for fewer; that is answered."""
    monkeypatch.setattr(control, "ANSWER_BYTES_MAX", 10_000)
    async with opened(tmp_path) as runtime:
        orders = runtime.topic("orders")
        await orders.publish_batch([bytes(4000)] * 3, partition=0, delays=[3600] * 3)
        client = ControlClient(str(tmp_path))
        with pytest.raises(callboard.ControlError, match="too many for one frame"):
            await client.request("list_delayed", topic="orders", count="3")
        assert len(await client.request("list_delayed", topic="orders", count="2")) == 2


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_plain_data_passes_unchanged(content: Any) -> None:
    """Whatever is made of maps, lists and scalars comes out as it went in."""
    assert repr(control_frames.decode(cbor2.dumps(content))) == repr(content)


@given(
    st.binary(max_size=200)
    | st.tuples(PLAIN, st.binary(max_size=20)).map(lambda both: cbor2.dumps(both[0]) + both[1])
)
def test_arbitrary_bytes_are_plain_data_or_refused(body: bytes) -> None:
    """Nothing but plain data, or ControlError, comes of any bytes."""
    try:
        found = control_frames.decode(body)
    except callboard.ControlError:
        return
    assert isinstance(found, (dict, list, str, bytes, int, float, bool, type(None)))


def test_who_changes_something_is_told_that_it_may_be_done() -> None:
    """When no answer comes; the others only look, and may ask again. A new verb is put into one of the two."""
    looks = {
        "count_dead",
        "count_kept",
        "ends_of_dead",
        "list_kept",
        "ping",
        "tree",
        "stats",
        "describe",
        "describe_group",
        "events",
        "list_dead",
        "schedules",
        "next_due",
        "list_delayed",
        "page_delayed",
        "count_delayed",
    }
    assert {name for name, verb in VERBS.items() if not verb.changes} == looks
