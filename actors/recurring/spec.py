"""What a schedule publishes, and when: as users give it, as the catalog stores it, and as it is published. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta, tzinfo
from typing import Any, Final

import attrs

from callboard.actors.recurring.cron import EPOCH, Every
from callboard.actors.recurring.cron import Cron as Cron
from callboard.actors.recurring.cron import Rule as Rule
from callboard.actors.recurring.cron import check_cron as check_cron
from callboard.actors.source_ids import SCHEDULE_EPOCH
from callboard.log.format.columns import Columns
from callboard.log.format.fields import unknown_fields

SCHEDULE: Final = "callboard-schedule"
"""The header with a schedule's name."""
DUE: Final = "callboard-due"
"""The header with the due instant."""
MISSED: Final = ("latest", "all", "skip")
"""What may become of firings that were missed."""
Zones = Callable[[str], tzinfo]
"""Finds a zone by its name. Raises `InvalidArgument`."""


@attrs.frozen(kw_only=True)
class ScheduleSpec:
    """The settings of a schedule. They never change: one with others is another schedule."""

    name: str
    value: bytes
    partition: int
    cron: str | None = None
    zone: str | None = None
    """Of `cron`."""
    every_us: int | None = None
    """In place of `cron`."""
    missed: str = "latest"
    key: bytes | None = None
    headers: dict[str, bytes] = attrs.field(factory=dict)
    ttl_us: int | None = None
    priority: int | None = None
    """As it is stored in a record."""
    unknown: dict[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """Settings of a later version."""

    def rule(self, anchor_us: int, zones: Zones) -> Rule:
        """When it is due. Raises `InvalidArgument` for a zone that is not here, or a cron expression of elsewhere."""
        if self.every_us is not None:
            return Every(self.every_us, anchor_us)
        return Cron(self.cron or "", zones(self.zone or "UTC"))

    def stored(self) -> dict[str, Any]:
        """As the catalog stores it: what differs from the defaults."""
        found = {field.name: getattr(self, field.name) for field in attrs.fields(ScheduleSpec) if field.eq}
        defaults = attrs.fields_dict(ScheduleSpec)
        return {
            **self.unknown,
            **{name: item for name, item in found.items() if item != defaults[name].default and item != {}},
        }


FIELDS: Final = tuple(field.name for field in attrs.fields(ScheduleSpec) if field.name != "unknown")
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "name": (str,),
    "value": (bytes,),
    "partition": (int,),
    "cron": (str, type(None)),
    "zone": (str, type(None)),
    "every_us": (int, type(None)),
    "missed": (str,),
    "key": (bytes, type(None)),
    "headers": (dict,),
    "ttl_us": (int, type(None)),
    "priority": (int, type(None)),
}


def spec_of(stored: Any) -> ScheduleSpec:
    """A spec from its stored form. Raises ValueError for what no version stores, `FormatTooNew`."""
    unknown = unknown_fields(stored, FIELDS, "a schedule")
    known = {name: stored[name] for name in FIELDS if name in stored}
    for name, item in known.items():
        if type(item) not in _KINDS[name]:
            raise ValueError(f"the {name} of a schedule is {item!r:.40}")
    spec = ScheduleSpec(**known, unknown=unknown)
    if (spec.cron is None) == (spec.every_us is None) or spec.missed not in MISSED or spec.partition < 0:
        raise ValueError(f"a schedule {spec.name!r:.40} that no version writes")
    if spec.every_us is not None and spec.every_us < 1:
        raise ValueError(f"a schedule {spec.name!r:.40} that is always due")
    if not all(type(name) is str and type(item) is bytes for name, item in spec.headers.items()):
        raise ValueError(f"headers of a schedule {spec.name!r:.40} that are none")
    return spec


@attrs.frozen
class ScheduleRecord:
    """A schedule as the catalog knows it."""

    schedule_id: int
    """Also the id of the source that it publishes as: no other schedule has it."""
    spec: ScheduleSpec
    created_us: int
    since_us: int
    """Due instants count from here: from when it was made, or resumed."""
    is_paused: bool = False
    unknown: dict[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """What else a later version knows of it."""


def due_text(due_us: int) -> str:
    """A due instant as the header tells it."""
    return (EPOCH + timedelta(microseconds=due_us)).isoformat()


def firings(record: ScheduleRecord, dues_us: Sequence[int]) -> Columns:
    """The messages to publish for these due instants, each numbered by its instant."""
    spec, count = record.spec, len(dues_us)
    named = {**spec.headers, SCHEDULE: spec.name.encode()}
    return Columns.build(
        [spec.value] * count,
        None if spec.key is None else [spec.key] * count,
        [{**named, DUE: due_text(due_us).encode()} for due_us in dues_us],
        list(dues_us),
        priorities=None if spec.priority is None else [spec.priority] * count,
        ttls=None if spec.ttl_us is None else [spec.ttl_us] * count,
        producers=[(1, record.schedule_id, SCHEDULE_EPOCH, due_us) for due_us in dues_us],
    )
