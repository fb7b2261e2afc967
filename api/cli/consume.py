"""`callboard consume` and `callboard peek`: messages on standard output.

Without a group this process only reads the files, and another process may have the directory open. With a group it
opens the directory and acknowledges each message after printing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import click
import trio

from callboard.actors.names import check_name
from callboard.cli.asking import find_topic
from callboard.cli.interruption import run
from callboard.cli.messages import record_to_json
from callboard.cli.options import directory_option, json_option
from callboard.cli.output import say, to_json
from callboard.cli.places import Place, offset_of, parse_start
from callboard.cli.streams import write_out
from callboard.control.socket_file import socket_problem
from callboard.log.errors import InvalidArgument, OffsetOutOfRange, TopicNotFound
from callboard.log.offline.reader import LogReader
from callboard.message import Record
from callboard.offline import OfflineDirectory, require_directory
from callboard.runtime import open_runtime
from callboard.topic import Topic

BATCH_RECORDS: Final = 1000
POLL_S: Final = 0.1
"""How often `--follow` without a group looks for more messages."""
READERS_OPEN_MAX: Final = 64
"""Partitions whose files `--follow` keeps open between two looks."""
Show = Callable[[Sequence[Record]], bytes]
place_option = click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    help="beginning, end, an offset, or an instant (ISO 8601, UTC without a zone).",
)


@click.command()
@click.argument("topic")
@click.option(
    "--group", default=None, help="Consume as a member of this group; acknowledge printed messages."
)
@click.option("--durable", is_flag=True, help="Keep a new group; otherwise it ends with the command.")
@place_option
@click.option(
    "--partition", type=click.IntRange(min=0), default=None, help="Only this partition (without --group)."
)
@click.option("--follow", "-f", is_flag=True, help="Wait for more messages at the end.")
@click.option(
    "--max", "limit", type=click.IntRange(min=1), default=None, help="Stop after this many messages."
)
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
    """Print messages: all, or those that a group has not settled.

    Without a group, nothing is acknowledged, and another process may have the directory open. Each message's bytes are
    printed unchanged on a line; --json also prints its other attributes.

    With a group, a message is acknowledged when it is written to standard output: also when a pipe still holds it. For
    a few messages use --max, not `| head`.
    """
    if group is None and durable:
        raise InvalidArgument("--durable needs --group.")
    if group is not None and partition is not None:
        raise InvalidArgument("--partition does not go with --group: a group reads all partitions.")
    beginning = parse_start(start)
    output = Output(_as_json if as_json else _as_lines, limit)
    if group is None:
        run(PartitionReading(directory, topic, beginning, partition, output, follow=follow).run)
        return
    check_name(group, "group")
    require_directory(directory)
    new_group = {"durable": durable, "start": beginning}
    run(partial(_consume_in_group, directory, topic, group, new_group, output, follow=follow))


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@place_option
@click.option("--max", "limit", type=click.IntRange(1, 100_000), default=10, show_default=True)
@directory_option
@json_option
def peek(topic: str, partition: int, start: str, limit: int, directory: str, as_json: bool) -> None:
    """Print a few messages of one partition. Another process may have the directory open."""
    output = Output(_as_json if as_json else _as_lines, limit)
    run(PartitionReading(directory, topic, parse_start(start), partition, output, follow=False).run)


@attrs.define
class Output:
    """Messages on standard output, `left` at most (None: any number)."""

    _show: Show
    left: int | None

    @property
    def wanted(self) -> int:
        """How many messages to ask for next."""
        return BATCH_RECORDS if self.left is None else min(BATCH_RECORDS, self.left)

    async def write(self, records: Sequence[Record]) -> None:
        """Print these."""
        await write_out(self._show(records))
        if self.left is not None:
            self.left -= len(records)


@attrs.frozen
class PartitionReading:
    """Reads messages without a group, from the files."""

    _directory: str
    _topic: str
    _start: Place
    _partition: int | None
    _output: Output
    _follow: bool = attrs.field(kw_only=True)

    async def run(self) -> None:
        """Print from the start position to the end, or for ever."""
        async with OfflineDirectory(self._directory) as offline:
            topic = await offline.topic(self._topic)
            offline.check_partition(topic, self._partition)
            partitions = range(topic.settings.partitions) if self._partition is None else (self._partition,)
            positions: dict[int, tuple[LogReader, int]] = {}
            for index in partitions:
                reader = await offline.reader(topic, index)
                positions[index] = reader, await offset_of(reader, self._start)
                if isinstance(self._start, int) and self._start > reader.visible_end:
                    say(
                        f"{self._topic}/{index} ends before offset {self._start}: its next offset is"
                        f" {reader.visible_end}"
                    )
                await self._settle(reader, len(partitions))
            while self._output.left != 0:
                moved = False
                for index, (reader, offset) in positions.items():
                    reached = await self._read_to_end(index, reader, offset)
                    positions[index] = reader, reached
                    await self._settle(reader, len(partitions))
                    moved = moved or reached > offset
                if not self._follow:
                    return
                if not moved:
                    await trio.sleep(POLL_S)
                    await self._look_again([reader for reader, _ in positions.values()])

    async def _settle(self, reader: LogReader, readers: int) -> None:
        if readers > READERS_OPEN_MAX or not self._follow:
            await reader.close()

    async def _look_again(self, readers: list[LogReader]) -> None:
        """Read the `committed` files again. They are removed only with the topic."""
        ends = [reader.visible_end for reader in readers]
        for reader in readers:
            await reader.refresh()
        if any(ends) and not any(reader.visible_end for reader in readers):
            raise TopicNotFound(f"topic {self._topic!r} was deleted; there is nothing more to read.")

    async def _read_to_end(self, index: int, reader: LogReader, offset: int) -> int:
        """Print one partition from `offset` to its current end; returns that end."""
        end = reader.visible_end
        while offset < end and self._output.left != 0:
            try:
                reading = await reader.read(offset, max_records=self._output.wanted)
            except OffsetOutOfRange:
                await reader.refresh()
                if reader.start_offset <= offset:
                    raise
                say(
                    f"{self._topic}/{index}: offsets {offset} to {reader.start_offset - 1} are no longer kept"
                )
                offset = reader.start_offset
                continue
            for first, last in reading.lost:
                say(
                    f"{self._topic}/{index}: nothing can be read at offsets {first} to {last}: see `callboard verify`"
                )
            for columns in reading.batches:
                await self._output.write(
                    [Record(self._topic, index, columns, number) for number in range(columns.count)]
                )
            if reading.next_offset <= offset:
                break
            offset = reading.next_offset
        return offset


async def _consume_in_group(
    directory: str, name: str, group: str, new_group: dict[str, Any], output: Output, *, follow: bool
) -> None:
    """Print and acknowledge messages until none is ready, or for ever. An existing group keeps its settings."""
    control = follow and socket_problem(directory) is None
    async with open_runtime(directory, control=control) as runtime:
        topic = find_topic(runtime, name)
        settings = new_group
        for found in await runtime.groups():
            if found.name == group:
                settings = {}
                if name in found.topics and new_group["start"] != "beginning":
                    say(f"group {group} exists already and continues at its position; --from has no effect")
        async with topic.subscribe(group, **settings) as consumer:
            group_id = next(found.group_id for found in await runtime.groups() if found.name == group)
            if consumer.settings.paused:
                say(f"group {group} is paused: `callboard group resume {group}` has it go on")
            while output.left != 0:
                if not follow and (consumer.settings.paused or await _available(topic, group_id) == 0):
                    return
                batch = await consumer.get_batch(max_records=output.wanted, max_wait=0.0)
                await output.write(list(batch))
                await batch.ack()


async def _available(topic: Topic, group_id: int) -> int:
    """How many messages the group could lease now, with those that its only member has fetched ahead."""
    statistics = await topic.describe()
    return sum(
        group.ready + group.leased
        for partition in statistics
        for group in partition.groups
        if group.group_id == group_id
    )


def _as_lines(records: Sequence[Record]) -> bytes:
    return b"".join([(record.value or b"") + b"\n" for record in records])


def _as_json(records: Sequence[Record]) -> bytes:
    return "".join([to_json(record_to_json(record)) + "\n" for record in records]).encode()
