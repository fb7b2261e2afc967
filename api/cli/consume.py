"""`callboard consume` and `callboard peek`: messages on standard output."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click
import trio

from callboard.cli.group import run
from callboard.cli.options import directory_option, json_option, parse_place, print_json, text_of
from callboard.control import ControlClient
from callboard.log.errors import DirectoryLocked, InvalidArgument
from callboard.log.host.disk import HostDisk
from callboard.log.limits import READ_BYTES_DEFAULT
from callboard.log.reader import LogReader
from callboard.message import Record
from callboard.runtime import open_runtime


@click.command()
@click.argument("topic")
@click.option(
    "--group", default=None, help="Consume as a member of this group, acknowledging what was printed."
)
@click.option(
    "--durable", is_flag=True, help="Keep the group afterwards; without it, the group ends with the command."
)
@click.option(
    "--from", "start", default="beginning", show_default=True, help="beginning, end, an offset or an instant."
)
@click.option("--partition", type=int, default=None, help="Only this partition (without --group).")
@click.option("--follow", "-f", is_flag=True, help="Go on when the end is reached.")
@click.option("--max", "limit", type=click.IntRange(min=1), default=None, help="Stop after so many messages.")
@directory_option
@json_option
def consume(
    topic: str,
    group: str | None,
    durable: bool,
    start: str,
    partition: int | None,
    follow: bool,
    limit: int | None,
    directory: str,
    as_json: bool,
) -> None:
    """Print messages: without a group those stored now, with one those that the group has not settled."""
    if group is None and durable:
        raise InvalidArgument("--durable needs --group.")
    if group is not None and partition is not None:
        raise InvalidArgument("--partition does not go with --group: a group reads all partitions.")
    place = parse_place(start)
    show = _show_json if as_json else _show_value

    async def read() -> None:
        left = limit
        async with open_runtime(directory, control=True) as runtime:
            async for record in runtime.topic(topic).read(place, partition=partition, follow=follow):
                show(record)
                left = None if left is None else left - 1
                if left == 0:
                    break

    async def lease() -> None:
        left = limit
        async with open_runtime(directory, control=True) as runtime:
            consumer = runtime.topic(topic).subscribe(group or "", durable=durable, start=place)
            async with consumer:
                while left is None or left > 0:
                    message = await consumer.get(timeout=None if follow else 0.2)
                    if message is None:
                        break
                    show(message)
                    await message.ack(wait=False)
                    left = None if left is None else left - 1

    run(read if group is None else lease)


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--from", "start", default="beginning", show_default=True, help="beginning, end, an offset or an instant."
)
@click.option("--max", "limit", type=click.IntRange(1, 100_000), default=10, show_default=True)
@directory_option
@json_option
def peek(topic: str, partition: int, start: str, limit: int, directory: str, as_json: bool) -> None:
    """Look at messages without disturbing anybody, also while another process has the directory open."""
    place = parse_place(start)
    show = _show_json if as_json else _show_value

    async def work() -> None:
        try:
            async with open_runtime(directory) as runtime:
                left = limit
                async for record in runtime.topic(topic).read(place, partition=partition):
                    show(record)
                    left -= 1
                    if left == 0:
                        return
        except DirectoryLocked:
            found = await ControlClient(directory).request("describe", topic=topic)
            if partition >= len(found["partitions"]):
                raise InvalidArgument(f"topic {topic!r} has no partition {partition}.") from None
            await _peek_beside(directory, found["topic_id"], topic, partition, place, limit, show)

    run(work)


async def _peek_beside(
    directory: str,
    topic_id: str,
    topic: str,
    partition: int,
    place: Any,
    limit: int,
    show: Callable[[Record], object],
) -> None:
    """Read the files beside the process that writes them, never past its committed mark."""
    disk = HostDisk(directory)
    try:
        files = await disk.incarnate("peek")
        reader = await LogReader.open(files, f"topics/{topic_id}/{partition}")
        offset = await _resolved(reader.offset_at, reader.start_offset, reader.visible_end, place)
        while limit > 0 and offset < reader.visible_end:
            reading = await reader.read(offset, max_records=limit, max_bytes=READ_BYTES_DEFAULT)
            for columns in reading.batches:
                for index in range(columns.count):
                    show(Record(topic, partition, columns, index))
                limit -= columns.count
            if reading.next_offset <= offset:
                break
            offset = reading.next_offset
    finally:
        with trio.CancelScope(shield=True):
            await disk.aclose()


async def _resolved(offset_at: Callable[[int], Awaitable[int]], start: int, end: int, place: Any) -> int:
    if place == "beginning":
        return start
    if place == "end":
        return end
    if isinstance(place, int):
        return max(place, start)
    return await offset_at(round(place.timestamp() * 1e6))


def _show_value(record: Record) -> None:
    sys.stdout.buffer.write(record.value + b"\n")
    sys.stdout.buffer.flush()


def _show_json(record: Record) -> None:
    print_json(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": None if record.key is None else text_of(record.key),
            "value": text_of(record.value),
            "headers": {name: text_of(value) for name, value in record.headers.items()},
            "timestamp": record.timestamp.isoformat(),
            "append_time": record.append_time.isoformat(),
            **({"attempt": record.attempt} if hasattr(record, "attempt") else {}),
        }
    )
