"""What is settled of an outbox although no ack has named it, and what waits for acks that are on their way."""

from __future__ import annotations

from callboard.actors.forwarding.commands import OpenAcks
from callboard.actors.forwarding.outbox_sweep import OutboxSweep


def said(client: int, start: int | None, *, has_ended: bool = False, is_unnamed: bool = False) -> OpenAcks:
    """What a client says of its acks in one outbox."""
    return OpenAcks(client, "t", 0, start, has_ended, is_unnamed, 0)


def test_nothing_is_swept_that_an_ack_on_its_way_may_name() -> None:
    """What lies before it is, and the rest when it has ended."""
    sweep = OutboxSweep()
    sweep.begin(5)
    assert sweep.unclaimed_below() == 5
    sweep.end(5)
    assert not sweep.is_owed
    assert sweep.hear(said(1, 5, has_ended=True, is_unnamed=True))
    sweep.begin(8)
    assert not sweep.hear(said(1, 5))
    assert sweep.unclaimed_below() == 5
    sweep.end(5)
    assert sweep.is_owed
    assert sweep.hear(said(1, 8, has_ended=True))
    sweep.begin(9)
    sweep.hear(said(1, 8))
    assert sweep.unclaimed_below() == 8
    sweep.end(8)
    assert not sweep.is_owed
    assert not sweep.hear(said(1, None, has_ended=True))
    assert sweep.hear(said(1, None, has_ended=True, is_unnamed=True))
    sweep.begin(12)
    assert sweep.unclaimed_below() == 12


def test_the_first_of_all_clients_counts() -> None:
    """Each has open acks of its own; one that has none any more holds nothing up."""
    sweep = OutboxSweep()
    sweep.begin(9)
    for client, start in ((1, 7), (2, 3), (3, None)):
        sweep.hear(said(client, start))
    assert sweep.unclaimed_below() == 3
    sweep.hear(said(2, None))
    assert sweep.unclaimed_below() == 7


def test_what_ends_while_it_is_swept_is_worth_another_look() -> None:
    """It was open when the sweep began, so what it has stored was left."""
    sweep = OutboxSweep()
    sweep.begin(9)
    sweep.hear(said(1, 3))
    assert sweep.hear(said(1, None, has_ended=True))
    sweep.end(3)
    assert sweep.is_owed
