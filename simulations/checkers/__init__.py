"""The promises, each as a pure function of what clients did and saw, and of what is left on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from callboard.simulations.checkers import (
    altered_settings,
    attempts,
    batch_parts,
    catalog_map,
    closed_well,
    conservation,
    definite_failures,
    delays,
    durable_state,
    false_damage,
    forgotten,
    freshness,
    group_ends,
    handled,
    identities,
    in_flight,
    isolation,
    key_order,
    late_acks,
    lazy_acks,
    liveness,
    lost_leases,
    mailboxes,
    membership,
    no_bugs,
    nothing_altered,
    nothing_lost,
    offsets,
    one_holder,
    patience,
    promptness,
    reading,
    recovery,
    restarts,
    retention,
    settled_stays_settled,
    supervision,
    timeouts,
    told_damage,
    told_settings,
    tree_order,
    watchers,
)
from callboard.simulations.checkers.judged import judged
from callboard.simulations.checkers.terms import DEFAULT, Intensity, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

__all__ = ["CHECKERS", "Checker", "Intensity", "Terms", "check_all", "enforce"]

Checker = Callable[[History, Surviving, Terms], list[Violation]]

CHECKERS: Final[dict[str, Checker]] = {
    nothing_lost.PROMISE: nothing_lost.check,
    nothing_altered.PROMISE: nothing_altered.check,
    definite_failures.PROMISE: definite_failures.check,
    batch_parts.PROMISE: batch_parts.check,
    offsets.PROMISE: offsets.check,
    key_order.PROMISE: key_order.check,
    attempts.PROMISE: attempts.check,
    settled_stays_settled.PROMISE: settled_stays_settled.check,
    one_holder.PROMISE: one_holder.check,
    lost_leases.PROMISE: lost_leases.check,
    delays.PROMISE: delays.check,
    late_acks.PROMISE: late_acks.check,
    lazy_acks.PROMISE: lazy_acks.check,
    freshness.PROMISE: freshness.check,
    in_flight.PROMISE: in_flight.check,
    altered_settings.PROMISE: altered_settings.check,
    reading.PROMISE: reading.check,
    catalog_map.PROMISE: catalog_map.check,
    identities.PROMISE: identities.check,
    membership.PROMISE: membership.check,
    told_settings.PROMISE: told_settings.check,
    isolation.PROMISE: isolation.check,
    group_ends.PROMISE: group_ends.check,
    forgotten.PROMISE: forgotten.check,
    conservation.PROMISE: conservation.check,
    recovery.PROMISE: recovery.check,
    "verify is clean after recovery": recovery.check_damage,
    false_damage.PROMISE: false_damage.check,
    closed_well.PROMISE: closed_well.check,
    told_damage.PROMISE: told_damage.check,
    retention.PROMISE: retention.check,
    supervision.PROMISE: supervision.check,
    handled.PROMISE: handled.check,
    promptness.PROMISE: promptness.check,
    patience.PROMISE: patience.check,
    restarts.PROMISE: restarts.check,
    tree_order.PROMISE: tree_order.check,
    mailboxes.PROMISE: mailboxes.check,
    timeouts.PROMISE: timeouts.check,
    watchers.PROMISE: watchers.check,
    durable_state.PROMISE: durable_state.check,
    liveness.PROMISE: liveness.check,
    no_bugs.PROMISE: no_bugs.check,
}
"""By promise."""


def check_all(
    history: History,
    surviving: Surviving,
    terms: Terms = DEFAULT,
    checkers: Iterable[Checker] = tuple(CHECKERS.values()),
) -> list[Violation]:
    """Every violation, in the order of the entries at which they show; those without an entry last.

    Topics and groups into which clients have reached that are not observed are not judged (`history.unobserved`).
    """
    known = judged(history, surviving)
    found = [violation for check in checkers for violation in check(known.history, known.surviving, terms)]
    if known.history is not history:
        found = [
            Violation(each.promise, each.words, None if each.first is None else known.original(each.first))
            for each in found
        ]
    return sorted(found, key=lambda violation: violation.first.number if violation.first else len(history))


def enforce(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> None:
    """Raise the first violation, if there is one."""
    found = check_all(history, surviving, terms)
    if found:
        raise found[0]
