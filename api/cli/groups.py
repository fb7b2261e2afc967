"""`callboard group`: alter."""

from __future__ import annotations

from typing import Any

import attrs
import click

from callboard.actors.settings import GROUP_FIELDS, check
from callboard.cli.group import run
from callboard.cli.options import directory_option, json_option, parse_settings
from callboard.cli.streams import require_directory
from callboard.cli.topics import report_settings
from callboard.runtime import open_runtime


@click.group()
def group() -> None:
    """Alter consumer groups.

    Settings are name=value, with the same names as in Python: visibility_timeout=60 max_backoff=300.
    """


@group.command()
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@directory_option
@json_option
def alter(name: str, settings: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Change settings of a group (all except `mode`, `ordering`, `durable` and `start`).

    No runtime may have the directory open meanwhile.
    """
    given = parse_settings(settings, GROUP_FIELDS)
    check("group", GROUP_FIELDS, given, f"group {name!r}")
    require_directory(directory)

    async def work() -> dict[str, Any]:
        async with open_runtime(directory) as runtime:
            altered = await runtime.alter_group(name, **given)
        return attrs.asdict(altered)

    report_settings("group", name, run(work), as_json, "is altered")
