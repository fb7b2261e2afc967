"""The control socket: how another process looks at, and steers, a running runtime.

A Unix socket `control.sock` in the runtime's directory, mode 0600. Each request and each answer is a frame: a u32
little-endian length, then CBOR. A request is a map with `verb` and its arguments; an answer is a map with `ok` and
either `result` or `error` and `kind`. One request at a time per connection; everything is bounded.

=============== ======================================= ============================================
verb            arguments                               result
=============== ======================================= ============================================
ping                                                    the protocol's version
tree                                                    the live tree
stats                                                   offsets, sizes and states of partitions and groups
describe        `topic`                                 a topic's settings and partitions
create_topic    `name`, `settings`                      its settings, and whether it is new
alter_topic     `topic`, `settings`                     all settings of the topic
delete_topic    `topic`                                 None, once its files are gone
describe_group  `group`                                 a group's members and places
seek_group      `group`, `to`, `topic`, `partition`     where the group is, partition by partition
alter_group     `group`, `settings`                     all settings of the group
delete_group    `group`, `drop_dead_letters`            None, once it is forgotten
events                                                  what happened lately
restart         `path`                                  None, once the actor was restarted
schedules       `topic`                                 its recurring publishes
add_schedule    `topic`, `name`, `settings`             the recurring publish
change_schedule `topic`, `name`, `change`               None, once it is synced
next_due        `topic`, `name`, `count`                instants in ISO 8601
list_delayed    `topic`, `count`                        the delayed messages that are due first
page_delayed    `topic`, `after`, `count`               those behind a partition and an id, as published
count_delayed   `topic`                                 how many wait
cancel_delayed  `topic`, `partition`, `ids`             ids of those that waited until then
list_dead       choice, `limit`                         dead letters in a topic
count_dead      choice, `full`                          how many there are, by group and reason
list_kept       choice, `limit`                         what partitions of a topic keep, group by group
count_kept      choice, `full`                          how many that are, group by group, by reason
ends_of_dead    `topic`                                 where each partition of it ends now
redrive_dead    choice, `to`, `limit`, `rate`,          how many were redriven, and passed over
                `dry_run`, `below`
purge_dead      choice, `limit`, `below`                how many were purged
=============== ======================================= ============================================

Choice is `topic`, `group`, `origin`, `reason`, `at`: which dead letters are meant (`dead_letters`). Without
`full` ("yes"), `at`, `below` and `drop_dead_letters` a request is complete too.

All arguments are text. `to` is "beginning", "end", an offset, an instant in ISO 8601, or empty for where the group
began; an empty `topic` or `partition` means all; `drop_dead_letters` is "yes" or empty; `settings` is a JSON object of
what is to change, or of a schedule (`callboard.publishing.schedules.settings_text`); `change` is "pause", "resume" or
"remove". `count` says how many at most; `ids` are numbers with spaces between.

Invariants
----------
N1  Connections are accepted once the socket listens.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol, Unpack

import attrs
import trio

from callboard.actors.kernel import Context, Logged
from callboard.actors.kernel.failures import describe, place
from callboard.actors.notices import RequestFailed
from callboard.actors.settings import (
    GROUP_FIELDS,
    TOPIC_FIELDS,
    Start,
    TopicChanges,
    TopicOptions,
    check,
)
from callboard.control.dead_letters import KEPT_VERBS, answer_dead_letters, answer_kept
from callboard.control.dead_letters import OPTIONAL as DEAD_OPTIONAL
from callboard.control.dead_letters import VERBS as DEAD_VERBS
from callboard.control.frames import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, encode, receive_frame, send_frame
from callboard.dead_letters.topics import DeadLetterTopic
from callboard.group import Group
from callboard.log.errors import CallboardError, ControlError, InternalError, InvalidArgument
from callboard.message import parse_instant
from callboard.publishing.delayed import parse_ids, plain_delayed
from callboard.publishing.schedules import Schedule, find_schedule, plain_schedule, settings_of_text
from callboard.reports.figures import GroupInfo
from callboard.reports.tracebacks import traceback_lines
from callboard.supervision import TreeNode
from callboard.topic import Topic

VERBS: Final[dict[str, list[str]]] = {
    "ping": [],
    "tree": [],
    "stats": [],
    "describe": ["topic"],
    "create_topic": ["name", "settings"],
    "alter_topic": ["topic", "settings"],
    "delete_topic": ["topic"],
    "describe_group": ["group"],
    "seek_group": ["group", "to", "topic", "partition"],
    "alter_group": ["group", "settings"],
    "delete_group": ["group", "drop_dead_letters"],
    "events": [],
    "restart": ["path"],
    **DEAD_VERBS,
    **KEPT_VERBS,
    "schedules": ["topic"],
    "add_schedule": ["topic", "name", "settings"],
    "change_schedule": ["topic", "name", "change"],
    "next_due": ["topic", "name", "count"],
    "list_delayed": ["topic", "count"],
    "page_delayed": ["topic", "after", "count"],
    "count_delayed": ["topic"],
    "cancel_delayed": ["topic", "partition", "ids"],
}
"""Each with its arguments."""
OPTIONAL: Final = frozenset({"drop_dead_letters", *DEAD_OPTIONAL})
"""Arguments that a request may leave out."""
CHANGING: Final = frozenset(
    {
        "create_topic",
        "alter_topic",
        "delete_topic",
        "seek_group",
        "alter_group",
        "delete_group",
        "restart",
        "redrive_dead",
        "purge_dead",
        "add_schedule",
        "change_schedule",
        "cancel_delayed",
    }
)
"""Those that are not only looked at."""
NAME: Final = "control.sock"
ACTOR: Final = "user/control"
"""The path of the actor that serves it."""
VERSION: Final = 1
CONNECTIONS_MAX: Final = 16
"""Served at a time; others wait to be accepted."""
BACKLOG: Final = 128
REQUEST_TIMEOUT_S: Final = 30.0
"""A connection that asks nothing for so long is closed, and a client waits so long for an answer."""
ANSWER_GRACE_S: Final = 3.0
"""How long what has been asked may take to be answered once the runtime closes: less than the actor's grace."""
ACCEPT_PAUSE_S: Final = 0.1
UNIX_PATH_BYTES_MAX: Final = 100
WORN_OUT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Controlled(Protocol):
    """What a control socket shows and steers: an open runtime."""

    @property
    def directory(self) -> str:
        """Where the socket is made."""

    def tree(self) -> TreeNode:
        """The live tree."""

    def events(self) -> Sequence[Logged]:
        """What happened lately."""

    def topic(self, name: str) -> Topic:
        """The topic of that name."""

    def topics(self) -> Sequence[Topic]:
        """All topics."""

    async def create_topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """Create a topic, unless it is there with these settings."""

    async def alter_topic(self, name: str, **settings: Unpack[TopicChanges]) -> Topic:
        """Change settings of a topic."""

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""

    def dead_letters(self, topic: str) -> DeadLetterTopic:
        """What was forwarded to a topic."""

    def schedules(self) -> Sequence[Schedule]:
        """The recurring publishes of all topics."""

    async def groups(self) -> Sequence[GroupInfo]:
        """All groups."""

    async def stats(self) -> Any:
        """Everything countable, as attrs values."""

    async def restart(self, path: str) -> None:
        """Restart the actor at `path`."""

    def group(self, name: str) -> Group:
        """A group by its name."""


