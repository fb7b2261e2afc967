"""The mailbox against a list, and the checks of its specification."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.actors.kernel import WHEN_FULL, MailboxSpec
from callboard.actors.kernel.batch import Batch
from callboard.actors.kernel.mailbox import Mailbox
from callboard.actors.kernel.reply import Envelope
from callboard.log.errors import ConfigurationError, InvalidArgument, MailboxFull


class MailboxMachine(RuleBasedStateMachine):
    """A mailbox and a list do the same; `channel` of the list's items count against the capacity."""

    @initialize(capacity=st.integers(1, 5), when_full=st.sampled_from(sorted(WHEN_FULL)))
    def make(self, capacity, when_full):
        self.given_up = []
        self.mailbox = Mailbox(
            "a",
            MailboxSpec(capacity=capacity, when_full=when_full),
            lambda it, _: self.given_up.append(it.message),
        )
        self.front, self.channel, self.dropped = [], [], []
        self.number = 0

    def held(self):
        """The messages in the channel that count: notices were let in, room or not."""
        return [item for item in self.channel if item[1]]

    @rule()
    def put(self):
        """What is not accepted is named (MB6); the channel stays within its capacity (MB1)."""
        self.number += 1
        envelope = Envelope(self.number, None)
        if len(self.held()) < self.mailbox.capacity:
            assert self.mailbox.put(envelope)
        elif self.mailbox.when_full == "wait":
            assert not self.mailbox.put(envelope)
            return
        elif self.mailbox.when_full == "fail":
            with pytest.raises(MailboxFull):
                self.mailbox.put(envelope)
            return
        elif self.mailbox.when_full == "drop_newest":
            assert self.mailbox.put(envelope)
            self.dropped.append(self.number)
            return
        else:
            assert self.mailbox.put(envelope)
            self.dropped.append(self.pop_channel()[0])
        self.channel.append((self.number, True))

    def pop_channel(self):
        """The oldest message leaves; notices right behind it come to the front."""
        oldest = self.channel.pop(0)
        while self.channel and not self.channel[0][1]:
            self.front.append(self.channel.pop(0))
        return oldest

    @rule()
    def force(self):
        """A notice is let in, in its turn."""
        self.number += 1
        self.mailbox.force(self.number)
        self.channel.append((self.number, len(self.held()) < self.mailbox.capacity))

    @rule()
    def take(self):
        """Messages leave in the order in which they came (MB5)."""
        envelope = next(iter(Batch(self.mailbox, 1)), None)
        if self.front:
            assert envelope.message == self.front.pop(0)[0]
        elif self.channel:
            assert envelope.message == self.pop_channel()[0]
        else:
            assert envelope is None

    @precondition(lambda self: hasattr(self, "mailbox") and len(self.mailbox))
    @rule()
    def take_and_put_back(self):
        """What was taken and put back is next again (MB5)."""
        envelope = next(iter(Batch(self.mailbox, 1)), None)
        if self.front:
            item = self.front.pop(0)
        else:
            item = self.pop_channel()
        assert envelope.message == item[0]
        self.mailbox.put_back(envelope)
        self.front.insert(0, item)

    @rule(capacity=st.integers(1, 5))
    def resize(self, capacity):
        """What waits stays accepted, and counts no more."""
        self.mailbox.resize(capacity)
        self.front += self.channel
        self.channel = []

    @rule()
    def refuse_and_reopen(self):
        """A mailbox that refuses takes nothing (MB3) and keeps what it has."""
        self.mailbox.refuse(lambda: InvalidArgument("closed"))
        with pytest.raises(InvalidArgument):
            self.mailbox.put(Envelope(0, None))
        self.mailbox.force(0)
        self.mailbox.refuse(None)
        self.front += self.channel
        self.channel = []

    @rule()
    def drain(self):
        """Everything leaves at once, in order."""
        taken = [envelope.message for envelope in self.mailbox.drain()]
        assert taken == [item[0] for item in self.front + self.channel]
        self.front, self.channel = [], []

    @invariant()
    def same(self):
        if hasattr(self, "mailbox"):
            assert len(self.mailbox) == len(self.front) + len(self.channel)
            assert self.given_up == self.dropped


TestMailbox = MailboxMachine.TestCase


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
