"""Tracebacks for people: with source lines and the chain of causes, from the user's code on, and bounded.

Reading source lines touches the disk, so a simulation names frames only (`kernel.failures.frames`).
"""

from __future__ import annotations

from traceback import TracebackException, walk_tb

from callboard.actors.kernel.failures import frames, is_ours
from callboard.log.limits import CRASH_FRAMES_KEPT, TRACEBACK_BYTES


def traceback_lines(error: BaseException) -> tuple[str, ...]:
    """The traceback of `error` and of what caused it, by lines; its middle is left out when it is too long.

    Its frames alone if it cannot be printed.
    """
    try:
        printed = TracebackException(
            type(error), error, error.__traceback__, lookup_lines=False, compact=True
        )
        _trim(error, printed)
        text = "".join(printed.format())
    except Exception:  # noqa: BLE001 - it asks attributes of users' exceptions
        return frames(error)
    data = text.encode(errors="backslashreplace")
    if len(data) > TRACEBACK_BYTES:
        head, tail = data[: TRACEBACK_BYTES // 4], data[-(TRACEBACK_BYTES * 3 // 4) :]
        left_out = f"\n... {len(data) - len(head) - len(tail):,} bytes are left out ...\n".encode()
        data = head + left_out + tail
    return tuple(data.decode(errors="ignore").splitlines())


def _trim(error: BaseException, printed: TracebackException) -> None:
    """Leave out the frames of Callboard and trio above the user's first; where none is, all but the innermost."""
    waiting: list[tuple[BaseException | None, TracebackException | None]] = [(error, printed)]
    while waiting:
        cause, shown = waiting.pop()
        if cause is None or shown is None:
            continue
        ours = [is_ours(frame) for frame, _ in walk_tb(cause.__traceback__)]
        del shown.stack[: ours.index(False) if False in ours else -CRASH_FRAMES_KEPT]
        waiting += [(cause.__cause__, shown.__cause__), (cause.__context__, shown.__context__)]
        if isinstance(cause, BaseExceptionGroup) and shown.exceptions:
            waiting += zip(cause.exceptions, shown.exceptions, strict=False)
