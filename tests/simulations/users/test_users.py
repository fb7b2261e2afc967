"""What `@simulate` finds with its defaults in three small programs, as users write them."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.mark.parametrize("which", ["TICKETS", "SHOP", "MAILER"])
def test_a_sound_program_passes(bugs: ModuleType, which: str) -> None:
    """No seed fails it, with crashes before any of its steps."""
    name, test = getattr(bugs, which)
    assert bugs.failing_seed(getattr(bugs.program(name), test), seeds=100) is None


def test_nine_of_ten_bugs_are_found_with_the_default_seeds(bugs: ModuleType) -> None:
    """Each was planted alone; the seeds of a test that does not say how many suffice for all but one at most."""
    seeds = {
        name: bugs.failing_seed(getattr(bugs.program(bug.program, bug), bug.test))
        for name, bug in bugs.BUGS.items()
    }
    assert len(seeds) == 10
    assert [name for name, seed in seeds.items() if seed is None][1:] == []


def test_the_seed_that_is_named_fails_again(bugs: ModuleType) -> None:
    """Alone too, although the crashes that it draws follow from what a run without faults does."""
    bug = bugs.BUGS["a job is acked before it is done"]
    test = getattr(bugs.program(bug.program, bug), bug.test)
    seed = bugs.failing_seed(test)
    assert seed is not None
    assert bugs.failing_seed(test, seed=seed) == seed
