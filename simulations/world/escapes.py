"""Escapes: calls that reach around the seams, and so make two runs of one seed differ.

For the length of a run the usual calls are replaced: wall and monotonic time, sleeping, randomness, unique ids,
threads, processes, sockets. What code of the run does through them is refused by `EscapedDeterminism`, which names the
call and the line; or, on request, controlled: time is then virtual and randomness comes from the seed. Threads,
processes and sockets are refused either way.

Calls by trio, pytest, hypothesis and logging are let through: they do not decide anything. But code that has trio or
`subprocess` start a thread or a process counts as starting it: for such *actions* the caller behind them is judged.

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
from callboard.simulations.world.trio_hooks import thread_calls

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
    name
    for name, function in vars(random).items()
    if isinstance(getattr(function, "__self__", None), random.Random)
    and name not in ("seed", "getstate", "setstate")
]
"""Those that draw from the generator that all share."""


class EscapedDeterminism(CallboardError):
    """Code under simulation reached around the seams. `call` is the function, `where` the line."""

    call: str
    where: str


@attrs.frozen
class GuardedCall:
    """A function of the real world."""

    owner: Any
    name: str
    control: Callable[..., Any] | None = None
    """What answers in its place, on request."""
    has_effect: bool = False
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
    """Replace the calls while inside. `source`, `wall_us` and `monotonic` serve the mode "control"."""
    if mode == "ignore":
        yield
        return
    calls = [*_clocks(wall_us, monotonic), *_calendars(wall_us), *_chances(source), *_effects()]
    with _replaced([guarded for guarded in calls if hasattr(guarded.owner, guarded.name)], mode):
        yield


def _clocks(wall_us: Callable[[], int], monotonic: Callable[[], float]) -> list[GuardedCall]:
    names = ("monotonic", "perf_counter", "process_time")

    def monotonic_ns() -> int:
        return round(monotonic() * 1e9)

    return [
        GuardedCall(time, "time", lambda: wall_us() / 1e6),
        GuardedCall(time, "time_ns", lambda: wall_us() * 1_000),
        *(GuardedCall(time, name, monotonic) for name in names),
        *(GuardedCall(time, f"{name}_ns", monotonic_ns) for name in names),
    ]


def _calendars(wall_us: Callable[[], int]) -> list[GuardedCall]:
    """What reads a clock when it is not told a time."""
    localtime, gmtime, asctime, strftime = time.localtime, time.gmtime, time.asctime, time.strftime

    def now() -> float:
        return wall_us() / 1e6

    return [
        GuardedCall(time, "localtime", lambda *_: localtime(now()), harmless_from=1),
        GuardedCall(time, "gmtime", lambda *_: gmtime(now()), harmless_from=1),
        GuardedCall(time, "ctime", lambda *_: asctime(localtime(now())), harmless_from=1),
        GuardedCall(time, "asctime", lambda *_: asctime(localtime(now())), harmless_from=1),
        GuardedCall(time, "strftime", lambda form, *_: strftime(form, localtime(now())), harmless_from=2),
    ]


def _chances(source: random.Random) -> list[GuardedCall]:
    return [
        GuardedCall(os, "urandom", lambda count: source.randbytes(count)),
        GuardedCall(os, "getrandom", lambda count, *_: source.randbytes(count)),
        GuardedCall(secrets, "token_bytes", lambda count=32: source.randbytes(count or 32)),
        GuardedCall(secrets, "token_hex", lambda count=32: source.randbytes(count or 32).hex()),
        GuardedCall(secrets, "randbits", lambda bits: source.getrandbits(bits)),
        GuardedCall(secrets, "randbelow", lambda limit: source.randrange(limit)),
        GuardedCall(secrets, "choice", lambda items: source.choice(items)),
        GuardedCall(uuid, "uuid1", lambda *_: uuid.UUID(bytes=source.randbytes(16), version=1)),
        GuardedCall(uuid, "uuid4", lambda: uuid.UUID(bytes=source.randbytes(16), version=4)),
        *(GuardedCall(random, name, getattr(source, name, None)) for name in RANDOM_FUNCTIONS),
    ]


def _effects() -> list[GuardedCall]:
    processes = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp")
    return [
        GuardedCall(time, "sleep", has_effect=True),
        GuardedCall(threading.Thread, "start", has_effect=True),
        *(GuardedCall(owner, name, has_effect=True) for owner, name in thread_calls()),
        GuardedCall(subprocess.Popen, "__init__", has_effect=True),
        *(GuardedCall(os, name, has_effect=True) for name in processes),
        *(GuardedCall(socket.socket, name, has_effect=True) for name in ("connect", "connect_ex", "bind")),
        GuardedCall(socket, "socketpair", has_effect=True),
        GuardedCall(socket, "getaddrinfo", has_effect=True),
    ]


@contextmanager
def _replaced(calls: list[GuardedCall], mode: EscapeMode) -> Iterator[None]:
    originals = [(guarded, getattr(guarded.owner, guarded.name)) for guarded in calls]
    inside = threading.get_ident()
    try:
        for guarded, original in originals:
            setattr(guarded.owner, guarded.name, _watched(guarded, original, mode, inside))
        yield
    finally:
        for guarded, original in originals:
            setattr(guarded.owner, guarded.name, original)


def _watched(
    guarded: GuardedCall, original: Callable[..., Any], mode: EscapeMode, inside: int
) -> Callable[..., Any]:
    control = guarded.control if mode == "control" else None
    harmless_from = guarded.harmless_from

    def watched(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != inside:
            return original(*args, **kwargs)
        if harmless_from is not None and len(args) >= harmless_from and args[harmless_from - 1] is not None:
            return original(*args, **kwargs)
        frame = _author(sys._getframe(1), guarded.has_effect)
        if frame is None:
            return original(*args, **kwargs)
        if control is not None:
            return control(*args, **kwargs)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        raise EscapedDeterminism(
            f"{guarded.call}() was called at {where}, in a simulated run: what it returns or does is not decided by "
            "the seed. Take time from the clock, randomness from the entropy and files from the disk of the world; or, "
            'if the call is in a library, run with escapes="control".',
            call=guarded.call,
            where=where,
        )

    return watched


def _author(frame: FrameType | None, has_effect: bool) -> FrameType | None:
    """Whose call it is; None for those who may."""
    while has_effect and frame is not None and _root(frame) in CARRIERS:
        frame = frame.f_back
    if frame is None or _root(frame) in EXEMPT:
        return None
    return None if frame.f_globals.get("__name__", "").startswith("callboard.simulations.") else frame


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
