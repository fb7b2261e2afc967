"""Coverage: which faults really hit, and which `sometimes` points were met, over many runs.

A sweep in which a fault never had an effect says nothing about it, however green it is. So every kind of fault that
some scenario can draw, and every `sometimes` point that is declared or was come by, is expected to be met at least once
in a sweep of standard size, unless it is marked rare with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from callboard.simulations.world import SOMETIMES

STANDARD_SEEDS: Final = 5_000
"""A sweep of at least this many seeds, over all scenarios, has to meet everything."""


@attrs.frozen
class CoverageRow:
    """A kind of fault, or a `sometimes` point, and how often it was met."""

    kind: str
    """ "fault" or "sometimes"."""
    name: str
    hits: int
    rare: str = ""
    """Why it need not be met; empty when it must be."""

    @property
    def is_missing(self) -> bool:
        """Whether it should have been met, but was not."""
        return not self.hits and not self.rare


def points(probes: Mapping[str, int]) -> Counter[str]:
    """The `sometimes` points among probes, without what their names begin with."""
    return Counter(
        {name.removeprefix(SOMETIMES): hits for name, hits in probes.items() if name.startswith(SOMETIMES)}
    )


def table(
    expected: Iterable[str],
    faults: Mapping[str, int],
    probes: Mapping[str, int],
    rare: Mapping[str, str],
    declared: Iterable[str] = (),
) -> list[CoverageRow]:
    """A row for each expected or hit kind of fault, and each declared or passed point; by kind and name.

    `expected` names faults as counts do (`PowerCut`, `FailVerb:sync:EIO`). A bare kind is met by any of its variants.
    `declared` names points; one that no run came by has a row too, without hits.
    """
    variants = {name.partition(":")[0] for name in faults if ":" in name}
    names = set(faults) | {name for name in expected if name not in variants}
    rows = [CoverageRow("fault", name, faults.get(name, 0), _rare(name, rare)) for name in sorted(names)]
    found = points(probes)
    return [
        *rows,
        *(
            CoverageRow("sometimes", name, found[name], _rare(name, rare))
            for name in sorted({*found, *declared})
        ),
    ]


def _rare(name: str, rare: Mapping[str, str]) -> str:
    return rare.get(name) or rare.get(name.partition(":")[0], "")


def uncovered(rows: Iterable[CoverageRow]) -> list[CoverageRow]:
    """The rows that fail a sweep of standard size."""
    return [row for row in rows if row.is_missing]
