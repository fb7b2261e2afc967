"""Exit codes of the command, one meaning each; the table in the docs is made from this one."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNBALANCED: Final = 3
DAMAGED: Final = 4
LOCKED: Final = 5
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "it worked",
    FAILED: "it failed; standard error says what happened, where, and what to do",
    USAGE: "the command was not understood, or an argument or setting is not acceptable; nothing was written",
    UNBALANCED: "`demo`: the account does not balance",
    DAMAGED: "`verify`: stored bytes are damaged, or `repair --dry-run` found something to do",
    LOCKED: "another process has the directory open",
    INTERRUPTED: "interrupted from the keyboard",
}
