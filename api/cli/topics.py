"""`callboard topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

import attrs
import click

from callboard.actors.names import OWN_GROUPS, check_name
from callboard.actors.settings import (
    GROUP_FIELDS,
    TOPIC_FIELDS,
    SettingField,
    TopicSettings,
    check,
    topic_settings,
)
from callboard.cli import exits
from callboard.cli.command_line import CommandGroup
from callboard.cli.inspect import ask_runtime
from callboard.cli.interruption import run
from callboard.cli.options import directory_option, json_option, parse_settings
from callboard.cli.output import duration_text, facts, print_json, say, show, size_text, table, to_json
from callboard.cli.streams import is_interactive
from callboard.log.errors import InvalidArgument
from callboard.log.limits import KIB
from callboard.offline import OfflineDirectory, require_directory

settings_argument = click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")


@click.group(cls=CommandGroup)
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
    """Create a topic. Nothing is done when it exists with these settings.

    Also while a runtime has the directory open with control=True. Printed are the settings that differ from the
    defaults; `topic describe` shows all.
    """
    check_name(name, "topic")
    given = parse_settings(settings, TOPIC_FIELDS, partial(topic_settings, where=f"topic {name!r}"))

    request = {"verb": "create_topic", "name": name, "settings": to_json(given)}
    (made,) = ask_runtime(directory, request, is_made=True)
    found, defaults = made["settings"], attrs.asdict(TopicSettings())
    if as_json:
        print_json({"name": name, **made})
        return
    own = {key: value for key, value in found.items() if key == "partitions" or value != defaults[key]}
    what = "is created" if made["created"] else "was there already"
    show(facts(setting_rows(own, TOPIC_FIELDS), title=f"topic {name} {what}"))


@topic.command()
@click.argument("name")
@settings_argument
@directory_option
@json_option
def alter(name: str, settings: tuple[str, ...], directory: str, as_json: bool) -> None:
    """Change settings of a topic (all except `partitions`). Printed is what has changed.

    Also while a runtime has the directory open with control=True: they hold from then on.
    """
    check_name(name, "topic")
    alter_settings("topic", name, settings, directory, as_json=as_json)


def alter_settings(
    kind: Literal["topic", "group"], name: str, settings: tuple[str, ...], directory: str, *, as_json: bool
) -> None:
    """Change settings of a topic or group, and print what has changed."""
    fields = TOPIC_FIELDS if kind == "topic" else GROUP_FIELDS
    given = parse_settings(settings, fields, lambda found: check(kind, fields, found, f"{kind} {name!r}"))
    describe = {"verb": "describe" if kind == "topic" else "describe_group", kind: name}
    alter = {"verb": f"alter_{kind}", kind: name, "settings": to_json(given)}
    described, after = ask_runtime(directory, describe, alter)
    if as_json:
        print_json({"name": name, "settings": after})
        return
    before = (described if kind == "topic" else described["group"])["settings"]
    _show_changes(f"{kind} {name}", before, after, fields)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@directory_option
@json_option
def delete(name: str, yes: bool, directory: str, as_json: bool) -> None:
    """Delete a topic with all its messages.

    Also while a runtime has the directory open with control=True: consumers of this topic then end there with
    RuntimeClosed, and publishing to it raises TopicNotFound.
    """
    check_name(name, "topic")
    question = (
        f"Delete topic {name!r} in {directory} with all its messages? Its consumers end, and publishing to it"
        " fails."
    )
    delete_named("topic", name, directory, question, yes=yes, as_json=as_json)


def delete_named(
    kind: str, name: str, directory: str, question: str, *, yes: bool, as_json: bool, **more: str
) -> None:
    """Delete a topic or group, once the question is answered with `yes`."""
    require_directory(directory)
    if not yes:
        if not is_interactive():
            raise InvalidArgument("there is no terminal to ask on: pass --yes. Nothing was deleted.")
        if not click.confirm(question, err=True):
            raise click.ClickException("Nothing was deleted.")
    ask_runtime(directory, {"verb": f"delete_{kind}", kind: name, **more})
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        show(f"{kind} {name} is deleted")


@topic.command("list")
@directory_option
@json_option
def list_topics(directory: str, as_json: bool) -> int:
    """List topics with their sizes. Another process may have the directory open."""

    async def work() -> tuple[list[dict[str, Any]], list[str]]:
        async with OfflineDirectory(directory) as offline:
            found, replay = [], await offline.catalog()
            for record in replay.topics():
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
            return found, replay.faults

    topics, faults = run(work)
    if faults:
        say(f"topics may be missing here, the catalog is damaged: {faults[0]}. Run `callboard verify`.")
    code = exits.DAMAGED if faults else exits.OK
    if as_json:
        print_json(topics)
        return code
    rows = [
        (one["name"], f"{one['partitions']:,}", f"{one['records']:,}", size_text(one["file_bytes"]))
        for one in topics
    ]
    if topics:
        show(table(("topic", "partitions", "records", "files"), rows))
    else:
        say("no topics")
    return code


@topic.command()
@click.argument("name")
@directory_option
@json_option
def describe(name: str, directory: str, as_json: bool) -> None:
    """Show a topic's settings, partitions and groups."""
    found, statistics = ask_runtime(directory, {"verb": "describe", "topic": name}, {"verb": "stats"})
    found["groups"] = [group for group in statistics["groups"] if name in group["topics"]]
    own = {group["group_id"] for group in found["groups"] if group["name"] in OWN_GROUPS}
    if as_json:
        print_json(found)
        return
    for partition in found["partitions"]:
        partition["groups"] = [each for each in partition["groups"] if each["group_id"] not in own]
    _show_topic(found)


