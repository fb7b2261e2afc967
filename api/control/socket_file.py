"""The file of the control socket: where it is, and what an earlier process has left there."""

from __future__ import annotations

import os
import stat
from typing import Final

from callboard.log.errors import ControlError

NAME: Final = "control.sock"
PATH_BYTES_MAX: Final = 100
"""The kernel takes no longer paths of Unix sockets."""


def socket_problem(directory: str) -> str | None:
    """Why `directory` can have no control socket; None when it can."""
    try:
        socket_path(directory)
    except ControlError as error:
        return str(error)
    return None


def socket_path(directory: str) -> str:
    """The socket's path; one too long for the system is reached relative to the working directory."""
    path = os.path.join(directory, NAME)
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        path = os.path.relpath(path)
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ControlError(
            f"{path} is too long for a Unix socket ({PATH_BYTES_MAX} bytes). Use a shorter directory, or"
            " open the runtime without control=True.",
            directory=directory,
            is_listening=False,
            kind=None,
        )
    return path


def remove_stale(path: str) -> None:
    """Remove the socket of a process that was killed."""
    if is_stale(path):
        os.unlink(path)


def is_stale(path: str) -> bool:
    """Whether a socket is left there. Raises `ControlError` for anything else of that name."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            return True
    except FileNotFoundError:
        return False
    raise ControlError(f"{path} is no socket. Remove it, or open the runtime without control=True.")
