"""What topics and groups are, as pure functions: what each change makes of a topic or group, or how it refuses.

A state is the settings as text (see `plain`), or None when there is no topic, or group, of that name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from callboard.actors.settings import GROUP_FIELDS, GroupSettings, TopicSettings
from callboard.simulations.history.entry import plain

State = str | None

DONE: Final = "changed"


def apply(verb: str, given: Mapping[str, Any], state: State) -> tuple[str, State]:
    """How the change ends, `DONE` or the name of the refusal, and what is then."""
    match verb:
        case "create_topic":
            if state is None:
                return DONE, plain(attrs.asdict(TopicSettings()) | dict(given))
            return ("TopicExists" if _differs(state, given) else DONE), state
        case "subscribe":
            if state is None:
                return DONE, plain(attrs.asdict(GroupSettings()) | dict(given))
            fixed = {name: value for name, value in given.items() if GROUP_FIELDS[name].fixed}
            return ("ConfigurationError" if _differs(state, fixed) else DONE), state
        case "delete_topic" | "delete_group":
            return (_missing(verb), None) if state is None else (DONE, None)
        case _:
            if state is None:
                return _missing(verb), None
            return DONE, plain(json.loads(state) | dict(given))


def _missing(verb: str) -> str:
    return "TopicNotFound" if verb.endswith("topic") else "GroupNotFound"


def _differs(state: str, given: Mapping[str, Any]) -> bool:
    stored = json.loads(state)
    return any(stored[name] != value for name, value in given.items())
