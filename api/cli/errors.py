"""How errors reach the user: one message on standard error and an exit code, never a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

import click

from callboard.cli import exits
from callboard.cli.hints import as_commands
from callboard.cli.output import on_screen
from callboard.log.errors import (
    CallboardError,
    ControlError,
    DirectoryLocked,
    InvalidArgument,
    JournalInvalid,
    LogCorrupt,
)

LATE = {"-d": "-d DIRECTORY", "--directory": "--directory DIRECTORY", "--json": "--json"}
"""Options that every command has, and no group of commands."""


def code_of(error: CallboardError) -> int:
    """The exit code of an error."""
    if isinstance(error, DirectoryLocked):
        return exits.LOCKED
    if isinstance(error, (LogCorrupt, JournalInvalid)):
        return exits.DAMAGED
    return exits.USAGE if isinstance(error, InvalidArgument) else exits.FAILED


def is_of_click(error: OSError) -> bool:
    """Whether click could not print what it prints itself: help, and the version."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("click.")


def report(error: CallboardError) -> int:
    """One line on standard error; returns the exit code."""
    kind = getattr(error, "kind", None) if isinstance(error, ControlError) else None
    click.echo(
        on_screen(f"callboard: {kind or type(error).__name__}: {one_line(as_commands(str(error)))}"), err=True
    )
    return code_of(error)


def report_usage(error: click.UsageError) -> int:
    """One line and where to read on; the help itself after a group that was named without a command."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2
        error.show()
    else:
        place = "callboard" if error.ctx is None else error.ctx.command_path
        sentence = one_line(_message_of(error))
        sentence = sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
        if "unexpected extra argument" in sentence and _takes_directory(error.ctx):
            sentence += " The directory is named with -d."
        early = isinstance(error, click.NoSuchOption) and LATE.get(error.option_name)
        if early and error.ctx is not None and isinstance(error.ctx.command, click.Group):
            sentence += f" It stands behind the command: `{place} COMMAND {early}`."
        click.echo(on_screen(f"{place}: {sentence} See `{place} --help`."), err=True)
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
