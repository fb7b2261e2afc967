"""The pure state machines alone, without tasks, trio or a disk: hundreds of thousands of inputs a second.

What runs is the production code of delivery, intervals, sequencer, group states and roster. Around it, in plain loops
over virtual time, stands what the partition actor, its committer and its supervisor do with them: `place` is a
partition, `tree` the supervisor of all of them, `ledger` and `tree` hold the rules, `strikes` reads a fault plan.

The same plans as in the world; of them what concerns the machines has an effect (`strikes` lists it). What this cannot
find is what lies between the machines: schedules, bytes, files. The world is for that.
"""

from typing import Final

from callboard.simulations.machines.drive import Driven, drive

__all__ = ["MACHINES", "Driven", "drive"]

MACHINES: Final = "machines"
"""The name by which sweeps and proofs take them for one more scenario."""
