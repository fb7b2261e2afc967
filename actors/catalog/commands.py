"""What the catalog understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.define(eq=False)
class CreateTopic:
    """Answered with a `LiveTopic`."""

    name: str
    given: Mapping[str, Any]


@attrs.define(eq=False)
class AlterTopic:
    """Answered with a `LiveTopic`."""

    name: str
    given: Mapping[str, Any]


@attrs.define(eq=False)
class DeleteTopic:
    """Answered with None once its files are gone."""

    name: str


@attrs.define(eq=False)
class EnsureGroup:
    """Answered with the coordinator's ref."""

    name: str
    topic: str
    given: Mapping[str, Any]


@attrs.define(eq=False)
class GroupIdle:
    """A coordinator tells: no member since that wall time, or members again (None)."""

    group_id: int
    since_us: int | None


@attrs.define(eq=False)
class DeleteGroup:
    """Answered with None. Unknown names raise `GroupNotFound`, unknown ids are ignored."""

    name: str | None
    group_id: int | None = None
    reason: str = "deleted"


@attrs.define(eq=False)
class ListGroups:
    """Answered with a tuple of `GroupRecord`s."""


CatalogCommand = CreateTopic | AlterTopic | DeleteTopic | EnsureGroup | GroupIdle | DeleteGroup | ListGroups
