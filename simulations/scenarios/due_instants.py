"""When schedules are due, computed second by second: what the recurring publishes of a scenario are compared with.

It shares nothing with the code that it judges: a cron expression comes with what a clock shows when it matches.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import attrs

SECOND_US: Final = 1_000_000
FOLD_S: Final = 7200
"""No zone sets its clocks back by more."""


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * SECOND_US)


STARTS: Final = (
    (ZoneInfo("UTC"), 0),
    (ZoneInfo("Europe/Berlin"), _us("2025-03-30T00:59:52+00:00")),
    (ZoneInfo("Europe/Berlin"), _us("2025-10-26T00:59:52+00:00")),
    (ZoneInfo("Australia/Lord_Howe"), _us("2025-10-04T15:29:52+00:00")),
    (ZoneInfo("Australia/Lord_Howe"), _us("2025-04-05T14:59:52+00:00")),
)
"""Zones, and moments before their clocks change; 0 stands for whenever the world begins."""
CRONS: Final = (
    ("*/2 * * * * *", range(0, 60, 2), (0, 24), False),
    ("*/5 * 1-2 * * *", range(0, 60, 5), (1, 3), False),
    ("3-59/5 0-59 0-2 * * *", range(3, 60, 5), (0, 3), True),
)
"""Expressions, with the arguments of `CronInstants` that say what they mean."""


@attrs.frozen
class SpacedInstants:
    """Due this many microseconds apart, one of them when the schedule was made."""

    every_us: int

    def dues(self, created_us: int, since_us: int, until_us: int) -> list[int]:
        """Those later than the one moment, and not later than the other."""
        first = since_us + self.every_us - (since_us - created_us) % self.every_us
        return list(range(first, until_us + 1, self.every_us))


@attrs.frozen
class CronInstants:
    """Due when a clock in the zone shows one of the seconds, in hours from one to below another.

    With `once` each such time of each day is due once: when the clock shows it, or one behind it, for the first time.
    """

    expression: str
    seconds: range
    hours: tuple[int, int]
    once: bool
    zone: ZoneInfo

    def dues(self, created_us: int, since_us: int, until_us: int) -> list[int]:
        """Those later than the one moment, and not later than the other."""
        first, last = since_us // SECOND_US, until_us // SECOND_US
        highest = max(self._shown(at) for at in range(first - FOLD_S, first + 1))
        found = []
        for at in range(first + 1, last + 1):
            shown = self._shown(at)
            if not self.once:
                is_due = self._matches(shown)
            else:
                passed = int((shown - highest).total_seconds())
                is_due = any(
                    self._matches(highest + timedelta(seconds=each)) for each in range(1, passed + 1)
                )
                highest = max(highest, shown)
            if is_due:
                found.append(at * SECOND_US)
        return found

    def _shown(self, at_s: int) -> datetime:
        return datetime.fromtimestamp(at_s, self.zone).replace(tzinfo=None, fold=0)

    def _matches(self, shown: datetime) -> bool:
        return shown.second in self.seconds and self.hours[0] <= shown.hour < self.hours[1]


When = SpacedInstants | CronInstants
