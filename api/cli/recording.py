"""`callboard recording` and `callboard record`: make recordings, look into them, cut and merge them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import click

from callboard.cli import exits
from callboard.cli.answers import CommandAnswer, answering
from callboard.cli.command_line import CommandGroup
from callboard.cli.interruption import run
from callboard.cli.messages import record_to_json
from callboard.cli.options import bytes_of, directory_option, json_option
from callboard.cli.output import counted, facts, say, size_text, to_json
from callboard.cli.places import Place, offset_of, parse_start, zoned
from callboard.cli.streams import write_out
from callboard.log.errors import InvalidArgument, RecordingInvalid
from callboard.message import Record, from_us, to_us
from callboard.offline import OfflineDirectory, files_below, folder_and_name, is_ours, recording_at
from callboard.recordings.copying import (
    HeaderFilter,
    KeyFilter,
    Merged,
    Picked,
    Privacy,
    RecordFilter,
    check_alike,
)
from callboard.recordings.manifest import Manifest
from callboard.recordings.reader import LogBatches, RecordedBatches, Recording, Span
from callboard.recordings.writer import RecordingWriter, new_recording

HEAD_RECORDS: Final = 10

from_option = click.option(
    "--from", "start", default=None, help="Records from this instant on (ISO 8601, UTC without a zone)."
)
to_option = click.option(
    "--to", "stop", default=None, help="Records before this instant (ISO 8601, UTC without a zone)."
)
key_option = click.option(
    "--key", "keys", multiple=True, help="Only keys that match this pattern, such as 'user-*'."
)
header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=PATTERN",
    help="Only records with such a header, such as 'type=order*'.",
)
out_option = click.option("--out", required=True, help="The recording to make; nothing may have that name.")


# -- one recording -----------------------------------------------------------------------------------------------------


@click.group(cls=CommandGroup)
def recording() -> None:
    """Look into recordings; cut and merge them."""


def summary(path: str, manifest: Manifest) -> dict[str, Any]:
    """What `info --json` prints."""
    first, last = manifest.first_time_us, manifest.last_time_us
    return {
        "recording": path,
        "id": manifest.digest,
        "records": manifest.records,
        "payload_bytes": manifest.payload_bytes,
        "partitions": len(manifest.partitions),
        "segments": sum(len(row.segments) for row in manifest.partitions),
        "size_bytes": sum(segment.size_bytes for row in manifest.partitions for segment in row.segments),
        "keys": manifest.keys[0],
        "keys_are_exact": manifest.keys[1],
        "first_time": None if first is None else from_us(first).isoformat(),
        "last_time": None if last is None else from_us(last).isoformat(),
        "span_s": None if first is None or last is None else (last - first) / 1e6,
        "is_ordered": all(row.is_ordered for row in manifest.partitions),
        "source": dict(manifest.source),
    }


@recording.command()
@click.argument("path", metavar="RECORDING")
@answering
def info(path: str) -> CommandAnswer:
    """Show what a recording holds, by its manifest."""

    found = summary(path, run(partial(_manifest, path)))
    return CommandAnswer(found, [facts(_facts(found))])


async def _manifest(path: str) -> Manifest:
    async with recording_at(path) as opened:
        return opened.manifest


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from ((f"{name}: {key}", str(text)) for key, text in value.items())
        elif name.endswith("bytes") and type(value) is int:
            yield name, f"{value:,} ({size_text(value)})"
        else:
            yield name, f"{value:,}" if type(value) in (int, float) else str(value)


@recording.command()
@click.argument("path", metavar="RECORDING")
@answering
def verify(path: str) -> CommandAnswer:
    """Check every stored byte of a recording against its manifest. Exit code 4: something is wrong."""

    async def work() -> list[str]:
        try:
            async with recording_at(path) as opened:
                return [str(fault) for fault in await opened.faults()]
        except RecordingInvalid as fault:
            return [str(fault)]

    faults = run(work)
    return CommandAnswer(
        {"recording": path, "is_sound": not faults, "faults": faults},
        faults or [f"{path} is sound"],
        code=exits.DAMAGED if faults else exits.OK,
    )


@recording.command()
@click.argument("path", metavar="RECORDING")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--max", "limit", type=click.IntRange(1, 100_000), default=HEAD_RECORDS, show_default=True)
@json_option
def head(path: str, partition: int, limit: int, as_json: bool) -> None:
    """Print the first records of a partition."""

    async def work() -> None:
        left = limit
        async with recording_at(path) as opened, aclosing(await opened.read(partition)) as batches:
            async for columns in batches:
                records = [Record(path, partition, columns, at) for at in range(min(left, columns.count))]
                lines = [
                    to_json(record_to_json(record)).encode() if as_json else record.value or b""
                    for record in records
                ]
                await write_out(b"".join(line + b"\n" for line in lines))
                left -= len(records)
                if not left:
                    return

    run(work)


# -- from recordings to recordings -------------------------------------------------------------------------------------


def parse_span(start: str | None, stop: str | None) -> Span:
    """The span between two instants, each perhaps left out."""
    bounds: list[int | None] = []
    for text in (start, stop):
        try:
            bounds.append(None if text is None else to_us(zoned(text)))
        except ValueError:
            words = f"{text!r:.40} is no instant such as 2026-11-21T12:00:00+00:00. Nothing was done."
            raise InvalidArgument(words) from None
    return Span(*bounds)


@recording.command()
@click.argument("path", metavar="RECORDING")
@out_option
@from_option
@to_option
@key_option
@header_option
@answering
def cut(
    path: str,
    out: str,
    start: str | None,
    stop: str | None,
    keys: tuple[str, ...],
    headers: tuple[str, ...],
) -> CommandAnswer:
    """Copy a part of a recording. It lies in a span of time, or has certain keys or headers."""
    span, filters = parse_span(start, stop), _filters(keys, headers)
    is_whole = span.is_open and not filters

    async def work() -> int:
        async with recording_at(path) as opened:
            manifest = opened.manifest
            source = dict(manifest.source) | {"cut_from": manifest.digest}
            async with made_at(out, len(manifest.partitions), source) as writer:
                for index in range(len(manifest.partitions)):
                    whole = await opened.read(index, span=span)
                    async with aclosing(whole if is_whole else _picked(whole, filters)) as batches:
                        async for columns in batches:
                            await writer.append(index, columns)
                return writer.records

    return _made(out, f"{out} holds {counted(run(work), 'record')}")


def _made(out: str, words: str, **more: object) -> CommandAnswer:
    """The answer for a recording that was made; as JSON, what `info` prints of it, and `more`."""
    return CommandAnswer(summary(out, run(partial(_manifest, out))) | more, said=[words])


def _filters(keys: tuple[str, ...], headers: tuple[str, ...]) -> list[RecordFilter]:
    """A record is copied that every one of them keeps."""
    found: list[RecordFilter] = []
    if keys:
        found.append(KeyFilter(keys))
    if headers:
        found.append(HeaderFilter(headers))
    return found


def _picked(batches: RecordedBatches, filters: Sequence[RecordFilter]) -> RecordedBatches:
    """What all filters keep, in batches of one size."""
    for chosen in filters or (None,):
        batches = Picked(batches, chosen)
    return batches


@recording.command()
@click.argument("paths", metavar="RECORDING...", nargs=-1, required=True)
@out_option
@answering
def merge(paths: tuple[str, ...], out: str) -> CommandAnswer:
    """Merge recordings with equal numbers of partitions. Each partition is merged by time."""

    async def work(opened: Sequence[Recording] = ()) -> int:
        if len(opened) < len(paths):
            async with recording_at(paths[len(opened)]) as following:
                return await work([*opened, following])
        partitions = check_alike(opened)
        source = {"merged_from": " ".join(each.manifest.digest for each in opened)}
        topics = {each.manifest.source.get("topic") for each in opened}
        if len(topics) == 1 and (topic := topics.pop()) is not None:
            source["topic"] = topic
        async with made_at(out, partitions, source) as writer:
            for index in range(partitions):
                merged = Merged([await each.read(index) for each in opened])
                async with aclosing(merged) as batches:
                    async for columns in batches:
                        await writer.append(index, columns)
            return writer.records

    return _made(out, f"{out} holds {counted(run(work), 'record')} of {counted(len(paths), 'recording')}")


@asynccontextmanager
async def made_at(out: str, partitions: int, source: dict[str, str]) -> AsyncIterator[RecordingWriter]:
    """A new recording at `out`."""
    folder, name = folder_and_name(out)
    if is_ours(folder):
        raise InvalidArgument(
            f"{folder} is a recording or a runtime's directory, and {name} would be a stranger there. Nothing was"
            " written. Choose another place."
        )
    async with files_below(folder, writable=True) as files:
        async with new_recording(files, name, partitions=partitions, source=source) as writer:
            yield writer


# -- from a topic ------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("directory_argument", metavar="[DIR]", required=False)
@click.option("--topic", required=True, help="The topic to copy.")
@out_option
@click.option(
    "--from",
    "start",
    default="beginning",
    help="beginning, end, an offset, or an instant (ISO 8601, UTC without a zone).",
)
@click.option(
    "--to", "stop", default="end", help="end, an offset, or an instant (ISO 8601, UTC without a zone)."
)
@key_option
@header_option
@click.option("--hash-keys", "salt", default=None, help="Replace keys by hashes; the salt keeps them secret.")
@click.option("--scrub-payloads", is_flag=True, help="Replace values, and those of headers, by zeros.")
@directory_option
@answering
def record(
    directory_argument: str | None,
    topic: str,
    out: str,
    start: str,
    stop: str,
    keys: tuple[str, ...],
    headers: tuple[str, ...],
    salt: str | None,
    scrub_payloads: bool,
    directory: str,
) -> CommandAnswer:
    """Copy a topic into a recording. Another process may have the directory open, and is not disturbed.

    An instant is compared with the time at which the log took a record.
    """
    if salt == "":
        raise InvalidArgument(
            "--hash-keys needs a salt: any text that others do not know. Nothing was written."
        )
    privacy = Privacy(salt=None if salt is None else bytes_of(salt), scrub_payloads=scrub_payloads)
    chosen = _filters(keys, headers)
    places = parse_start(start), parse_start(stop)
    _check_order(*places)
    records, lost = run(
        partial(_record, directory_argument or directory, topic, out, places, chosen, privacy)
    )
    for words in lost:
        say(f"nothing can be read at these offsets, and the recording lacks them: {words}")
    return _made(out, f"{out} holds {counted(records, 'record')} of topic {topic}", lost=lost)


def _check_order(begin: Place, end: Place) -> None:
    """Raise `InvalidArgument` when nothing can lie between the two places."""
    is_inverted = (
        (isinstance(begin, int) and isinstance(end, int) and begin >= end)
        or (isinstance(begin, datetime) and isinstance(end, datetime) and begin >= end)
        or begin == "end"
        or end == "beginning"
    )
    if is_inverted:
        raise InvalidArgument(
            f"nothing lies from {begin} to {end}. Nothing was written. Give --to a later place than --from."
        )


async def _record(
    directory: str,
    topic_name: str,
    out: str,
    places: tuple[Place, Place],
    chosen: Sequence[RecordFilter],
    privacy: Privacy,
) -> tuple[int, list[str]]:
    """How many records were copied, and where some cannot be read."""
    async with OfflineDirectory(directory) as offline:
        topic = await offline.topic(topic_name)
        lost: list[str] = []
        source = {"topic": topic_name}
        async with made_at(out, topic.settings.partitions, source) as writer:
            for index in range(topic.settings.partitions):
                reader = await offline.reader(topic, index)
                begin, end = [min(await offset_of(reader, place), reader.visible_end) for place in places]

                def note(first: int, last: int, index: int = index) -> None:
                    lost.append(f"{topic_name}/{index}: {first} to {last}")

                whole = LogBatches(
                    reader, max(begin, reader.start_offset), end, note, now_us=offline.clock.wall_us()
                )
                async with aclosing(_picked(whole, chosen) if chosen else whole) as batches:
                    async for columns in batches:
                        await writer.append(index, privacy.hide(columns))
            if lost:
                writer.source["lost"] = "; ".join(lost[:20])
    return writer.records, lost
