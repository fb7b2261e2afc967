"""What the dead-letter router is asked, beside the notices of partitions and of the catalog; its room's only door."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from callboard.actors.catalog.commands import RouteGroup
from callboard.actors.kernel import Question
from callboard.actors.partition.commands import DeadLettersWait


@attrs.frozen
class Forwarded:
    """What the router has forwarded, by the name of the topic it went to."""

    counts: Mapping[str, int] = attrs.Factory(dict)
    """Dead letters, since the directory was opened."""
    held: Mapping[str, str] = attrs.Factory(dict)
    """Of a topic that takes none now: why."""


@attrs.frozen
class CountForwarded(Question[Forwarded]):
    """Answered with what was forwarded."""


RouterCommand = DeadLettersWait | RouteGroup | CountForwarded
