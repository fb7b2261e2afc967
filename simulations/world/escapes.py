"""Escapes: calls that reach around the seams, and so make two runs of one seed differ.

For the length of a run the usual calls are replaced: wall and monotonic time, sleeping, randomness, unique ids,
threads, processes, sockets, files and folders. What code of the run does through them is refused by
`EscapedDeterminism`, which names the call and the line; or, on request, controlled: time is then virtual, randomness
comes from the seed, and files may be read. Threads, processes, sockets and changes of files are refused either way.

Calls by trio, pytest, hypothesis and logging are let through: they do not decide anything. But code that has trio,
`subprocess`, `pathlib` or another module of the standard library do something counts as doing it: for such *actions*
the caller behind them is judged. Modules may read and write files while they are imported.

What cannot be replaced: methods of C types (`datetime.now`), and names of functions that were imported before (`from
time import time`). They are found by running a seed twice.
"""

from __future__ import annotations

import _thread
import asyncio
import builtins
import functools
import io
import os
import random
import secrets
import socket
import sqlite3
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
from callboard.simulations.world.driver import MEMBER
from callboard.simulations.world.trio_hooks import stepped_task, thread_calls

EscapeMode = Literal["refuse", "control", "ignore"]
EXEMPT: Final = frozenset(
    {
        *("trio", "outcome", "pytest", "_pytest", "pluggy", "pytest_trio", "hypothesis", "xdist", "execnet"),
        *("coverage", "pytest_cov", "unittest", "doctest", "cProfile", "profile", "tracemalloc"),
        *("logging", "warnings", "linecache", "tokenize", "traceback", "inspect", "rich", "faulthandler"),
        *("pdb", "bdb", "cmd", "code", "ipdb", "IPython", "debugpy", "pydevd", "_pydevd_bundle"),
        *("importlib", "pkgutil", "encodings", "zoneinfo", "gettext", "locale", "mimetypes"),
        *("threading", "tempfile", "multiprocessing", "subprocess", "selectors"),
    }
)
"""What these do decides nothing: the machinery of tests, errors and imports, and what reads data of the system."""
CARRIERS: Final = frozenset(
    {
        *("trio", "outcome", "threading", "subprocess", "multiprocessing", "concurrent", "socket"),
        *("selectors", "tempfile", "callboard"),
    }
)
"""Modules that do for others what they ask; and so does every module of the standard library that is not exempt."""
SIMULATOR: Final = "callboard.simulations."
OUTERMOST: Final = "callboard.simulations.world.run"
"""The module below which all frames of a run are."""
IMPORTING: Final = "importlib._bootstrap"
RANDOM_FUNCTIONS: Final = [
    name
    for name, function in vars(random).items()
    if isinstance(getattr(function, "__self__", None), random.Random)
    and name not in ("seed", "getstate", "setstate")
]
"""Those that draw from the generator that all share."""


TIME: Final = "Take time from the clock of the world, as trio.current_time() does"
CHANCE: Final = "Take randomness from the entropy of the world"
SLEEP: Final = "Wait with trio.sleep, which takes virtual time"
THREADS: Final = (
    "There are no threads in a run: call the function in a task, or give the program another one in its place"
)
PROCESSES: Final = (
    "There are no processes in a run: give the program something in memory in the place of what starts one"
)
SOCKETS: Final = (
    "There is no network in a run: give the program something in memory in the place of its connection, as "
    "trio.testing.memory_stream_pair does"
)
ASYNCIO: Final = (
    "A run is one of trio, beside which no loop of asyncio runs: await the function itself, or what trio has in the "
    "place of asyncio's; give the program another one in the place of a library that needs asyncio"
)
FILES: Final = "Take files from the disk of the world"
IN_THREAD: Final = "trio.to_thread.run_sync"

NAMED: Final = ("__name__", "__doc__")
"""What a watched call has of the call itself."""


class EscapedDeterminism(CallboardError):
    """Code under simulation reached around the seams. `call` is the function, `where` the line."""

    call: str
    where: str


@attrs.frozen(eq=False)
class GuardedCall:
    """A function of the real world."""

    owner: Any
    name: str
    control: Callable[..., Any] | None = None
    """What answers in its place, on request."""
    has_effect: bool = False
    """It does something, instead of telling something."""
    may_import: bool = True
    """A module may do it while it is imported."""
    harmless_from: int | None = None
    """With this many arguments it looks at them, not at a clock."""
    is_harmless: Callable[..., bool] = lambda *_args, **_kwargs: False
    """Whether it leaves the world outside alone, with these arguments."""
    only_reads: Callable[..., bool] = lambda *_args, **_kwargs: False
    """Whether it only reads a file, with these arguments: on request, what a file contains is taken as given."""
    advice: str = ""
    """What to do instead."""
    called: str = ""
    """Its name for people, where that is not the name of the function that is replaced."""

    @property
    def call(self) -> str:
        """Its name for people."""
        if self.called:
            return self.called
        if self.owner is builtins:
            return self.name
        module = f"{self.owner.__module__}." if isinstance(self.owner, type) else ""
        return f"{module}{self.owner.__name__}.{self.name}"


