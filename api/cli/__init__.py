"""The command line: `callboard`. Commands are loaded when called."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `callboard` script."""
    from callboard.cli.group import run_command_line

    run_command_line()