class ControlServer:
    """Serves one runtime; run by an actor of it. Raises `ControlError` where no socket can be made."""

    def __init__(self, runtime: Controlled, emit: Callable[[Any], object]) -> None:
        """`emit` puts an event into the runtime's log of events."""
        self._runtime = runtime
        self._emit = emit
        self._path = _socket_path(runtime.directory)
        _is_stale(self._path)
        self._socket: trio.socket.SocketType | None = None
        self._free = trio.Semaphore(CONNECTIONS_MAX)
        self._answering: set[trio.CancelScope] = set()

    async def listen(self) -> None:
        """Make the socket: from here on clients are answered, or wait. The directory's lock makes its name ours."""
        _remove_stale(self._path)
        self._socket = socket = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        await socket.bind(self._path)
        # No process can connect before `listen`, so none slips in under the mode that bind gave it.
        os.chmod(self._path, stat.S_IRUSR | stat.S_IWUSR)
        socket.listen(BACKLOG)

    def close(self) -> None:
        """Remove the socket, if there is one, once it is not served."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
            _remove_stale(self._path)

    async def serve(self, context: Context[Any]) -> None:
        """The actor: accept connections until it is to stop, which is all that its mailbox ever says."""
        context.start_task(self.accept_all)
        try:
            while True:
                await context.next()
        finally:
            for scope in self._answering:
                scope.deadline = min(scope.deadline, trio.current_time() + ANSWER_GRACE_S)

    async def accept_all(self) -> None:
        """Accept connections and serve them until cancelled."""
        if self._socket is None:
            raise InternalError("the control socket is served before it listens", invariant="N1")
        async with trio.open_nursery() as nursery:
            while True:
                await self._free.acquire()
                try:
                    stream = await self._accept(self._socket)
                except BaseException:
                    self._free.release()
                    raise
                nursery.start_soon(self._serve_connection, stream)

    async def _accept(self, socket: trio.socket.SocketType) -> trio.SocketStream:
        while True:
            try:
                connection, _ = await socket.accept()
            except OSError as error:
                if error.errno not in WORN_OUT:
                    raise
                await trio.sleep(ACCEPT_PAUSE_S)
            else:
                return trio.SocketStream(connection)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                while await self._serve_request(stream):
                    await trio.lowlevel.checkpoint()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self._free.release()

    async def _serve_request(self, stream: trio.SocketStream) -> bool:
        """Answer one request; False when the connection is to be closed."""
        with trio.move_on_after(REQUEST_TIMEOUT_S):
            try:
                request = await receive_frame(stream, REQUEST_BYTES_MAX)
            except ControlError as error:
                await send_frame(stream, _refusal(error))
                return False
            if request is None:
                return False
            # What is asked may be what ends the program, as forgetting the group of its worker does: it is answered.
            deadline = trio.current_effective_deadline()
            with trio.CancelScope(shield=True, deadline=deadline) as scope:
                self._answering.add(scope)
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_cancel_when_gone, stream, scope)
                        frame = await self._answer(request)
                        nursery.cancel_scope.cancel()
                    await stream.send_all(frame)
                    return True
                finally:
                    self._answering.discard(scope)
        return False

    async def _answer(self, request: Any) -> bytes:
        """The frame that answers. A bug that this request meets is reported, and is no reason to refuse others."""
        verb = request.get("verb") if isinstance(request, dict) else None
        try:
            frame = encode(await self._result(request))
        except Exception as error:  # noqa: BLE001 - a bug, in whatever was asked
            self._emit(RequestFailed(ACTOR, str(verb), describe(error), place(error), traceback_lines(error)))
            done = f" {_then(str(verb))}" if verb in CHANGING else ""
            words = f"{verb!r} met a bug in Callboard, please report it ({describe(error)}).{done}"
            return encode(_refusal(ControlError(words)))
        if len(frame) > ANSWER_BYTES_MAX:
            words = f"the answer takes {len(frame)} bytes, too many for one frame. Ask for less at a time."
            return encode(_refusal(ControlError(words)))
        return frame

    async def _result(self, request: Any) -> dict[str, Any]:
        """What is answered. An error of Callboard is a refusal."""
        try:
            if not isinstance(request, dict):
                raise ControlError("a request is a map with a `verb`.")
            verb = request.pop("verb", None)
            if not isinstance(verb, str) or verb not in VERBS:
                raise ControlError(f"unknown verb {verb!r:.40}; known are {', '.join(VERBS)}.")
            wanted = VERBS[verb]
            named = set(request) | (OPTIONAL & set(wanted))
            if named != set(wanted) or not all(isinstance(value, str) for value in request.values()):
                raise ControlError(f"the arguments of {verb!r} are {wanted or 'none'}, as text.")
            return {"ok": True, "result": await answer(self._runtime, verb, **request)}
        except CallboardError as error:
            return _refusal(error)


async def _cancel_when_gone(stream: trio.SocketStream, answering: trio.CancelScope) -> None:
    """A client that has gone, as one that was killed, wants nothing done any more: what has not begun yet, or is done
    part by part, ends. The next request of one that is still there is left where it is.
    """
    try:
        is_gone = not await stream.socket.recv(1, trio.socket.MSG_PEEK)
    except OSError:
        is_gone = True
    if is_gone:
        answering.cancel()


def parse_place(text: str) -> Start:
    """Where to seek: "beginning", "end", an offset, or an instant in ISO 8601. Raises `InvalidArgument`."""
    if text in ("beginning", "end"):
        return text  # type: ignore[return-value]
    if is_negative(text):
        raise InvalidArgument(
            f"{text:.60} lies before the start: offsets begin at 0. Nothing was changed. Say beginning for the oldest"
            " message that is kept."
        )
    try:
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
        return parse_instant(text)
    except ValueError as error:
        raise InvalidArgument(
            f"{text!r:.60} is no place in a topic. Nothing was changed. Say beginning, end, an offset, or an instant"
            " such as 2026-05-01T12:00:00Z."
        ) from error


def is_negative(text: str) -> bool:
    """Whether it is a number below 0, as typed to go before the start, or back from the end."""
    return text.isascii() and text[:1] == "-" and text[1:].isdigit()


def parse_partition(text: str) -> int | None:
    """A partition's number; None for all. Raises `InvalidArgument`."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgument(f"{text!r:.60} is no partition. Nothing was changed.")
    return int(text)


