"""What the control socket does with topics of dead letters: requests as text, results as maps and lists.

Who asks for much asks in parts, with a `limit`: a request is answered within `REQUEST_TIMEOUT_S`, or not at all.
"""

from __future__ import annotations

from typing import Any, Final

from callboard.dead_letter_topics import Chooses, DeadLetterTopic, ForwardedLetter
from callboard.log.errors import InvalidArgument
from callboard.message import ATTRIBUTES, Record

CHOICE: Final = ["topic", "group", "origin", "reason"]
VERBS: Final[dict[str, list[str]]] = {
    "list_dead": [*CHOICE, "limit"],
    "count_dead": CHOICE,
    "redrive_dead": [*CHOICE, "to", "limit", "rate", "dry_run"],
    "purge_dead": [*CHOICE, "limit"],
}
"""Each with its arguments."""
LISTED: Final = 100


def chooses(group: str, origin: str, reason: str) -> Chooses:
    """Which dead letters are meant: of this group, from this topic, with this text in the reason; "" is any."""

    def choose(letter: ForwardedLetter) -> bool:
        return (
            group in ("", letter.group) and origin in ("", letter.topic) and reason in (letter.reason or "")
        )

    return choose


async def answer_dead_letters(
    letters: DeadLetterTopic,
    verb: str,
    *,
    group: str = "",
    origin: str = "",
    reason: str = "",
    to: str = "",
    limit: str = "",
    rate: str = "",
    dry_run: str = "",
) -> Any:
    """What one of `VERBS` results in. Raises what `DeadLetterTopic` raises, and `InvalidArgument`."""
    choose, most = chooses(group, origin, reason), _whole(limit)
    match verb:
        case "list_dead":
            return [_letter(each) for each in await letters.list(choose, limit=most or LISTED)]
        case "count_dead":
            counts = await letters.count(choose)
            return [{"reason": why, "messages": messages} for why, messages in counts.items()]
        case "purge_dead":
            return await letters.purge(choose, limit=most)
    done = await letters.redrive(
        choose, to=to or None, limit=most, rate=_number(rate), dry_run=dry_run == "yes"
    )
    return {"messages": done.messages, "passed_over": done.passed_over}


def _whole(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"limit is {text!r:.40}, not a number of messages. Nothing was done.")
    return int(text)


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidArgument(f"rate is {text!r:.40}, not messages a second. Nothing was done.") from None


def _letter(letter: ForwardedLetter) -> dict[str, Any]:
    first = letter.first_failed_at
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "group": letter.group,
        "attempts": letter.attempts,
        "first_failed_at": None if first is None else first.isoformat(),
        "failed_at": letter.failed_at.isoformat(),
        "consumer": letter.consumer,
        "consumers": list(letter.consumers),
        "reason": letter.reason,
        "is_lost": letter.is_lost,
        "message": _message(letter.record),
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
