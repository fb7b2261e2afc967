"""What a partition actor is started with."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from callboard.actors.partition.port import PartitionPort
from callboard.actors.partition.spec import PartitionSpec
from callboard.actors.settings import TopicSettings
from callboard.log.limits import USUAL, WAITING_CACHE_BYTES, Limits


def spec_of(**holds: Any) -> PartitionSpec:
    """One that is not started."""
    port = PartitionPort("orders", 0, pending_bytes=1, **holds)
    nobody: Any = None
    return PartitionSpec("orders", "1", 0, TopicSettings(), port, nobody, nobody, nobody)


@pytest.mark.parametrize("given", [USUAL, Limits(tail_cache_bytes=1)])
def test_of_delayed_messages_fewer_of_the_latest_are_kept_in_memory(given: Limits) -> None:
    """Nobody reads them before they are due; other partitions keep what the limits say, and no limit grows."""
    kept = spec_of(holds="delayed").log_limits(given)
    assert kept.tail_cache_bytes == min(given.tail_cache_bytes, WAITING_CACHE_BYTES)
    assert attrs.evolve(kept, tail_cache_bytes=given.tail_cache_bytes) == given
    assert spec_of().log_limits(given) == spec_of(holds="outbox").log_limits(given) == given
