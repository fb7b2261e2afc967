"""The ids and epochs of sources: the parts of the broker that publish to partitions as producers (`producers`).

Each publishes under numbers that a delivery journal counts. Should that journal be lost, another counts from 0 again,
and the targets remember what they took: so each count has an id of its own, its *numbering* (`group_states`), which is
a part of the source's id. A source lives as long as its topic, its group and its numbering. Whoever adds one of another
kind adds it to `callboard.actors.forwarding.ended_sources` too: partitions forget the sources that have ended.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SOURCE_EPOCH: Final = 2**32 - 1
"""Stands for a producer with one life only: it is not fenced, and not forgotten by age or number."""
SCHEDULE_EPOCH: Final = SOURCE_EPOCH - 1
"""The same for one that is a schedule: an actor that knows all schedules can have all others forgotten."""
REDRIVE_EPOCH: Final = SCHEDULE_EPOCH - 1
"""Of a producer that redrives one dead letter, and of no other."""
FOR_GROUP: Final = "callboard-for-group"
"""A header of what is redriven: the id of the only group that is delivered the record."""


def of_dead_letters(topic_id: str, partition: int, group_id: int, numbering: int) -> int:
    """Who publishes the dead letters of a group in a partition."""
    return _id(f"dead letters of {topic_id}/{partition} in {group_id}", numbering)


def of_outbox(topic_id: str, partition: int, numbering: int) -> int:
    """Who publishes what the acks of a partition publish."""
    return _id(f"outbox of {topic_id}/{partition}", numbering)


def of_delays(topic_id: str, partition: int, numbering: int) -> int:
    """Who publishes what was delayed in a partition."""
    return _id(f"delayed records of {topic_id}/{partition}", numbering)


def _id(words: str, numbering: int) -> int:
    """Numbers that an older version began to count have no numbering: 0."""
    counted = f"{words}, numbering {numbering}" if numbering else words
    return int.from_bytes(blake2b(counted.encode(), digest_size=8).digest(), "little") or 1
