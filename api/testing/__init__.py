"""Test your own trio code in Callboard's simulator with many schedules, faults and crashes, all of them repeatable.

`simulate` turns `async def test_x(world)` into a pytest test that runs it once per seed, under virtual time and
with faults that the seed draws. `sometimes`, `always`, `eventually` and `note` are for the test and what it calls.
The pytest plugin (`callboard.testing.plugin`) adds the options `--callboard-seeds`, `--callboard-seed`,
`--callboard-strict`, `--callboard-check-determinism`, `--callboard-report` and the fixture `simulation`. Names are
loaded when they are first used, so that the plugin costs nothing in other test runs.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.simulations.faults import FaultSpace as FaultSpace
    from callboard.simulations.faults import Plan as Plan
    from callboard.simulations.violations import Violation as Violation
    from callboard.simulations.world import Machine as Machine
    from callboard.simulations.world import Run as Run
    from callboard.simulations.world import World as World
    from callboard.testing import strategies as strategies
    from callboard.testing.decorator import simulate as simulate
    from callboard.testing.errors import DrawnInside as DrawnInside
    from callboard.testing.errors import NeverHit as NeverHit
    from callboard.testing.errors import NotRepeatable as NotRepeatable
    from callboard.testing.points import always as always
    from callboard.testing.points import eventually as eventually
    from callboard.testing.points import note as note
    from callboard.testing.points import sometimes as sometimes
    from callboard.testing.simulation import Simulation as Simulation

_HOMES = {
    "simulations.faults": ("FaultSpace", "Plan"),
    "simulations.violations": ("Violation",),
    "simulations.world": ("Machine", "Run", "World"),
    "testing.decorator": ("simulate",),
    "testing.errors": ("DrawnInside", "NeverHit", "NotRepeatable"),
    "testing.points": ("always", "eventually", "note", "sometimes"),
    "testing.simulation": ("Simulation",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)
if find_spec("hypothesis") is not None:
    __all__ += ["strategies"]


if not TYPE_CHECKING:  # a checker that saw this would take any misspelt name for an Any

    def __getattr__(name: str) -> Any:
        if name == "strategies":  # needs hypothesis
            return import_module("callboard.testing.strategies")
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'callboard.testing' has no attribute {name!r}")
        found = getattr(import_module(f"callboard.{home}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
