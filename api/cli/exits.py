"""Exit codes of the command, one meaning each. The table in the docs is generated from this one."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNBALANCED: Final = 3
DAMAGED: Final = 4
LOCKED: Final = 5
VIOLATED: Final = 6
UNCOVERED: Final = 7
STALE: Final = 8
NONDETERMINISTIC: Final = 9
UNPROVED: Final = 10
UNFINISHED: Final = 11
DIFFERENT: Final = 12
WORSE: Final = 13
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143

MEANINGS: Final = {
    OK: "it worked",
    FAILED: "it failed; standard error says what happened, where, and what to do",
    USAGE: "the command was not understood, or an argument or setting is not acceptable; standard error says what"
    " was written before that, if anything",
    UNBALANCED: "`demo`: the account does not balance",
    DAMAGED: "stored bytes are damaged: `verify` or another command found damage, or `repair --dry-run` found"
    " something to repair",
    LOCKED: "another process has the directory open; standard error names it",
    VIOLATED: "`simulate`: a promise was broken, or a stored failure was reproduced; the story says what happened",
    UNCOVERED: "`simulate`: nothing was broken, but a sweep of standard size never met a fault or a point",
    STALE: "`simulate --repro`: the stored failure no longer fits this version, and says nothing about it",
    NONDETERMINISTIC: "`simulate --check-determinism`: two runs of one seed differ; the first line that does is shown",
    UNPROVED: "`simulate --prove`: a safeguard was disabled and no seed failed without it",
    UNFINISHED: "`simulate --time-limit`: the time limit came before any seed had ended",
    DIFFERENT: "`workload compare`: the recordings are not alike; the table names the distances above the threshold",
    WORSE: "`rehearse`: something is worse now than it was then; the table says what",
    INTERRUPTED: "interrupted from the keyboard; the directory was closed cleanly",
    PIPE_CLOSED: "the reader of standard output closed it, as `head` does",
    TERMINATED: "ended by SIGTERM; the directory was closed cleanly",
}
