"""Entry: one line of a history, flat, and its words.

Vocabulary
----------
An *operation* is begun by one entry (`publish`, `ack`, `nack`, `release`) and ended by others with the same
`operation` number, at most one for each message. How it ended:

=============  ========================================================================================
published      it happened, at these offsets
acked, ...     the settlement happened (acked, nacked)
refused        a definite failure: it did not happen, and never will
unsure         an indefinite failure, or cancelled: it happened, or not
lost           the lease was lost: the settlement had no effect
(no entry)     its machine ended first: it happened, or not
=============  ========================================================================================

A *life* is the time from a consumer's `joined` to its `left`; deliveries carry its number as their `operation`. Before
it the consumer is `joining`, and behind it the group learns that it leaves, until it is `gone`: with nothing in
`detail` when its leaving was answered, else with how its life ended.

A `change` of a topic or group ends as `changed`, `not changed` (it did not happen) or `maybe changed`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

ALTERED: Final = -1
"""The id of bytes that were never published."""
SETTLEMENTS: Final = {"ack": "acked", "nack": "nacked", "release": "released", "extend": "extended"}
MAYBE: Final = ", and it may have happened"
"""Behind the name of an error that is indefinite."""
LAZY: Final = "lazy"
"""The detail of an ack that is not awaited."""
RECEIVING: Final = "receive"
"""The detail of a delivery whose lease is renewed until its consumer is done with it."""
BATCH: Final = "batch"
"""The detail of a delivery of several messages."""
SAME_BATCH: Final = "same batch"
"""Detail of "delivered": more of the batch before it, by a lease that runs out at another time."""
BACKOFF: Final = "backoff"
"""The detail of a nack that leaves the delay to the group's settings."""


def plain(values: Mapping[str, Any]) -> str:
    """Settings and the like as text for `detail`: the same for the same values."""
    return json.dumps(values, sort_keys=True, default=str)


def member_name(who: str, life: int) -> str:
    """The name by which its group knows a consumer in one of its lives."""
    return f"{who}-{life}"


class HistoryEntry(NamedTuple):
    """One thing that was done or seen. Which fields say something depends on `kind`."""

    number: int
    """Rises by one; the only order there is."""
    time: float
    """Virtual seconds."""
    machine: int
    """The life of the computer in which it was done; 0 for the world outside of it."""
    kind: str
    who: str = ""
    """The client, or an actor's path."""
    operation: int = 0
    topic: str = ""
    partition: int = -1
    group: str = ""
    ids: tuple[int, ...] = ()
    """Message ids; `ALTERED` where the bytes were never published."""
    offsets: tuple[int, ...] = ()
    attempts: tuple[int, ...] = ()
    until: float = 0.0
    """Deliveries: when the lease ends. Nacks: when the delay does. Waits for a batch: when that may be not full.
    Waits that were given up: when they began. Restarts: the delay in seconds."""
    detail: str = ""
    where: str = ""
    """The line of the program that did it, in a watched run: `path/bank.py:12`."""

    def words(self) -> str:
        """The entry as a sentence without its full stop."""
        tell = _WORDS.get(self.kind)
        if tell is not None:
            return tell(self)
        subject = f"{self.who}: " if self.who else ""
        return f"{subject}{self.kind}{f' ({self.detail})' if self.detail else ''}"

    def line(self) -> str:
        """The entry for the trace: short, and complete enough to differ when runs do."""
        kind, who, operation, topic, partition, group, ids, offsets, attempts, _, detail = self[3:14]
        if topic:
            return f"{kind} {who} {operation} {group} {topic}/{partition} {offsets} {ids} {attempts} {detail}"
        return f"{kind} {who} {operation} {detail}"

    def is_of(self, delivery: HistoryEntry, offset: int) -> bool:
        """Whether this settles what was handed over in `delivery`, and not in an earlier one to the same consumer."""
        if self.who != delivery.who or self.number < delivery.number:
            return False
        if not self.attempts or not delivery.attempts:
            return True
        own, other = self.offsets.index(offset), delivery.offsets.index(offset)
        return self.attempts[own] == delivery.attempts[other]

    @property
    def place(self) -> str:
        """Where: `orders/1@17`, `orders/1@17..20 and 25`, or the topic alone when that is all that is known."""
        if self.partition < 0:
            return self.topic
        if not self.offsets:
            return f"{self.topic}/{self.partition}"
        return f"{self.topic}/{self.partition}@{spans(self.offsets)}"

    @property
    def messages(self) -> str:
        """Which: `message 5`, `messages 5..9`."""
        noun = "message" if len(self.ids) == 1 else f"{len(self.ids)} messages"
        return f"{noun} {spans(self.ids)}".replace(str(ALTERED), "with foreign bytes")


