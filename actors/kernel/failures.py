"""What an exception from a nursery means: a crash to handle, or an exception that must be raised further.

A nursery wraps the exceptions of its tasks in a group. A *crash* is every `Exception`. All others (`Cancelled`,
`KeyboardInterrupt`, `SystemExit`) *pass*: no supervisor handles them.
"""

from __future__ import annotations

from traceback import walk_tb

from callboard.log.limits import CRASH_FRAMES_KEPT


def unwrap(error: BaseException) -> BaseException:
    """The single exception inside a group of one (of one, ...); anything else unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


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
    """One readable line: the type and the message."""
    if error is None:
        return "no error"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def frames(error: BaseException) -> tuple[str, ...]:
    """The innermost frames, outermost first, as `file.py:12 in function`.

    Without source lines, because reading them would access the disk outside the Disk seam.
    """
    found = [
        f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return tuple(found[-CRASH_FRAMES_KEPT:])
