"""Dead letters on the control socket, where all that is given is text.

Ask for much in parts, with a `limit`: a request is answered within `REQUEST_TIMEOUT_S`, or not at all. What
is redriven may fail again while other parts are asked for, and more may come: `below` holds where the partitions ended
before the first part, as `ends_of_dead` says, with spaces between. What lies from there on is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import attrs

from callboard.actors.partition.commands import PartitionStatistics
from callboard.dead_letters.forwarded import ForwardedLetter
from callboard.dead_letters.kept import DeadLetter, KeptLetters
from callboard.dead_letters.topics import DeadLetterTopic, count_by_group, letters_below
from callboard.dead_letters.topics import ends_of as ends_of
from callboard.log.errors import InvalidArgument
from callboard.message import ATTRIBUTES, Record
from callboard.reports.figures import GroupInfo

PLACE: Final = re.compile(r"([^/@]+)/([0-9]{1,9})@([0-9]{1,18})")
LISTED: Final = 100


class KeepsLetters(Protocol):
    """A topic, for what its partitions keep of its groups."""

    async def describe(self) -> Sequence[PartitionStatistics]:
        """Every partition with its groups."""

    def dead_letters(self, group: str) -> KeptLetters:
        """What the partitions keep of a group."""


@attrs.frozen
class LetterChoice:
    """Which dead letters are meant: in `topic`, of this group, from this topic, with this text in the reason, from one
    of these places (`orders/0@17`, with spaces between). Empty means any.
    """

    NAMES: ClassVar = ("topic", "group", "origin", "reason", "at")

    topic: str
    group: str
    origin: str
    reason: str
    at: str = ""

    def chooses(self) -> Callable[[ForwardedLetter | DeadLetter], bool]:
        """What says of a dead letter whether it is meant. Raises `InvalidArgument`."""
        places = _places(self.at)

        def choose(letter: ForwardedLetter | DeadLetter) -> bool:
            return (
                self.group in ("", letter.group)
                and self.origin in ("", letter.topic)
                and self.reason in (letter.reason or "")
                and (not places or (letter.topic, letter.partition, letter.offset) in places)
            )

        return choose


def _places(text: str) -> frozenset[tuple[str, int, int]]:
    found = set()
    for word in text.split():
        place = PLACE.fullmatch(word)
        if place is None:
            raise InvalidArgument(
                f"{word!r:.80} is no place of a message. Nothing was done. Say orders/0@17, as `callboard dead-letters"
                " list` prints it."
            )
        found.add((place[1], int(place[2]), int(place[3])))
    return frozenset(found)


# -- what was forwarded to a topic


async def list_forwarded(letters: DeadLetterTopic, choice: LetterChoice, limit: str) -> list[dict[str, Any]]:
    """The chosen letters."""
    most = whole_number(limit, "limit") or LISTED
    return [_plain_forwarded(each) for each in await letters.list(choice.chooses(), limit=most)]


async def count_forwarded(
    letters: DeadLetterTopic, choice: LetterChoice, *, full: bool
) -> list[dict[str, Any]]:
    """How many are chosen, by group and reason."""
    counts = await count_by_group(letters, choice.chooses(), full=full)
    return [{"group": group, "reason": reason, "messages": messages} for group, reason, messages in counts]


def letters_in(letters: DeadLetterTopic, below: str) -> DeadLetterTopic:
    """The letters below these ends of partitions; all, if none are given."""
    ends = [whole_number(end, "below") or 0 for end in below.split()]
    return letters_below(letters, ends) if ends else letters


# -- what the partitions of a topic keep


async def list_kept(
    topic: KeepsLetters, groups: Sequence[GroupInfo], choice: LetterChoice, limit: str
) -> list[dict[str, Any]]:
    """The chosen letters, by group."""
    choose, left = choice.chooses(), whole_number(limit, "limit") or LISTED
    rows = await _keeping_groups(topic, groups, choice.group)
    for row in rows:
        listed = await topic.dead_letters(row["group"]).list(choose, limit=left) if left else ()
        left -= len(listed)
        row["letters"] = [_plain_kept(letter) for letter in listed]
    return rows


async def count_kept(
    topic: KeepsLetters, groups: Sequence[GroupInfo], choice: LetterChoice, *, full: bool
) -> list[dict[str, Any]]:
    """How many are chosen, by group and reason."""
    choose = choice.chooses()
    rows = await _keeping_groups(topic, groups, choice.group)
    for row in rows:
        counts = await topic.dead_letters(row["group"]).count(choose, full=full)
        row["reasons"] = [{"reason": reason, "messages": messages} for reason, messages in counts.items()]
    return rows


async def _keeping_groups(
    topic: KeepsLetters, groups: Sequence[GroupInfo], wanted: str
) -> list[dict[str, Any]]:
    """The groups that a partition keeps dead letters of, or the one that is wanted, and how many."""
    counts: Counter[int] = Counter()
    for partition in await topic.describe():
        for state in partition.groups:
            counts[state.group_id] += state.dead
    return [
        {
            "group": each.name,
            "messages": counts[each.group_id],
            "dead_letter_topic": each.settings.dead_letter_topic,
        }
        for each in groups
        if counts[each.group_id] and wanted in ("", each.name)
    ]


# -- arguments and results


def whole_number(text: str, what: str) -> int | None:
    """A number of messages; None for an empty text. Raises `InvalidArgument`."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"{what} is {text!r:.40}, not a number of messages. Nothing was done.")
    return int(text)


def parse_rate(text: str) -> float | None:
    """Messages a second; None for an empty text. Raises `InvalidArgument`."""
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidArgument(f"rate is {text!r:.40}, not messages a second. Nothing was done.") from None


def _plain_forwarded(letter: ForwardedLetter) -> dict[str, Any]:
    return _plain_letter(letter, letter.consumer_name, letter.record, is_lost=letter.is_lost)


def _plain_kept(letter: DeadLetter) -> dict[str, Any]:
    number = None if letter.consumer_id is None else str(letter.consumer_id)
    return _plain_letter(letter, letter.consumer_name or number, letter.record, is_lost=letter.record is None)


def _plain_letter(
    letter: ForwardedLetter | DeadLetter, consumer: str | None, record: Record | None, *, is_lost: bool
) -> dict[str, Any]:
    first = letter.first_failed_at
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "group": letter.group,
        "attempts": letter.attempts,
        "first_failed_at": None if first is None else first.isoformat(),
        "failed_at": letter.failed_at.isoformat(),
        "consumer": consumer,
        "consumers": list(letter.consumers),
        "reason": letter.reason,
        "is_lost": is_lost,
        "is_forwarded": isinstance(letter, ForwardedLetter),
        "message": None if record is None else _plain_message(record),
    }


def _plain_message(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "value": record.value,
    }
    for attribute in ATTRIBUTES:
        item = getattr(record, attribute.name)
        if item is not None or not attribute.is_rare:
            found[attribute.name] = dict(item) if attribute.kind == "headers" and item is not None else item
    return found | {"append_time": record.append_time}