def _show_changes(
    what: str, before: Mapping[str, Any], after: Mapping[str, Any], fields: Mapping[str, SettingField]
) -> None:
    """Print the settings that an `alter` has changed."""
    changed = [key for key in after if after[key] != before[key]]
    old, new = (dict(setting_rows({key: each[key] for key in changed}, fields)) for each in (before, after))
    result = "is altered" if changed else "has these settings already"
    show(facts([(key, f"{old[key]} → {new[key]}") for key in changed], title=f"{what} {result}"))


def _show_topic(found: dict[str, Any]) -> None:
    name = found["name"]
    show(facts(setting_rows(found["settings"], TOPIC_FIELDS), title=f"topic {name}"), "")
    rows = []
    for partition in found["partitions"]:
        offsets = (f"{partition[key]:,}" for key in ("start_offset", "visible_end", "durable_end"))
        size, segments = size_text(partition["size_bytes"]), f"{partition['segments']:,}"
        rows.append((f"{partition['partition']}", partition["state"], *offsets, size, segments))
    heads = ("partition", "state", "start", "end", "synced to", "size", "segments")
    show(table(heads, rows, words=["state"]))
    names = {group["group_id"]: group["name"] for group in found["groups"]}
    rows = [
        (
            names.get(one["group_id"], one["group_id"]),
            f"{partition['partition']}",
            f"{one['floor']:,}",
            f"{one['pending']:,}",
        )
        for partition in found["partitions"]
        for one in partition["groups"]
    ]
    if rows:
        show("", table(("group", "partition", "floor", "lag"), rows))
    for partition in found["partitions"]:
        for problem in (*partition["damages"], *partition["gaps"]):
            show(f"{name}/{partition['partition']}: {problem}")


def setting_rows(
    settings: Mapping[str, Any], fields: Mapping[str, SettingField]
) -> Iterator[tuple[str, str]]:
    """Each as it can be given to `create` and `alter`; bytes and seconds are shown in larger units too."""
    for name, value in settings.items():
        shown = str(value).lower() if value is None or isinstance(value, bool) else str(value)
        if name.endswith("_bytes") and type(value) is int and value >= KIB:
            shown += f" ({size_text(value)})"
        elif isinstance(value, (list, tuple)):
            shown = ",".join(f"{each:g}" for each in value) + " s"
        elif name in fields and fields[name].kind == "seconds" and value is not None:
            shown = duration_text(value)
        yield name, shown
