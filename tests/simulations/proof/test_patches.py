"""Replacing by name: everywhere, for a while, and never a name that is gone."""

from __future__ import annotations

import pytest

from callboard.log.format import frame, frame_walk
from callboard.simulations.proof.patches import MutationStale, Patch, patched
from callboard.simulations.proof.safeguards import SAFEGUARDS, Safeguard
from callboard.simulations.proof.wrong import returns


def test_a_function_is_replaced_wherever_it_was_imported_and_put_back() -> None:
    """Modules that imported it by name get the wrong one too; afterwards all have the right one."""
    right = frame.seed_of
    with patched((Patch("callboard.log.format.frame.seed_of", returns(7)),)):
        assert frame.seed_of(1) == frame_walk.seed_of(1) == 7
    assert frame.seed_of is frame_walk.seed_of is right


def test_it_is_put_back_after_an_error() -> None:
    """However the block ends."""
    right = frame.seed_of
    with (
        pytest.raises(ZeroDivisionError),
        patched((Patch("callboard.log.format.frame.seed_of", returns(7)),)),
    ):
        raise ZeroDivisionError
    assert frame.seed_of is right


@pytest.mark.parametrize(
    "target",
    [
        "callboard.log.format.frame.no_such_function",
        "callboard.log.format.frame.FrameHeader.no_such_method",
        "callboard.log.no_such_module.function",
        "callboard.actors.delivery.delivery.Delivery._promote",
    ],
    ids=["function", "method", "module", "inherited"],
)
def test_a_name_that_is_gone_fails_loudly(target: str) -> None:
    """Also a method that a class only inherits: replaced there, it would not be replaced for its siblings."""
    right = frame.seed_of
    stale = (Patch("callboard.log.format.frame.seed_of", returns(7)), Patch(target, returns(None)))
    with pytest.raises(MutationStale, match=target), patched(stale):
        pass
    assert frame.seed_of is right


@pytest.mark.parametrize("safeguard", SAFEGUARDS.values(), ids=SAFEGUARDS)
def test_every_safeguard_can_be_switched_off_and_on(safeguard: Safeguard) -> None:
    """Each of its targets exists, is another while it is off, and is itself again afterwards."""
    before = [_target(patch.target) for patch in safeguard.patches]
    with patched(safeguard.patches):
        for patch, right in zip(safeguard.patches, before, strict=True):
            assert _target(patch.target) is not right
    assert [_target(patch.target) for patch in safeguard.patches] == before


def _target(target: str) -> object:
    from callboard.simulations.proof.patches import _owner_of

    owner, name = _owner_of(target)
    return vars(owner)[name]