@contextmanager
def guard(
    mode: EscapeMode,
    source: random.Random,
    wall_us: Callable[[], int],
    monotonic: Callable[[], float],
    escaped: Callable[[EscapedDeterminism], object] = lambda _: None,
) -> Iterator[None]:
    """Replace the calls while inside. `source`, `wall_us` and `monotonic` serve the mode "control".

    `escaped` hears of every call that is refused, before the error is raised: code that catches it hides it from none.
    """
    if mode == "ignore":
        yield
        return
    calls = _refused() if mode == "refuse" else _calls(source, wall_us, monotonic)
    before = _HEARS[0]
    _HEARS[0] = escaped
    try:
        with _replaced(calls, mode):
            yield
    finally:
        _HEARS[0] = before


_HEARS: Final[list[Callable[[EscapedDeterminism], object]]] = [lambda _: None]
"""Notified of escapes in the run that is under way: there is one at a time."""


def _calls(
    source: random.Random, wall_us: Callable[[], int], monotonic: Callable[[], float]
) -> list[GuardedCall]:
    """All that this Python has."""
    calls = [
        *_advised(TIME, [*_clocks(wall_us, monotonic), *_calendars(wall_us)]),
        *_advised(CHANCE, [*_chances(source), *_generators(source)]),
        *_effects(),
        *_files(),
    ]
    return [guarded for guarded in calls if hasattr(guarded.owner, guarded.name)]


def _advised(advice: str, calls: list[GuardedCall]) -> list[GuardedCall]:
    return [attrs.evolve(guarded, advice=advice) for guarded in calls]


@functools.cache
def _refused() -> list[GuardedCall]:
    """The same for all runs in which nothing answers in their place."""
    return _calls(random.Random(0), lambda: 0, lambda: 0.0)


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
    """What reads a clock when it is given no time."""
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


def _generators(source: random.Random) -> list[GuardedCall]:
    """Generators of one's own: those without a seed, and those of the system."""
    initial = random.Random.__init__

    def seeded(generator: random.Random, *_args: object, **_kwargs: object) -> None:
        initial(generator, source.getrandbits(64))

    def of_system(name: str) -> GuardedCall:
        function: Callable[..., Any] = getattr(source, name)
        return GuardedCall(
            random.SystemRandom,
            name,
            lambda _, *args: function(*args),
            has_effect=True,
            called=f"random.SystemRandom.{name}",
        )

    return [
        GuardedCall(
            random.Random,
            "__init__",
            seeded,
            harmless_from=2,
            is_harmless=_is_seeded,
            called="random.Random",
        ),
        GuardedCall(random.SystemRandom, "__init__", seeded, called="random.SystemRandom"),
        *map(of_system, ("random", "getrandbits", "randbytes")),
    ]


def _is_seeded(_generator: object, x: object = None) -> bool:
    return x is not None


@functools.cache
def _effects() -> list[GuardedCall]:
    processes = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp", "execv", "execve", "pipe")
    sockets = ("connect", "connect_ex", "bind", "sendto", "sendmsg")

    def effect(owner: Any, name: str, advice: str, called: str = "") -> GuardedCall:
        return GuardedCall(owner, name, has_effect=True, may_import=False, advice=advice, called=called)

    return [
        effect(time, "sleep", SLEEP),
        *_loops(effect),
        effect(threading.Thread, "start", THREADS),
        effect(_thread, "start_new_thread", THREADS),
        *(effect(owner, name, THREADS, IN_THREAD) for owner, name in thread_calls()),
        effect(subprocess.Popen, "__init__", PROCESSES, "subprocess.Popen"),
        *(effect(os, name, PROCESSES) for name in processes),
        *(effect(socket.socket, name, SOCKETS) for name in sockets),
        effect(socket, "socketpair", SOCKETS),
        effect(socket, "getaddrinfo", SOCKETS),
    ]


def _loops(effect: Callable[..., GuardedCall]) -> list[GuardedCall]:
    """What makes a loop of asyncio: refused before there is one, since one that is half made fails when it is freed."""
    policies = [
        getattr(asyncio.events, name, None)
        for name in ("BaseDefaultEventLoopPolicy", "_BaseDefaultEventLoopPolicy")
    ]
    return [
        effect(asyncio, "run", ASYNCIO),
        effect(asyncio.runners, "run", ASYNCIO, "asyncio.run"),
        effect(asyncio.Runner, "__init__", ASYNCIO, "asyncio.Runner"),
        effect(asyncio, "new_event_loop", ASYNCIO),
        effect(asyncio.events, "new_event_loop", ASYNCIO, "asyncio.new_event_loop"),
        *(
            effect(policy, "new_event_loop", ASYNCIO, "asyncio.new_event_loop")
            for policy in policies
            if policy is not None
        ),
    ]


