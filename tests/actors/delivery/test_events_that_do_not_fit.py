"""Events that cannot have happened: they are refused, and account for every offset all the same."""

from __future__ import annotations

import pytest

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import DeliveryEventInvalid, LeaseEvent
from callboard.actors.delivery.invariants import check_all


@pytest.mark.parametrize(
    "ranges",
    [(0, 1, 2), (0, 3, 1, 5, 6, 1), (0, 2, 1, 2, 4, 3)],
    ids=["never leased before", "beyond the next", "second range"],
)
def test_a_lease_that_does_not_fit_leaves_no_offset_unaccounted_for(ranges: tuple[int, ...]) -> None:
    """Whoever salvages what follows a loss can go on from there: all that was touched can be voided and leased."""
    delivery = Delivery(0)
    with pytest.raises(DeliveryEventInvalid):
        delivery.apply(LeaseEvent("L", 7, 1, ranges))
    delivery.void_all_leases()
    delivery.skip(0, 1)
    check_all(delivery.offsets)
    assert 1 == delivery.offsets.floor
