"""Escapes: calls that reach around the seams, and so make two runs of one seed differ.

For the length of a run the usual doors are replaced: wall and monotonic time, sleeping, randomness, unique ids,
threads, processes, sockets. What code of the run does through them is refused by `EscapedDeterminism`, which names the
call and the line; or, on request, controlled: time is then virtual and randomness comes from the seed. Threads,
processes and sockets are refused either way.

Calls by trio, pytest, hypothesis and logging are let through: they do not decide anything. But who has trio or
`subprocess` start a thread or a process does it himself, so for such *deeds* these are looked past.

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
from types import FrameType
from typing import Any, Final, Literal

import attrs

from callboard.log.errors import CallboardError
from callboard.simulations.world.trio_hooks import thread_doors

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
CARRIERS: Final = frozenset(
    {
        "trio",
        "outcome",
        "threading",
        "subprocess",
        "multiprocessing",
        "concurrent",
        "socket",
        "selectors",
        "os",
    }
)
"""Who does for others what they ask."""
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
    "binomialvariate",
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


@attrs.frozen
class Door:
    """A function of the real world."""

    owner: Any
    name: str
    control: Callable[..., Any] | None = None
    """What answers in its place, on request."""
    is_deed: bool = False
    """It does something, instead of telling something."""
    harmless_from: int | None = None
    """With so many arguments it looks at them, not at a clock."""

    @property
    def call(self) -> str:
        """Its name for people."""
        module = f"{self.owner.__module__}." if isinstance(self.owner, type) else ""
        return f"{module}{self.owner.__name__}.{self.name}"


@contextmanager
def guard(
    mode: EscapeMode, source: random.Random, wall_us: Callable[[], int], monotonic: Callable[[], float]
) -> Iterator[None]:
    """Replace the doors while inside. `source`, `wall_us` and `monotonic` serve the mode "control"."""
    if mode == "ignore":
        yield
        return
    doors = [*_clocks(wall_us, monotonic), *_calendars(wall_us), *_chances(source), *_deeds()]
    with _replaced([door for door in doors if hasattr(door.owner, door.name)], mode):
        yield


def _clocks(wall_us: Callable[[], int], monotonic: Callable[[], float]) -> list[Door]:
    def monotonic_ns() -> int:
        return round(monotonic() * 1e9)

    return [
        Door(time, "time", lambda: wall_us() / 1e6),
        Door(time, "time_ns", lambda: wall_us() * 1_000),
        *(Door(time, name, monotonic) for name in ("monotonic", "perf_counter", "process_time")),
        *(Door(time, f"{name}_ns", monotonic_ns) for name in ("monotonic", "perf_counter", "process_time")),
    ]


def _calendars(wall_us: Callable[[], int]) -> list[Door]:
    """What reads a clock when it is not told a time."""
    localtime, gmtime, asctime, strftime = time.localtime, time.gmtime, time.asctime, time.strftime

    def now() -> float:
        return wall_us() / 1e6

    return [
        Door(time, "localtime", lambda *_: localtime(now()), harmless_from=1),
        Door(time, "gmtime", lambda *_: gmtime(now()), harmless_from=1),
        Door(time, "ctime", lambda *_: asctime(localtime(now())), harmless_from=1),
        Door(time, "asctime", lambda *_: asctime(localtime(now())), harmless_from=1),
        Door(time, "strftime", lambda form, *_: strftime(form, localtime(now())), harmless_from=2),
    ]


def _chances(source: random.Random) -> list[Door]:
    return [
        Door(os, "urandom", lambda count: source.randbytes(count)),
        Door(os, "getrandom", lambda count, *_: source.randbytes(count)),
        Door(secrets, "token_bytes", lambda count=32: source.randbytes(count or 32)),
        Door(secrets, "token_hex", lambda count=32: source.randbytes(count or 32).hex()),
        Door(secrets, "randbits", lambda bits: source.getrandbits(bits)),
        Door(secrets, "randbelow", lambda limit: source.randrange(limit)),
        Door(secrets, "choice", lambda items: source.choice(items)),
        Door(uuid, "uuid1", lambda *_: uuid.UUID(bytes=source.randbytes(16), version=1)),
        Door(uuid, "uuid4", lambda: uuid.UUID(bytes=source.randbytes(16), version=4)),
        *(Door(random, name, getattr(source, name, None)) for name in RANDOM_FUNCTIONS),
    ]


def _deeds() -> list[Door]:
    processes = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp")
    return [
        Door(time, "sleep", is_deed=True),
        Door(threading.Thread, "start", is_deed=True),
        *(Door(owner, name, is_deed=True) for owner, name in thread_doors()),
        Door(subprocess.Popen, "__init__", is_deed=True),
        *(Door(os, name, is_deed=True) for name in processes),
        *(Door(socket.socket, name, is_deed=True) for name in ("connect", "connect_ex", "bind")),
        Door(socket, "socketpair", is_deed=True),
        Door(socket, "getaddrinfo", is_deed=True),
    ]


@contextmanager
def _replaced(doors: list[Door], mode: EscapeMode) -> Iterator[None]:
    originals = [(door, getattr(door.owner, door.name)) for door in doors]
    inside = threading.get_ident()
    try:
        for door, original in originals:
            setattr(door.owner, door.name, _watched(door, original, mode, inside))
        yield
    finally:
        for door, original in originals:
            setattr(door.owner, door.name, original)


def _watched(door: Door, original: Callable[..., Any], mode: EscapeMode, inside: int) -> Callable[..., Any]:
    control = door.control if mode == "control" else None
    harmless_from = door.harmless_from

    def watched(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != inside:
            return original(*args, **kwargs)
        if harmless_from is not None and len(args) >= harmless_from and args[harmless_from - 1] is not None:
            return original(*args, **kwargs)
        frame = _author(sys._getframe(1), door.is_deed)
        if frame is None:
            return original(*args, **kwargs)
        if control is not None:
            return control(*args, **kwargs)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        raise EscapedDeterminism(
            f"{door.call}() was called at {where}, in a simulated run: what it returns or does is not decided by the "
            "seed. Take time from the clock, randomness from the entropy and files from the disk of the world; or, if "
            'the call is in a library, run with escapes="control".',
            call=door.call,
            where=where,
        )

    return watched


def _author(frame: FrameType | None, is_deed: bool) -> FrameType | None:
    """Whose call it is; None for those who may."""
    while is_deed and frame is not None and _root(frame) in CARRIERS:
        frame = frame.f_back
    if frame is None or _root(frame) in EXEMPT:
        return None
    return None if frame.f_globals.get("__name__", "").startswith("callboard.simulations.") else frame


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
