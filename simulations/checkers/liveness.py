"""Liveness: once nothing fails any more, every message is settled by every group within a stated virtual time.

The time runs from healing on, from the last publish, or from the power cut that ends a workload, whichever is latest.
Acks that were not answered may go with the power in the end, and publishes that were not answered may come back with
it.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import PartitionLeft, Surviving
from callboard.simulations.violations import Violation

PROMISE = "after healing every message is settled in time"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """What is pending in the end, and what was settled too late."""
    if terms.liveness_s is None:
        return []
    found = []
    for left in surviving.partitions:
        states = {group.name: group for group in left.groups}
        for name in terms.groups:
            group = states.get(name)
            pending = group.pending if group is not None else len(left.records)
            if pending > _doubtful(history, name, left):
                found.append(
                    Violation(PROMISE, f"{pending} messages of {left.label} are pending in {name}", None)
                )
    healed = history.of("healed")
    settled = history.of("acked")
    if healed and settled:
        begin = max(entry.time for entry in (*healed, *history.of("published", "power cut")))
        late = settled[-1].time - begin
        if late > terms.liveness_s:
            words = f"{settled[-1].place} was settled {late:.1f} s after healing, not {terms.liveness_s:g} s"
            found.append(Violation(PROMISE, words, settled[-1]))
    return found


def _doubtful(history: History, group: str, left: PartitionLeft) -> int:
    """How many messages of a partition need not be settled: neither their publish nor their ack was answered."""

    def offsets(kind: str, who: str) -> set[int]:
        return {
            offset
            for entry in history.of(kind)
            if entry.partition == left.index and entry.topic == left.topic and entry.group == who
            for offset in entry.offsets
        }

    begun, acked, told = offsets("ack", group), offsets("acked", group), offsets("published", "")
    return sum(offset not in acked and (offset in begun or offset not in told) for offset in left.records)
