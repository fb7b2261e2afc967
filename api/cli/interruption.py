"""Ctrl-C and SIGTERM cancel a command, so that the runtime closes as it does at its end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import click
import trio

from callboard.cli import exits
from callboard.log.errors import CallboardError

T = TypeVar("T")
REPEATED_S = 1.0
"""Signals that come so soon after the first are the same wish: a terminal and `timeout` may send it twice."""
SIGNALS = {signal.SIGINT: exits.INTERRUPTED, signal.SIGTERM: exits.TERMINATED}


def run(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's asynchronous part. SIGINT and SIGTERM cancel it, then exit.

    Another one, `REPEATED_S` or more after the first, ends the process at once.
    """
    before, early = signal.getsignal(signal.SIGTERM), []
    if callable(before):  # raised while trio begins or ends, it would be an error of trio
        signal.signal(signal.SIGTERM, lambda number, _: early.append(number))
    try:
        found = trio.run(_until_signal, function, early)
    finally:
        if callable(before):
            signal.signal(signal.SIGTERM, before)
    if early:
        raise SystemExit(SIGNALS[signal.Signals(early[0])])
    return found


async def finished(function: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    """What `function` returns. When the command is interrupted meanwhile it has `seconds` more to end by itself."""
    found: list[T] = []
    error: CallboardError | None = None
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as scope:
            nursery.start_soon(_end_within, scope, seconds)
            try:
                found.append(await function())
            except CallboardError as raised:
                error = raised
        nursery.cancel_scope.cancel()
        if error is None and not found:
            await trio.sleep_forever()  # the surroundings are cancelled
    if error is not None:
        raise error
    return found[0]


async def _end_within(scope: trio.CancelScope, seconds: float) -> None:
    try:
        await trio.sleep_forever()
    finally:
        scope.deadline = trio.current_time() + seconds


async def _until_signal(function: Callable[[], Coroutine[Any, Any, T]], early: list[int]) -> T:
    received, watching = early, trio.Event()
    with trio.CancelScope() as scope:
        # A system task: errors of the command come out as themselves, not in a nursery's group.
        trio.lowlevel.spawn_system_task(_watch_signals, scope, received, watching)
        await watching.wait()
        return await function()
    raise SystemExit(SIGNALS[signal.Signals(received[0])])


async def _watch_signals(scope: trio.CancelScope, received: list[int], watching: trio.Event) -> None:
    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if not wanted:
        watching.set()
        return
    with trio.open_signal_receiver(*wanted) as signals:
        watching.set()
        if not received:  # else one came before anybody watched
            received.append(await anext(aiter(signals)))
        scope.cancel()
        with trio.move_on_after(REPEATED_S):
            async for _ in signals:
                pass
        for number in wanted:
            signal.signal(number, signal.SIG_DFL)
        await trio.sleep_forever()  # until the command has ended


class TerminatedBySignal(KeyboardInterrupt):
    """SIGTERM, in a command that does not run in trio."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that it cleans up."""

    def end(number: int, frame: object) -> NoReturn:
        raise TerminatedBySignal

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def telling_end(what: str) -> Iterator[None]:
    """Tell on standard error that `what` was ended from outside: it has nothing else to show for it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or error.code in SIGNALS.values():
            with suppress(OSError):  # a closed pipe does not change the exit code
                click.echo(f"callboard: {what} was interrupted", err=True)
        raise
