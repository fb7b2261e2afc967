"""When a fault happens: at a moment of virtual time, or when the run passes a point for the n-th time.

A point is a *probe*: `disk.<verb>` before a verb of the disk runs (about its path), `event.<Event>` for an event of the
runtime (about the actor's path), `await` before each step of the program's own tasks (about the task and the function
that waits), `wake` each time that virtual time has gone on because no task could run, `publish`, `deliver`, `ack`... of
observed clients (about their name), and whatever a scenario passes itself.
At a probe a fault happens between two statements of the program: no schedule is finer.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.simulations.faults.shapes import (
    Number,
    Text,
    WholeNumber,
    field,
    plan_error,
    problems_of,
    shown,
)

SECONDS_MAX: Final = 10 * 366 * 86_400.0
"""The longest time that a plan may name, in virtual seconds: ten years."""
AWAIT: Final = "await"
"""The probe that is passed before each step of the program's own tasks, from one of their awaits to the next."""
WAKE: Final = "wake"
"""The probe that is passed each time that virtual time has gone on, before the tasks run that waited for it."""
PASSINGS_MAX: Final = 10_000_000
"""The last passing of a probe that a plan may name."""


@attrs.frozen
class _Moment:
    def __attrs_post_init__(self) -> None:
        problems = problems_of(self)
        if problems:
            raise plan_error(problems)


@attrs.frozen
class At(_Moment):
    """This many virtual seconds after the run began."""

    seconds: float = field(Number(0.0, SECONDS_MAX))

    def words(self) -> str:
        """As the beginning of a sentence."""
        return f"at {self.seconds:g} s"


@attrs.frozen
class After(_Moment):
    """At the `count`-th passing of `probe` whose subject contains `about`, counted from the beginning of the run."""

    probe: str = field(Text(may_be_empty=False))
    count: int = field(WholeNumber(1, PASSINGS_MAX), 1)
    about: str = field(Text(), "")

    def words(self) -> str:
        """As the beginning of a sentence."""
        if self.probe == WAKE:
            return f"at wake-up {self.count:,} of the loop"
        if self.probe == AWAIT:
            return f"before step {self.count:,} of {self.about or 'the program'}"
        about = f" about {self.about}" if self.about else ""
        return f"at passing {self.count:,} of {self.probe}{about}"


When = At | After


def when_to_data(when: When) -> dict[str, object]:
    """As plain data: `{"at": 0.35}` or `{"after": "disk.sync", "count": 3, "about": ""}`."""
    if isinstance(when, At):
        return {"at": when.seconds}
    return {"after": when.probe, "count": when.count, "about": when.about}


def when_from_data(data: object) -> When:
    """What `when_to_data` made. Raises `PlanError`."""
    if type(data) is dict:
        if data.keys() == {"at"}:
            return At(data["at"])
        if {"after"} <= data.keys() <= {"after", "count", "about"}:
            return After(data["after"], data.get("count", 1), data.get("about", ""))
    raise plan_error(
        [f'must be {{"at": seconds}} or {{"after": probe, "count": n, "about": text}}, not {shown(data)}']
    )
