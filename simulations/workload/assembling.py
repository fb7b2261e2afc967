"""Puts an analysis together from what Spark counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import attrs

from callboard.message import from_us as instant_of
from callboard.simulations.workload.analysis import (
    FATES,
    Analysis,
    Counted,
    Deliveries,
    JournalRead,
    Latency,
)
from callboard.simulations.workload.analysis_plan import AnalysedPartition, AnalysisPlan
from callboard.simulations.workload.delivery_history import Opening

_Part = tuple[list[Opening], int, list[Counted]]
"""A group in one partition: its openings, from when on its lag is known, and its counts."""


def known_since(place: AnalysedPartition, opening: Opening, log: tuple[int, int, int] | None) -> int:
    """From when on the lag is known: what was published and dropped before has no time any more."""
    if place.log_start == 0 or log is None:
        return opening.since_us
    return max(opening.since_us, log[1])


def assemble(
    plan: AnalysisPlan,
    journals: Mapping[int, JournalRead],
    logs: Mapping[int, tuple[int, int, int]],
    counted: Sequence[Counted],
    from_us: int,
    to_us: int,
    bucket_us: int,
) -> Analysis:
    """The analysis. `logs` has records, first and last append time by place, where there are records."""
    span = _Span(from_us, to_us, bucket_us)
    by_group: dict[tuple[int, int], list[Opening]] = {}
    for index, read in journals.items():
        for opening in read.openings:
            if plan.takes(opening.group_id):
                by_group.setdefault((index, opening.group_id), []).append(opening)
    rows: dict[tuple[int, int], list[Counted]] = {}
    for row in counted:
        rows.setdefault(row.key[:2], []).append(row)
    partitions: list[Deliveries] = []
    together: dict[tuple[str, str], list[_Part]] = {}
    for (index, group_id), openings in sorted(by_group.items()):
        place, name = plan.places[index], plan.name_of(group_id)
        theirs = rows.get((index, group_id), [])
        since_us = known_since(place, openings[0], logs.get(index))
        part = (openings, since_us, theirs)
        partitions.append(_deliveries(place.topic, place.partition, name, [part], span))
        together.setdefault((place.topic, name), []).append(part)
    return Analysis(
        directory=plan.directory,
        from_us=from_us,
        to_us=to_us,
        bucket_us=bucket_us,
        journals=tuple(
            _journal(place, journals[place.index], logs.get(place.index)) for place in plan.places
        ),
        topics=tuple(
            _deliveries(topic, None, name, parts, span) for (topic, name), parts in sorted(together.items())
        ),
        partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.group, each.partition))),
        notes=tuple(_notes(plan, journals)),
    )


@attrs.frozen
class _Span:
    from_us: int
    to_us: int
    bucket_us: int

    @property
    def count(self) -> int:
        return (self.to_us - self.from_us) // self.bucket_us + 1

    def bucket(self, time_us: int) -> int:
        return (time_us - self.from_us) // self.bucket_us

    def series(self, rows: Sequence[Counted], name: str) -> list[int]:
        """How many there are of that name in each bucket."""
        found = [0] * self.count
        for row in rows:
            if row.name == name and row.bucket is not None:
                found[row.bucket] += row.many
        return found

    def lag(self, part: _Part) -> list[int | None]:
        """Published and not settled at the end of each bucket; None outside of what is known."""
        openings, since_us, rows = part
        entered, left = (accumulate(self.series(rows, name)) for name in ("entered", "left"))
        found: list[int | None] = [one - two for one, two in zip(entered, left, strict=True)]
        first = max(self.bucket(since_us), 0)
        found[:first] = [0 if openings[0].is_whole else None] * min(first, self.count)
        return found


def _deliveries(
    topic: str, partition: int | None, group: str, parts: Sequence[_Part], span: _Span
) -> Deliveries:
    openings = [opening for part in parts for opening in part[0]]
    rows = [row for part in parts for row in part[2]]
    counts: dict[str, int] = {}
    for opening in openings:
        for name, many in opening.counts.items():
            counts[name] = counts.get(name, 0) + many
    fates = dict.fromkeys(FATES.values(), 0)
    for row in rows:
        if row.name == "fate" and row.what is not None:
            fates[FATES[row.what]] += row.many
    lags = [span.lag(part) for part in parts]
    by_bucket: dict[int, list[Counted]] = {}
    for row in rows:
        if row.name == "latency" and row.bucket is not None:
            by_bucket.setdefault(row.bucket, []).append(row)
    return Deliveries(
        topic=topic,
        partition=partition,
        group=group,
        since_us=max(since_us for _, since_us, _ in parts),
        is_whole=all(of_group[0].is_whole for of_group, _, _ in parts),
        fates=fates,
        deliveries=sum(row.many * (row.what or 0) for row in rows if row.name == "deliveries"),
        attempts=_histogram(rows, "attempts"),
        counts=counts,
        backwards=sum(row.many for row in rows if row.name == "backwards"),
        latency=_latency(rows, "latency"),
        wait=_latency(rows, "wait"),
        published=tuple(span.series(rows, "published")),
        settled=tuple(span.series(rows, "settled")),
        lag=tuple(None if None in each else sum(filter(None, each)) for each in zip(*lags, strict=True)),
        latency_by_bucket=tuple(_latency(by_bucket.get(each, []), "latency") for each in range(span.count)),
    )


def _histogram(rows: Sequence[Counted], name: str) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for row in rows:
        if row.name == name and row.what is not None:
            found[row.what] = found.get(row.what, 0) + row.many
    return tuple(sorted(found.items()))


def _latency(rows: Sequence[Counted], name: str) -> Latency | None:
    bins = _histogram(rows, name)
    if not bins:
        return None
    mine = [row for row in rows if row.name == name]
    count = sum(many for _, many in bins)
    mean_us, most_us = sum(row.sum_us for row in mine) // count, max(row.most_us for row in mine)
    return Latency(count=count, mean_us=mean_us, most_us=most_us, bins=bins)


def _journal(place: AnalysedPartition, read: JournalRead, log: tuple[int, int, int] | None) -> dict[str, Any]:
    records, first_us, last_us = log or (0, None, None)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "log_start": place.log_start,
        "log_end": place.log_end,
        "records": records,
        "first_append_us": first_us,
        "last_append_us": last_us,
        "journal_from_us": read.first_us,
        "journal_to_us": read.last_us,
        "is_whole": _is_whole(place),
        "lost": read.lost,
    }


def _is_whole(place: AnalysedPartition) -> bool:
    return not place.journal.bases or place.journal.bases[0] == 0


def _notes(plan: AnalysisPlan, journals: Mapping[int, JournalRead]) -> list[str]:
    """What cannot be said, for people."""
    notes = [
        f"The catalog cannot be read whole: {note}. Topics or groups may be missing." for note in plan.notes
    ]
    for place in plan.places:
        read = journals[place.index]
        found = []
        if not read.openings:
            found.append("No group was ever there, as far as the journal reaches back.")
        if read.first_us is not None and not _is_whole(place):
            since = instant_of(read.first_us).isoformat(sep=" ", timespec="seconds")
            found.append(
                f"The journal reaches back to {since}; when earlier records were settled is not known."
            )
        if place.log_start:
            found.append(
                f"The log begins at offset {place.log_start:,}; what lay before was removed by retention."
            )
        for first, last in read.lost:
            found.append(
                f"The journal's records {first:,} to {last:,} cannot be read; what they settled has no time."
            )
        notes += [f"{place.journal.label}: {note}" for note in found]
    return notes
