"""What a partition actor is started with."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from callboard.actors.partition.commands import DeliverySettings
from callboard.actors.partition.spec import PartitionSpec, ReadingGroups
from callboard.actors.settings import TopicSettings
from callboard.log.limits import USUAL, WAITING_CACHE_BYTES, Limits


def spec_of(**holds: Any) -> PartitionSpec:
    """One that is not started."""
    nobody: Any = None
    return PartitionSpec("orders", "1", 0, TopicSettings(), nobody, nobody, nobody, **holds)


@pytest.mark.parametrize("given", [USUAL, Limits(tail_cache_bytes=1)])
def test_of_delayed_messages_fewer_of_the_latest_are_kept_in_memory(given: Limits) -> None:
    """Nobody reads them before they are due; other partitions keep what the limits say, and no limit grows."""
    kept = spec_of(holds="delayed").log_limits(given)
    assert kept.tail_cache_bytes == min(given.tail_cache_bytes, WAITING_CACHE_BYTES)
    assert attrs.evolve(kept, tail_cache_bytes=given.tail_cache_bytes) == given
    assert spec_of().log_limits(given) == spec_of(holds="outbox").log_limits(given) == given


def test_incarnations_begin_with_the_latest_settings_of_groups_that_have_not_ended() -> None:
    """What an earlier specification says is not changed by that."""
    first, second = DeliverySettings(version=1), DeliverySettings(version=2)
    altered = ReadingGroups().with_settings(1, first).with_settings(2, first)
    assert altered.with_settings(1, second).altered == {1: second, 2: first}
    assert altered.with_settings(1, None).altered == {2: first}
    assert altered.altered == {1: first, 2: first}


def test_an_incarnation_begins_with_what_an_earlier_one_was_altered_to() -> None:
    """Until its specification has other settings; what the incarnation changes in its copy stays there."""
    spec, altered, later = spec_of(), TopicSettings(retention_age=5.0), TopicSettings(retention_age=7.0)
    begun = spec.begun()
    assert begun.settings is spec.settings
    begun.settings, begun.hand_over.altered = altered, (spec.settings, altered)
    assert spec.settings == TopicSettings()
    assert spec.begun().settings is altered
    spec.settings = later
    assert spec.begun().settings is later
