"""The world: a deterministic run of production actors on virtual time, and what its code sees of it."""

from callboard.simulations.world.escapes import EscapedDeterminism
from callboard.simulations.world.run import LiveAsyncGenerator, Run, Settings, in_wire_mode, run
from callboard.simulations.world.tape import StaleTape, Tape
from callboard.simulations.world.trace import Trace
from callboard.simulations.world.trio_hooks import SimulatorUnsupported
from callboard.simulations.world.world import CURRENT, SOMETIMES, Machine, SimulationStuck, World

__all__ = [
    "CURRENT",
    "SOMETIMES",
    "EscapedDeterminism",
    "LiveAsyncGenerator",
    "Machine",
    "Run",
    "Settings",
    "SimulationStuck",
    "SimulatorUnsupported",
    "StaleTape",
    "Tape",
    "Trace",
    "World",
    "in_wire_mode",
    "run",
]
