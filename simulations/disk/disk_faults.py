"""Faults that wait on a memory disk for a verb or a read, and the count of those that really had an effect.

Vocabulary. A *fault* is planted, waits for a *kind* of thing to happen on a path, and strikes. It *hits* when that
changed something: a fault that never met its verb, or a misdirected write that changed no byte, is no hit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from errno import errorcode
from typing import Final, Literal, get_args

import attrs

from callboard.log.seams.disk import Verb

VERB_NAMES: Final[dict[type, str]] = {
    verb: re.sub(r"\B([A-Z])", r"_\1", verb.__name__).lower() for verb in get_args(Verb)
}
"""What observers and faults call each verb of a plan: "open", "create"... "make_directory"..."""
OBSERVED: Final = (*VERB_NAMES.values(), "read", "mark")
"""The verbs, and the two things that are no verbs of a plan, but are observed and may fail, too."""


@attrs.define(eq=False)
class PlantedFault:
    """Something that waits for a kind of thing to happen on paths that contain `path_contains`.

    The kind is one of `OBSERVED`, or else "short read", "misdirected write", "slow" or "stall".
    The first `after` matching verbs pass, the next `times` are hit: they fail with `error`. A write, or zeroing, puts
    down `partial` bytes before it fails; below 0, `draw` says how many, some but not all. A failed sync marks the
    file's dirty pages clean: "kept" pages stay readable, "reverted" ones show the durable bytes; neither reaches the
    disk by a later sync. Slowness delays by `latency_s` seconds.

    `hits` tells how often it really had an effect so far.
    """

    kind: str
    error: OSError = attrs.Factory(OSError)
    path_contains: str = ""
    times: int = 1
    after: int = 0
    pages: Literal["kept", "reverted"] = "kept"
    partial: int = 0
    draw: int = 0
    latency_s: float = 0.0
    hits: int = 0
    on_hit: Callable[[], None] | None = None
    """Called immediately at each hit."""

    def fresh_error(self, path: str) -> OSError:
        """A new error for each hit, so that tracebacks do not accumulate on one object."""
        return OSError(self.error.errno, self.error.strerror or str(self.error), path)


@attrs.define(eq=False)
class PlantedFaults:
    """The planted faults of one disk, and what they did."""

    planted: list[PlantedFault] = attrs.Factory(list)
    counts: Counter[str] = attrs.Factory(Counter)
    """Everything that had an effect, in words: "sync EIO", "sectors lost", "names lost", "rot"..."""

    def plant(self, fault: PlantedFault) -> PlantedFault:
        """Add a fault; the earliest planted that matches wins."""
        self.planted.append(fault)
        return fault

    def withdraw(self, fault: PlantedFault) -> None:
        """Remove a fault, unless it has already been used up."""
        if fault in self.planted:
            self.planted.remove(fault)

    def clear(self) -> None:
        """Forget every planted fault; keep the counts."""
        self.planted.clear()

    def find(self, kind: str, path: str) -> PlantedFault | None:
        """The fault that waits for this, if any. It continues to wait."""
        for fault in self.planted:
            if fault.kind == kind and fault.path_contains in path:
                return fault
        return None

    def take(self, kind: str, path: str) -> PlantedFault | None:
        """The fault that befalls this now, if any: one of its times is used up. The caller counts the hit."""
        for fault in self.planted:
            if fault.kind != kind or fault.path_contains not in path:
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            if fault.times <= 0:
                self.planted.remove(fault)
            return fault
        return None

    def count(self, fault: PlantedFault | None, words: str) -> None:
        """Count an effect."""
        self.counts[words] += 1
        if fault is not None:
            fault.hits += 1
            if fault.on_hit is not None:
                fault.on_hit()

    def count_failure(self, fault: PlantedFault | None, kind: str, number: int | None) -> None:
        """Count a verb that failed with this error."""
        self.count(fault, f"{kind} {errorcode.get(number or 0, 'error')}")