def parse_changes(kind: Literal["group", "topic"], name: str, text: str) -> dict[str, Any]:
    """Settings of a group or topic, as a JSON object. Raises `InvalidArgument`, `ConfigurationError`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{text!r:.60} is no JSON object of settings. Nothing was changed.")
    check(kind, GROUP_FIELDS if kind == "group" else TOPIC_FIELDS, found, f"{kind} {name!r:.80}")
    return found


async def _seek(runtime: Controlled, group: str, to: str, topic: str, partition: str) -> Any:
    only = {"topic": topic or None, "partition": parse_partition(partition)}
    if to:
        found = await runtime.group(group).seek(parse_place(to), **only)  # type: ignore[arg-type]
    else:
        found = await runtime.group(group).reset(**only)  # type: ignore[arg-type]
    return [
        {"topic": place[0], "partition": place[1], "offset": offset}
        for place, offset in sorted(found.items())
    ]


async def _change(schedule: Schedule, change: str) -> None:
    match change:
        case "pause":
            await schedule.pause()
        case "resume":
            await schedule.resume()
        case "remove":
            await schedule.remove()
        case _:
            raise InvalidArgument(f"{change!r:.40} is no change of a schedule. Nothing was changed.")


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgument(f"{text!r:.60} is no number. Nothing was changed.")
    return int(text)


async def answer(
    runtime: Controlled,
    verb: str,
    *,
    topic: str = "",
    path: str = "",
    group: str = "",
    to: str = "",
    partition: str = "",
    name: str = "",
    settings: str = "",
    change: str = "",
    count: str = "",
    after: str = "",
    ids: str = "",
    drop_dead_letters: str = "",
    **others: str,
) -> Any:
    """What one of `VERBS` results in, as maps and lists. Raises what the runtime raises."""
    if verb in DEAD_VERBS:
        letters = runtime.dead_letters(topic)
        return plain(await answer_dead_letters(letters, verb, group=group, to=to, **others))
    if verb in KEPT_VERBS:
        kept = await answer_kept(runtime.topic(topic), await runtime.groups(), verb, group=group, **others)
        return plain(kept)
    match verb:
        case "ping":
            return VERSION
        case "tree":
            return plain(runtime.tree())
        case "stats":
            return plain(await runtime.stats())
        case "describe":
            found = runtime.topic(topic)
            return {
                "name": found.name,
                "topic_id": found.topic_id,
                "settings": plain(found.settings),
                "partitions": plain(await found.describe()),
            }
        case "create_topic":
            given = parse_changes("topic", name, settings)
            is_new = all(each.name != name for each in runtime.topics())
            created = await runtime.create_topic(name, **given)
            return {"settings": plain(created.settings), "created": is_new}
        case "alter_topic":
            altered = await runtime.alter_topic(topic, **parse_changes("topic", topic, settings))
            return plain(altered.settings)
        case "delete_topic":
            await runtime.delete_topic(topic)
        case "events":
            return [
                {
                    "wall_us": logged.wall_us,
                    "kind": type(logged.event).__name__,
                    **_event_fields(logged.event),
                }
                for logged in runtime.events()
            ]
        case "describe_group":
            return plain(await runtime.group(group).describe())
        case "seek_group":
            return await _seek(runtime, group, to, topic, partition)
        case "alter_group":
            return plain(await runtime.group(group).alter(**parse_changes("group", group, settings)))
        case "delete_group":
            await runtime.group(group).delete(drop_dead_letters=drop_dead_letters == "yes")
        case "restart":
            await runtime.restart(path)
        case "schedules":
            schedules = runtime.topic(topic).schedules() if topic else runtime.schedules()
            return [plain(plain_schedule(each)) for each in schedules]
        case "add_schedule":
            made = await runtime.topic(topic).schedule(name, **settings_of_text(settings))
            return plain(plain_schedule(made))
        case "change_schedule":
            await _change(find_schedule(runtime.topic(topic).schedules(), topic, name), change)
        case "next_due":
            schedule = find_schedule(runtime.topic(topic).schedules(), topic, name)
            return [each.isoformat() for each in schedule.next(_parse_count(count))]
        case "list_delayed":
            first = await runtime.topic(topic).delayed().next(limit=_parse_count(count))
            return [plain(plain_delayed(each)) for each in first]
        case "page_delayed":
            page = await runtime.topic(topic).delayed().page(after, _parse_count(count))
            return [plain(plain_delayed(each)) for each in page]
        case "count_delayed":
            return await runtime.topic(topic).delayed().count()
        case "cancel_delayed":
            meant = _parse_count(partition), parse_ids(ids)
            return list(await runtime.topic(topic).delayed().cancel_ids(*meant))
    return None


class ControlClient:
    """Talks to the runtime that has `directory` open.

    `request` raises `ControlError`; its `is_listening` is False when no process listens there, and `kind` names the
    error by which the runtime refused, if it did.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    async def request(self, verb: str, **arguments: Any) -> Any:
        """One request and its result."""
        path = _socket_path(self._directory)
        try:
            stream = await trio.open_unix_socket(path)
        except OSError as error:
            words = f"no runtime listens in {self._directory} ({error.strerror}). Open it with control=True, or check"
            raise self._error(f"{words} the directory.", is_listening=False) from error
        found: Any = None
        runtime = f"the runtime in {self._directory}"
        try:
            async with stream:
                with trio.fail_after(REQUEST_TIMEOUT_S):
                    await send_frame(stream, {"verb": verb, **arguments})
                    found = await receive_frame(stream, ANSWER_BYTES_MAX)
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            words = f"{runtime} did not answer {verb!r}. {_then(verb)} If it hangs, restart it."
            raise self._error(words) from error
        if not isinstance(found, dict):
            raise self._error(f"{runtime} closed the connection without an answer to {verb!r}. {_then(verb)}")
        if not found.get("ok"):
            words = f"{found.get('error')}"
            if words.startswith(f"unknown verb {verb!r:.40};"):
                words = (
                    f"{runtime} is of a version of Callboard that does not know {verb!r} yet. Nothing was changed."
                    " Restart its program with this version, or ask again when it has ended."
                )
            raise self._error(words, kind=found.get("kind"))
        return found.get("result")

    def _error(self, words: str, *, is_listening: bool = True, kind: str | None = None) -> ControlError:
        return ControlError(words, directory=self._directory, is_listening=is_listening, kind=kind)


