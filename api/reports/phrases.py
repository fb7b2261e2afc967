"""Phrases: what the texts of log lines name besides the fields of an event, for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from callboard.actors.kernel.failures import with_counts
from callboard.log.limits import MISSED_COUNTED_MAX

NAMED_MAX: Final = 5
"""Places that the line at closing names, and things that the line of a damaged catalog names, at most."""

Fields = Mapping[str, Any]


def phrases_of(fields: Fields, group_of: Callable[[int], str]) -> dict[str, Any]:
    """The fields, with groups by name, numbers with their noun, causes without their full stop, and what follows."""
    found: dict[str, Any] = {"at": "", **fields}
    for field, phrases in PHRASES.items():
        if field in fields:
            found |= phrases(fields)
    if "group_id" in fields:
        found["group"] = group_of(fields["group_id"])
    return found


def _of_escalation(fields: Fields) -> dict[str, str]:
    path, restarts = fields["path"], fields["restarts"]
    return {
        "who": f"the supervisor {path!r}" if path else "the root supervisor",
        "then": "All below it is restarted, or ends with the runtime." if path else "The runtime ends.",
        "blamed": fields["child"] if len(restarts) < 2 else f"{with_counts(restarts)} together",
    }


def _of_stamp(fields: Fields) -> dict[str, str]:
    return {"ahead": f"{(fields['stamp_us'] - fields['now_us']) / 3.6e9:,.1f} hours"}


def _of_records(fields: Fields) -> dict[str, str]:
    records, reason = fields["records"], fields.get("reason")
    noun = "record" if "group_id" in fields and "reason" not in fields else "message"
    letters = "a dead letter" if records == 1 else "dead letters"
    if reason is not None:
        letters += f": {reason!r}" if records == 1 else f", the last one because of: {reason!r}"
    return {"counted": _counted(records, noun), "letters": letters}


def _of_attempt(fields: Fields) -> dict[str, str]:
    most = fields["max_deliveries"]
    return {"attempt": f"{fields['attempt']} of {most}"} if most else {}


def _of_firings(fields: Fields) -> dict[str, str]:
    firings = fields["firings"]
    at_least = " or more" if firings == MISSED_COUNTED_MAX else ""
    return {"firings": f"{firings}{at_least} firing{'' if firings == 1 else 's'}"}


def _of_name(fields: Fields) -> dict[str, str]:
    return {"named": _bracketed(fields["name"])}


def _of_cause(fields: Fields) -> dict[str, str]:
    if "place" not in fields:
        return {"why": _bracketed(fields["cause"])}
    at = f", at {fields['place']}" if fields["place"] else ""
    return {"at": at, "cause": fields["cause"].removesuffix(".")}


def _of_missing(fields: Fields) -> dict[str, str]:
    named = ", ".join(fields["missing"][:NAMED_MAX])
    more = len(fields["missing"]) - NAMED_MAX
    named += f" and {more} more" if more > 0 else ""
    return {"gone": f"Not known any more: {named}" if named else "Which they are is not known"}


def _of_hook(fields: Fields) -> dict[str, str]:
    return {"whose": f"of {fields['path']!r}" if fields["path"] else "to events"}


PHRASES: Final[dict[str, Callable[[Fields], dict[str, str]]]] = {
    "child": _of_escalation,
    "stamp_us": _of_stamp,
    "records": _of_records,
    "max_deliveries": _of_attempt,
    "firings": _of_firings,
    "name": _of_name,
    "cause": _of_cause,
    "missing": _of_missing,
    "hook": _of_hook,
}
"""What an event that has this field is described with."""


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _bracketed(text: str | None) -> str:
    return "" if text is None else f" ({text})"
