"""The command group: which commands there are, and how their errors reach the user.

A `CallboardError` becomes one message on standard error and an exit code, never a traceback; anything else is a bug and
keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

import click
import trio

from callboard.cli import exits
from callboard.log.errors import CallboardError, DirectoryLocked, InvalidArgument

COMMANDS = {
    "bench": "callboard.cli.bench:bench",
    "consume": "callboard.cli.consume:consume",
    "demo": "callboard.cli.demo:demo",
    "demo-child": "callboard.cli.demo:demo_child",
    "peek": "callboard.cli.consume:peek",
    "publish": "callboard.cli.publish:publish",
    "repair": "callboard.cli.maintenance:repair",
    "stats": "callboard.cli.inspect:stats",
    "topic": "callboard.cli.topics:topic",
    "tree": "callboard.cli.inspect:tree",
    "verify": "callboard.cli.maintenance:verify",
}
T = TypeVar("T")
HIDDEN = frozenset({"demo-child"})


class LazyGroup(click.Group):
    """Loads a command's module when the command is called or described."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name not in HIDDEN]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, name = place.split(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="callboard", message="callboard %(version)s")
def callboard() -> None:
    """Callboard: a durable, partitioned message log and queue that lives inside a trio program."""


def run_command_line() -> None:
    """Run the command that was typed; exits with a documented code."""
    try:
        code = callboard.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = exits.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    except CallboardError as error:
        click.echo(f"callboard: {type(error).__name__}: {error}", err=True)
        code = code_of(error)
    except BrokenPipeError:
        sys.stderr.close()
        code = exits.FAILED
    sys.exit(code if isinstance(code, int) else exits.OK)


def code_of(error: CallboardError) -> int:
    """The exit code of an error."""
    if isinstance(error, DirectoryLocked):
        return exits.LOCKED
    return exits.USAGE if isinstance(error, InvalidArgument) else exits.FAILED


def run(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's asynchronous part."""
    return trio.run(function)
