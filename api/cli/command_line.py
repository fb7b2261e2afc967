"""Which commands there are, and what runs the one that was typed. Its errors become exit codes."""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from callboard.cli import exits
from callboard.cli.errors import is_of_click, one_line, report, report_usage
from callboard.cli.interruption import TerminatedBySignal, ended_by_sigterm
from callboard.cli.output import on_screen, output_failed
from callboard.cli.streams import drop_standard_output
from callboard.log.errors import CallboardError

COMMANDS = {
    "bench": "callboard.cli.bench:bench",
    "consume": "callboard.cli.consume:consume",
    "dead-letters": "callboard.cli.dead_letters:dead_letters",
    "delayed": "callboard.cli.delayed:delayed",
    "demo": "callboard.cli.demo:demo",
    "demo-child": "callboard.cli.demo:demo_child",
    "group": "callboard.cli.groups:group",
    "peek": "callboard.cli.consume:peek",
    "publish": "callboard.cli.publish:publish",
    "record": "callboard.cli.recording:record",
    "recording": "callboard.cli.recording:recording",
    "rehearse": "callboard.cli.rehearse:rehearse_command",
    "repair": "callboard.cli.maintenance:repair",
    "replay": "callboard.cli.replay:replay_command",
    "schedule": "callboard.cli.schedules:schedule",
    "simulate": "callboard.cli.simulate.command:simulate",
    "simulate-worker": "callboard.cli.simulate.worker:simulate_worker",
    "stats": "callboard.cli.inspect:stats",
    "topic": "callboard.cli.topics:topic",
    "tree": "callboard.cli.inspect:tree",
    "verify": "callboard.cli.maintenance:verify",
    "workload": "callboard.cli.workload.command:workload",
}
HIDDEN = frozenset({"demo-child", "simulate-worker"})


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
        code = code or report(output_failed(error))
    sys.exit(code)


def _run_command() -> int:
    try:
        with ended_by_sigterm():
            code = callboard.main(prog_name="callboard", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        is_terminated = TerminatedBySignal in (type(error), type(error.__cause__))
        return exits.TERMINATED if is_terminated else exits.INTERRUPTED
    except click.UsageError as error:
        return report_usage(error)
    except click.ClickException as error:
        click.echo(on_screen(f"callboard: {one_line(error.format_message())}"), err=True)
        return error.exit_code
    except CallboardError as error:
        return report(error)
    except OSError as error:
        if not is_of_click(error):
            raise
        return report(output_failed(error))
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return exits.INTERRUPTED
    return code if isinstance(code, int) else exits.OK
