"""The names of `callboard.testing`. `__init__.py` reads them from here, so that each is written once."""

from callboard.simulations.faults import FaultSpace as FaultSpace
from callboard.simulations.faults import Plan as Plan
from callboard.simulations.violations import Violation as Violation
from callboard.simulations.world import Machine as Machine
from callboard.simulations.world import Run as Run
from callboard.simulations.world import World as World
from callboard.testing.decorator import simulate as simulate
from callboard.testing.errors import DrawnInside as DrawnInside
from callboard.testing.errors import NeverHit as NeverHit
from callboard.testing.errors import NotRepeatable as NotRepeatable
from callboard.testing.points import always as always
from callboard.testing.points import eventually as eventually
from callboard.testing.points import note as note
from callboard.testing.points import sometimes as sometimes
from callboard.testing.simulation import Simulation as Simulation
