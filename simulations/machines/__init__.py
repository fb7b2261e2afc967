"""The fast path: the pure state machines alone, without tasks, trio or a disk, 200,000 inputs a second.

What runs is the production code of the partition's core and of the supervisor's roster. Around it, in plain loops over
virtual time: `partition_model` stands for a partition's log, journal and consumers, `tree` for the supervisor of all of
them; `ledger` and `tree` hold the rules; `driver` does what publishers, consumers and committers do, turn by turn, and
`strikes` reads a fault plan.

The same plans as in the world; of them what concerns the machines has an effect (`strikes` lists it). What this cannot
find is what lies between the machines: schedules, bytes, files. The world is for that.
"""

from typing import Final

from callboard.simulations.machines.drive import Driven, drive

__all__ = ["MACHINES", "Driven", "drive"]

MACHINES: Final = "machines"
"""The name by which sweeps and proofs take them for one more scenario."""
