"""Errors name the calls of Python that help; on the command line they name the commands that do the same."""

from __future__ import annotations

import re
from typing import Final

COMMANDS: Final = {
    "create_topic": "topic create",
    "alter_topic": "topic alter",
    "delete_topic": "topic delete",
    "Group.alter": "group alter",
    "Group.seek": "group seek",
    "Group.reset": "group reset",
    "Group.delete": "group delete",
    "Group.describe": "group describe",
    "stats().outbox": "stats",
    "tree()": "tree",
}
"""What an error may name, and the command for it."""
TWICE: Final = "`groups()`, and `callboard group list`, tell"
CALL: Final = re.compile(
    rf"`?(?<![\w'])(?:await )?(?:runtime\.)?({'|'.join(map(re.escape, COMMANDS))})(?![\w'])(\([^()`]*\))?`?"
)
"""A call, with or without its arguments, as errors write it; names of topics and groups stand in quotes."""


GROUP_CALL: Final = re.compile(r"runtime\.group\(([^()`]*)\)\.(\w+)(?:\(([^()`]*)\))?")
"""A call of a group's handle."""


def as_commands(text: str) -> str:
    """The text of an error with commands in the place of calls."""
    text = text.replace(TWICE, "`callboard group list` shows")
    return CALL.sub(_command, GROUP_CALL.sub(r"Group.\2(\1, \3)", text))


def _command(call: re.Match[str]) -> str:
    given = (call[2] or "")[1:-1]
    words = [_argument(word.strip()) for word in given.split(",") if word.strip()]
    return f"`{' '.join(['callboard', COMMANDS[call[1]], *words])}`"


def _argument(word: str) -> str:
    """What a command takes in the place of an argument of a call."""
    name, _, value = word.partition("=")
    return f"--{name.replace('_', '-')}" if value == "True" else word.strip("'\"")
