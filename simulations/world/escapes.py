"""Escapes: calls that reach around the seams, and so make two runs of one seed differ.

For the length of a run the usual doors are replaced: wall and monotonic time, sleeping, randomness, unique ids,
threads, processes, sockets. What code of the run does through them is refused by `EscapedDeterminism`, which names the
call and the line; or, on request, controlled: time is then virtual and randomness comes from the seed. Threads,
processes and sockets are refused either way. Calls by trio, pytest, hypothesis and logging are let through: they do not
decide anything.

What cannot be replaced: methods of C types (`datetime.now`), and names that were imported before (`from time import
time`). They are found by running a seed twice.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from callboard.log.errors import CallboardError

__all__ = ["EscapeMode", "EscapedDeterminism", "guard"]

EscapeMode = Literal["refuse", "control", "ignore"]
EXEMPT: Final = frozenset(
    {
        "trio",
        "outcome",
        "pytest",
        "_pytest",
        "pluggy",
        "hypothesis",
        "logging",
        "coverage",
        "warnings",
        "threading",
    }
    | {
        "linecache",
        "traceback",
        "tempfile",
        "rich",
        "pytest_trio",
        "multiprocessing",
        "subprocess",
        "selectors",
    }
)
RANDOM_FUNCTIONS: Final = [
    "random",
    "randrange",
    "randint",
    "choice",
    "choices",
    "sample",
    "shuffle",
    "uniform",
    "triangular",
    "gauss",
    "normalvariate",
    "lognormvariate",
    "expovariate",
    "betavariate",
    "gammavariate",
    "paretovariate",
    "weibullvariate",
    "vonmisesvariate",
    "getrandbits",
    "randbytes",
]


class EscapedDeterminism(CallboardError):
    """Code under simulation reached around the seams. `call` is the function, `where` the line."""

    call: str
    where: str


@contextmanager
def guard(
    mode: EscapeMode, source: random.Random, wall_us: Callable[[], int], monotonic: Callable[[], float]
) -> Iterator[None]:
    """Replace the doors while inside. `source`, `wall_us` and `monotonic` serve the mode "control"."""
    if mode == "ignore":
        yield
        return
    controlled: dict[tuple[Any, str], Callable[..., Any]] = {
        (time, "time"): lambda: wall_us() / 1e6,
        (time, "time_ns"): lambda: wall_us() * 1_000,
        (time, "monotonic"): monotonic,
        (time, "monotonic_ns"): lambda: round(monotonic() * 1e9),
        (time, "perf_counter"): monotonic,
        (time, "perf_counter_ns"): lambda: round(monotonic() * 1e9),
        (os, "urandom"): lambda count: source.randbytes(count),
        (secrets, "token_bytes"): lambda count=32: source.randbytes(count or 32),
        (secrets, "token_hex"): lambda count=32: source.randbytes(count or 32).hex(),
        (secrets, "randbits"): lambda bits: source.getrandbits(bits),
        (uuid, "uuid1"): lambda *_: uuid.UUID(bytes=source.randbytes(16), version=1),
        (uuid, "uuid4"): lambda: uuid.UUID(bytes=source.randbytes(16), version=4),
        **{(random, name): getattr(source, name) for name in RANDOM_FUNCTIONS if hasattr(random, name)},
    }
    refused: list[tuple[Any, str]] = [
        (time, "sleep"),
        (threading.Thread, "start"),
        (subprocess.Popen, "__init__"),
        (socket.socket, "connect"),
        (socket.socket, "bind"),
        (os, "fork"),
    ]
    with _replaced(
        [*((*door, control) for door, control in controlled.items()), *((*door, None) for door in refused)],
        mode,
    ):
        yield


@contextmanager
def _replaced(doors: list[tuple[Any, str, Callable[..., Any] | None]], mode: EscapeMode) -> Iterator[None]:
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in doors if hasattr(owner, name)]
    inside = threading.get_ident()
    try:
        for owner, name, control in doors:
            if hasattr(owner, name):
                door = _door(
                    owner, name, getattr(owner, name), control if mode == "control" else None, inside
                )
                setattr(owner, name, door)
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _door(
    owner: Any, name: str, original: Callable[..., Any], control: Callable[..., Any] | None, inside: int
) -> Callable[..., Any]:
    call = (
        f"{getattr(owner, '__module__', '') + '.' if isinstance(owner, type) else ''}{owner.__name__}.{name}"
    )

    def door(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if threading.get_ident() != inside or _exempt(frame.f_globals.get("__name__", "")):
            return original(*args, **kwargs)
        if control is not None:
            return control(*args, **kwargs)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        raise EscapedDeterminism(
            f"{call}() was called at {where}, in a simulated run: what it returns or does is not decided by the seed. "
            "Take time from the clock, randomness from the entropy and files from the disk of the world; or, if the "
            'call is in a library, run with escapes="control".',
            call=call,
            where=where,
        )

    return door


def _exempt(module: str) -> bool:
    return module.partition(".")[0] in EXEMPT or module.startswith("callboard.simulations.")
