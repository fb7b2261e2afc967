"""`callboard topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import Any

import attrs
import click
from rich.table import Table

from callboard.actors.names import check_name
from callboard.actors.settings import TOPIC_FIELDS, check, topic_settings
from callboard.cli.group import run
from callboard.cli.inspect import ask_runtime
from callboard.cli.offline import OfflineDirectory, find_topic
from callboard.cli.options import directory_option, json_option, parse_settings
from callboard.cli.output import print_json, say, show
from callboard.cli.streams import is_interactive, require_directory
from callboard.log.errors import InvalidArgument
from callboard.runtime import open_runtime


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics.

    Settings are name=value, with the same names as in Python: partitions=4 retention_age=3600.
    """


@topic.command()
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[SETTING=VALUE]...")
@directory_option
@json_option
def create(name: str, settings: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Create a topic, or do nothing when it exists with these settings."""
    check_name(name, "topic")
    given = parse_settings(settings)
    topic_settings(given, f"topic {name!r}")

    async def work() -> dict[str, Any]:
        async with open_runtime(directory) as runtime:
            made = await runtime.create_topic(name, **given)
        return attrs.asdict(made.settings)

    report_settings("topic", name, run(work), as_json, "is there")


@topic.command()
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@directory_option
@json_option
def alter(name: str, settings: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Change settings of a topic (all except `partitions`)."""
    given = parse_settings(settings)
    check("topic", TOPIC_FIELDS, given, f"topic {name!r}")
    require_directory(directory)

    async def work() -> dict[str, Any]:
        async with open_runtime(directory) as runtime:
            find_topic(runtime, name)
            altered = await runtime.alter_topic(name, **given)
        return attrs.asdict(altered.settings)

    report_settings("topic", name, run(work), as_json, "is altered")


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@directory_option
@json_option
def delete(name: str, yes: bool, directory: str, as_json: bool) -> None:
    """Delete a topic with all its messages."""
    require_directory(directory)
    if not yes:
        if not is_interactive():
            raise InvalidArgument("nobody is there to be asked: say --yes. Nothing was deleted.")
        if not click.confirm(f"Delete topic {name!r} in {directory} with all its messages?", err=True):
            raise click.ClickException("Nothing was deleted.")

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            find_topic(runtime, name)
            await runtime.delete_topic(name)

    run(work)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        show(f"topic {name} is deleted")


@topic.command("list")
@directory_option
@json_option
def list_topics(directory: str, as_json: bool) -> None:
    """List topics with their sizes, also while another process has the directory open."""

    async def work() -> list[dict[str, Any]]:
        async with OfflineDirectory(directory) as offline:
            found = []
            for record in await offline.topics():
                records = size_bytes = 0
                for index in range(record.settings.partitions):
                    reader = await offline.reader(record, index)
                    records += reader.visible_end - reader.start_offset
                    size_bytes += await offline.file_bytes(record, index)
                numbers = {
                    "partitions": record.settings.partitions,
                    "records": records,
                    "file_bytes": size_bytes,
                }
                found.append({"name": record.name, **numbers})
            return found

    topics = run(work)
    if as_json:
        print_json(topics)
        return
    table = Table("topic", "partitions", "records", "bytes of files")
    for found in topics:
        numbers = (found["partitions"], found["records"], found["file_bytes"])
        table.add_row(found["name"], *(f"{number:,}" for number in numbers))
    if topics:
        show(table)
    else:
        say("no topics")


@topic.command()
@click.argument("name")
@directory_option
@json_option
def describe(name: str, directory: str, as_json: bool) -> None:
    """Show a topic's settings, partitions and groups."""
    found, statistics = ask_runtime(directory, {"verb": "describe", "topic": name}, {"verb": "stats"})
    found["groups"] = [group for group in statistics["groups"] if name in group["topics"]]
    if as_json:
        print_json(found)
        return
    _show_topic(found)


def _show_topic(found: dict[str, Any]) -> None:
    name = found["name"]
    show(f"{name}: " + "  ".join(f"{k}={v}" for k, v in found["settings"].items()))
    names = {group["group_id"]: group["name"] for group in found["groups"]}
    table = Table(
        "partition", "state", "start", "end", "synced to", "bytes", "segments", "groups (floor, pending)"
    )
    keys = ("start_offset", "visible_end", "durable_end", "size_bytes", "segments")
    for partition in found["partitions"]:
        groups = ", ".join(
            f"{names.get(g['group_id'], g['group_id'])} ({g['floor']:,}, {g['pending']:,})"
            for g in partition["groups"]
        )
        numbers = (f"{partition[key]:,}" for key in keys)
        table.add_row(str(partition["partition"]), partition["state"], *numbers, groups or "-")
    show(table)
    for partition in found["partitions"]:
        for problem in (*partition["damages"], *partition["gaps"]):
            show(f"{name}/{partition['partition']}: {problem}")


def report_settings(kind: str, name: str, settings: dict[str, Any], as_json: bool, what: str) -> None:
    """Say what became of a topic or group, with its settings."""
    if as_json:
        print_json({"name": name, "settings": settings})
    else:
        show(f"{kind} {name} {what}: " + "  ".join(f"{key}={value}" for key, value in settings.items()))
