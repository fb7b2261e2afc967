"""The ids of sources: the parts of the broker that publish to partitions as producers (`producers`).

Each lives as long as the topic, and the group, that its id is made of. `every_source` names all that there are. One of
another kind belongs there too: partitions forget what is not named (`callboard.actors.catalog.ended_sources`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b


def of_dead_letters(topic_id: str, partition: int, group_id: int) -> int:
    """Who publishes the dead letters of a group in a partition."""
    return _id(f"dead letters of {topic_id}/{partition} in {group_id}")


def of_outbox(topic_id: str, partition: int) -> int:
    """Who publishes what the acks of a partition publish."""
    return _id(f"outbox of {topic_id}/{partition}")


def of_delays(topic_id: str, partition: int) -> int:
    """Who publishes what was delayed in a partition."""
    return _id(f"delayed records of {topic_id}/{partition}")


def every_source(partitions: Mapping[str, int], readers: Mapping[int, Iterable[str]]) -> Iterator[int]:
    """The ids of all sources that there are.

    `partitions`: how many each topic has, by its id. `readers`: the topics that each group reads, by its id.
    """
    for topic_id, count in partitions.items():
        for partition in range(count):
            yield of_outbox(topic_id, partition)
            yield of_delays(topic_id, partition)
    for group_id, topic_ids in readers.items():
        for topic_id in topic_ids:
            for partition in range(partitions.get(topic_id, 0)):
                yield of_dead_letters(topic_id, partition, group_id)


def _id(words: str) -> int:
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "little") or 1
