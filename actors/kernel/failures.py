"""What an exception out of a nursery means: a crash to handle, or something that must pass through.

A nursery wraps what its tasks raised in a group. A *crash* is every `Exception`; what *passes* is everything else
(`Cancelled`, `KeyboardInterrupt`, `SystemExit`): no supervisor may hold it up.
"""

from __future__ import annotations

from traceback import walk_tb

from callboard.log.limits import CRASH_FRAMES_KEPT


def unwrap(error: BaseException) -> BaseException:
    """The single exception inside a group of one (of one, ...); anything else as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def sort_out(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """`(passing, crash)`: what must pass through and what is a crash, each unwrapped, each None when absent."""
    if not isinstance(error, BaseExceptionGroup):
        return (None, error) if isinstance(error, Exception) else (error, None)
    crash, passing = error.split(Exception)
    return (
        None if passing is None else unwrap(passing),
        None if crash is None else unwrap(crash),
    )


def describe(error: BaseException | None) -> str:
    """One line for people: the type and the message."""
    if error is None:
        return "no error"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def frames(error: BaseException) -> tuple[str, ...]:
    """The innermost frames, outermost first, as `file.py:12 in function`.

    Without source lines: those would be read from disk, which only the Disk seam may touch.
    """
    found = [
        f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return tuple(found[-CRASH_FRAMES_KEPT:])
