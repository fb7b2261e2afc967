"""What the actor of recurring publishes hears."""

from __future__ import annotations

import attrs


@attrs.frozen
class ScheduleOpened:
    """A notice of the catalog: there is a schedule of this id."""

    schedule_id: int


RecurringCommand = ScheduleOpened