def spans(numbers: tuple[int, ...]) -> str:
    """Numbers in words, neighbours as ranges; at most four parts are named."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    named = [f"{first}" if first == last else f"{first}..{last}" for first, last in parts[:4]]
    more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
    return ", ".join(named) + more


def _attempt(entry: HistoryEntry) -> str:
    numbers = sorted(set(entry.attempts))
    if not numbers:
        return ""
    return f" (attempt {numbers[0]})" if len(numbers) == 1 else f" (attempts {numbers[0]} to {numbers[-1]})"


def _more(entry: HistoryEntry) -> str:
    return f" ({entry.detail})" if entry.detail else ""


def _events(entry: HistoryEntry) -> str:
    count = entry.attempts[0]
    return f"{count or 'no'} event{'' if count == 1 else 's'}"


def _of_group(entry: HistoryEntry) -> str:
    return f"consumer {entry.who} of {entry.group}"


_WORDS: Final[dict[str, Callable[[HistoryEntry], str]]] = {
    "publish": lambda e: f"publisher {e.who} published {e.messages} to {e.place} ({e.detail})",
    "published": lambda e: f"publisher {e.who} was told that {e.place} holds {e.messages} ({e.detail})",
    "refused": lambda e: f"{e.who} was told that this did not happen: {e.messages} at {e.place} ({e.detail})",
    "unsure": lambda e: (
        f"{e.who} does not know whether this happened: {e.messages} at {e.place} ({e.detail})"
    ),
    "flush": lambda e: f"publisher {e.who} asks for everything in {e.topic} to be synced",
    "flushed": lambda e: (
        f"publisher {e.who} was told that everything is synced{f': {e.messages}' if e.ids else ''}"
    ),
    "asks": lambda e: f"{_of_group(e)} waits for a message",
    "gave up": lambda e: f"{_of_group(e)} waits no more",
    "delivered": lambda e: f"{_of_group(e)} was handed {e.place}{_attempt(e)}: {e.messages}{_more(e)}",
    "ack": lambda e: f"{_of_group(e)} acks {e.place}{_more(e)}",
    "acked": lambda e: f"{_of_group(e)} was told that its ack of {e.place} is synced",
    "nack": lambda e: f"{_of_group(e)} nacks {e.place}{_more(e)}",
    "nacked": lambda e: f"{_of_group(e)} was told that its nack of {e.place} counts",
    "release": lambda e: f"{_of_group(e)} gives {e.place} back{_more(e)}",
    "lost": lambda e: f"{_of_group(e)} was told that its lease on {e.place} is lost",
    "read": lambda e: f"reader {e.who} read {e.place}: {e.messages}{_more(e)}",
    "shown": lambda e: f"the disk shows readers {e.topic}/{e.partition} up to offset {e.offsets[0]}",
    "ask": lambda e: f"{e.who} asked {e.topic} question {e.ids[0]}",
    "answered": lambda e: f"{e.who} was answered question {e.ids[0]} by {e.topic}",
    "handled": lambda e: f"actor {e.who} handled question {e.ids[0]}",
    "tell": lambda e: f"{e.who} tells {e.topic} statement {e.ids[0]}",
    "told": lambda e: f"{e.who} was told that {e.topic} has accepted statement {e.ids[0]}",
    "begins": lambda e: f"a life of actor {e.who} begins",
    "done": lambda e: f"actor {e.who} is done with message {e.ids[0]}",
    "replied": lambda e: f"actor {e.who} answers question {e.ids[0]}",
    "written": lambda e: f"actor {e.who} was told that what message {e.ids[0]} asked for is written",
    "journal read": lambda e: f"actor {e.who} finds {len(e.ids)} events in its journal",
    "finds": lambda e: f"actor {e.who} begins with a message, and has {len(e.ids)} events",
    "stopping": lambda e: f"actor {e.who} stops",
    "stopped": lambda e: f"actor {e.who} has stopped",
    "dead letter": lambda e: f"message {e.ids[0]} to {e.who} is a dead letter ({e.detail})",
    "owns": lambda e: f"{e.who or 'nobody'} owns {e.place} in {e.group}",
    "is to own": lambda e: f"{e.who or 'somebody'} is to own {e.place} in {e.group}",
    "joined": lambda e: f"{_of_group(e)} joined",
    "call": lambda e: f"{e.who} asks to {e.detail} of {e.topic}",
    "answer": lambda e: f"{e.who} was answered about {e.topic}{f' ({e.detail})' if e.detail else ''}",
    "joining": lambda e: f"{_of_group(e)} asks to join",
    "gone": lambda e: f"{_of_group(e)} is gone{_more(e)}",
    "change": lambda e: f"{e.who} asks to {e.detail.replace('_', ' ', 1)} of {e.topic or e.group}",
    "changed": lambda e: f"{e.who} was told that {e.topic or e.group} is changed {e.detail}".rstrip(),
    "not changed": lambda e: f"{e.who} was told that {e.topic or e.group} is not changed ({e.detail})",
    "maybe changed": lambda e: f"{e.who} does not know whether {e.topic or e.group} is changed ({e.detail})",
    "topics listed": lambda e: f"{e.who} saw the topics {e.detail}",
    "groups listed": lambda e: f"{e.who} saw the groups {e.detail}",
    "settings seen": lambda e: f"{_of_group(e)} goes by the settings {e.detail}",
    "left": lambda e: f"{_of_group(e)} left{_more(e)}",
    "booted": lambda e: f"machine {e.operation} booted",
    "power cut": lambda e: f"the power of machine {e.operation} was cut{f'; {e.detail}' if e.detail else ''}",
    "killed": lambda e: f"the process on machine {e.operation} was killed",
    "closed": lambda e: f"machine {e.operation} was done",
    "note": lambda e: f"{e.who} notes: {e.detail}" if e.who else e.detail,
    "healed": lambda e: "from here on nothing fails any more",
    "fault lasts": lambda e: f"what {e.who} does ends at {e.until:.3f} s",
    "fault": lambda e: f"fault {e.who}: {e.detail}",
    "ActorRestarted": lambda e: f"actor {e.who} is restarted after {e.until:g} s ({e.detail})",
    "IncarnationCrashed": lambda e: f"actor {e.who} crashed ({e.detail})",
    "ActorStarted": lambda e: f"actor {e.who} started",
    "ActorEnded": lambda e: f"actor {e.who} ended",
    "Escalated": lambda e: f"supervisor {e.who} gave up ({e.detail})",
    "last power cut": lambda e: f"when all was done, the power was cut once more; {e.detail}",
    "looked": lambda e: f"the disk was looked at: {e.detail}",
    "starts": lambda e: f"{e.who} starts {e.detail}",
    "waits": lambda e: f"{e.who} waits{e.detail}",
    "ends": lambda e: f"{e.who} ends",
    "is cancelled": lambda e: f"{e.who} is cancelled",
    "failed": lambda e: f"{e.who} fails: {e.detail}",
    "broken": lambda e: f"{e.who} found a promise broken: {e.detail}",
    "stuck": lambda e: e.detail,
    "asks actor": lambda e: f"{e.who} asks {e.topic}: {e.detail}",
    "tells actor": lambda e: f"{e.who} tells {e.topic}: {e.detail}",
    "takes": lambda e: f"actor {e.who} takes from its mailbox: {e.detail}",
    "has the answer": lambda e: f"{e.who} has the answer of {e.topic}: {e.detail}",
    "no answer": lambda e: f"{e.who} has no answer of {e.topic}: {e.detail}",
    "persists": lambda e: f"actor {e.who} writes to its journal: {e.detail}",
    "persisted": lambda e: f"actor {e.who} was told that its journal holds: {e.detail}",
    "recovered": lambda e: (
        f"actor {e.who} found {_events(e)} in its journal{f': {e.detail}' if e.detail else ''}"
    ),
    "ActorFailed": lambda e: f"actor {e.who} stays down: it crashed too often ({e.detail})",
}
