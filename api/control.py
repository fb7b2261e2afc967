"""The control socket: how another process looks at, and steers, a running runtime.

A Unix socket `control.sock` in the runtime's directory, mode 0600. Each request and each answer is a frame: a u32
little-endian length, then CBOR. A request is a map with `verb` and its arguments; an answer is a map with `ok` and
either `result` or `error` and `kind`. One request at a time per connection; everything is bounded.

======== ============================ =====================================================
verb     arguments                    result
======== ============================ =====================================================
ping                                  the protocol's version
tree                                  the live tree
stats                                 offsets, sizes and states of partitions and groups
describe `topic`                      a topic's settings and partitions
events                                what happened lately
restart  `path`                       None, once the actor was restarted
======== ============================ =====================================================
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import cbor2
import trio

from callboard.actors import Context
from callboard.log.errors import CallboardError, ControlError
from callboard.log.limits import MIB

if TYPE_CHECKING:
    from callboard.runtime import Runtime

NAME: Final = "control.sock"
VERSION: Final = 1
HEAD: Final = struct.Struct("<I")
REQUEST_BYTES_MAX: Final = 64 * 1024
ANSWER_BYTES_MAX: Final = 64 * MIB
CONNECTIONS_MAX: Final = 16
REQUEST_TIMEOUT_S: Final = 30.0
UNIX_PATH_BYTES_MAX: Final = 100


class ControlServer:
    """Serves one runtime; run by an actor of it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._connections = trio.CapacityLimiter(CONNECTIONS_MAX)
        self._verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "ping": self._ping,
            "tree": self._tree,
            "stats": self._stats,
            "describe": self._describe,
            "events": self._events,
            "restart": self._restart,
        }

    async def serve(self, context: Context[Any]) -> None:
        """Accept connections until cancelled. The directory's lock makes the socket's name ours."""
        path = _socket_path(self._runtime.directory)
        _remove_stale(path)
        socket = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        with socket:
            await socket.bind(path)
            os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
            socket.listen(CONNECTIONS_MAX)
            try:
                async with trio.open_nursery() as nursery:
                    while True:
                        connection, _ = await socket.accept()
                        nursery.start_soon(self._serve_connection, trio.SocketStream(connection))
            finally:
                _remove_stale(path)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        async with stream, self._connections:
            try:
                with trio.move_on_after(REQUEST_TIMEOUT_S):
                    while (request := await receive_frame(stream, REQUEST_BYTES_MAX)) is not None:
                        await send_frame(stream, await self._answer(request))
            except (trio.BrokenResourceError, trio.ClosedResourceError, ControlError):
                return

    async def _answer(self, request: Any) -> dict[str, Any]:
        try:
            if not isinstance(request, dict) or not isinstance(request.get("verb"), str):
                raise ControlError("a request is a map with a `verb`.")
            arguments = {key: value for key, value in request.items() if key != "verb"}
            verb = self._verbs.get(request["verb"])
            if verb is None:
                raise ControlError(
                    f"unknown verb {request['verb']!r:.40}; known are {', '.join(self._verbs)}."
                )
            return {"ok": True, "result": await verb(**arguments)}
        except CallboardError as error:
            return {"ok": False, "kind": type(error).__name__, "error": str(error)}
        except TypeError as error:
            return {"ok": False, "kind": "ControlError", "error": f"the arguments do not fit: {error}"}

    async def _ping(self) -> int:
        return VERSION

    async def _tree(self) -> Any:
        return plain(self._runtime.tree())

    async def _stats(self) -> Any:
        return plain(await self._runtime.stats())

    async def _describe(self, topic: str) -> Any:
        found = self._runtime.topic(topic)
        return {
            "name": found.name,
            "topic_id": found.topic_id,
            "settings": plain(found.settings),
            "partitions": plain(await found.describe()),
        }

    async def _events(self) -> Any:
        return [
            {"wall_us": logged.wall_us, "kind": type(logged.event).__name__, **_event_fields(logged.event)}
            for logged in self._runtime.events()
        ]

    async def _restart(self, path: str) -> None:
        await self._runtime.restart(path)


class ControlClient:
    """Talks to the runtime that has `directory` open.

    `request` raises `ControlError` when none listens there, or when it refuses.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    async def request(self, verb: str, **arguments: Any) -> Any:
        """One request and its result."""
        path = _socket_path(self._directory)
        try:
            stream = await trio.open_unix_socket(path)
        except OSError as error:
            raise ControlError(
                f"no runtime listens in {self._directory} ({error.strerror}). Open it with control=True, or check"
                " the directory.",
                directory=self._directory,
            ) from error
        try:
            async with stream:
                with trio.fail_after(REQUEST_TIMEOUT_S):
                    await send_frame(stream, {"verb": verb, **arguments})
                    answer = await receive_frame(stream, ANSWER_BYTES_MAX)
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            raise ControlError(f"the runtime in {self._directory} did not answer {verb!r}.") from error
        if not isinstance(answer, dict):
            raise ControlError(f"the runtime in {self._directory} closed the connection without an answer.")
        if not answer.get("ok"):
            raise ControlError(f"{answer.get('error')}", kind=answer.get("kind"))
        return answer.get("result")


async def send_frame(stream: trio.SocketStream, content: Any) -> None:
    """Send one frame."""
    body = cbor2.dumps(content)
    await stream.send_all(HEAD.pack(len(body)) + body)


async def receive_frame(stream: trio.SocketStream, limit_bytes: int) -> Any:
    """One frame's content; None at the end of the stream. Raises `ControlError` for what is no frame."""
    head = await _receive_exactly(stream, HEAD.size)
    if head is None:
        return None
    (length,) = HEAD.unpack(head)
    if length > limit_bytes:
        raise ControlError(f"a frame of {length} bytes, and {limit_bytes} are allowed.")
    body = await _receive_exactly(stream, length)
    if body is None:
        return None
    try:
        return cbor2.loads(body)
    except (cbor2.CBORDecodeError, ValueError) as error:
        raise ControlError(f"a frame does not hold CBOR: {error}") from error


async def _receive_exactly(stream: trio.SocketStream, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        part = await stream.receive_some(count - len(received))
        if not part:
            return None
        received += part
    return bytes(received)


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
    if found is None or isinstance(found, (bool, int, float, str, bytes)):
        return found
    return repr(found)


def _event_fields(event: Any) -> dict[str, Any]:
    fields = plain(event) if attrs.has(type(event)) else {"text": str(event)}
    return fields if isinstance(fields, dict) else {}


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
        )
    return path


def _remove_stale(path: str) -> None:
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        return
