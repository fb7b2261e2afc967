"""A profile: the character of a recording as integers, in one small JSON file. Pure.

Rates, skew, sizes and burstiness, and no name, key or value. All numbers are exact counts, so one recording gives one
file, byte for byte, however the work was divided. A *histogram* is a list of pairs `[what, how many]`, in ascending
order of `what`, `how many` at least 1.

    format, version   "callboard-profile", 1
    events            records in the recording
    start_us          time of the first record, microseconds since 1970 (0 when there is none)
    span_us           time of the last record minus that of the first
    time_step_us      1000000, 1000 or 1: the largest that divides all times (the resolution of the clock)
    bucket_us         length of a bucket, whole seconds; bucket 0 begins at `start_us`
    bucket_counts     events in each bucket, span_us // bucket_us + 1 of them
    sub_buckets       for each bucket a histogram: [events in one second, seconds of the bucket that have so many];
                      seconds begin at `start_us`, and those without events are left out
    burst             the histogram of all seconds that have events: the sum of `sub_buckets`
    week_hours        histogram: [hour of the week, events in it]; hour 0 begins on Monday at 00:00 UTC. Empty in a
                      profile that an earlier version wrote
    arrival_log2_us   histogram of the times between neighbours, by class: [class, pairs of neighbours]
    key_top           events of the most frequent keys, descending, at most 2,000
    key_tail          {"keys", "events"}: all other keys
    keyless           events without a key
    key_bytes         histogram: [length of a key, distinct keys]
    gap_log2_us       histogram of the times between neighbours with one key, by class
    session_idle_us   a key's session ends when nothing follows for longer than this
    session_events    histogram: [class of the number of events, sessions]
    session_log2_us   histogram: [class of the time from a session's first event to its last, sessions]
    value_bin_bytes   16
    value_bytes       histogram: [length // value_bin_bytes, events]
    value_total_bytes sum of the lengths of all values
    value_sizes       histogram: [length, events] of the most frequent lengths, at most 4,096. Absent in a profile that
                      an earlier version wrote, and empty where it was not asked for
    partitions        partitions of the recording
    recording         digest of the recording (64 hexadecimal digits), or null
    dependence        what joins events: see `dependence`. Absent in a profile that an earlier version wrote
    values            what values look like, as `value_model` describes it. Absent in a profile that an earlier version
                      wrote, of a recording without records, and where it was not asked for

The class of a number is its length in bits (`log2_class`): 0 holds 0, and class c holds 2**(c-1) up to 2**c - 1.

Invariants, checked whenever a profile is made:

P1. `bucket_counts`, `burst` (what x how many), `value_bytes`, `week_hours` (where it is known) and keys (`key_top`,
    `key_tail`, `keyless`) each sum up to `events`.
P2. Each entry of `sub_buckets` sums up to its bucket's count; all entries together are `burst`.
P3. There are events - 1 arrivals, and as many gaps as events with a key minus distinct keys.
P4. `key_bytes` sums up to the distinct keys; both session histograms count the same sessions.
P5. `span_us` lies in the last bucket; nothing is longer than the span.
P6. `dependence` sums up to the same buckets, keys and sizes.
P7. `value_sizes` has no more events in a bin than `value_bytes`; the others can have the bytes that are left.

Fields that this version does not know are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import attrs

from callboard.log.errors import FormatTooNew, InvalidArgument, join_problems
from callboard.message import TIME_US_MAX as TIME_US_MAX
from callboard.simulations.workload.dependence import Dependence, contradictions, read_dependence
from callboard.simulations.workload.value_model import ValueModel, read_model

FORMAT: Final = "callboard-profile"
VERSION: Final = 1

PROFILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger file is refused before it is parsed."""
BUCKETS_MAX: Final = 100_000
PAIRS_MAX: Final = 1_000_000
"""Pairs of one histogram, and of all `sub_buckets` together."""
KEY_TOP_MAX: Final = 2_000
VALUE_SIZES_MAX: Final = 4_096
EVENTS_MAX: Final = 2**53 - 1
TIME_US_MIN: Final = -(2**62)
LOG2_CLASS_MAX: Final = 64
KEY_BYTES_MAX: Final = 64 * 1024
VALUE_BYTES_MAX: Final = 64 * 1024 * 1024
PARTITIONS_MAX: Final = 10_000

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * SECOND_US
WEEK_HOURS: Final = 168
EPOCH_WEEK_HOUR: Final = 72
"""1970 began on a Thursday."""
VALUE_BIN_BYTES: Final = 16
SESSION_IDLE_US: Final = 1_800 * SECOND_US
TIME_STEPS_US: Final = (1_000_000, 1_000, 1)

