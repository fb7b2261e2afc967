"""The command line: `callboard`. Commands are loaded when called."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `callboard` script."""
    try:
        from callboard.cli.command_line import run_command_line
    except KeyboardInterrupt:
        sys.exit(130)
    run_command_line()
