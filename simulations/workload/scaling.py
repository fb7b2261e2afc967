"""What a generated workload is to be: exact numbers, checked. Pure; needs no Spark and no numpy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.message import from_us, parse_instant, to_us
from callboard.recordings.manifest import PARTITIONS_MAX
from callboard.simulations.workload.profile_format import EVENTS_MAX, SECOND_US, WorkloadProfile

DENOMINATOR_MAX: Final = 1_000_000
FACTOR_MAX: Final = 1_000_000_000
SKEW_PART_MAX: Final = 16
TIMES_MAX: Final = {"flash-crowd": 1_000, "retry-storm": 20}
EVENT_FIELDS: Final = {
    "flash-crowd": ("times",),
    "hot-key": ("share",),
    "retry-storm": ("times", "after"),
    "silence": (),
}
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,9})?|\d{1,9}/\d{1,9}", re.ASCII)
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?", re.ASCII)


def exact(text: str, name: str, *, least: int | Fraction = 0, is_above: bool = True) -> Fraction:
    """A number such as `10`, `0.25` or `1/3`, above `least` or not below it. Raises `InvalidArgument`."""
    found = None
    if _NUMBER.fullmatch(text):
        top, _, bottom = text.partition("/")
        found = Fraction(top) / int(bottom or 1) if int(bottom or 1) else None
    if found is None or found < least or (is_above and found == least) or found > FACTOR_MAX:
        raise InvalidArgument(
            f"{name} is {text!r:.40}, and is to be a number {'above' if is_above else 'from'} {least}"
            f"{'' if is_above else ' on'}, at most {FACTOR_MAX}, such as 10, 0.25 or 1/3."
        )
    if found.denominator > DENOMINATOR_MAX:
        raise InvalidArgument(f"{name} is {text!r:.40}: too exact. Give at most six digits after the point.")
    return found


@attrs.frozen(kw_only=True)
class Scaling:
    """How a profile is changed. Raises `InvalidArgument` for what cannot be."""

    volume: Fraction = Fraction(1)
    duration: Fraction = Fraction(1)
    keys: Fraction = Fraction(1)
    skew: Fraction = Fraction(1)
    burst: Fraction = Fraction(1)

    def __attrs_post_init__(self) -> None:
        if min(self.volume, self.duration, self.keys, self.burst) <= 0 or self.skew < 0:
            raise InvalidArgument("scale, duration, keys and burst are above 0, and skew is not below it.")
        if 1 not in (self.burst.numerator, self.burst.denominator):
            raise InvalidArgument(f"burst is {self.burst}: give a whole number, or 1/2, 1/3 and so on.")
        if max(self.skew.numerator, self.skew.denominator) > SKEW_PART_MAX:
            raise InvalidArgument(
                f"skew is {self.skew}: give a number up to {SKEW_PART_MAX}, in steps of 1/{SKEW_PART_MAX} at most."
            )

    def buckets(self, profile: WorkloadProfile) -> int:
        """How many buckets are generated."""
        return max(1, round(self.duration * len(profile.bucket_counts)))

    def unscaled_events(self, profile: WorkloadProfile) -> int:
        """How many events there are at the profile's volume."""
        whole, rest = divmod(self.buckets(profile), len(profile.bucket_counts))
        return whole * profile.events + sum(profile.bucket_counts[:rest])

    def events(self, profile: WorkloadProfile) -> int:
        """How many events are generated, before anything else happens to them. Raises `InvalidArgument`."""
        unscaled = self.unscaled_events(profile)
        if unscaled * self.volume.numerator >= 2**63 or unscaled * self.volume > EVENTS_MAX:
            raise InvalidArgument(
                f"scale {self.volume} makes too many events of {unscaled:,}. Give a smaller one, or one with fewer"
                " digits."
            )
        return unscaled * self.volume.numerator // self.volume.denominator


@attrs.frozen(kw_only=True)
class WhatIf:
    """Something that happens from `start_us` (microseconds since 1970) to before `stop_us`; see `EVENT_FIELDS`."""

    kind: str
    start_us: int
    stop_us: int
    times: int = 1
    share: Fraction = Fraction(1, 2)
    after_us: int = SECOND_US


