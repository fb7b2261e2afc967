"""Child specifications: supervision as plain data, checked when made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from callboard.actors.kernel import ActorStart, MailboxSpec
from callboard.log.errors import CallboardError, join_problems
from callboard.log.limits import CHILDREN_MAX, NAME_BYTES_MAX, RESTART_INTENSITY_MAX
from callboard.log.plain import each_of, is_a, is_plain_function, make_plain, shown
from callboard.supervision.policies import (
    DEFAULT_BACKOFF,
    IMMEDIATE,
    RESTART_KINDS,
    STRATEGIES,
    Backoff,
    Restart,
    Strategy,
    is_number,
)

STRANGERS_NAMED: Final = 5
"""Wrong children that an error names, at most."""


@attrs.frozen(kw_only=True)
class ChildSpec:
    """An actor to supervise. All problems are raised as one `ConfigurationError`."""

    name: str
    """Last part of the actor's path."""
    start: ActorStart
    """A class or function that makes the actor, or an async function `f(context)` that is the actor."""
    restart: Restart = "permanent"
    shutdown_grace: float = 5.0
    """Seconds between the request to stop and the kill."""
    mailbox: MailboxSpec = attrs.field(factory=MailboxSpec)
    significant: bool = True
    """False: a child that exceeds its restart intensity becomes `failed`, and its supervisor continues."""
    intensity: float | None = None
    """Only for an insignificant child: restarts allowed within its supervisor's period. None: the supervisor's
    `intensity`. `math.inf`: the child never fails; it is restarted, with its backoff, without limit."""
    awaited: bool = True
    """False: neither the children after it nor the supervisor's own readiness wait for it to start, and at closing such
    children stop side by side."""
    retry_in_hand: int = 0
    """How often the message that an actor was handling at a crash is tried again."""
    backoff: Backoff = DEFAULT_BACKOFF
    on_failed: Callable[[str, BaseException], CallboardError] | None = None
    """`on_failed(path, cause)` makes the error that messages to a failed child raise."""

    def __attrs_post_init__(self) -> None:
        make_plain(self, "name", "restart", "shutdown_grace", "intensity", "retry_in_hand")
        problems = _child_problems(self)
        if problems:
            raise join_problems(f"Child {shown(self.name)}", problems)


def _as_tuple(children: Iterable[ChildSpec | SupervisorSpec]) -> tuple[ChildSpec | SupervisorSpec, ...]:
    found = each_of(children)
    if found is None:
        raise join_problems("Supervisor", [f"children must be several specifications, not {shown(children)}"])
    return tuple(found)


@attrs.frozen(kw_only=True)
class SupervisorSpec:
    """A supervisor and its children, in start order. All problems are raised as one `ConfigurationError`."""

    name: str
    strategy: Strategy = "one_for_one"
    intensity: int = 5
    """Restarts allowed within `period`. One more ends the supervisor (or makes an insignificant child `failed`)."""
    period: float = 10.0
    """Seconds."""
    children: tuple[ChildSpec | SupervisorSpec, ...] = attrs.field(default=(), converter=_as_tuple)
    significant: bool = True
    backoff: Backoff = IMMEDIATE
    """The delay before this supervisor is restarted by its own supervisor."""
    awaited: bool = True
    """As of a `ChildSpec`."""

    def __attrs_post_init__(self) -> None:
        make_plain(self, "name", "strategy", "intensity", "period")
        problems = _supervisor_problems(self)
        if problems:
            raise join_problems(f"Supervisor {shown(self.name)}", problems)

    def child_problems(self, child: ChildSpec | SupervisorSpec) -> list[str]:
        """Why `child` cannot be a child of this supervisor."""
        if not child.awaited and self.strategy != "one_for_one":
            return [f"child {child.name!r} is not awaited, but {self.strategy} starts its children in order"]
        if isinstance(child, ChildSpec) and child.intensity is not None:
            return [] if math.isinf(child.intensity) else self._unreachable(child, int(child.intensity))
        return self._unreachable(child, self.intensity)

    def _unreachable(self, child: ChildSpec | SupervisorSpec, intensity: int) -> list[str]:
        least = child.backoff.least(intensity)
        if getattr(child, "restart", "permanent") == "temporary" or least <= self.period:
            return []
        problem = (
            f"child {child.name!r} can never exceed {intensity} restarts in {self.period:g} s, "
            f"because its backoff makes them last {least:g} s: it would crash and restart for ever. "
            "Allow fewer restarts, a longer period, or shorten the backoff"
        )
        return [problem]


