"""What `.option(...)` asks of a read, checked before anything is planned. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.message import parse_instant, to_us
from callboard.recordings.reader import Span
from callboard.spark.arrow import FIELDS, TIMES, arrow_schema
from callboard.spark.partition_logs import WantedRecords
from callboard.spark.slices import Division

OPTIONS: Final = frozenset(
    {"path", "topic", "columns", "partitions", "startOffset", "endOffset", "from", "to", "appendedFrom"}
    | {"appendedTo", "mode", "report", "failOnDataLoss", "timestampType", "pushdown", "minPartitions"}
    | {"maxRecordsPerPartition"}
)
STREAM_OPTIONS: Final = frozenset(
    {"path", "topic", "columns", "partitions", "startOffset", "appendedFrom", "mode", "report"}
    | {"failOnDataLoss", "timestampType", "maxRecordsPerTrigger", "minPartitions", "maxRecordsPerPartition"}
)
SCHEMA_OPTIONS: Final = frozenset({"columns", "timestampType"})
"""What the types of a frame depend on."""
BEGINNING: Final = 0
END: Final = -1
"""As `start_offset` of a stream: what comes from now on."""


class Options:
    """Spark's options by name; the case of names does not matter. Raises `InvalidArgument` for what is not `known`."""

    def __init__(self, options: Mapping[str, str], known: frozenset[str]) -> None:
        self._found = {name.lower(): value for name, value in options.items()}
        unknown = sorted(self._found.keys() - {name.lower() for name in known})
        if unknown:
            raise InvalidArgument(
                f"there is no option {unknown[0]!r} here. There are {', '.join(sorted(known))}."
            )

    def text(self, name: str) -> str | None:
        """As it is; None when it is not given."""
        return self._found.get(name.lower())

    def number(self, name: str) -> int | None:
        """A whole number from 0 on."""
        text = self.text(name)
        return None if text is None else _number(name, text)

    def span(self, start: str, stop: str) -> Span:
        """Between two instants in ISO 8601, each perhaps not given; UTC unless they say otherwise."""
        return Span(self._instant(start), self._instant(stop))

    def _instant(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return to_us(parse_instant(text))
        except ValueError:
            raise InvalidArgument(
                f"option {name}: {text!r:.40} is no instant such as 2026-11-21T12:00:00+00:00."
            ) from None

    def path(self) -> str:
        """The recording or the directory."""
        path = self.text("path")
        if not path:
            raise InvalidArgument(
                "name the recording, or the runtime's directory: .load(path). If this is a table of the catalog:"
                " Spark up to 4.3 forgets the options of a table whose source is in Python, its path too. Drop it,"
                " and make a view: CREATE TEMPORARY VIEW name USING callboard OPTIONS (path '...', topic '...')."
            )
        return path.removeprefix("file://")

    def names(self) -> tuple[str, ...]:
        """The columns wanted; all when none is named."""
        text = self.text("columns")
        found = tuple(FIELDS) if text is None else tuple(name.strip() for name in text.split(","))
        for name in found:
            if found.count(name) > 1:
                raise InvalidArgument(f"option columns names {name!r:.40} twice. Name each column once.")
        arrow_schema(found)
        return found

    def partitions(self) -> frozenset[int] | None:
        """The partitions wanted; None is all."""
        text = self.text("partitions")
        return None if text is None else frozenset(_number("partitions", each) for each in text.split(","))

    def instants(self) -> frozenset[str]:
        """The columns that are instants: none, or all times."""
        kind = self.text("timestampType") or "bigint"
        if kind not in ("bigint", "timestamp"):
            raise InvalidArgument(f"timestampType is {kind!r:.40}: it is bigint (the default) or timestamp.")
        return TIMES if kind == "timestamp" else frozenset()

    def division(self) -> Division:
        """How many tasks read."""
        found = {name: self.number(name) for name in ("maxRecordsPerPartition", "minPartitions")}
        for name, number in found.items():
            if number == 0:
                raise InvalidArgument(f"{name} is 0, and nothing would be read. Give a number from 1.")
        return Division(found["maxRecordsPerPartition"], found["minPartitions"] or 1)

    def losses(self) -> Losses:
        """What may be passed over. A report is needed for it, and makes no sense without it."""
        mode, report = self.text("mode") or "strict", self.text("report")
        if mode not in ("strict", "permissive"):
            raise InvalidArgument(f"mode is {mode!r:.40}: it is strict (the default) or permissive.")
        fails = (self.text("failOnDataLoss") or ("false" if mode == "permissive" else "true")).lower()
        if fails not in ("true", "false"):
            raise InvalidArgument(f"failOnDataLoss is {fails!r:.40}: it is true (the default) or false.")
        found = Losses(mode == "permissive", fails == "false", report)
        if (report is not None) != (found.passes_damage or found.passes_removed):
            raise InvalidArgument(
                "mode permissive passes over what is damaged, failOnDataLoss=false over what retention removed, and"
                " both name it in files: give a folder for them, .option('report', ...). In mode strict, which fails"
                " when records are lost, there is no report."
            )
        return found


@attrs.frozen
class Losses:
    """What a read passes over, and where it names that."""

    passes_damage: bool
    passes_removed: bool
    """Whether it passes over what retention removed."""
    report: str | None
    """The folder in which each task names what it passed over; None: losses fail the read."""


def _number(name: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal() and len(text) < 20):
        raise InvalidArgument(f"option {name}: {text!r:.40} is no number from 0 on.")
    return int(text)


@attrs.frozen(kw_only=True)
class ReadOptions:
    """A batch read."""

    wanted: WantedRecords
    names: tuple[str, ...]
    instants: frozenset[str] = frozenset()
    """Which of the columns are instants, not numbers."""
    losses: Losses = Losses(False, False, None)
    division: Division = Division()

    @classmethod
    def of(cls, given: Options, wanted: WantedRecords) -> ReadOptions:
        """Of the records that are wanted, the columns and the rest that options say."""
        return cls(
            wanted=wanted,
            names=given.names(),
            instants=given.instants(),
            losses=given.losses(),
            division=given.division(),
        )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """From Spark's options. Raises `InvalidArgument`."""
        given = Options(options, OPTIONS)
        if given.text("pushdown") is not None:
            raise InvalidArgument(
                "option pushdown: Spark up to 4.3 keeps the filters of the first query of a DataFrame for its later"
                " ones, which would miss rows. Name partitions, startOffset, endOffset, appendedFrom or appendedTo"
                " as options."
            )
        start, stop = given.number("startOffset") or 0, given.number("endOffset")
        if stop is not None and stop <= start:
            raise InvalidArgument(
                f"endOffset {stop} is not above startOffset {start}: nothing lies between them."
            )
        wanted = WantedRecords(
            path=given.path(),
            topic=given.text("topic"),
            partitions=given.partitions(),
            start_offset=start,
            stop_offset=stop,
            span=given.span("from", "to"),
            appended=given.span("appendedFrom", "appendedTo"),
        )
        return cls.of(given, wanted)


@attrs.frozen(kw_only=True)
class StreamOptions:
    """A stream's reads. `reads` is what each of them wants, but for the offsets."""

    reads: ReadOptions
    start_offset: int = BEGINNING
    """Of a new query, in every partition that `starts` does not name; `END` is what comes from now on."""
    starts: Mapping[int, int] = {}
    """The same by partition."""
    appended_from_us: int | None = None
    """Where a new query begins, by the time at which the log took the records."""
    records_max: int | None = None
    """In one micro-batch."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """From Spark's options. Raises `InvalidArgument`."""
        given = Options(options, STREAM_OPTIONS)
        place, begin_us = given.text("startOffset"), given.span("appendedFrom", "").from_us
        if place is not None and begin_us is not None:
            raise InvalidArgument(
                "startOffset and appendedFrom both say where a query begins. Give one of them."
            )
        is_by_partition = place is not None and place.lstrip().startswith("{")
        starts = _starts(place) if place is not None and is_by_partition else {}
        start = BEGINNING if place is None or is_by_partition else _start(place)
        records_max = given.number("maxRecordsPerTrigger")
        if records_max == 0:
            raise InvalidArgument(
                "maxRecordsPerTrigger is 0, and the stream would stand still. Give a number from 1."
            )
        wanted = WantedRecords(path=given.path(), topic=given.text("topic"), partitions=given.partitions())
        return cls(
            reads=ReadOptions.of(given, wanted),
            start_offset=start,
            starts=starts,
            appended_from_us=begin_us,
            records_max=records_max,
        )


_PLACES: Final = {"beginning": BEGINNING, "end": END}


def _start(place: str) -> int:
    return _PLACES[place] if place in _PLACES else _number("startOffset", place)


def _starts(text: str) -> dict[int, int]:
    """By partition, from JSON such as `{"0": 17, "1": "end"}`."""
    try:
        found = json.loads(text)
        return {_number("startOffset", partition): _start(str(place)) for partition, place in found.items()}
    except (ValueError, RecursionError):
        raise InvalidArgument(
            f'option startOffset: {text!r:.60} is no JSON object such as {{"0": 17, "1": "end"}}.'
        ) from None
