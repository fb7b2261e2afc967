"""The server of the control socket: another process looks at, and steers, a running runtime.

A Unix socket `control.sock` in the runtime's directory, mode 0600. Each request and each answer is a frame: a u32
little-endian length, then CBOR. A request is a map with `verb` (`verbs`) and its arguments; an answer is a map with
`ok` and either `result` or `error` and `kind`. One request at a time per connection; everything is bounded.

Invariants
----------
CO1  Connections are accepted once the socket listens.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any, Final

import trio

from callboard.actors.kernel import Context
from callboard.actors.kernel.failures import describe, place
from callboard.actors.notices import RequestFailed
from callboard.control.frames import (
    ANSWER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_TIMEOUT_S,
    encode,
    receive_frame,
    send_frame,
)
from callboard.control.plain import plain
from callboard.control.socket_file import is_stale, remove_stale, socket_path
from callboard.control.verbs import VERBS, Controlled, answer, what_then
from callboard.log.errors import CallboardError, ControlError, InternalError
from callboard.reports.tracebacks import traceback_lines

ACTOR: Final = "user/control"
"""The path of the actor that serves it."""
CONNECTIONS_MAX: Final = 16
"""Served at a time; others wait to be accepted."""
BACKLOG: Final = 128
ANSWER_GRACE_S: Final = 3.0
"""How long a request may take to be answered once the runtime closes: less than the actor's grace."""
ACCEPT_PAUSE_S: Final = 0.1
WORN_OUT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ControlServer:
    """Serves one runtime; run by an actor of it. Raises `ControlError` where no socket can be made."""

    def __init__(self, runtime: Controlled, emit: Callable[[Any], object]) -> None:
        """`emit` puts an event into the runtime's log of events."""
        self._runtime = runtime
        self._emit = emit
        self._path = socket_path(runtime.directory)
        is_stale(self._path)
        self._socket: trio.socket.SocketType | None = None
        self._free = trio.Semaphore(CONNECTIONS_MAX)
        self._answering: set[trio.CancelScope] = set()

    async def listen(self) -> None:
        """Make the socket: from here on clients are answered, or wait. The directory's lock makes its name ours."""
        remove_stale(self._path)
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
            remove_stale(self._path)

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
            raise InternalError("the control socket is served before it listens", invariant="CO1")
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
            done = f" {what_then(verb)}" if verb in VERBS and VERBS[verb].changes else ""
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
            given = {name: value for name, value in request.items() if name != "verb"}
            return {"ok": True, "result": await answer(self._runtime, request.get("verb"), given)}
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


def _refusal(error: CallboardError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": plain(str(error))}