def _then(verb: str) -> str:
    """What to do about a request that was not answered."""
    if verb in CHANGING:
        return "It may have been done all the same: look before you try again."
    return "Try again."


def _refusal(error: CallboardError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": plain(str(error))}


def plain(found: Any) -> Any:
    """An attrs value as maps and lists, for CBOR and JSON."""
    if attrs.has(type(found)):
        return {field.name: plain(getattr(found, field.name)) for field in attrs.fields(type(found))}
    if isinstance(found, (list, tuple)):
        return [plain(item) for item in found]
    if isinstance(found, dict):
        return {str(key): plain(item) for key, item in found.items()}
    if isinstance(found, datetime):
        return found.isoformat()
    if isinstance(found, str):
        # File names need not be text; what is not is shown escaped.
        return found if found.isascii() else found.encode("utf-8", "backslashreplace").decode()
    if found is None or isinstance(found, (bool, int, float, bytes)):
        return found
    return repr(found)


def _event_fields(event: Any) -> dict[str, Any]:
    fields = plain(event) if attrs.has(type(event)) else {"text": str(event)}
    return fields if isinstance(fields, dict) else {}


def socket_problem(directory: str) -> str | None:
    """Why `directory` can have no control socket; None when it can."""
    try:
        _socket_path(directory)
    except ControlError as error:
        return str(error)
    return None


def _socket_path(directory: str) -> str:
    """The socket's path; one too long for the system is reached relative to the working directory."""
    path = os.path.join(directory, NAME)
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        path = os.path.relpath(path)
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise ControlError(
            f"{path} is too long for a Unix socket ({UNIX_PATH_BYTES_MAX} bytes). Use a shorter directory, or"
            " open the runtime without control=True.",
            directory=directory,
            is_listening=False,
            kind=None,
        )
    return path


def _remove_stale(path: str) -> None:
    """Remove the socket of a process that was killed."""
    if _is_stale(path):
        os.unlink(path)


def _is_stale(path: str) -> bool:
    """Whether a socket is left there. Raises `ControlError` for anything else of that name."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            return True
    except FileNotFoundError:
        return False
    raise ControlError(f"{path} is no socket. Remove it, or open the runtime without control=True.")
