"""The faults of a test that does not say which: crashes and a busy loop, aimed at what the test's program does.

Without an aim, most faults of a short test would come after its end, and of a long one before anything has happened.
So seed 0 runs without faults, and what it passes is where the faults of all other seeds begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import NO_FAULTS, After, Fault, FaultSpace, Plan, draw_plan
from callboard.simulations.faults.swarm import STEPS
from callboard.simulations.faults.when import AWAIT, WAKE
from callboard.simulations.world import Run

CRASHES: Final = FaultSpace(weights={"PowerCut": 2, "KillProcess": 1}, faults=(0, 3), down_s=(0.01, 100.0))
"""Any machine may stop, before any step of its program, write or sync."""
BUSY: Final = FaultSpace(weights={"BusyLoop": 1}, always=("BusyLoop",), faults=(0, 3))
"""The loop is busy, or wakes up late."""
REBOOT_FACTOR: Final = 1.25
"""A machine that boots again passes more than one that runs through: this many times as many passings may be drawn."""
STEPS_FACTOR: Final = 2
"""A step of the program is drawn this many times as often as a write or a sync: many of those only open a runtime."""

Passings = Mapping[str, int]
"""How often a run without faults passed each probe at which a fault can begin."""
NO_PASSINGS: Final[Passings] = {}


def passings_of(run: Run) -> Passings:
    """The passings of the run of seed 0: its wake-ups, and the points at which a machine may stop if it booted one."""
    return {WAKE: run.probes[WAKE]} | ({probe: run.probes[probe] for probe in STEPS} if run.boots else {})


def draw_aimed(entropy: SeededEntropy, passings: Passings) -> Plan:
    """A plan of crashes and of a busy loop; no faults if there are no passings."""
    crashes = _crashes(entropy.fork("plan"), passings)
    return Plan((*crashes.faults, *_busy(entropy.fork("busy"), passings).faults))


def _crashes(entropy: SeededEntropy, passings: Passings) -> Plan:
    places = [
        (probe, passing)
        for probe in STEPS
        for passing in range(1, round(passings.get(probe, 0) * REBOOT_FACTOR) + 1)
    ]
    places += [place for place in places if place[0] == AWAIT] * (STEPS_FACTOR - 1)
    return _aimed(entropy, CRASHES, places)


def _busy(entropy: SeededEntropy, passings: Passings) -> Plan:
    """Half of the places are wake-ups, and half steps of the program, if it has any."""
    places = [(WAKE, passing + 1) for passing in range(passings.get(WAKE, 0))]
    if places and (steps := passings.get(AWAIT)):
        places += [(AWAIT, 1 + int(entropy.random() * steps)) for _ in places]
    return _aimed(entropy, BUSY, places)


def _aimed(entropy: SeededEntropy, space: FaultSpace, places: Sequence[tuple[str, int]]) -> Plan:
    """A plan out of `space`, each fault at one of `places`: the passing of a probe, counted from 1."""
    if not places:
        return NO_FAULTS
    aims = entropy.fork("aims")

    def aimed(fault: Fault) -> Fault:
        return attrs.evolve(fault, when=After(*places[int(aims.random() * len(places))]))

    return Plan(tuple(map(aimed, draw_plan(entropy, space).faults)))
