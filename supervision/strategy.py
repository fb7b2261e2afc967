"""The two tables of supervision: which children are restarted together, and which endings lead to a restart."""

from __future__ import annotations

from typing import Final, Literal

from callboard.actors.kernel import EndingKind

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
Restart = Literal["permanent", "transient", "temporary"]

STRATEGIES: Final[dict[str, str]] = {
    "one_for_one": "Only the child that crashed is restarted. For children that do not depend on each other.",
    "one_for_all": "All children are stopped, last first, and started again. For children that share a fate.",
    "rest_for_one": "The child and those started after it are stopped, last first, and started again. "
    "For children that build on earlier ones.",
}
"""Which siblings are restarted with a crashed child. The table in the guide is generated from this."""

RESTARTS: Final[dict[tuple[str, str], bool]] = {
    ("permanent", "finished"): True,
    ("permanent", "crashed"): True,
    ("permanent", "killed"): True,
    ("transient", "finished"): False,
    ("transient", "crashed"): True,
    ("transient", "killed"): True,
    ("temporary", "finished"): False,
    ("temporary", "crashed"): False,
    ("temporary", "killed"): False,
}
"""(restart, how it ended) -> start it again? The table in the guide is generated from this."""

RESTART_KINDS: Final = tuple(dict.fromkeys(restart for restart, _ in RESTARTS))


def restarts(restart: Restart, ended: EndingKind) -> bool:
    """Whether a child that ended this way by itself is started again."""
    return RESTARTS[restart, ended]


def restarted_with(strategy: Strategy, position: int, count: int) -> range:
    """Positions, of `count` children in start order, that are restarted with the one at `position`, itself included."""
    match strategy:
        case "one_for_one":
            return range(position, position + 1)
        case "one_for_all":
            return range(count)
        case "rest_for_one":
            return range(position, count)
