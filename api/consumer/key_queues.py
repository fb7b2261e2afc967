"""In which order `work` hands messages with keys to its handlers.

Of the messages of one key in one partition, the *first* is ready for a handler or with one; the others wait *behind*
it. A key is *slow* from when messages behind its first were given back until the handler of the first has ended.

Invariants
----------
KQ1  Of the messages of one key in one partition at most one is with a handler; the others wait in order.
KQ2  What was given back because its key was with a handler is for other consumers: the partition leases this one no
     such message until that handler has ended. What comes of the key until then is given back at once.
KQ3  No message overtakes those of its key that were given back: what was asked for before is given back, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.consumer.fetcher import Fetcher
    from callboard.consumer.messages import ReceivedMessage

Key = tuple[str, int, bytes]
"""Topic, partition and key."""


class KeyQueues:
    """The keys of one call of `work`."""

    def __init__(self, consumer: Fetcher) -> None:
        self._leases = consumer.leases
        self._questions = consumer.questions
        self._is_fresh = consumer.is_fresh
        self.behind_count = 0
        """How many messages wait for another one."""
        self._first: dict[Key, ReceivedMessage] = {}
        self._behind: dict[Key, deque[ReceivedMessage]] = {}
        """None of these is empty."""
        self._slow: dict[Key, int] = {}
        """By slow key, the highest offset that was given back."""
        self._given_back: dict[Key, tuple[int, int]] = {}
        """By key, the latest last: how many questions had been asked when messages were given back that may come again,
        and the highest offset of these (KQ3).
        """

    # -- one message after the other

    def admit(self, message: ReceivedMessage) -> bool:
        """Whether a message that was fetched may be handled now. If not, it waits behind another, or was given back."""
        key = _key_of(message)
        if key is None:
            return True
        if self._given_back and self._is_overtaking(key, message):
            self._leases.give_back_messages([message])
            return False
        first = self._first.setdefault(key, message)
        if first is message:
            return True
        if not self._slow or not self._comes_late(key, first, message):
            behind = self._behind.get(key)
            if behind is None:
                self._behind[key] = deque((message,))
            else:
                behind.append(message)
            self.behind_count += 1
        return False

    def _is_overtaking(self, key: Key, message: ReceivedMessage) -> bool:
        """Whether it was asked for before messages of its key were given back that come before it (KQ3)."""
        given_back, question = self._given_back, message.lease.question
        while given_back and not self._questions.late:
            oldest, (last, _) = next(iter(given_back.items()))
            if last >= question:
                break
            del given_back[oldest]
        last, highest = given_back.get(key, (0, 0))
        return last >= question and highest < message.offset

    def _comes_late(self, key: Key, first: ReceivedMessage, message: ReceivedMessage) -> bool:
        """Whether its key is slow: then it is given back (KQ2)."""
        highest = self._slow.get(key)
        if highest is None or message.offset <= highest:  # it came again: `first` is not leased any more
            return False
        self._slow[key] = message.offset
        self._leases.give_back_messages([message], behind=first)
        return True

    def end(self, message: ReceivedMessage) -> tuple[ReceivedMessage | None, bool]:
        """A message is done with: the next one of its key, which may be handled now; and whether the key was slow."""
        key, following = _key_of(message), None
        if key is None:
            return None, False
        behind = self._behind.get(key)
        if behind is None:
            self._first.pop(key, None)
        else:
            self.behind_count -= 1
            self._first[key] = following = behind.popleft()
            if not behind:
                del self._behind[key]
        highest = self._slow.pop(key, None)
        if highest is not None:
            self._remember_given_back(key, highest)
        return following, highest is not None

    # -- giving back

    def take_out(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Messages that no handler has begun, with those behind them: they are to be given back, and come again."""
        unbegun: list[ReceivedMessage] = []
        for message in messages:
            unbegun.append(message)
            key = _key_of(message)
            if key is not None:
                self._first.pop(key, None)
                behind = self._behind.pop(key, ())
                self.behind_count -= len(behind)
                unbegun += behind
                self._remember_given_back(key, unbegun[-1].offset)
        return unbegun

    def give_back_behind(self) -> None:
        """Give back what waits behind others."""
        for key in list(self._behind):
            self._give_back_from(key, 0)

    def give_back_stale(self) -> None:
        """As `give_back_behind`, what is not fresh of it, with what waits after that."""
        for key, behind in list(self._behind.items()):
            stale = (at for at, message in enumerate(behind) if not self._is_fresh(message.lease))
            if (first := next(stale, None)) is not None:
                self._give_back_from(key, first)

    def _give_back_from(self, key: Key, place: int) -> None:
        """Give back what waits for a key from this place on: it is for others until the handler has ended (KQ2)."""
        behind, first, unbegun = self._behind[key], self._first[key], []
        while len(behind) > place:
            unbegun.append(behind.pop())
        if not behind:
            del self._behind[key]
        self.behind_count -= len(unbegun)
        self._slow[key] = max(self._slow.get(key, 0), unbegun[0].offset)
        self._leases.give_back_messages(unbegun, behind=first)

    def _remember_given_back(self, key: Key, highest: int) -> None:
        self._given_back.pop(key, None)
        self._given_back[key] = (self._questions.count, highest)


def _key_of(message: ReceivedMessage) -> Key | None:
    """By what it waits for others; None: it has no key."""
    key = message.key
    return None if key is None else (message.topic, message.partition, key)
