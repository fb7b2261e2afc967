"""What the control socket does with topics of dead letters: requests as text, results as maps and lists.

Ask for much in parts, with a `limit`: a request is answered within `REQUEST_TIMEOUT_S`, or not at all. What
is redriven may fail again while other parts are asked for, and more may come: `below` holds where the partitions ended
before the first part, as `ends_of_dead` says, with spaces between. What lies from there on is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from callboard.actors.partition.commands import PartitionStatistics
from callboard.dead_letters.kept import DeadLetter, KeptLetters
from callboard.dead_letters.topics import (
    DeadLetterTopic,
    ForwardedLetter,
    count_by_group,
    ends_of,
    letters_below,
)
from callboard.log.errors import InvalidArgument
from callboard.message import ATTRIBUTES, Record
from callboard.reports.figures import GroupInfo

CHOICE: Final = ["topic", "group", "origin", "reason", "at"]
VERBS: Final[dict[str, list[str]]] = {
    "list_dead": [*CHOICE, "limit"],
    "count_dead": [*CHOICE, "full"],
    "ends_of_dead": ["topic"],
    "redrive_dead": [*CHOICE, "to", "limit", "rate", "dry_run", "below"],
    "purge_dead": [*CHOICE, "limit", "below"],
}
"""Each with its arguments."""
KEPT_VERBS: Final[dict[str, list[str]]] = {
    "list_kept": [*CHOICE, "limit"],
    "count_kept": [*CHOICE, "full"],
}
"""The same about what the partitions of a topic keep."""
OPTIONAL: Final = ["at", "full", "below"]
"""Arguments that a request may leave out."""
PLACE: Final = re.compile(r"([^/@]+)/([0-9]{1,9})@([0-9]{1,18})")
LISTED: Final = 100


class KeepsLetters(Protocol):
    """A topic, for what its partitions keep of its groups."""

    async def describe(self) -> Sequence[PartitionStatistics]:
        """Every partition with its groups."""

    def dead_letters(self, group: str) -> KeptLetters:
        """What the partitions keep of a group."""


def chooses(group: str, origin: str, reason: str, at: str) -> Callable[[ForwardedLetter | DeadLetter], bool]:
    """Which dead letters are meant: of this group, from this topic, with this text in the reason, from one of these
    places (`orders/0@17`, with spaces between); "" is any. Raises `InvalidArgument`.
    """
    places = _places(at)

    def choose(letter: ForwardedLetter | DeadLetter) -> bool:
        return (
            group in ("", letter.group)
            and origin in ("", letter.topic)
            and reason in (letter.reason or "")
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


async def answer_kept(
    topic: KeepsLetters,
    groups: Sequence[GroupInfo],
    verb: str,
    *,
    group: str = "",
    origin: str = "",
    reason: str = "",
    at: str = "",
    limit: str = "",
    full: str = "",
) -> Any:
    """What one of `KEPT_VERBS` results in: of each group that a partition keeps dead letters of, how many, and those
    that are chosen, or how many of them there are by reason.
    """
    choose, left = chooses(group, origin, reason, at), _whole(limit, "limit") or LISTED
    counts: Counter[int] = Counter()
    for partition in await topic.describe():
        for state in partition.groups:
            counts[state.group_id] += state.dead
    found = []
    for each in groups:
        if not counts[each.group_id] or group not in ("", each.name):
            continue
        told: dict[str, Any] = {
            "group": each.name,
            "messages": counts[each.group_id],
            "dead_letter_topic": each.settings.dead_letter_topic,
        }
        letters = topic.dead_letters(each.name)
        if verb == "count_kept":
            told["reasons"] = _counts(await letters.count(choose, full=full == "yes"))
        else:
            listed = await letters.list(choose, limit=left) if left else ()
            left -= len(listed)
            told["letters"] = [_kept_letter(letter) for letter in listed]
        found.append(told)
    return found


def _counts(counts: dict[str | None, int]) -> list[dict[str, Any]]:
    return [{"reason": why, "messages": messages} for why, messages in counts.items()]


async def answer_dead_letters(
    letters: DeadLetterTopic,
    verb: str,
    *,
    group: str = "",
    origin: str = "",
    reason: str = "",
    at: str = "",
    full: str = "",
    to: str = "",
    limit: str = "",
    rate: str = "",
    dry_run: str = "",
    below: str = "",
) -> Any:
    """What one of `VERBS` results in. Raises what `DeadLetterTopic` raises, and `InvalidArgument`."""
    choose, most = chooses(group, origin, reason, at), _whole(limit, "limit")
    if below:
        letters = letters_below(letters, [_whole(end, "below") or 0 for end in below.split()])
    match verb:
        case "ends_of_dead":
            return await ends_of(letters)
        case "list_dead":
            return [_letter(each) for each in await letters.list(choose, limit=most or LISTED)]
        case "count_dead":
            found = await count_by_group(letters, choose, full=full == "yes")
            return [{"group": of, "reason": why, "messages": messages} for of, why, messages in found]
        case "purge_dead":
            return await letters.purge(choose, limit=most)
    done = await letters.redrive(
        choose, to=to or None, limit=most, rate=_number(rate), dry_run=dry_run == "yes"
    )
    return {"messages": done.messages, "passed_over": done.passed_over}


def _whole(text: str, what: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"{what} is {text!r:.40}, not a number of messages. Nothing was done.")
    return int(text)


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidArgument(f"rate is {text!r:.40}, not messages a second. Nothing was done.") from None


def _letter(letter: ForwardedLetter) -> dict[str, Any]:
    return _told(letter, letter.consumer_name, letter.record, is_lost=letter.is_lost)


def _kept_letter(letter: DeadLetter) -> dict[str, Any]:
    number = None if letter.consumer_id is None else str(letter.consumer_id)
    return _told(letter, letter.consumer_name or number, letter.record, is_lost=letter.record is None)


def _told(
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
        "message": None if record is None else _message(record),
    }


def _message(record: Record) -> dict[str, Any]:
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
