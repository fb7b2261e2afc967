"""Which clients are not observed, and what a history has for its story alone: of neither anything is judged."""

from __future__ import annotations

import attrs


@attrs.define
class Unobserved:
    """Of which topics and groups not everything is known that was done with them, by name."""

    topics: set[str] = attrs.field(factory=set)
    groups: set[str] = attrs.field(factory=set)
    told: set[int] = attrs.field(factory=set)
    """Numbers of entries that are there for the story alone."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups or self.told)
