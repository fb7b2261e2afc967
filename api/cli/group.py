"""The command group: which commands there are, and how their errors reach the user.

A `CallboardError` becomes one message on standard error and an exit code, never a traceback; anything else is a bug and
keeps its traceback. Ctrl-C and SIGTERM cancel the command, so that the runtime closes as it does at its end.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import signal
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click
import trio

from callboard.cli import exits
from callboard.cli.hints import as_commands
from callboard.cli.output import on_screen, output_failed
from callboard.cli.streams import drop_standard_output
from callboard.log.errors import (
    CallboardError,
    ControlError,
    DirectoryLocked,
    InvalidArgument,
    JournalInvalid,
    LogCorrupt,
)

COMMANDS = {
    "bench": "callboard.cli.bench:bench",
    "consume": "callboard.cli.consume:consume",
    "dead-letters": "callboard.cli.dead_letters:dead_letters",
    "delayed": "callboard.cli.delayed:delayed",
    "demo": "callboard.cli.demo:demo",
    "demo-child": "callboard.cli.demo_work:demo_child",
    "group": "callboard.cli.groups:group",
    "peek": "callboard.cli.consume:peek",
    "publish": "callboard.cli.publish:publish",
    "record": "callboard.cli.recording:record",
    "recording": "callboard.cli.recording:recording",
    "rehearse": "callboard.cli.rehearse:rehearse_command",
    "repair": "callboard.cli.maintenance:repair",
    "replay": "callboard.cli.replay:replay_command",
    "schedule": "callboard.cli.schedules:schedule",
    "simulate": "callboard.cli.simulate:simulate",
    "simulate-worker": "callboard.cli.simulate_worker:simulate_worker",
    "stats": "callboard.cli.inspect:stats",
    "topic": "callboard.cli.topics:topic",
    "tree": "callboard.cli.inspect:tree",
    "verify": "callboard.cli.maintenance:verify",
    "workload": "callboard.cli.workload:workload",
}
T = TypeVar("T")
LATE = {"-d": "-d DIRECTORY", "--directory": "--directory DIRECTORY", "--json": "--json"}
"""Options that every command has, and no group of commands."""
HIDDEN = frozenset({"demo-child", "simulate-worker"})
REPEATED_S = 1.0
"""Signals that come so soon after the first are the same wish: a terminal and `timeout` may send it twice."""
SIGNALS = {signal.SIGINT: exits.INTERRUPTED, signal.SIGTERM: exits.TERMINATED}


def restore_help(command: click.Command) -> None:
    """Read the help of a command, and of those below it, from its source: `python -OO` drops docstrings."""
    if command.help is None and command.callback is not None:
        source = ast.parse(textwrap.dedent(inspect.getsource(command.callback)))
        function = source.body[0]
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            command.help = ast.get_docstring(function)
    for below in getattr(command, "commands", {}).values():
        restore_help(below)


class CommandGroup(click.Group):
    """A group of commands that knows which one a wrong name means."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; of an unknown command it says which one is meant."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" `{ctx.command_path} --help` lists them."
            ctx.fail(f"there is no command {args[0]!r:.60}.{hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """Loads a command's module when the command is called or described."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands that are meant for people."""
        return [name for name in COMMANDS if name not in HIDDEN]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded; None when there is none."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, name = place.split(":")
        command: click.Command = getattr(import_module(module), name)
        if sys.flags.optimize > 1:
            restore_help(command)
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the options: --help and --version print already here, and may meet a closed pipe, too."""
        with _pipe_may_close():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Click has an exit code of its own for a closed pipe, unless it never hears of it."""
        with _pipe_may_close():
            return super().invoke(ctx)


@contextmanager
def _pipe_may_close() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        drop_standard_output()
        raise click.exceptions.Exit(exits.PIPE_CLOSED) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="callboard", message="callboard %(version)s")
def callboard() -> None:
    """Callboard: a durable, partitioned message log and queue that lives inside a trio program."""


class TerminatedBySignal(KeyboardInterrupt):
    """SIGTERM, in a command that does not run in trio."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
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


def run_command_line() -> None:
    """Run the command that was typed; exits with a documented code."""
    code = _run_command()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_standard_output()
        code = code or exits.PIPE_CLOSED
    except OSError as error:
        drop_standard_output()
        code = code or _tell(output_failed(error))
    sys.exit(code)


def _run_command() -> int:
    try:
        with _ended_by_sigterm():
            code = callboard.main(prog_name="callboard", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        is_terminated = TerminatedBySignal in (type(error), type(error.__cause__))
        return exits.TERMINATED if is_terminated else exits.INTERRUPTED
    except click.UsageError as error:
        return _tell_usage(error)
    except click.ClickException as error:
        click.echo(on_screen(f"callboard: {one_line(error.format_message())}"), err=True)
        return error.exit_code
    except CallboardError as error:
        return _tell(error)
    except OSError as error:
        if not _is_of_click(error):
            raise
        return _tell(output_failed(error))
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return exits.INTERRUPTED
    return code if isinstance(code, int) else exits.OK


def _is_of_click(error: OSError) -> bool:
    """Whether click could not print what it prints itself: help, and the version."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("click.")


def _tell(error: CallboardError) -> int:
    """One line on standard error; returns the exit code."""
    kind = getattr(error, "kind", None) if isinstance(error, ControlError) else None
    click.echo(
        on_screen(f"callboard: {kind or type(error).__name__}: {one_line(as_commands(str(error)))}"), err=True
    )
    return code_of(error)


def _tell_usage(error: click.UsageError) -> int:
    """One line and where to read on; the help itself after a group that was named without a command."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2
        error.show()
    else:
        place = "callboard" if error.ctx is None else error.ctx.command_path
        told = one_line(_message_of(error))
        told = told if told.endswith((".", "?", "!")) else f"{told}."
        if "unexpected extra argument" in told and _takes_directory(error.ctx):
            told += " The directory is named with -d."
        early = isinstance(error, click.NoSuchOption) and LATE.get(error.option_name)
        if early and error.ctx is not None and isinstance(error.ctx.command, click.Group):
            told += f" It stands behind the command: `{place} COMMAND {early}`."
        click.echo(on_screen(f"{place}: {told} See `{place} --help`."), err=True)
    return error.exit_code


def _message_of(error: click.UsageError) -> str:
    """As click's; but an option is meant only if the names are alike without their dashes, which all have."""
    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    names = {each.lstrip("-"): each for each in error.possibilities or ()}
    near = difflib.get_close_matches(error.option_name.lstrip("-"), names, n=1)
    return f"{error.message} Did you mean {names[near[0]]!r}?" if near else error.message


def _takes_directory(context: click.Context | None) -> bool:
    return context is not None and any("-d" in option.opts for option in context.command.params)


def one_line(text: str) -> str:
    """Text that may quote what was typed, as it can be shown on one line."""
    return "".join(
        letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in " ".join(text.split())
    )


def code_of(error: CallboardError) -> int:
    """The exit code of an error."""
    if isinstance(error, DirectoryLocked):
        return exits.LOCKED
    if isinstance(error, (LogCorrupt, JournalInvalid)):
        return exits.DAMAGED
    return exits.USAGE if isinstance(error, InvalidArgument) else exits.FAILED


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


@contextmanager
def first_error() -> Iterator[None]:
    """Of a group of our own errors from a nursery, the first is raised as itself."""
    try:
        yield
    except ExceptionGroup as group:
        ours, others = group.split(CallboardError)
        if ours is None or others is not None:
            raise
        error: BaseException = ours
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


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
