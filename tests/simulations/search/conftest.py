"""Runs that never ran: the parts of a `Run` that searching looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.simulations.faults import NO_FAULTS, Plan
from callboard.simulations.history import History


@pytest.fixture
def made() -> Callable[..., Any]:
    """`made(failure, plan=..., hits=..., tell=...)`: a run that ended so; `tell(history)` writes its history."""

    def make(
        failure: BaseException | None = None,
        *,
        seed: int = 1,
        plan: Plan = NO_FAULTS,
        hits: dict[int, int] | None = None,
        tell: Callable[[History], None] = lambda history: None,
    ) -> Any:
        moments = iter(range(1_000_000))
        history = History(now=lambda: next(moments) / 8)
        tell(history)
        return SimpleNamespace(
            delivers_copies=False,
            failure=failure,
            seed=seed,
            plan=plan,
            hits=hits or {},
            history=history,
            fault_counts=Counter(),
            probes=Counter(),
            tape=None,
            first=None,
            waiting=(),
        )

    return make