def name_problems(name: Any) -> list[str]:
    """Why `name` cannot be part of a path."""
    if type(name) is not str or name in ("", ".", "..") or "/" in name or "\0" in name:
        return [f"name must be text without '/', not {shown(name)}"]
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        return [f"name is longer than {NAME_BYTES_MAX} bytes"]
    return []


def _is_intensity(value: Any) -> bool:
    return _is_infinite(value) or (_is_count(value) and value <= RESTART_INTENSITY_MAX)


def _is_infinite(value: Any) -> bool:
    return type(value) is float and value == math.inf


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_one_of(value: Any, words: Iterable[str]) -> bool:
    return type(value) is str and value in words


def _broken_rules(rules: tuple[tuple[bool, str], ...], spec: Any) -> list[str]:
    """The texts of the rules that do not hold. Only these are written out: some parts of a spec take long."""
    return [problem.format(spec=_Shown(spec)) for holds, problem in rules if not holds]


class _Shown:
    """The parts of a spec as words show them."""

    def __init__(self, spec: object) -> None:
        self._spec = spec

    def __getattr__(self, name: str) -> str:
        return shown(getattr(self._spec, name))


def _child_problems(spec: ChildSpec) -> list[str]:
    rules = (
        (callable(spec.start), "start must be callable, not {spec.start}"),
        (
            _is_one_of(spec.restart, RESTART_KINDS),
            f"restart must be one of {', '.join(RESTART_KINDS)}, not {{spec.restart}}",
        ),
        (
            is_number(spec.shutdown_grace) and spec.shutdown_grace >= 0,
            "shutdown_grace must be seconds from 0, not {spec.shutdown_grace}",
        ),
        (is_a(spec.mailbox, MailboxSpec), "mailbox must be a MailboxSpec, not {spec.mailbox}"),
        (is_a(spec.backoff, Backoff), "backoff must be a Backoff, not {spec.backoff}"),
        (
            _is_count(spec.retry_in_hand),
            "retry_in_hand must be a whole number from 0, not {spec.retry_in_hand}",
        ),
        (spec.on_failed is None or is_plain_function(spec.on_failed), "on_failed must be a plain function"),
        (type(spec.significant) is bool, "significant must be True or False, not {spec.significant}"),
        (type(spec.awaited) is bool, "awaited must be True or False, not {spec.awaited}"),
        (
            spec.intensity is None or _is_intensity(spec.intensity),
            (
                f"intensity must be a whole number from 0 to {RESTART_INTENSITY_MAX}, or math.inf, not "
                "{spec.intensity}"
            ),
        ),
        (
            spec.intensity is None or spec.significant is False,
            "only an insignificant child has an intensity of its own: a significant one counts with its siblings",
        ),
        (
            not (_is_infinite(spec.intensity) and is_a(spec.backoff, Backoff)) or spec.backoff.initial > 0,
            "a child that never fails needs a backoff: it would restart without a pause",
        ),
    )
    return name_problems(spec.name) + _broken_rules(rules, spec)


def _supervisor_problems(spec: SupervisorSpec) -> list[str]:
    rules = (
        (
            _is_one_of(spec.strategy, STRATEGIES),
            f"strategy must be one of {', '.join(STRATEGIES)}, not {{spec.strategy}}",
        ),
        (
            _is_intensity(spec.intensity) and not _is_infinite(spec.intensity),
            f"intensity must be a whole number from 0 to {RESTART_INTENSITY_MAX}, not {{spec.intensity}}",
        ),
        (
            is_number(spec.period) and spec.period > 0,
            "period must be seconds above 0, not {spec.period}",
        ),
        (is_a(spec.backoff, Backoff), "backoff must be a Backoff, not {spec.backoff}"),
        (len(spec.children) <= CHILDREN_MAX, f"more than {CHILDREN_MAX} children"),
    )
    problems = name_problems(spec.name) + _broken_rules(rules, spec)
    strangers = [child for child in spec.children if not is_a(child, ChildSpec, SupervisorSpec)]
    problems += [
        f"children must be ChildSpec or SupervisorSpec, not {shown(child)}"
        for child in strangers[:STRANGERS_NAMED]
    ]
    if problems:
        return problems
    names = [child.name for child in spec.children]
    problems += [
        f"two children are called {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1
    ]
    for child in spec.children:
        problems += spec.child_problems(child)
    return problems