_SHOWN_MAX: Final = 8
_DIGEST = re.compile(r"[0-9a-f]{64}")

Histogram = tuple[tuple[int, int], ...]


def log2_class(number: int) -> int:
    """The class of a number from 0 on: 0 for 0, else c such that 2**(c-1) <= number < 2**c."""
    return number.bit_length()


@attrs.frozen
class KeyTail:
    """All keys that are not among the most frequent."""

    keys: int
    events: int


@attrs.frozen(kw_only=True)
class WorkloadProfile:
    """The character of a recording; for the fields see the module. Raises `ConfigurationError` if they contradict."""

    events: int
    start_us: int
    span_us: int
    time_step_us: int
    bucket_us: int
    bucket_counts: tuple[int, ...]
    sub_buckets: tuple[Histogram, ...]
    burst: Histogram
    arrival_log2_us: Histogram
    key_top: tuple[int, ...]
    key_tail: KeyTail
    keyless: int
    key_bytes: Histogram
    gap_log2_us: Histogram
    session_idle_us: int
    session_events: Histogram
    session_log2_us: Histogram
    value_bin_bytes: int
    value_bytes: Histogram
    value_total_bytes: int
    partitions: int
    recording: str | None = None
    week_hours: Histogram = ()
    value_sizes: Histogram = ()
    dependence: Dependence | None = None
    values: ValueModel | None = None
    others: Mapping[str, Any] = attrs.field(factory=dict)
    """Fields of the file that this version does not know."""

    def __attrs_post_init__(self) -> None:
        problems = _contradictions(self)
        if problems:
            raise _refused(problems)

    @property
    def distinct_keys(self) -> int:
        """How many different keys there are."""
        return len(self.key_top) + self.key_tail.keys

    def to_json(self) -> str:
        """The text of the file: one line per field, sorted by name, a newline at the end."""
        fields = attrs.asdict(self)
        if self.dependence is None:
            del fields["dependence"]
        if self.values is None:
            del fields["values"]
        document = {**fields.pop("others"), **fields, "format": FORMAT, "version": VERSION}
        lines = [f"{json.dumps(name)}: {_compact(document[name])}" for name in sorted(document)]
        return "{\n" + ",\n".join(lines) + "\n}\n"


