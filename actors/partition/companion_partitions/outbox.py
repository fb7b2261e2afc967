"""Where the payloads of acks that publish lie: companion partitions (`companions`), as this process knows them.

Each partition of a topic whose messages were acked with publishes has an *outbox partition*. An ack with publishes
first has its payloads stored there, synced; then the partition's own delivery journal acks and names them in one record
(`outbox_entries`), which is the commit. The forwarder publishes what is named, and settles it in the group. What no ack
names is settled too, once no ack can name it any more.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.actors.partition.port import PartitionPort

OUTBOX: Final = "outbox"
"""What an outbox partition holds."""


def outbox_folder(index: int) -> str:
    """The folder of an outbox partition, beside those of the topic's partitions; also its name in the tree."""
    return f"outbox-{index}"


@attrs.frozen(eq=False)
class Outbox:
    """One outbox partition."""

    port: PartitionPort
    source: PartitionPort
    """The partition whose acks publish."""
