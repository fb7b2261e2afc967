"""`callboard topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table

from callboard.cli.group import run
from callboard.cli.inspect import live_or_opened
from callboard.cli.options import directory_option, json_option, parse_settings, print_json
from callboard.control import ControlClient, plain
from callboard.runtime import Runtime, open_runtime


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics.

    Settings are given as name=value, by the same names as in Python: partitions=4 retention_age=3600.
    """


@topic.command()
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[SETTING=VALUE]...")
@directory_option
@json_option
def create(name: str, settings: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Create a topic, or do nothing when it exists with these settings."""

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            made = await runtime.create_topic(name, **parse_settings(settings))
            _report(made.name, plain(made.settings), as_json, "is there")

    run(work)


@topic.command()
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@directory_option
@json_option
def alter(name: str, settings: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Change settings of a topic (all but its partitions)."""

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            altered = await runtime.alter_topic(name, **parse_settings(settings))
            _report(altered.name, plain(altered.settings), as_json, "is altered")

    run(work)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@directory_option
def delete(name: str, yes: bool, directory: str) -> None:
    """Delete a topic with all its messages."""
    if not yes:
        click.confirm(f"Delete topic {name!r} in {directory} with all its messages?", abort=True)

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            await runtime.delete_topic(name)

    run(work)
    click.echo(f"topic {name} is deleted")


@topic.command("list")
@directory_option
@json_option
def list_topics(directory: str, as_json: bool) -> None:
    """List topics with their sizes."""

    async def asked(client: ControlClient) -> Any:
        return (await client.request("stats"))["partitions"]

    async def opened(runtime: Runtime) -> Any:
        return plain(await runtime.stats())["partitions"]

    partitions = live_or_opened(directory, asked, opened)
    topics: dict[str, dict[str, Any]] = {}
    for partition in partitions:
        found = topics.setdefault(
            partition["topic"], {"name": partition["topic"], "partitions": 0, "records": 0, "size_bytes": 0}
        )
        found["partitions"] += 1
        found["records"] += partition["visible_end"] - partition["start_offset"]
        found["size_bytes"] += partition["size_bytes"]
    if as_json:
        print_json(list(topics.values()))
        return
    table = Table("topic", "partitions", "records", "bytes")
    for found in topics.values():
        table.add_row(
            found["name"], str(found["partitions"]), f"{found['records']:,}", f"{found['size_bytes']:,}"
        )
    Console().print(table if topics else "no topics")


@topic.command()
@click.argument("name")
@directory_option
@json_option
def describe(name: str, directory: str, as_json: bool) -> None:
    """Show a topic's settings, partitions and groups."""

    async def asked(client: ControlClient) -> Any:
        return await client.request("describe", topic=name)

    async def opened(runtime: Runtime) -> Any:
        found = runtime.topic(name)
        return {"name": name, "settings": plain(found.settings), "partitions": plain(await found.describe())}

    found = live_or_opened(directory, asked, opened)
    if as_json:
        print_json(found)
        return
    console = Console()
    console.print(f"[bold]{name}[/bold]  " + "  ".join(f"{k}={v}" for k, v in found["settings"].items()))
    table = Table(
        "partition", "state", "start", "end", "synced to", "bytes", "segments", "groups (floor, pending)"
    )
    for partition in found["partitions"]:
        groups = ", ".join(f"{g['group_id']}: {g['floor']}, {g['pending']}" for g in partition["groups"])
        numbers = (
            partition[key] for key in ("start_offset", "visible_end", "durable_end", "size_bytes", "segments")
        )
        table.add_row(
            str(partition["partition"]), partition["state"], *(f"{n:,}" for n in numbers), groups or "-"
        )
    console.print(table)
    for partition in found["partitions"]:
        for problem in (*partition["damages"], *partition["gaps"]):
            console.print(f"{name}/{partition['partition']}: {problem}")


def _report(name: str, settings: dict[str, Any], as_json: bool, what: str) -> None:
    if as_json:
        print_json({"name": name, "settings": settings})
    else:
        click.echo(f"topic {name} {what}: " + "  ".join(f"{key}={value}" for key, value in settings.items()))