@functools.cache
def _files() -> list[GuardedCall]:
    changes = (
        *("mkdir", "remove", "unlink", "rmdir", "rename", "replace", "link", "symlink", "truncate", "mkfifo"),
        *("chmod", "chown", "utime"),
    )
    looks = ("listdir", "scandir", "stat", "lstat", "access", "readlink")
    calls = [
        *(
            GuardedCall(owner, "open", has_effect=True, is_harmless=_opens_nothing, only_reads=_opens_to_read)
            for owner in (builtins, io)
        ),
        GuardedCall(
            os, "open", has_effect=True, is_harmless=_opens_nothing, only_reads=_opens_with_read_flag
        ),
        *(GuardedCall(os, name, has_effect=True) for name in changes),
        *(
            GuardedCall(
                os, name, has_effect=True, is_harmless=_opens_nothing, only_reads=lambda *_, **_more: True
            )
            for name in looks
        ),
        GuardedCall(sqlite3, "connect", has_effect=True, is_harmless=_is_in_memory),
    ]
    return _advised(FILES, calls)


def _opens_nothing(file: object = "", *_args: object, **_kwargs: object) -> bool:
    """What is open already, as standard output is, or what keeps nothing."""
    return isinstance(file, int) or file == os.devnull


def _opens_to_read(_file: object = "", mode: object = "r", *_args: object, **_kwargs: object) -> bool:
    return not set(str(mode)) & set("wax+")


def _opens_with_read_flag(_path: object = "", flags: Any = 0, *_args: object, **_kwargs: object) -> bool:
    return not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def _is_in_memory(database: object = "", *_args: object, **_kwargs: object) -> bool:
    return database == ":memory:"


@contextmanager
def _replaced(calls: list[GuardedCall], mode: EscapeMode) -> Iterator[None]:
    # What a class inherits is no attribute of its own before, and so must not be one afterwards.
    own = [(guarded, vars(guarded.owner).get(guarded.name, _INHERITED)) for guarded in calls]
    inside = threading.get_ident()
    watch = _watched_alike if mode == "refuse" else _watched
    try:
        for guarded in calls:
            original = getattr(guarded.owner, guarded.name)
            setattr(guarded.owner, guarded.name, watch(guarded, original, mode, inside))
        yield
    finally:
        for guarded, attribute in reversed(own):
            if attribute is _INHERITED:
                delattr(guarded.owner, guarded.name)
            else:
                setattr(guarded.owner, guarded.name, attribute)


_INHERITED: Final = object()


def _watched(
    guarded: GuardedCall, original: Callable[..., Any], mode: EscapeMode, inside: int
) -> Callable[..., Any]:
    control = guarded.control if mode == "control" else None
    harmless_from = guarded.harmless_from

    @functools.wraps(original, NAMED, updated=())
    def watched(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != inside:
            return original(*args, **kwargs)
        if harmless_from is not None and len(args) >= harmless_from and args[harmless_from - 1] is not None:
            return original(*args, **kwargs)
        where = _where(sys._getframe(1), guarded)
        if not where or guarded.is_harmless(*args, **kwargs):
            return original(*args, **kwargs)
        if control is not None:
            return control(*args, **kwargs)
        if mode == "control" and guarded.only_reads(*args, **kwargs):
            return original(*args, **kwargs)
        helps = guarded.control is not None or guarded.only_reads(*args, **kwargs)
        remedy = '; or, if the call is in a library, run with escapes="control"' if helps else ""
        error = EscapedDeterminism(
            f"{guarded.call}() was called {where}, in a simulated run: what it returns or does is not decided by "
            f"the seed. {guarded.advice}{remedy}.",
            call=guarded.call,
            where=where.removeprefix("at "),
        )
        _HEARS[0](error)
        raise error

    return watched


_watched_alike = functools.lru_cache(256)(_watched)
"""For calls that the runs of a sweep have in common."""


def _where(frame: FrameType | None, guarded: GuardedCall) -> str:
    """Whose call it is, as "at file:line" or "by task name"; empty for those that may."""
    has_effect = guarded.has_effect
    if has_effect:
        while frame is not None and _module(frame) != OUTERMOST and _is_carrier(frame):
            frame = frame.f_back
    if frame is None or _root(frame) in EXEMPT:
        return ""
    name = _module(frame)
    if (
        has_effect and name == OUTERMOST
    ):  # trio itself, which begins a run, or runs a task that is a function of its own
        task = stepped_task()
        return "" if task is None or task.context.get(MEMBER) is None else f"by the task {task.name}"
    if name.startswith(SIMULATOR) or (guarded.may_import and _is_importing(frame)):
        return ""
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}"


def _is_carrier(frame: FrameType) -> bool:
    root = _root(frame)
    if root == "callboard":
        return not _module(frame).startswith(SIMULATOR)
    return root in CARRIERS or (root in sys.stdlib_module_names and root not in EXEMPT)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported, and this is done for that."""
    while frame is not None and (name := _module(frame)) != OUTERMOST:
        if name == IMPORTING:
            return True
        frame = frame.f_back
    return False


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _root(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]
