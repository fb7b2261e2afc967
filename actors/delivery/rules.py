"""Every transition of an offset, as data: the documentation's table and diagram are made from it.

The tests hold the state machine to this table: a transition that a random history shows and the table lacks fails.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from callboard.actors.delivery.events import FIELDS

STATES: Final[dict[str, str]] = {
    "untouched": "never leased; costs nothing, however many there are",
    "passed": "never leased; others behind it were chosen first, and it waits to be chosen",
    "leased": "leased to one consumer, under one lease, until its deadline",
    "ready": "leased before, may be leased again now",
    "delayed": "leased before, may be leased again at its `not_before`",
    "settled": "done with",
}


class Transition(NamedTuple):
    """One way for an offset to change its state."""

    before: str
    call: str
    after: str
    counts: bool
    """The attempt counts from here on."""
    event: str
    when: str = ""


TRANSITIONS: Final = (
    Transition(
        "untouched", "lease", "leased", False, "L", "below the visible end, after everything that is ready"
    ),
    Transition("ready", "lease", "leased", False, "L", "oldest offset first"),
    Transition("untouched", "pass over", "passed", False, "P", "a choice takes what lies behind it"),
    Transition("passed", "lease", "leased", False, "L", "a choice names it"),
    Transition("leased", "ack", "settled", False, "A"),
    Transition("ready", "ack", "settled", False, "A", "late: the lease ran out, and nobody leased it since"),
    Transition("leased", "nack", "ready", True, "N", "without a delay"),
    Transition("leased", "nack", "delayed", True, "N", "with a delay"),
    Transition("ready", "nack", "ready", False, "N", "late, without a delay; the receipt ends"),
    Transition("ready", "nack", "delayed", False, "N", "late, with a delay"),
    Transition("leased", "release", "ready", False, "R", "cancellation, shutdown, a consumer that leaves"),
    Transition("leased", "expire", "ready", True, "X", "the deadline has come; late settlements still count"),
    Transition("leased", "void", "ready", True, "V", "the directory was opened again"),
    Transition("delayed", "time", "ready", False, "", "`not_before` has come"),
    Transition(
        "untouched", "skip", "settled", False, "S", "no such record, filtered, or dropped by retention"
    ),
    Transition("leased", "skip", "settled", False, "S", "the same; the lease shrinks"),
    Transition("passed", "skip", "settled", False, "S", "the same"),
    Transition("ready", "skip", "settled", False, "S", "the same"),
    Transition("delayed", "skip", "settled", False, "S", "the same"),
)


def table() -> str:
    """The transitions as a Markdown table."""
    lines = ["| from | call | to | attempt counts | event | when |", "|---|---|---|---|---|---|"]
    for row in TRANSITIONS:
        counts, event = "yes" if row.counts else "", f"`{row.event}`" if row.event else ""
        lines.append(f"| {row.before} | {row.call} | {row.after} | {counts} | {event} | {row.when} |")
    return "\n".join(lines)


def diagram() -> str:
    """The transitions as a Mermaid state diagram, one arrow per pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        calls = arrows.setdefault((row.before, row.after), [])
        if row.call not in calls:
            calls.append(row.call)
    lines = ["```{mermaid}", "stateDiagram-v2", "    [*] --> untouched"]
    lines += [f"    {before} --> {after}: {', '.join(calls)}" for (before, after), calls in arrows.items()]
    return "\n".join([*lines, "    settled --> [*]", "```"])


def states_table() -> str:
    """The states as a Markdown table."""
    return "\n".join(
        ["| state | meaning |", "|---|---|", *(f"| {name} | {text} |" for name, text in STATES.items())]
    )


def events_table() -> str:
    """The events of the journal and their fields as a Markdown table."""
    lines = ["| event | call | fields |", "|---|---|---|"]
    calls = {row.event: row.call for row in TRANSITIONS}
    lines += [f"| `{kind}` | {calls[kind]} | {', '.join(fields)} |" for kind, fields in FIELDS.items()]
    return "\n".join(lines)


def filled(page: str) -> str:
    """`page` with everything between the generated marks made anew."""
    parts = {"states": states_table, "diagram": diagram, "transitions": table, "events": events_table}
    for name, make in parts.items():
        head, rest = page.split(f"<!-- {name}: generated -->", 1)
        tail = rest.split("<!-- end -->", 1)[1]
        page = f"{head}<!-- {name}: generated -->\n{make()}\n<!-- end -->{tail}"
    return page
