"""What `.option(...)` asks of a read, checked before anything is planned. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.message import parse_instant, to_us
from callboard.recordings.reader import Span
from callboard.spark.arrow import FIELDS, arrow_schema
from callboard.spark.slices import Wanted

OPTIONS: Final = frozenset(
    {"path", "topic", "columns", "partitions", "startOffset", "endOffset", "from", "to", "appendedFrom"}
    | {"appendedTo", "mode", "report", "pushdown"}
)
STREAM_OPTIONS: Final = frozenset(
    {"path", "topic", "columns", "partitions", "startOffset", "mode", "report", "maxRecordsPerTrigger"}
)
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
            raise InvalidArgument("name the recording, or the runtime's directory: .load(path).")
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

    def report(self) -> str | None:
        """The folder for reports of damage: named if, and only if, the mode is permissive."""
        mode, report = self.text("mode") or "strict", self.text("report")
        if mode not in ("strict", "permissive"):
            raise InvalidArgument(f"mode is {mode!r:.40}: it is strict (the default) or permissive.")
        if (report is not None) != (mode == "permissive"):
            raise InvalidArgument(
                "mode permissive passes over what is damaged, and names it in files: give it a folder for them,"
                " .option('report', ...); in mode strict there is no report."
            )
        return report


def _number(name: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal() and len(text) < 20):
        raise InvalidArgument(f"option {name}: {text!r:.40} is no number from 0 on.")
    return int(text)


@attrs.frozen(kw_only=True)
class ReadOptions:
    """A batch read."""

    wanted: Wanted
    names: tuple[str, ...]
    report: str | None = None
    """In permissive mode: the folder in which each task names what it could not read."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """From Spark's options. Raises `InvalidArgument`."""
        found = Options(options, OPTIONS)
        if found.text("pushdown") is not None:
            raise InvalidArgument(
                "option pushdown: Spark up to 4.3 keeps the filters of the first query of a DataFrame for its later"
                " ones, which would miss rows. Name partitions, startOffset, endOffset, appendedFrom or appendedTo"
                " as options."
            )
        start, stop = found.number("startOffset") or 0, found.number("endOffset")
        if stop is not None and stop <= start:
            raise InvalidArgument(
                f"endOffset {stop} is not above startOffset {start}: nothing lies between them."
            )
        return cls(
            wanted=Wanted(
                path=found.path(),
                topic=found.text("topic"),
                partitions=found.partitions(),
                start_offset=start,
                stop_offset=stop,
                span=found.span("from", "to"),
                appended=found.span("appendedFrom", "appendedTo"),
            ),
            names=found.names(),
            report=found.report(),
        )


@attrs.frozen(kw_only=True)
class StreamOptions:
    """A stream's reads. `reads` is what each of them wants, but for the offsets."""

    reads: ReadOptions
    start_offset: int = BEGINNING
    """Of a new query, in every partition; `END` is what comes from now on."""
    records_max: int | None = None
    """In one micro-batch."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """From Spark's options. Raises `InvalidArgument`."""
        found = Options(options, STREAM_OPTIONS)
        places = {"beginning": BEGINNING, "end": END}
        place = found.text("startOffset") or "beginning"
        start = places[place] if place in places else found.number("startOffset") or 0
        records_max = found.number("maxRecordsPerTrigger")
        if records_max == 0:
            raise InvalidArgument(
                "maxRecordsPerTrigger is 0, and the stream would stand still. Give a number from 1."
            )
        reads = ReadOptions(
            wanted=Wanted(path=found.path(), topic=found.text("topic"), partitions=found.partitions()),
            names=found.names(),
            report=found.report(),
        )
        return cls(reads=reads, start_offset=start, records_max=records_max)
