"""Attempts are numbered and bounded.

The number that a consumer sees starts at 1, when the message is published, and never falls; after a nack that counted
it has risen, after a release it has not, unless a nack was begun before, which may have happened. It rises by at most
one per delivery: what was never handed over counts nothing, however slow its consumer. But for leases that opening the
runtime voided: one per boot, and one per time that it ended, or was closed on a disk that refuses or with a partition
that crashed, and was opened again: no process can write there that a lease was released.
Leases and nacks are given to the system and not synced, so a power cut may take them, and the number starts where the
disk says; so may a sync that failed, for another process, or when the runtime is opened again. An actor that crashes
alone loses none of them.
"""

from __future__ import annotations

from typing import NamedTuple

from callboard.simulations.checkers.closed_well import CLOSED, CRASHED, REFUSED
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "attempts are numbered and bounded"
REOPENED = "the runtime ended"
"""A remark of scenarios: the runtime is opened again on the same machine."""

SYNC_FAILS = "FailVerb:sync"
"""How the labels of faults begin that may drop what was written."""


class _Last(NamedTuple):
    number: int = -1
    attempt: int = 0
    opening: int = 1
    """How often the runtime had been opened."""
    is_nacked: bool = False
    is_released: bool = False
    is_nack_begun: bool = False
    """A consumer nacked it: that may have happened, whatever was answered, before it was given back."""
    least: int = 0


_NEVER = _Last()


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Deliveries with an impossible attempt."""
    salvaged = terms.salvaged(history)
    found: list[Violation] = []
    last: dict[tuple[str, str, int, int], _Last] = {}
    published: dict[int, _Last] = {}
    """By message: when it was first published; no consumer can have leased it before."""
    begun = {entry.operation: entry.number for entry in history.of("nack", "release")}
    opening, sync_failed = 0, False
    for entry in history.of(
        "publish",
        "delivered",
        "nack",
        "nacked",
        "released",
        "power cut",
        "booted",
        "note",
        CLOSED,
        "fault",
        "IncarnationCrashed",
    ):
        if entry.kind == "publish":
            for message in entry.ids:
                published.setdefault(message, _Last(opening=max(1, opening)))
            continue
        if entry.kind == "fault":
            sync_failed = sync_failed or entry.who.startswith(SYNC_FAILS)
            continue
        if entry.kind == "note" and not entry.detail.startswith(REOPENED):
            continue
        if entry.kind not in ("delivered", "nack", "nacked", "released"):
            opening += entry.kind in ("booted", "note") or (
                entry.kind == CLOSED and entry.detail in (REFUSED, CRASHED)
            )
            if entry.kind == "power cut" or (sync_failed and entry.kind != "IncarnationCrashed"):
                last = {
                    place: before._replace(least=0, is_nacked=False, is_released=False)
                    for place, before in last.items()
                }
            sync_failed = sync_failed and entry.kind == "IncarnationCrashed"
            continue
        group, topic, partition = entry.group, entry.topic, entry.partition
        if f"{topic}/{partition}" in salvaged:
            continue
        if entry.kind != "delivered":
            for offset in entry.offsets:
                place = (group, topic, partition, offset)
                known = last.get(place, _NEVER)
                if entry.kind != "nack" and known.number > begun[entry.operation]:
                    continue  # others were handed the message before this was answered
                last[place] = _settled(known, entry.kind)
            continue
        for index, (offset, attempt) in enumerate(zip(entry.offsets, entry.attempts, strict=True)):
            place = (group, topic, partition, offset)
            before = last.get(place)
            last[place] = _Last(entry.number, attempt, opening, least=attempt)
            if before is None and attempt == 1:
                continue
            if before is None:
                before = published.get(entry.ids[index], _NEVER) if entry.ids else _NEVER
            problem = _problem(before, last[place])
            if problem:
                words = f"{group} was handed {topic}/{partition}@{offset} as attempt {attempt}: {problem}"
                found.append(Violation(PROMISE, words, entry))
    return found


def _settled(known: _Last, kind: str) -> _Last:
    """What is known of a message that is nacked, or is reported as nacked or released."""
    if kind == "nack":
        return known._replace(is_nack_begun=True)
    is_nacked = kind == "nacked"
    return known._replace(is_nacked=is_nacked, is_released=not is_nacked and not known.is_nack_begun)


def _problem(before: _Last, now: _Last) -> str | None:
    attempt = now.attempt
    if attempt < 1:
        return "attempts begin at 1"
    if attempt < before.least:
        return f"it had been attempt {before.attempt}"
    if before.is_nacked and attempt == before.attempt:
        return "the one before was nacked, and has the same number"
    unseen = max(0, now.opening - before.opening)
    if before.is_released and attempt > before.attempt + unseen:
        return f"{before.attempt} was given back unhandled, which does not count"
    if attempt > before.attempt + 1 + unseen:
        return f"the one before was {before.attempt}, and at most {unseen} can have gone unseen"
    return None
