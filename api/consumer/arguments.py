"""Arguments of what a consumer is asked for, checked: delays, reasons, seconds, sizes of batches.

Each raises `InvalidArgument` before anything is done.
"""

from __future__ import annotations

import math
from typing import Final

from callboard.log import plain
from callboard.log.errors import InvalidArgument
from callboard.log.plain import shown

SECONDS_MAX: Final = 1_000_000_000
BATCH_MAX: Final = 100_000
REASON_CHARACTERS: Final = 200
"""Of an exception, in the reason of a nack."""


def check_nack(
    delay: object, reason: object, *, delay_name: str = "delay"
) -> tuple[float | None, str | None]:
    """A nack's delay and reason, as plain data. Raises `InvalidArgument`."""
    seconds = None if delay is None else check_seconds(delay_name, delay)
    if reason is not None and plain.text(reason) is None:
        raise InvalidArgument(
            f"reason is {type(reason).__name__}, not text. Nothing was changed. Give str(...) of it."
        )
    return seconds, plain.text(reason)


def check_seconds(what: str, seconds: object) -> float:
    """The seconds, as plain data. Raises `InvalidArgument` unless they are a number from 0 to `SECONDS_MAX`."""
    found = plain.number(seconds)
    if found is None or not 0 <= found <= SECONDS_MAX:
        raise InvalidArgument(
            f"{what} is {shown(seconds, 40)}, not a number of seconds from 0 to {SECONDS_MAX:,} (31 years). Nothing was"
            " changed."
        )
    return found


def patience_of(timeout: object) -> float | None:
    """How long to wait, as plain data; None, as infinity, for ever. Raises `InvalidArgument`."""
    if timeout is None or plain.number(timeout) == math.inf:
        return None
    return check_seconds("timeout", timeout)


def check_batch_size(max_records: object, max_wait: object) -> tuple[int, float]:
    """What a batch holds at most, and how long it is filled, as plain data. Raises `InvalidArgument`."""
    found = plain.whole(max_records)
    if found is None or not 1 <= found <= BATCH_MAX:
        raise InvalidArgument(
            f"max_records is {shown(max_records, 40)}, not a number from 1 to {BATCH_MAX:,}. Nothing was taken."
        )
    return found, check_seconds("max_wait", max_wait)
