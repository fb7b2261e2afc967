"""Damaged middle: bytes rot and writes go astray, beyond what any log survives. Then a clear report is promised.

Whatever was acknowledged is there, unaltered, or named as lost; a directory that cannot be opened says which file is
damaged, and it is one that was. Nothing damaged is ever served.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from callboard.log.errors import LogCorrupt
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.offline.verify import verify_directory
from callboard.simulations.checkers import enforce
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Lost, Surviving
from callboard.simulations.scenarios.broker_workload import BrokerWorkload
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.points import mark
from callboard.simulations.scenarios.traffic import Traffic, draw_traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, World

PROMISE = "damage is reported"
PROBES: Final = {
    "disk.write": 40,
    "disk.sync": 30,
    "disk.sync_directory": 8,
    "disk.rename": 4,
    "event.ActorStarted": 8,
    "publish": 12,
    "deliver": 30,
    "ack": 30,
}
"""Points that nearly every run passes so often."""


class DamagedWorkload(BrokerWorkload):
    """Clients on a disk that loses what it has confirmed."""

    def __init__(self, world: World, traffic: Traffic) -> None:
        super().__init__(world, traffic)
        self.terms = attrs.evolve(self.terms, beyond=True, groups=(), liveness_s=None)
        world.disk.damage_budget.beyond = True

    async def session(self, machine: Machine) -> None:
        """Run clients; a directory that does not open any more ends it, with a report that is looked at."""
        try:
            await super().session(machine)
        except (LogCorrupt, BaseExceptionGroup) as error:
            corrupt = _corrupt(error)
            if corrupt is None:
                raise
            self.report(corrupt)

    def report(self, error: LogCorrupt) -> None:
        """The error names a file that was damaged, or the very directory in which one was."""
        path = str(getattr(error, "path", "") or "")
        damages = {damage.path for damage in self.world.disk.damage_budget.damages}
        self.world.sometimes("a damaged directory was refused with a report")
        if not path or path not in damages | {_folder(damage) for damage in damages}:
            words = f"it says that {path or 'something'} is damaged, and damaged are {sorted(damages)}"
            raise self.world.broken(Violation(PROMISE, words))

    async def finish(self) -> None:
        """Read what is left; where nothing can be opened, verify must say what is damaged."""
        world = self.world
        try:
            surviving = await self.surviving()
        except LogCorrupt as error:
            self.report(error)
            report = await verify_directory(world.disk)
            # A catalog whose last frames are spoiled looks like one that was cut off: it is found empty at opening,
            # beside the files of its topics, and only there.
            path = getattr(error, "path", "")
            if path != "catalog" and path not in {problem.path for problem in report.problems}:
                words = (
                    f"opening says {error}, and verify finds {[problem.path for problem in report.problems]}"
                )
                raise world.broken(Violation(PROMISE, words)) from error
            return
        surviving = self.with_set_aside(surviving)
        mark(world, surviving)
        world.sometimes("damage was found and named", bool(surviving.problems))
        enforce(world.history, surviving, self.terms)

    def with_set_aside(self, surviving: Surviving) -> Surviving:
        """Count as reported what was in a segment that recovery took out of service whole, its header being damaged.

        Where it was the first, quarantine shows it, and verify does not: a log may begin anywhere.
        """
        kept = [path for path in self.world.disk.paths() if path.startswith("quarantine/")]
        headless = {
            damage.path
            for damage in self.world.disk.damage_budget.damages
            if damage.start < SEGMENT_HEADER_BYTES
        }
        found = []
        for left in surviving.partitions:
            lost = []
            for base in range(left.start):
                whole = f"quarantine/{left.topic}-{left.index}@{base:020}@0@{0:016}.log"
                if whole in kept and any(path.endswith(f"/{left.index}/{base:020}.log") for path in headless):
                    lost.append(Lost(base, left.start - 1, f"damaged: its segment is {whole}"))
            found.append(attrs.evolve(left, damaged=(*left.damaged, *lost)))
        return attrs.evolve(surviving, partitions=tuple(found))


def _corrupt(error: BaseException) -> LogCorrupt | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LogCorrupt) else None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


class DamagedRun:
    """What the scenarios of damage do."""

    async def main(self, world: World, workload: Any) -> None:
        """Run the clients for as long as the directory opens, then look."""
        damaged = DamagedWorkload(world, workload)
        await damaged.run_clients()
        await damaged.finish()


class DamagedMiddle(DamagedRun):
    """Bits that flip and writes that land elsewhere, in the middle of what was confirmed."""

    name = "damaged-middle"
    space = FaultSpace(
        weights={"Rot": 6, "Misdirect": 4, "PowerCut": 1, "CrashActor": 1},
        always=("Rot", "Misdirect"),
        limits={"PowerCut": 2},
        actors=("topics/orders/0", "topics/orders/1"),
        paths=("topics/", "topics/", "topics/", ".log"),
        probes=PROBES,
        faults=(3, 6),
        horizon_s=0.4,
    )

    def workload(self, entropy: SeededEntropy) -> Traffic:
        """Not much, so that damage hits something, and not all at once, so that it comes before the end."""
        return attrs.evolve(
            draw_traffic(entropy),
            messages=between(entropy, 40, 80),
            publishers=between(entropy, 1, 2),
            batch=one_of(entropy, (1, 2, 5)),
            pause_s=one_of(entropy, (0.01, 0.02, 0.05)),
            acks=("all",),
        )