def profile_from_json(text: str | bytes) -> WorkloadProfile:
    """The inverse of `to_json`, for untrusted text.

    Raises `FormatTooNew` for a later version, and `ConfigurationError` (an `InvalidArgument`), whose `problems` name
    all that is wrong, for anything else that is no profile.
    """
    if len(text) > PROFILE_BYTES_MAX:
        raise InvalidArgument(
            f"This is no profile: it is larger than {PROFILE_BYTES_MAX} bytes. Name a file that"
            " `callboard workload profile` wrote."
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"This is no profile, because it is not JSON: {str(error)[:120]}. Name a file that"
            " `callboard workload profile` wrote."
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidArgument(
            f"This is no profile: its `format` is not {FORMAT!r}. Name a file that"
            " `callboard workload profile` wrote."
        )
    version = document.get("version")
    if _is_count(version) and version > VERSION:
        raise FormatTooNew(
            f"The profile has version {version}, and this Callboard reads up to {VERSION}. Upgrade Callboard.",
            found=version,
            supported=VERSION,
        )
    if version != VERSION or not _is_count(version):
        raise InvalidArgument(f"The profile has no version that exists: {version!r:.40}. Measure it again.")
    return _read_fields(document)


def _read_fields(document: dict[str, Any]) -> WorkloadProfile:
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, read in _READERS.items():
        if name not in document:
            if name in _OPTIONAL:
                continue
            problems.append(f"{name} is missing")
            continue
        try:
            values[name] = read(document[name])
        except ValueError as error:
            problems.append(f"{name} {error}")
    if problems:
        raise _refused(problems)
    known = {*_READERS, "format", "version"}
    return WorkloadProfile(
        **values, others={name: value for name, value in document.items() if name not in known}
    )


def _refused(problems: list[str]) -> InvalidArgument:
    shown = problems[:_SHOWN_MAX]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return join_problems("The profile contradicts its format", shown)


# -- reading one field: the value, or ValueError with the end of a sentence that begins with the field's name


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not _is_count(value) or not least <= value <= most:
            raise ValueError(f"is not a whole number from {least} to {most}")
        return int(value)

    return read


def _counts(least: int, most: int, length_max: int) -> Callable[[Any], tuple[int, ...]]:
    one = _count(least, most)

    def read(value: Any) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > length_max:
            raise ValueError(f"is not a list of at most {length_max} numbers")
        return tuple(map(one, value))

    return read


def _histogram(least: int, most: int, pairs_max: int = PAIRS_MAX) -> Callable[[Any], Histogram]:
    what = _count(least, most)
    many = _count(1, EVENTS_MAX)

    def read(value: Any) -> Histogram:
        if not isinstance(value, (list, tuple)) or len(value) > pairs_max:
            raise ValueError(f"is not a list of at most {pairs_max} pairs")
        pairs = []
        for pair in value:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise ValueError("holds something that is not a pair")
            pairs.append((what(pair[0]), many(pair[1])))
            if len(pairs) > 1 and pairs[-2][0] >= pairs[-1][0]:
                raise ValueError("is not in ascending order")
        return tuple(pairs)

    return read


def _histograms(value: Any) -> tuple[Histogram, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > BUCKETS_MAX:
        raise ValueError(f"is not a list of at most {BUCKETS_MAX} histograms")
    one = _histogram(1, EVENTS_MAX)
    found, pairs = [], 0
    for histogram in value:
        found.append(one(histogram))
        pairs += len(found[-1])
        if pairs > PAIRS_MAX:
            raise ValueError(f"has more than {PAIRS_MAX} pairs")
    return tuple(found)


def _tail(value: Any) -> KeyTail:
    if not isinstance(value, dict) or set(value) != {"keys", "events"}:
        raise ValueError("is not an object of `keys` and `events`")
    one = _count(0, EVENTS_MAX)
    return KeyTail(one(value["keys"]), one(value["events"]))


def _step(value: Any) -> int:
    if not _is_count(value) or value not in TIME_STEPS_US:
        raise ValueError(f"is none of {', '.join(map(str, TIME_STEPS_US))}")
    return int(value)


def _digest(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and _DIGEST.fullmatch(value)):
        raise ValueError("is neither null nor a digest of 64 hexadecimal digits")
    return value


_EVENTS = _count(0, EVENTS_MAX)
_CLASSES = _histogram(0, LOG2_CLASS_MAX)
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "events": _EVENTS,
    "start_us": _count(TIME_US_MIN, TIME_US_MAX),
    "span_us": _count(0, TIME_US_MAX),
    "time_step_us": _step,
    "bucket_us": _count(SECOND_US, TIME_US_MAX),
    "bucket_counts": _counts(0, EVENTS_MAX, BUCKETS_MAX),
    "sub_buckets": _histograms,
    "burst": _histogram(1, EVENTS_MAX),
    "arrival_log2_us": _CLASSES,
    "key_top": _counts(1, EVENTS_MAX, KEY_TOP_MAX),
    "key_tail": _tail,
    "keyless": _EVENTS,
    "key_bytes": _histogram(0, KEY_BYTES_MAX),
    "gap_log2_us": _CLASSES,
    "session_idle_us": _count(1, TIME_US_MAX),
    "session_events": _histogram(1, LOG2_CLASS_MAX),
    "session_log2_us": _CLASSES,
    "value_bin_bytes": _count(1, VALUE_BYTES_MAX),
    "value_bytes": _histogram(0, VALUE_BYTES_MAX),
    "value_total_bytes": _count(0, EVENTS_MAX),
    "partitions": _count(1, PARTITIONS_MAX),
    "recording": _digest,
    "week_hours": _histogram(0, WEEK_HOURS - 1),
    "value_sizes": _histogram(0, VALUE_BYTES_MAX * VALUE_BIN_BYTES, VALUE_SIZES_MAX),
    "dependence": read_dependence,
    "values": read_model,
}
_OPTIONAL: Final = frozenset({"week_hours", "value_sizes", "dependence", "values"})


# -- the invariants


def _contradictions(profile: WorkloadProfile) -> list[str]:
    events = profile.events
    keyed = sum(profile.key_top) + profile.key_tail.events
    buckets = profile.span_us // profile.bucket_us + 1 if events else 0
    longest = log2_class(profile.span_us)
    checks = {
        "bucket_us is not whole seconds": profile.bucket_us % SECOND_US == 0,
        "without events, start_us and span_us are 0": events > 0 or profile.start_us == profile.span_us == 0,
        "the last event lies beyond the year 9999": profile.start_us + profile.span_us <= TIME_US_MAX,
        f"there are {len(profile.bucket_counts)} buckets where the span makes {buckets}": (
            len(profile.bucket_counts) == buckets
        ),
        "bucket_counts do not sum up to events": sum(profile.bucket_counts) == events,
        "the first or the last bucket is empty": (
            not profile.bucket_counts or (profile.bucket_counts[0] > 0 and profile.bucket_counts[-1] > 0)
        ),
        "sub_buckets are not what bucket_counts say": (
            profile.bucket_counts == tuple(map(weighted_sum, profile.sub_buckets))
        ),
        "a bucket has more seconds in sub_buckets than in bucket_us": all(
            total(histogram) <= profile.bucket_us // SECOND_US for histogram in profile.sub_buckets
        ),
        "burst is not the sum of sub_buckets": profile.burst == merged(profile.sub_buckets),
        "arrival_log2_us does not hold events - 1 pairs": total(profile.arrival_log2_us)
        == max(events - 1, 0),
        "key_top, key_tail and keyless do not sum up to events": keyed + profile.keyless == events,
        "key_top is not in descending order": all(
            one >= two for one, two in zip(profile.key_top, profile.key_top[1:], strict=False)
        ),
        "key_tail holds fewer events than keys": profile.key_tail.events >= profile.key_tail.keys,
        "key_tail holds more frequent keys than key_top": _is_rarer(profile.key_tail, profile.key_top),
        "key_bytes do not sum up to the keys": total(profile.key_bytes) == profile.distinct_keys,
        "gap_log2_us does not hold an event's gap for each but the first of a key": (
            total(profile.gap_log2_us) == keyed - profile.distinct_keys
        ),
        "session_events and session_log2_us count different sessions": (
            total(profile.session_events) == total(profile.session_log2_us)
        ),
        "there are fewer sessions than keys, or more than events": (
            profile.distinct_keys <= total(profile.session_events) <= keyed
        ),
        "a gap, an arrival or a session is longer than the span": all(
            not classes or classes[-1][0] <= longest
            for classes in (profile.arrival_log2_us, profile.gap_log2_us, profile.session_log2_us)
        ),
        "week_hours do not sum up to events": total(profile.week_hours) in (0, events),
        "value_bytes do not sum up to events": total(profile.value_bytes) == events,
        "value_total_bytes is not possible with value_bytes": _is_possible(
            profile.value_bytes, profile.value_bin_bytes, profile.value_total_bytes
        ),
        "value_sizes has more events of a size than value_bytes, or others cannot have the bytes left": (
            _is_possible(*other_sizes(profile))
        ),
    }
    problems = [problem for problem, holds in checks.items() if not holds]
    if profile.dependence is None or problems:
        return problems
    return contradictions(
        profile.dependence,
        bucket_us=profile.bucket_us,
        bucket_counts=profile.bucket_counts,
        key_top=profile.key_top,
        keys=profile.distinct_keys,
        keyless=profile.keyless,
        value_bytes=profile.value_bytes,
    )


def _is_rarer(tail: KeyTail, top: Sequence[int]) -> bool:
    return not top or tail.events <= tail.keys * top[-1]


def _is_possible(bins: Histogram, bin_bytes: int, total_bytes: int) -> bool:
    least = weighted_sum(bins) * bin_bytes
    return all(many > 0 for _, many in bins) and least <= total_bytes <= least + total(bins) * (bin_bytes - 1)


def other_sizes(profile: WorkloadProfile) -> tuple[Histogram, int, int]:
    """Of values whose sizes `value_sizes` does not have: their bins, the length of one, and their bytes together."""
    many = dict(profile.value_bytes)
    for size, events in profile.value_sizes:
        what = size // profile.value_bin_bytes
        many[what] = many.get(what, 0) - events
    bins = tuple((what, left) for what, left in sorted(many.items()) if left)
    return bins, profile.value_bin_bytes, profile.value_total_bytes - weighted_sum(profile.value_sizes)


def total(histogram: Histogram) -> int:
    """How many there are of all."""
    return sum(many for _, many in histogram)


def weighted_sum(histogram: Histogram) -> int:
    """The sum of what x how many."""
    return sum(what * many for what, many in histogram)


def merged(histograms: Sequence[Histogram]) -> Histogram:
    """The sum of several histograms."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for what, many in histogram:
            counts[what] = counts.get(what, 0) + many
    return tuple(sorted(counts.items()))


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