def parse_what_if(text: str, start_us: int, stop_us: int) -> WhatIf:
    """`KIND@TIME,for=SECONDS,...` in a workload from `start_us` to `stop_us`. Raises `InvalidArgument`."""
    head, *fields = text.split(",")
    kind, at, time = head.partition("@")
    known = EVENT_FIELDS.get(kind)
    if known is None or not at:
        raise InvalidArgument(
            f"event {text!r:.80} is to be KIND@TIME,for=SECONDS with one of {', '.join(EVENT_FIELDS)}, such as"
            " 'flash-crowd@12:00,for=600,times=5'."
        )
    found: dict[str, str] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or name not in ("for", *known) or name in found:
            raise InvalidArgument(
                f"event {text!r:.80}: {field!r:.40} is no field of {kind}, or comes twice. There are"
                f" {', '.join(('for', *known))}."
            )
        found[name] = value
    if "for" not in found:
        raise InvalidArgument(f"event {text!r:.80} has no end: say for how many seconds, for=600.")
    begin_us = _instant(text, time, start_us, stop_us)
    length_us = _microseconds(found["for"], "for")
    numbers: dict[str, int] = {}
    if "times" in found:
        least = 2 if kind == "flash-crowd" else 1
        times = exact(found["times"], "times", least=least, is_above=False)
        if times.denominator != 1 or times > TIMES_MAX[kind]:
            raise InvalidArgument(
                f"times is {found['times']!r:.40}: give a whole number from {least} to {TIMES_MAX[kind]}."
            )
        numbers["times"] = int(times)
    if "after" in found:
        numbers["after_us"] = _microseconds(found["after"], "after")
    share = exact(found.get("share", "1/2"), "share")
    if share > 1:
        raise InvalidArgument(f"share is {found['share']!r:.40}: at most 1, which is all events.")
    return WhatIf(kind=kind, start_us=begin_us, stop_us=begin_us + length_us, share=share, **numbers)


def _microseconds(text: str, name: str) -> int:
    length_us = exact(text, name) * SECOND_US
    if length_us.denominator != 1:
        raise InvalidArgument(
            f"{name} is {text!r:.40}: give seconds, with at most six digits after the point."
        )
    return int(length_us)


def _instant(event: str, text: str, start_us: int, stop_us: int) -> int:
    of_day = _TIME_OF_DAY.fullmatch(text)
    begin = from_us(start_us)
    try:
        if of_day is not None:
            hour, minute, second = (int(part or 0) for part in of_day.groups())
            instant = begin.replace(hour=hour, minute=minute, second=second, microsecond=0)
            if instant < begin:
                instant += timedelta(days=1)
        else:
            instant = parse_instant(text)
    except ValueError:
        raise InvalidArgument(
            f"event {event!r:.80}: {text!r:.40} is no time such as 12:00 or 2026-11-21T12:00:00+00:00."
        ) from None
    found = to_us(instant)
    if not start_us <= found < stop_us:
        raise InvalidArgument(
            f"event {event!r:.80}: {instant.isoformat()} lies outside of the workload, which is from"
            f" {begin.isoformat()} to {from_us(stop_us).isoformat()}."
        )
    return found


def check_parts(profiles: Sequence[WorkloadProfile], partitions: int) -> None:
    """Raise `InvalidArgument` unless something can be generated."""
    if not profiles or not all(profile.events for profile in profiles):
        raise InvalidArgument("a profile without events says nothing of what to generate. Name another.")
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"{partitions} partitions: a recording has 1 to {PARTITIONS_MAX}.")


def powered(weights: Sequence[int], exponent: Fraction) -> list[int]:
    """Weights to the power of `exponent`, as whole numbers in one proportion; exponent 1 leaves them as they are."""
    if exponent == 1:
        return list(weights)
    shift = 32 * exponent.denominator
    return [max(_root((weight**exponent.numerator) << shift, exponent.denominator), 1) for weight in weights]


def _root(number: int, degree: int) -> int:
    """The whole part of a root, by Newton's method."""
    if degree == 1 or number < 2:
        return number
    guess = 1 << -(-number.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + number // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess
        guess = better
