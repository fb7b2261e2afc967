"""Errors that a test plants in a memory disk, and the count of those that really hit."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import attrs

__all__ = ["Fault", "Faults", "Read"]


@attrs.frozen
class Read:
    """Stands for a read where a verb type is asked for; reads are no verbs of a plan."""


@attrs.define
class Fault:
    """An error waiting for verbs of one type whose path contains `path_contains`.

    The first `after` matching verbs pass, the next `times` fail. A write, or zeroing, puts down `partial` bytes
    before it fails. A failed sync marks the file's dirty pages clean: "kept" pages stay readable, "reverted" ones show
    the durable bytes; neither reaches the disk by a later sync.
    """

    verb_type: type
    error: OSError
    path_contains: str = ""
    times: int = 1
    after: int = 0
    pages: Literal["kept", "reverted"] = "kept"
    partial: int = 0

    def fresh_error(self, path: str) -> OSError:
        """The error anew for each hit, so that tracebacks do not pile up on one object."""
        return OSError(self.error.errno, self.error.strerror or str(self.error), path)


class Faults:
    """The planted faults of one disk."""

    __slots__ = ("hits", "planted")

    def __init__(self) -> None:
        self.planted: list[Fault] = []
        self.hits: Counter[tuple[str, int | None]] = Counter()

    def plant(self, fault: Fault) -> None:
        """Add a fault; the earliest planted that matches wins."""
        self.planted.append(fault)

    def clear(self) -> None:
        """Heal: forget every planted fault. The counts stay."""
        self.planted.clear()

    def take(self, verb_type: type, path: str) -> Fault | None:
        """The fault that befalls this verb now, if any."""
        for fault in self.planted:
            if fault.verb_type is not verb_type or fault.path_contains not in path:
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            if fault.times <= 0:
                self.planted.remove(fault)
            self.hits[verb_type.__name__, fault.error.errno] += 1
            return fault
        return None
