"""Failures of a test: when two are the same one, and what a traceback shows of them."""

from __future__ import annotations

import re
import traceback
from types import TracebackType
from typing import Final

from callboard.simulations.search.replay import words_of
from callboard.simulations.violations import Violation
from callboard.simulations.world.trace import clean

MACHINERY: Final = ("trio.", "outcome", "callboard.simulations.", "callboard.testing.")
NUMBER: Final = re.compile(r"\d+(\.\d+)?")


def kind_of(failure: BaseException | None, file: str) -> object:
    """What a shrunk failure has in common with the first: the promise and its words without numbers.

    Of errors that are no `Violation`: the type, and the line in `file` that raised it.
    """
    if failure is None:
        return None
    if isinstance(failure, Violation):
        return failure.promise, NUMBER.sub("0", failure.words)
    if isinstance(failure, BaseExceptionGroup):
        return frozenset(kind_of(inner, file) for inner in failure.exceptions)
    lines = [at.lineno for at in traceback.extract_tb(failure.__traceback__) if at.filename == file]
    return type(failure), tuple(lines[-1:])


def exact_kind_of(failure: BaseException | None, file: str) -> object:
    """What the failures of two runs of one seed have in common: where they happened, and every word."""
    return kind_of(failure, file), "" if failure is None else clean(words_of(failure))


def without_machinery(failure: BaseException, file: str) -> BaseException:
    """The failure with a traceback that begins in `file` and leaves out frames of trio and the simulator."""
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            without_machinery(inner, file)
    steps: list[TracebackType] = []
    step = failure.__traceback__
    while step is not None:
        if steps or step.tb_frame.f_code.co_filename == file:
            steps.append(step)
        step = step.tb_next
    shown: TracebackType | None = None
    for step in reversed(steps):
        if not step.tb_frame.f_globals.get("__name__", "").startswith(MACHINERY):
            shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return failure.with_traceback(shown)
