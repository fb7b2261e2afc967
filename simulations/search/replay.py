"""Replaying a stored failure: what it says about this version of the code.

=============  ============================================================================================
reproduced     the same promise is broken
other          another promise is broken, or the run fails in another way
fixed          the run ends well, and every fault that had an effect then has one now
stale          the schedule does not fit, or the run ends well but a fault no longer has any effect: it says nothing
=============  ============================================================================================
"""

from __future__ import annotations

import builtins
import enum
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs

from callboard.log import errors
from callboard.log.errors import InvalidArgument
from callboard.simulations.search.shrink import Case
from callboard.simulations.search.stored_failure import (
    NAME_CHARACTERS_MAX,
    WORDS_CHARACTERS_MAX,
    StaleFailure,
    StoredFailure,
)
from callboard.simulations.search.values import from_plain, to_plain
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run, Settings, StaleTape, Tape

WORKLOAD_CHARACTERS_MAX: Final = 2_000
"""So much of a workload is told; the stored failure has the rest."""
NAME: Final = re.compile(r"[A-Za-z_]\w*")
TICK_LIMIT: Final = Settings().tick_limit

RunCase = Callable[[Case, Settings], Run]
"""Runs a case of one scenario under one seed."""


class ReplayVerdict(enum.Enum):
    """What a replay showed."""

    REPRODUCED = "reproduced"
    OTHER = "other"
    FIXED = "fixed"
    STALE = "stale"


@attrs.frozen
class Judgement:
    """The verdict, and why."""

    verdict: ReplayVerdict
    words: str


def promise_of(failure: BaseException) -> str:
    """Which promise was broken; for anything that is no violation, what was raised. As it can be stored and printed."""
    promise = failure.promise if isinstance(failure, Violation) else f"raised: {type(failure).__name__}"
    return _storable(promise, NAME_CHARACTERS_MAX)


def words_of(failure: BaseException) -> str:
    """How it was broken, in one line."""
    if isinstance(failure, Violation):
        return failure.words
    if isinstance(failure, BaseExceptionGroup):
        return f"{failure.message}: {'; '.join(map(_told, failure.exceptions))}"
    return _told(failure)


def _told(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as worse:  # noqa: BLE001 - its __str__ is the user's: whatever that raises must not hide the error
        return f"{name}: (its __str__ raised {type(worse).__name__})"


def stored_failure_of(scenario: str, case: Case, run: Run, *, version: str, note: str) -> StoredFailure:
    """The stored failure of a run that failed, or of one that no longer does (`promise` is then empty)."""
    failure = run.failure
    return StoredFailure(
        scenario=scenario,
        seed=run.seed,
        scheduler=case.scheduler or "",
        workload=to_plain(case.workload),
        plan=case.plan,
        tape=case.tape,
        hits={index: count for index, count in run.hits.items() if count},
        promise="" if failure is None else promise_of(failure),
        words="" if failure is None else _storable(words_of(failure), WORDS_CHARACTERS_MAX, "\n"),
        version=version,
        note=note,
    )


def _storable(text: str, characters_max: int, besides: str = "") -> str:
    """A text as it is stored: what cannot be printed, and is not in `besides`, is written as an escape."""
    if not text.isprintable():
        text = "".join(map(partial(_shown, besides=besides), text[:characters_max]))
    return text[:characters_max]


def _shown(character: str, besides: str) -> str:
    if character.isprintable() or character in besides:
        return character
    return character.encode("unicode_escape").decode()


def case_of(stored: StoredFailure, workload_type: Any) -> Case:
    """The case in a stored failure. Raises `StaleFailure` when its workload is no longer one of the scenario."""
    try:
        workload = from_plain(workload_type, stored.workload)
    except InvalidArgument as error:
        raise StaleFailure(str(error)) from None
    return Case(workload, stored.plan, stored.tape, stored.scheduler or None)


def end_of(failure: BaseException) -> tuple[str, frozenset[str]]:
    """What of a failure must stay the same while it is shrunk: the promise, and the errors that its words name."""
    names = frozenset(name for name in NAME.findall(words_of(failure)) if _is_error(name))
    return promise_of(failure), names


def _is_error(name: str) -> bool:
    found = getattr(builtins, name, None) or getattr(errors, name, None)
    return name.endswith("Error") or (isinstance(found, type) and issubclass(found, BaseException))


def trial_of(
    run_case: RunCase, failure: BaseException, tick_limit: int = TICK_LIMIT
) -> Callable[..., Tape | None]:
    """How shrinking runs a case: whether it fails as `failure` did (see `end_of`), and under which schedule."""
    wanted = end_of(failure)

    def trial(case: Case, /, *, record: bool) -> Tape | None:
        settings = Settings(
            scheduler=case.scheduler, trace="off", record_schedule=record, tick_limit=tick_limit
        )
        run = run_case(case, settings)
        if run.failure is None or end_of(run.failure) != wanted:
            return None
        return run.tape or Tape()

    return trial


def shown_workload(words: str) -> str:
    """A workload in words, cut in its middle when it is large."""
    if len(words) <= WORKLOAD_CHARACTERS_MAX:
        return words
    half = WORKLOAD_CHARACTERS_MAX // 2
    return f"{words[:half]} ... {len(words) - 2 * half:,} characters left out ... {words[-half:]}"


def remarks(case: Case) -> list[str]:
    """What a case is, in words: a line for the workload without what is nothing, and one for the schedule."""
    lines = []
    if attrs.has(type(case.workload)):
        fields = attrs.asdict(case.workload, recurse=False).items()
        told = [f"{name}={value!r}" for name, value in fields if value not in (0, "", (), None)]
        lines.append(f"Workload: {shown_workload(', '.join(told)) or 'nothing'}")
    if case.tape is not None:
        choices = case.tape.choices
        lines.append(
            "Schedule: everybody in order of creation"
            if not choices
            else f"Schedule: {choices:,} of {len(case.tape.decisions):,} recorded decisions matter, else all in order"
        )
    return lines


def judge(stored: StoredFailure, run: Run) -> Judgement:
    """What a run of the stored failure's case says about it."""
    if isinstance(run.failure, StaleTape):
        return Judgement(ReplayVerdict.STALE, str(run.failure))
    if run.failure is not None:
        promise = promise_of(run.failure)
        if promise == stored.promise:
            return Judgement(ReplayVerdict.REPRODUCED, f"the same promise is broken: {promise}")
        words = f"another promise is broken: {promise}, where {stored.promise or 'none'} was stored"
        return Judgement(ReplayVerdict.OTHER, words)
    gone = [index for index, count in sorted(stored.hits.items()) if count and not run.hits.get(index)]
    if gone:
        faults = stored.plan.faults
        named = ", ".join(
            f"{index} ({type(faults[index]).__name__})" if index < len(faults) else str(index)
            for index in gone[:10]
        )
        return Judgement(
            ReplayVerdict.STALE,
            f"the run ends well, but these faults of its plan no longer have any effect: {named}. It proves nothing"
            " about this version. Search again: `callboard simulate"
            f" {stored.scenario} --first-seed {stored.seed} --seeds 1`.",
        )
    return Judgement(ReplayVerdict.FIXED, "no promise is broken, and every fault had its effect")
