"""Aimed faults: a few that come at a moment that matters, beside those that a plan draws for any moment.

Most of what a program has for failures runs once, right after one: the first plan after a plan that failed, the first
life after a crash, the first change after a catalog was read again, the first file of a new segment. Faults at moments
drawn alike seldom strike there. Each function here draws for one such moment, with kinds that the space holds anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callboard.log.seams.entropy import Entropy
from callboard.simulations.disk.survival import Survival
from callboard.simulations.faults.kinds import (
    CrashActor,
    CrashConsumer,
    CrashInBatch,
    CrashOnMessage,
    DelayMailbox,
    FailVerb,
    Fault,
    JumpClock,
    KillProcess,
    PauseActor,
    PowerCut,
    SlowDisk,
    Stall,
)
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.faults.when import After, At, When

DOWN_S: Final = 0.05
TIMES: Final = 20
"""How often a disk refuses at most that refuses what is written first after an event."""
SOON: Final = 40
"""What is to come some time later comes at one of this many passings."""
QUESTIONS: Final = ("Ack", "Nack", "Fetch", "Extend", "WaitForReady", "ReleaseConsumer", "Flush")
"""Classes of what consumers tell and ask partitions."""
ANSWERS: Final = ("extended", "extended", "deliver", "acked", "nacked", "released")
"""Points that clients pass when they have heard."""
DROPS: Final = (("disk.unlink", ".log"), ("disk.sync_directory", "topics/"), ("disk.close", ".log"))
"""Points just before a segment is unlinked, before that is durable, and behind it, each with what it is about."""
STUCK_S: Final = 5.5
"""For longer than a partition waits for its disk."""


def _few(entropy: Entropy, most: int) -> int:
    """From 1 to `most`; small numbers are as likely as large ones."""
    return min(most, int((most + 1) ** entropy.random()))


def _one(entropy: Entropy, choices: Sequence[str]) -> str:
    return choices[int(entropy.random() * len(choices))]


def _refusing(entropy: Entropy, space: FaultSpace, when: When, path: str, most: int) -> FailVerb:
    """The disk refuses a few of the next writes, or syncs."""
    return FailVerb(
        when,
        verb=_one(entropy, ("write", "sync")),
        errno=_one(entropy, space.errnos),
        path=path,
        times=_few(entropy, most),
        pages=_one(entropy, ("kept", "reverted")),
    )


def _cut(entropy: Entropy, when: When) -> PowerCut:
    """A power cut that takes some of the pages and leaves others, whichever were first."""
    survival = Survival(
        seed=entropy.integer(32),
        applied=round(0.2 + 0.6 * entropy.random(), 2),
        names=float(entropy.random() < 0.5),
        zeros=entropy.random() < 0.5,
    )
    return PowerCut(when, survival, DOWN_S)


def at_the_first_plan(
    entropy: Entropy, space: FaultSpace, moments: Sequence[tuple[str, str, int]], path: str
) -> list[Fault]:
    """A disk that refuses what is written next after one of these points: its name, about what, its last passing."""
    probe, about, last = moments[int(entropy.random() * len(moments))]
    return [_refusing(entropy, space, After(probe, _few(entropy, last), about), path, TIMES)]


def at_a_new_segment(entropy: Entropy, space: FaultSpace, last: int) -> list[Fault]:
    """The commit that begins a segment fails; some publishes later the machine ends."""
    begun = After("disk.create", _few(entropy, last), ".log")
    later = After("published", 1 + int(entropy.random() * SOON))
    ends: Fault = _cut(entropy, later) if entropy.random() < 0.5 else KillProcess(later, DOWN_S)
    return [_refusing(entropy, space, begun, ".log", 2), ends]


def after_a_fault(entropy: Entropy, space: FaultSpace, paths: Sequence[str]) -> list[Fault]:
    """What is done because something failed fails as well, and now and then what is done because of that."""
    found: list[Fault] = []
    for number in range(1 + int(entropy.random() * 2)):
        when = After("fault", number + 1)
        if entropy.random() < 0.7:
            found.append(_refusing(entropy, space, when, _one(entropy, paths), 3))
        else:
            found.append(CrashActor(when, _one(entropy, space.actors)))
    return found


def amid(entropy: Entropy, space: FaultSpace, probe: str, last: int, path: str) -> list[Fault]:
    """A file fails just when clients have begun something else, which shares a plan with it; now and then again."""
    return [
        _refusing(entropy, space, After(probe, 1 + int(entropy.random() * last)), path, 2)
        for _ in range(1 + int(entropy.random() * 2))
    ]


def between_syncs(entropy: Entropy, probe: str, last: int) -> list[Fault]:
    """The power is lost when clients were answered what needs no sync: some of what was written is left."""
    return [_cut(entropy, After(probe, 1 + int(entropy.random() * last)))]


def at_a_drop(
    entropy: Entropy, space: FaultSpace, partitions: Sequence[str], summaries: Sequence[str], last: int
) -> list[Fault]:
    """In half of the seeds lives end when retention is about to drop a segment, or has just done so: what is made of
    its records is all that is left of them. Often the disk has refused, for a while, the files that this is kept in.
    """
    found: list[Fault] = []
    if entropy.random() < 0.5:
        return found
    if entropy.random() < 0.6:
        begun, verb = (
            After("disk.create", _few(entropy, last), ".log"),
            _one(entropy, ("write", "sync", "create")),
        )
        times = 200 if entropy.random() < 0.5 else _few(entropy, 20)
        found.append(
            FailVerb(begun, verb, _one(entropy, space.errnos), _one(entropy, summaries), times=times)
        )
    for _ in range(_few(entropy, 2)):
        probe, about = DROPS[int(entropy.random() * len(DROPS))]
        when = After(probe, _few(entropy, 2 * last if probe == "disk.unlink" else 5 * last), about)
        chance = entropy.random()
        if chance < 0.6:
            found.append(_cut(entropy, when))
        elif chance < 0.8:
            found.append(KillProcess(when, DOWN_S))
        else:
            found.append(CrashActor(when, _one(entropy, partitions)))
    return found


def behind_a_drop(entropy: Entropy, last: int) -> list[Fault]:
    """In a third of the seeds the power is cut when the file of a segment is closed that retention has dropped."""
    if entropy.random() < 2 / 3:
        return []
    return [_cut(entropy, After("disk.close", 1 + int(entropy.random() * last), ".log"))]


def by_parts(entropy: Entropy, partitions: Sequence[str], horizon_s: float) -> list[Fault]:
    """One partition refuses for certain, while what another was given remains unanswered."""
    first = int(entropy.random() * len(partitions))
    refuses, unsure = partitions[first], partitions[(first + 1) % len(partitions)]
    at_s = round(entropy.random() * horizon_s, 3)
    found: list[Fault] = [FailVerb(At(at_s), "write", "ENOSPC", f"/{refuses.rpartition('/')[2]}/", times=50)]
    if entropy.random() < 0.5:
        for_s = round(STUCK_S + 4.0 * entropy.random(), 2)
        return [*found, Stall(At(at_s), f"/{unsure.rpartition('/')[2]}/", for_s)]
    return [*found, *(CrashInBatch(At(round(at_s + 0.3 * number, 3)), unsure) for number in range(4))]


def at_questions(entropy: Entropy, partitions: Sequence[str], horizon_s: float) -> list[Fault]:
    """Partitions crash when consumers have just asked them for something: before, while and after it is journalled."""
    found: list[Fault] = []
    for _ in range(1 + int(entropy.random() * 4)):
        partition, chance = _one(entropy, partitions), entropy.random()
        if chance < 0.4:
            when: When = At(round(entropy.random() * horizon_s, 3))
            found.append(CrashOnMessage(when, partition, _one(entropy, QUESTIONS), _few(entropy, 5)))
            continue
        if chance < 0.7:
            when = After(_one(entropy, ("disk.write", "disk.sync")), _few(entropy, 40), "delivery")
        else:
            when = After(_one(entropy, ANSWERS), _few(entropy, 10))
        found.append(CrashActor(when, partition))
    return found


def late_answers(entropy: Entropy, partitions: Sequence[str], horizon_s: float) -> list[Fault]:
    """One to three times a partition answers late for a while: consumers go on with the others, and come back to it."""
    return [
        DelayMailbox(
            At(round(entropy.random() * horizon_s, 3)),
            _one(entropy, partitions),
            delay_s=round(0.02 + 0.2 * entropy.random(), 3),
            for_s=round(0.1 + 2.0 * entropy.random(), 2),
        )
        for _ in range(1 + int(entropy.random() * 3))
    ]


def on_messages(
    entropy: Entropy, actors: Sequence[str], messages: Sequence[str], horizon_s: float
) -> list[Fault]:
    """In half of the seeds actors crash on such messages, one to four times."""
    if entropy.random() < 0.5:
        return []
    return [
        CrashOnMessage(
            At(round(entropy.random() * horizon_s, 3)),
            _one(entropy, actors),
            _one(entropy, messages),
            _few(entropy, 5),
        )
        for _ in range(1 + int(entropy.random() * 4))
    ]


def at_steps(entropy: Entropy, space: FaultSpace, actors: Sequence[str]) -> list[Fault]:
    """In half of the seeds one or two crashes of these actors, at any step of what the scenario is about."""
    if entropy.random() < 0.5:
        return []
    found: list[Fault] = []
    for _ in range(1 + int(entropy.random() * 2)):
        probe, last = space.probes[int(entropy.random() * len(space.probes))]
        if entropy.random() < 0.3:
            when: When = At(round(entropy.random() * space.horizon_s, 3))
        else:
            when = After(probe, _few(entropy, last))
        found.append(CrashActor(when, _one(entropy, actors)))
    return found


def as_soon_as(entropy: Entropy, probe: str, last: int, actor: str) -> list[Fault]:
    """An actor crashes, none to three times, at passings of a probe: it has just been given work, or is amid some."""
    return [CrashActor(After(probe, _few(entropy, last)), actor) for _ in range(int(entropy.random() * 4))]


def amid_work(entropy: Entropy, actor: str, path: str, last: int) -> list[Fault]:
    """An actor crashes, none to three times, while something that it asked for is synced in a file under `path`."""
    return [
        CrashActor(After("disk.sync", 1 + int(entropy.random() * last), path), actor)
        for _ in range(int(entropy.random() * 4))
    ]


def slowly(entropy: Entropy, actor: str, path: str, horizon_s: float) -> list[Fault]:
    """In some seeds an actor, or the disk under `path`, is slow for seconds: what others do comes in between."""
    if entropy.random() < 0.5:
        return []
    at_s, for_s = round(entropy.random() * horizon_s, 3), round(1.0 + 4.0 * entropy.random(), 2)
    by_s = round(10 ** (-3 + 2 * entropy.random()), 4)
    if entropy.random() < 0.5:
        return [DelayMailbox(At(at_s), actor, by_s, for_s)]
    return [SlowDisk(At(at_s), path, by_s, for_s)]


def at_jumps(entropy: Entropy, actor: str, horizon_s: float) -> list[Fault]:
    """In some seeds the wall clock jumps, and soon after it an actor or the process ends: the next looks at it anew."""
    if entropy.random() < 0.4:
        return []
    at_s, by_s = entropy.random() * horizon_s, 10 ** (4 * entropy.random())
    jump = JumpClock(At(round(at_s, 3)), round(by_s if entropy.random() < 0.5 else -by_s, 3))
    soon = At(round(at_s + 0.5 * entropy.random(), 3))
    return [jump, CrashActor(soon, actor) if entropy.random() < 0.5 else KillProcess(soon, DOWN_S)]


def while_held(entropy: Entropy, partitions: Sequence[str], last: int) -> list[Fault]:
    """In every second seed partitions stand still for a moment while others of the same consumers go on."""
    if entropy.random() < 0.5:
        return []
    return [
        PauseActor(
            After("deliver", 1 + int(entropy.random() * last)),
            _one(entropy, partitions),
            round(0.01 * 30 ** entropy.random(), 3),
        )
        for _ in range(1 + int(entropy.random() * 4))
    ]


def amid_bodies(entropy: Entropy, consumers: Sequence[str], last: int) -> list[Fault]:
    """Consumers die, none to two of them, when they have just been handed something."""
    return [
        CrashConsumer(After("deliver", 1 + int(entropy.random() * last)), _one(entropy, consumers))
        for _ in range(int(entropy.random() * 3))
    ]
