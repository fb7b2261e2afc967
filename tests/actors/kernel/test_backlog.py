"""The pure queue against a list, and the checks of its specification."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.actors.kernel import WHEN_FULL, MailboxSpec
from callboard.actors.kernel.backlog import Backlog
from callboard.log.errors import ConfigurationError


class BacklogMachine(RuleBasedStateMachine):
    """A backlog and a list do the same."""

    @initialize(capacity=st.integers(1, 5), when_full=st.sampled_from(sorted(WHEN_FULL)))
    def make(self, capacity, when_full):
        self.backlog = Backlog(MailboxSpec(capacity=capacity, when_full=when_full))
        self.model = []
        self.extra = 0
        self.number = 0

    @rule()
    def offer(self):
        """What is not accepted is named (B3), and the length stays in bounds (B2)."""
        self.number += 1
        full = len(self.model) >= self.backlog.capacity
        overflow = self.backlog.offer(self.number)
        if not full:
            assert overflow is None
            self.model.append(self.number)
        elif self.backlog.when_full == "drop_oldest":
            assert overflow.item == self.model.pop(0)
            self.model.append(self.number)
        else:
            assert overflow.item == self.number
            assert overflow.policy == self.backlog.when_full

    @rule()
    def take_and_put_back(self):
        """What was taken and put back is next again (B1)."""
        if self.model:
            item = self.backlog.items.popleft()
            assert item == self.model[0]
            self.backlog.put_back(item)

    @rule()
    def take(self):
        if self.model:
            assert self.backlog.items.popleft() == self.model.pop(0)

    @rule()
    def force(self):
        self.number += 1
        self.backlog.force(self.number)
        self.model.append(self.number)

    @rule()
    def drain(self):
        assert self.backlog.drain() == self.model
        self.model.clear()

    @invariant()
    def same(self):
        if hasattr(self, "backlog"):
            assert list(self.backlog.items) == self.model
            assert len(self.backlog) == len(self.model)


TestBacklog = BacklogMachine.TestCase


def test_all_problems_of_a_mailbox_in_one_error():
    """A mailbox specification names everything that is wrong with it at once."""
    with pytest.raises(ConfigurationError) as caught:
        MailboxSpec(capacity=0, when_full="explode")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("capacity", [True, 1.5, -1, "many"])
def test_capacity_is_a_whole_number(capacity):
    """A capacity that is no whole number from 1 is refused."""
    with pytest.raises(ConfigurationError):
        MailboxSpec(capacity=capacity)
