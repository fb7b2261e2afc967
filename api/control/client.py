"""The client of the control socket: asks the runtime that another process has open."""

from __future__ import annotations

from typing import Any

import trio

from callboard.control.frames import ANSWER_BYTES_MAX, REQUEST_TIMEOUT_S, receive_frame, send_frame
from callboard.control.socket_file import socket_path
from callboard.control.verbs import what_then
from callboard.log.errors import ControlError


class ControlClient:
    """Asks the runtime that has `directory` open.

    `request` raises `ControlError`; its `is_listening` is False when no process listens there, and `kind` names the
    error by which the runtime refused, if it did.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    async def request(self, verb: str, **arguments: Any) -> Any:
        """One request and its result."""
        path = socket_path(self._directory)
        try:
            stream = await trio.open_unix_socket(path)
        except OSError as error:
            words = f"no runtime listens in {self._directory} ({error.strerror}). Open it with control=True, or check"
            raise self._error(f"{words} the directory.", is_listening=False) from error
        answered: Any = None
        runtime = f"the runtime in {self._directory}"
        try:
            async with stream:
                with trio.fail_after(REQUEST_TIMEOUT_S):
                    await send_frame(stream, {"verb": verb, **arguments})
                    answered = await receive_frame(stream, ANSWER_BYTES_MAX)
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            words = f"{runtime} did not answer {verb!r}. {what_then(verb)} If it hangs, restart it."
            raise self._error(words) from error
        if not isinstance(answered, dict):
            raise self._error(
                f"{runtime} closed the connection without an answer to {verb!r}. {what_then(verb)}"
            )
        if not answered.get("ok"):
            words = f"{answered.get('error')}"
            if words.startswith(f"unknown verb {verb!r:.40};"):
                words = (
                    f"{runtime} is of a version of Callboard that does not know {verb!r} yet. Nothing was changed."
                    " Restart its program with this version, or ask again when it has ended."
                )
            raise self._error(words, kind=answered.get("kind"))
        return answered.get("result")

    def _error(self, words: str, *, is_listening: bool = True, kind: str | None = None) -> ControlError:
        return ControlError(words, directory=self._directory, is_listening=is_listening, kind=kind)
