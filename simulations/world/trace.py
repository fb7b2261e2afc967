"""The trace: what a run did, one line per event, or a digest of these lines.

Two runs of one seed have the same trace, byte for byte; that is what determinism means here, and the first line in
which two differ is where it was lost. A line is `virtual seconds`, what, and details, without anything that depends on
the process: no addresses, no hashes, no wall time of the machine.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Callable
from typing import Any, Final, Literal

TraceMode = Literal["off", "digest", "full"]
FLUSH_AT: Final = 1_024
BY_VALUE: Final = 2
"""The version of marshal's format that does not depend on which objects are one and the same."""
ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def clean(name: str) -> str:
    """A name without addresses."""
    return ADDRESS.sub("", name) if " at 0x" in name else name


class Trace:
    """The lines in order. `sink` gets every line of a full trace instead of `lines`.

    A digest needs no text: it is taken of the values that the lines would be made of.
    """

    __slots__ = ("_closed", "_digest", "_pending", "_sink", "lines", "mode", "now")

    def __init__(
        self, mode: TraceMode, now: Callable[[], float], sink: Callable[[str], None] | None = None
    ) -> None:
        self.mode = mode
        self.now = now
        self.lines: list[str] = []
        self._sink = sink
        self._digest = hashlib.blake2b(digest_size=16)
        self._pending: list[Any] = []
        self._closed = False

    @property
    def on(self) -> bool:
        """Whether lines are looked at: ask before an expensive one is made."""
        return self.mode != "off" and not self._closed

    def line(self, what: str, details: str = "") -> None:
        """Something happened."""
        if self.mode == "off" or self._closed:
            return
        if self.mode == "full":
            self._take(f"{self.now():.6f} {what} {details}" if details else f"{self.now():.6f} {what}")
        else:
            self._take((self.now(), what, details))

    def step(self, numbers: list[int]) -> None:
        """A tick stepped the tasks with these numbers, in this order."""
        if self._closed:
            return
        if self.mode == "full":
            self._take(f"{self.now():.6f} step {' '.join(map(str, numbers))}")
        else:
            self._take(numbers)

    def values(self, values: tuple[Any, ...]) -> None:
        """What a line says, for a digest: numbers, strings, and tuples of them."""
        if not self._closed:
            self._take(values)

    def _take(self, said: Any) -> None:
        if self.mode == "full":
            if self._sink is None:
                self.lines.append(said)
            else:
                self._sink(said)
        pending = self._pending
        pending.append(said)
        if len(pending) >= FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        self._digest.update(b"".join([_bytes_of(said) for said in self._pending]))
        self._pending.clear()

    def close(self) -> None:
        """The run is over: what its tasks do while it is torn down is no part of it."""
        self.digest  # noqa: B018 - takes in what is pending
        self._closed = True

    @property
    def digest(self) -> str:
        """A digest of all lines so far; digests of a full trace and of a `digest` one differ. Empty when off."""
        if self.mode == "off":
            return ""
        if self._pending:
            self._flush()
        return self._digest.hexdigest()


def _bytes_of(said: Any) -> bytes:
    try:
        return marshal.dumps(said, BY_VALUE)
    except ValueError:  # a value of a class derived from one of marshal's own
        return repr(said).encode("utf-8", "surrogatepass")
