"""What the real and the simulated disk do alike: they keep account of incarnations, check plans, and word errors.

A plan is checked before anything runs, so an invalid plan changes nothing. All error messages are made here, so a
failure reads the same on both disks.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any, Final, get_args

import attrs
import trio

from callboard.log.errors import CallboardError, InvalidArgument, PlanFailed, StaleIncarnation, StorageError

from .disk import FileVerb, Handle, NameVerb, Plan, SyncDirectory, TwoNamesVerb, Verb

HANDLE_VERBS = frozenset(get_args(FileVerb))
PATH_VERBS = frozenset(get_args(NameVerb))
TWO_PATH_VERBS = frozenset(get_args(TwoNamesVerb))
FORBIDDEN_COMPONENTS = frozenset({"", ".", ".."})


@attrs.define(eq=False, repr=False)
class IncarnationBase:
    """What an incarnation knows on either disk: its owner, whether it is fenced (DK3), and its plans in flight."""

    owner: str
    is_fenced: bool = attrs.field(default=False, init=False)
    _flights: dict[object, float] = attrs.field(factory=dict, init=False)
    """Plans, and when they were submitted; the oldest first."""
    _drained: trio.Event | None = attrs.field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.owner!r}{', fenced' if self.is_fenced else ''}>"

    @property
    def in_flight_since(self) -> float | None:
        return next(iter(self._flights.values()), None)

    async def _submit(self, plan: Plan, run: Callable[[tuple[Verb, ...]], Awaitable[None]]) -> None:
        """Check the plan and `run` it in this task, whatever is cancelled meanwhile."""
        self._check()
        plan = tuple(plan)
        check_plan(plan, self)
        await trio.lowlevel.checkpoint_if_cancelled()
        flight = object()
        self._flights[flight] = self._now()
        try:
            await run(plan)
        finally:
            self._has_landed(flight)

    def _now(self) -> float:
        """By the clock that `in_flight_since` is compared with."""
        return trio.current_time()

    def _has_landed(self, flight: object) -> None:
        """A plan has ended."""
        del self._flights[flight]
        if self._drained is not None and not self._flights:
            self._drained.set()

    async def _all_landed(self) -> None:
        """Wait until no plan is in flight."""
        while self._flights:
            if self._drained is None or self._drained.is_set():
                self._drained = trio.Event()  # one for all waiting tasks
            await self._drained.wait()

    def _check(self) -> None:
        if self.is_fenced:
            raise stale(self.owner)

    def _own(self, handle: Handle) -> Any:
        """The handle, which must be one of this incarnation's."""
        self._check()
        if getattr(handle, "incarnation", None) is not self:
            raise InvalidArgument(
                f"the handle for {handle.path!r} belongs to another incarnation. Nothing was read.",
                path=handle.path,
            )
        return handle

    def _check_mark(self, path: str, length: int) -> None:
        self._check()
        check_path(path)
        if length <= 0:
            raise InvalidArgument(f"a mark of {length} bytes cannot be mapped. Nothing was done.", path=path)


def check_path(path: str, *, root_allowed: bool = False) -> None:
    """Refuse a path that is not plain and relative, with `InvalidArgument`."""
    if not path and root_allowed:
        return
    if not FORBIDDEN_COMPONENTS.isdisjoint(path.split("/")) or "\0" in path:
        raise InvalidArgument(
            f"path {path!r} is not a plain relative path. Nothing was done. "
            "Use names joined by '/', without empty, '.' or '..' components.",
            path=path,
        )


def check_plan(plan: tuple[Verb, ...], incarnation: object) -> None:
    """Refuse a plan with handles of another incarnation, invalid paths or values that are not verbs."""
    for verb in plan:
        kind = type(verb)
        if kind in HANDLE_VERBS:
            handle: Any = verb.handle  # type: ignore[union-attr]
            if getattr(handle, "incarnation", None) is not incarnation:
                path = getattr(handle, "path", handle)
                raise InvalidArgument(
                    f"the handle for {path!r} belongs to another incarnation. Nothing was done. "
                    "Make a handle of the incarnation that submits the plan.",
                    path=path,
                )
        elif kind in PATH_VERBS:
            check_path(verb.path, root_allowed=kind is SyncDirectory)  # type: ignore[union-attr]
        elif kind in TWO_PATH_VERBS:
            check_path(verb.source)  # type: ignore[union-attr]
            check_path(verb.target)  # type: ignore[union-attr]
        else:
            raise InvalidArgument(f"{verb!r} is not a verb of a disk plan. Nothing was done.", verb=verb)


def path_of(verb: Verb) -> str:
    """The path of a verb; the source of a rename or link."""
    kind = type(verb)
    if kind in HANDLE_VERBS:
        return verb.handle.path  # type: ignore[union-attr]
    if kind in TWO_PATH_VERBS:
        return verb.source  # type: ignore[union-attr]
    return verb.path  # type: ignore[union-attr]


def plan_failed(root: str, index: int, verb: Verb, error: OSError) -> PlanFailed:
    """The error for a plan that stopped at `verb`, with the OSError as its cause."""
    failed = PlanFailed(
        f"{type(verb).__name__} of {path_of(verb) or '.'!r} failed: {_words(error)}. In {root}, verb {index} of a "
        "plan; earlier verbs took effect, later ones did not run.",
        index=index,
        verb=verb,
        error=error,
    )
    failed.__cause__ = error
    return failed


def stale(owner: str) -> StaleIncarnation:
    """The error for every call on a fenced incarnation."""
    return StaleIncarnation(
        f"the disk incarnation of {owner!r} is fenced: its owner was restarted or the disk was closed. "
        "Nothing was done. Ask the disk for a new incarnation.",
        owner=owner,
    )


def write_refused(path: str, length: int, data: bytes, owner: str, *, is_fenced: bool) -> CallboardError:
    """The error for `data` that a mark of `length` bytes does not take, or that comes from a fenced incarnation."""
    if is_fenced:
        return stale(owner)
    return InvalidArgument(
        f"the mark {path!r} holds {length} bytes, not {len(data)}. Nothing was stored.", path=path
    )


NO_FOLDER: Final = {
    errno.ENOTDIR: "a folder belongs there, and something else is there or has the name of a folder above it",
    errno.ELOOP: "it is a symbolic link, or lies behind one, and none is followed",
}
"""Error texts for a path that is not a folder, by errno."""


def storage_error(doing: str, root: str, path: str, error: OSError) -> StorageError:
    """The error for a call outside a plan, with the OSError as its cause."""
    failed = StorageError(
        f"{doing} {path or '.'!r} failed: {_words(error)}. In {root}.", path=path, error=error
    )
    failed.__cause__ = error
    return failed


def _words(error: OSError) -> str:
    if error.errno in NO_FOLDER:
        return (
            f"{NO_FOLDER[error.errno]}. Put back what belongs there if you have it, or run `callboard repair`: it moves"
            " what is there to quarantine"
        )
    return error.strerror or str(error)
