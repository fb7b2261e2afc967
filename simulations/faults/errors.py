"""The error for plans that are none."""

from __future__ import annotations

from callboard.log.errors import InvalidArgument

__all__ = ["PlanError"]


class PlanError(InvalidArgument):
    """A fault, a plan or a fault space is not acceptable; `problems` lists all that is wrong. Nothing was run."""

    problems: tuple[str, ...]


def plan_error(problems: list[str]) -> PlanError:
    """One error for all `problems`, each of which says where it is."""
    return PlanError(
        f"{'; '.join(problems)}. Nothing was run. Correct the plan, or draw one with draw_plan.",
        problems=tuple(problems),
    )
