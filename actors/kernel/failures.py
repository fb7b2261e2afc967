"""What an exception from a nursery means: a crash to handle, or an exception that must be raised further.

A nursery wraps the exceptions of its tasks in a group. A *crash* is every `Exception`. All others (`Cancelled`,
`KeyboardInterrupt`, `SystemExit`) *pass*: no supervisor handles them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from traceback import walk_tb
from types import FrameType
from typing import Final

from callboard.log.limits import CAUSE_CHARACTERS, CAUSES_NAMED, CRASH_FRAMES_KEPT

OURS: Final = sys.stdlib_module_names | {"callboard", "trio", "outcome"}
"""Modules that users have not written."""
INSTALLED: Final = ("/site-packages/", "/dist-packages/")


class DescribedError(Exception):
    """An error of a class that is not known on this side, in words, which begin with the name of its class."""


def unwrap(error: BaseException) -> BaseException:
    """The single exception inside a group of one (of one, ...); anything else unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def without_nursery(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a nursery's group holds, if that is one exception: so a nursery that users did not open is not seen by them.

    Raise it after the `except` block, not in it: then its context stays its own.
    """
    return group.exceptions[0] if len(group.exceptions) == 1 else group


def sort_out(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """`(passing, crash)`: the part that passes and the part that is a crash, each unwrapped, each None when absent."""
    if not isinstance(error, BaseExceptionGroup):
        return (None, error) if isinstance(error, Exception) else (error, None)
    crash, passing = error.split(Exception)
    return (
        None if passing is None else unwrap(passing),
        None if crash is None else unwrap(crash),
    )


def describe(error: BaseException | None) -> str:
    """One readable line: the type and the message; of a group, those of what is in it.

    A group of one is shown as the exception that it holds, a larger one with its first `CAUSES_NAMED`.
    """
    if error is None:
        return "no error"
    error = unwrap(error)
    if not isinstance(error, BaseExceptionGroup):
        return _line(error)
    found = list(leaves(error))
    named = "; ".join(_line(leaf)[:CAUSE_CHARACTERS] for leaf in found[:CAUSES_NAMED])
    more = f"; and {len(found) - CAUSES_NAMED} more" if len(found) > CAUSES_NAMED else ""
    return f"{type(error).__name__} ({len(found)} errors): {named}{more}"


def with_counts(counts: Sequence[tuple[str, int]]) -> str:
    """The first `CAUSES_NAMED` names, each with its number, and how many more there are: for a line."""
    named = [f"{name!r} ({count})" for name, count in counts[:CAUSES_NAMED]]
    if len(counts) > CAUSES_NAMED:
        named.append(f"{len(counts) - CAUSES_NAMED} more")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _line(error: BaseException) -> str:
    text = text_of(error)
    if isinstance(error, DescribedError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """What an exception says, in one line that has a UTF-8 form; that its `__str__` raised, if it did."""
    try:
        text = str(error)
    except Exception as problem:  # noqa: BLE001 - users write `__str__` too
        return f"(its __str__ raised {type(problem).__name__})"
    return _encodable(" ".join(str.split(text)))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, and in the groups that it holds, in order."""
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting += reversed(error.exceptions)
        else:
            yield error


def place(error: BaseException) -> str | None:
    """Where the user's code failed: its innermost frame, as `shop.py:41 in deep`; None when none of it was running.

    Installed packages count only when nothing else was running. Of a group the first exception is looked at.
    """
    found = installed = None
    for frame, line in walk_tb(next(leaves(error)).__traceback__):
        if is_ours(frame):
            continue
        if any(part in frame.f_code.co_filename for part in INSTALLED):
            installed = frame, line
        else:
            found = frame, line
    innermost = found or installed
    if innermost is None:
        return None
    frame, line = innermost
    found_at = f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} in {frame.f_code.co_name}"
    return _encodable(found_at)[-CAUSE_CHARACTERS:]


def is_ours(frame: FrameType) -> bool:
    """Whether the frame runs code of Callboard, trio or Python itself."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in OURS


def frames(error: BaseException) -> tuple[str, ...]:
    """The innermost frames, outermost first, as `file.py:12 in function`.

    Without source lines, because reading them would access the disk outside the Disk seam.
    """
    found = [
        f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return tuple(found[-CRASH_FRAMES_KEPT:])
