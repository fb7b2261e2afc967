"""Fault plans as the machines feel them.

======================================================  ========================================================
fault of the plan                                       here
======================================================  ========================================================
CrashActor, CrashInBatch, CrashInRecovery               the partition crashes, and its supervisor hears of it
PowerCut                                                of what is written and not synced a beginning survives
KillProcess                                             only what was written survives
JumpClock                                               the wall clock, by which delays outlive an actor, moves
CrashConsumer                                           what it holds is released
PauseActor, SlowActor, DelayMailbox, SlowDisk, Stall    the partition commits nothing for a while
FailVerb (sync, write), ShortWrite, FullDisk            log syncs fail: publishers hear it
======================================================  ========================================================

Others concern bytes, of which the machines have none. A partition is meant when its path contains the fault's; when
none does, the path chooses one: a plan that was drawn for the world strikes here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, get_args
from zlib import crc32

import attrs

Kind = Literal["crash", "power", "kill", "jump", "consumer", "pause", "fail"]

KINDS: Final[dict[str, Kind]] = {
    "CrashActor": "crash",
    "CrashInBatch": "crash",
    "CrashInRecovery": "crash",
    "PowerCut": "power",
    "KillProcess": "kill",
    "JumpClock": "jump",
    "CrashConsumer": "consumer",
    "PauseActor": "pause",
    "SlowActor": "pause",
    "DelayMailbox": "pause",
    "SlowDisk": "pause",
    "Stall": "pause",
    "FailVerb": "fail",
    "ShortWrite": "fail",
    "FullDisk": "fail",
}
PROBES: Final = ("disk.write", "disk.sync", "publish", "deliver", "ack", "nack")
PATHS: Final = ("", "0", "1", "2")
DOWN_S: Final = 1.0


@attrs.frozen
class Strike:
    """One fault. `at_s` is infinite when it waits for the `count`-th passing of a probe."""

    kind: Kind
    at_s: float = float("inf")
    probe: str = ""
    count: int = 1
    about: str = ""
    path: str = ""
    seconds: float = DOWN_S
    """Down, paused, or by how much the clock jumps."""
    draw: int = 0
    """What else chance decides in it, such as what survives."""

    def choose(self, count: int) -> int:
        """One of so many, by the path."""
        return crc32(self.path.encode()) % count


def strikes_of(plan: Any) -> list[tuple[int, Strike]]:
    """What of a plan the machines feel, each with its index in the plan."""
    found = []
    for index, fault in enumerate(plan.faults):
        kind = KINDS.get(type(fault).__name__)
        if kind is None or (kind == "fail" and getattr(fault, "verb", "sync") not in ("sync", "write")):
            continue
        when = fault.when
        survival = getattr(fault, "survival", None)
        strike = Strike(
            kind,
            at_s=getattr(when, "seconds", float("inf")),
            probe=getattr(when, "probe", ""),
            count=getattr(when, "count", 1),
            about=getattr(when, "about", ""),
            path=str(getattr(fault, "path", getattr(fault, "consumer", ""))),
            seconds=_seconds(fault),
            draw=getattr(survival, "seed", index),
        )
        found.append((index, strike))
    return found


def _seconds(fault: Any) -> float:
    for name in ("down_s", "for_s", "seconds"):
        value = getattr(fault, name, None)
        if value is not None:
            return float(value)
    return DOWN_S


def draw_strikes(draw: Callable[[], int], events: int) -> list[tuple[int, Strike]]:
    """Strikes for a run of about this many events: which kinds there are at all is drawn first."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    enabled = [kind for kind in kinds if draw() & 1]
    if not enabled:
        return []
    strikes = []
    for index in range(draw() % (1 + min(8, events // 500))):
        bits, more = draw(), draw()
        probe = PROBES[(bits >> 3) % len(PROBES)]
        commits = probe.startswith("disk")
        strike = Strike(
            enabled[bits % len(enabled)],
            at_s=more % 4096 / 8.0 if bits & 0x800 else float("inf"),
            probe="" if bits & 0x800 else probe,
            count=1 + (bits >> 12) % max(1, events // (20 if commits else 8)),
            path=PATHS[(more >> 12) & 3],
            seconds=(0.0, 0.5, 3.0, -3600.0, 86_400.0, 40.0)[(more >> 16) % 6],
            draw=more >> 8,
        )
        strikes.append((index, strike))
    return strikes
