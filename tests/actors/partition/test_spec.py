"""What a partition is made from."""

from __future__ import annotations

from callboard.actors.partition.spec import log_settings
from callboard.actors.settings import TopicSettings
from callboard.log.format.compression import Compression
from callboard.log.limits import MIB, Limits


def test_logs_get_the_settings_of_their_topic() -> None:
    """Each that both have, under the name that tells its unit."""
    topic = TopicSettings(
        segment_bytes=2 * MIB, segment_age=3.0, retention_age=5.0, retention_bytes=7 * MIB, compression="gzip"
    )
    made = log_settings(topic, Limits(segment_bytes=MIB))
    assert (made.segment_bytes, made.segment_bytes_max) == (2 * MIB, MIB)
    assert (made.segment_age_s, made.retention_age_s, made.retention_bytes) == (3.0, 5.0, 7 * MIB)
    assert made.compression == Compression("gzip")
