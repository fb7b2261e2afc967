"""What a partition says of its outbox to the forwarder."""

from __future__ import annotations

from typing import Any

from callboard.actors.kernel import ActorSystem, Batch, MailboxSpec
from callboard.actors.partition import effects as e
from callboard.actors.partition.commands import PublishesWait
from callboard.actors.partition.outbox.notices import OutboxNotices
from callboard.actors.partition.spec import PartitionSpec
from callboard.actors.settings import TopicSettings
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


def test_one_notice_with_the_newest_count_is_on_its_way() -> None:
    """However often entries come and go; that some have come is not lost when others are forwarded since."""
    nobody: Any = None
    settings, system = (
        TopicSettings(),
        ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1)),
    )
    spec = PartitionSpec("orders", "t1", 3, settings, nobody, forwarder="outbox")
    notices = OutboxNotices(system, spec)
    notices.moved(e.OutboxMoved(9, has_new=True))  # there is no forwarder yet, which asks when there is
    cell = system.register("outbox", MailboxSpec(1))._cell

    def taken() -> list[Any]:
        return [message for message, _ in Batch(cell.mailbox, 100)]

    for count in range(10):
        notices.moved(e.OutboxMoved(count, has_new=count == 5))
    assert taken() == [PublishesWait("t1", 3, 9, has_new=True)]
    assert taken() == []
    notices.moved(e.OutboxMoved(0, has_new=False))
    assert taken() == [PublishesWait("t1", 3, 0, has_new=False)]
