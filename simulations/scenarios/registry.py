"""All scenarios by name, and how often a sweep runs each."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, Final

import attrs

from callboard.simulations.scenarios.actor_runs import PlainActors, SupervisorTrees
from callboard.simulations.scenarios.aimed_runs import (
    FailingJournals,
    FailingSyncs,
    LostLeases,
    SmuggledFrames,
    StoredIndex,
    UnsyncedAndSeen,
)
from callboard.simulations.scenarios.broker_runs import (
    CrashStorms,
    DiskFullAndHealed,
    EveryFeature,
    ManyGroups,
    OrderPerKey,
    PublishAndRecover,
    PublishOnly,
    SeveralTopics,
)
from callboard.simulations.scenarios.call_runs import EveryCall, PartsOfBatches
from callboard.simulations.scenarios.catalog_runs import TopicsAndGroups
from callboard.simulations.scenarios.clock_runs import WrongClocks
from callboard.simulations.scenarios.counter_runs import LostCounters
from callboard.simulations.scenarios.damage_life import DamageAtRest
from callboard.simulations.scenarios.damage_runs import DamagedMiddle
from callboard.simulations.scenarios.delay_runs import DelayedRuns
from callboard.simulations.scenarios.delivery_runs import DeliveryRuns
from callboard.simulations.scenarios.drain_runs import DrainedConsumers
from callboard.simulations.scenarios.exclusive_runs import ExclusiveRuns
from callboard.simulations.scenarios.expiry_runs import ExpiringMessages
from callboard.simulations.scenarios.failing_runs import FailingMessages
from callboard.simulations.scenarios.file_damage_runs import DamagedFiles
from callboard.simulations.scenarios.forwarding_runs import ForwardedLetters
from callboard.simulations.scenarios.handler_runs import HandlerRun
from callboard.simulations.scenarios.isolation_runs import OneTopicFails
from callboard.simulations.scenarios.older_copy_runs import OlderCopies
from callboard.simulations.scenarios.once_runs import PublishedOnce
from callboard.simulations.scenarios.order_runs import WhatComesFirst
from callboard.simulations.scenarios.outbox_runs import AckedAndPublished
from callboard.simulations.scenarios.pattern_runs import PatternGroups
from callboard.simulations.scenarios.pause_runs import PausedGroups
from callboard.simulations.scenarios.program_runs import ActorPrograms
from callboard.simulations.scenarios.rare_calls import RareCalls
from callboard.simulations.scenarios.rare_moments import RareDisks, RareMoments, RareWaits
from callboard.simulations.scenarios.recorded_runs import RecordedDay, RecordedTraffic
from callboard.simulations.scenarios.recurring_runs import RecurringPublishes
from callboard.simulations.scenarios.retention_runs import RetentionAgainstReaders
from callboard.simulations.scenarios.scenario import Scenario
from callboard.simulations.scenarios.seek_runs import SoughtGroups
from callboard.simulations.scenarios.step_life import StepByStep

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        PublishAndRecover(),
        PublishOnly(),
        CrashStorms(),
        ManyGroups(),
        OrderPerKey(),
        SupervisorTrees(),
        PlainActors(),
        ActorPrograms(),
        RetentionAgainstReaders(),
        DiskFullAndHealed(),
        DamagedMiddle(),
        DamageAtRest(),
        StepByStep(),
        DamagedFiles(),
        SeveralTopics(),
        EveryFeature(),
        EveryCall(),
        PartsOfBatches(),
        RareCalls(),
        RareMoments(),
        RareDisks(),
        RareWaits(),
        TopicsAndGroups(),
        OneTopicFails(),
        DeliveryRuns(),
        HandlerRun(),
        FailingMessages(),
        ForwardedLetters(),
        LostCounters(),
        OlderCopies(),
        WrongClocks(),
        DelayedRuns(),
        RecurringPublishes(),
        AckedAndPublished(),
        SoughtGroups(),
        PausedGroups(),
        DrainedConsumers(),
        ExpiringMessages(),
        WhatComesFirst(),
        ExclusiveRuns(),
        PatternGroups(),
        SmuggledFrames(),
        StoredIndex(),
        FailingSyncs(),
        FailingJournals(),
        LostLeases(),
        UnsyncedAndSeen(),
        PublishedOnce(),
        RecordedTraffic(),
        RecordedDay(),
    )
}
"""By name."""


@attrs.frozen
class Weight:
    """How often a sweep runs a scenario: its share of the seeds, how long a seed takes, and how many it is at least."""

    share: float
    cost_s: float
    least: int


@attrs.frozen
class Rare:
    """A point that a sweep need not meet, and why."""

    point: str
    reason: str


@attrs.frozen
class Weights:
    """What `weights.toml` says."""

    scenarios: dict[str, Weight]
    rare: tuple[Rare, ...]


def load_weights() -> Weights:
    """Read `weights.toml`."""
    text = files("callboard.simulations.scenarios").joinpath("weights.toml").read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text)
    return Weights(
        {
            name: Weight(float(row["share"]), float(row["cost_s"]), int(row["least"]))
            for name, row in found["scenarios"].items()
        },
        tuple(Rare(str(row["point"]), str(row["reason"])) for row in found.get("rare", ())),
    )
