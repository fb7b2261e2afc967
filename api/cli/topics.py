"""`callboard topic`: create, list, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

import attrs
import click
from rich.console import RenderableType

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
from callboard.cli.answers import CommandAnswer, answering, listed
from callboard.cli.asking import ask, ask_all
from callboard.cli.command_line import CommandGroup
from callboard.cli.interruption import run
from callboard.cli.options import directory_option, parse_settings
from callboard.cli.output import duration_text, facts, say, size_text, table, to_json
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
@answering
def create(name: str, settings: tuple[str, ...], directory: str) -> CommandAnswer:
    """Create a topic. Nothing is done when it exists with these settings.

    Also while a runtime has the directory open with control=True. Printed are the settings that differ from the
    defaults; `topic describe` shows all.
    """
    check_name(name, "topic")
    given = parse_settings(settings, TOPIC_FIELDS, partial(topic_settings, where=f"topic {name!r}"))
    request = {"verb": "create_topic", "name": name, "settings": to_json(given)}
    (made,) = ask_all(directory, request, is_made=True)
    found, defaults = made["settings"], attrs.asdict(TopicSettings())
    own = {key: value for key, value in found.items() if key == "partitions" or value != defaults[key]}
    what = "is created" if made["created"] else "was there already"
    shown = facts(setting_rows(own, TOPIC_FIELDS), title=f"topic {name} {what}")
    return CommandAnswer({"name": name, **made}, [shown])


@topic.command()
@click.argument("name")
@settings_argument
@directory_option
@answering
def alter(name: str, settings: tuple[str, ...], directory: str) -> CommandAnswer:
    """Change settings of a topic (all except `partitions`). Printed is what has changed.

    Also while a runtime has the directory open with control=True: they hold from then on.
    """
    check_name(name, "topic")
    return alter_settings("topic", name, settings, directory)


def alter_settings(
    kind: Literal["topic", "group"], name: str, settings: tuple[str, ...], directory: str
) -> CommandAnswer:
    """Change settings of a topic or group; for people, what has changed."""
    fields = TOPIC_FIELDS if kind == "topic" else GROUP_FIELDS
    given = parse_settings(settings, fields, lambda found: check(kind, fields, found, f"{kind} {name!r}"))
    describe = {"verb": "describe" if kind == "topic" else "describe_group", kind: name}
    alter = {"verb": f"alter_{kind}", kind: name, "settings": to_json(given)}
    described, after = ask_all(directory, describe, alter)
    before = (described if kind == "topic" else described["group"])["settings"]
    return CommandAnswer(
        {"name": name, "settings": after}, [_changes(f"{kind} {name}", before, after, fields)]
    )


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@directory_option
@answering
def delete(name: str, yes: bool, directory: str) -> CommandAnswer:
    """Delete a topic with all its messages.

    Also while a runtime has the directory open with control=True: consumers of this topic then end there with
    RuntimeClosed, and publishing to it raises TopicNotFound.
    """
    check_name(name, "topic")
    question = (
        f"Delete topic {name!r} in {directory} with all its messages? Its consumers end, and publishing to it"
        " fails."
    )
    return delete_named("topic", name, directory, question, yes=yes)


def delete_named(
    kind: str, name: str, directory: str, question: str, *, yes: bool, **more: str
) -> CommandAnswer:
    """Delete a topic or group, once the question is answered with `yes`."""
    require_directory(directory)
    if not yes:
        if not is_interactive():
            raise InvalidArgument("there is no terminal to ask on: pass --yes. Nothing was deleted.")
        if not click.confirm(question, err=True):
            raise click.ClickException("Nothing was deleted.")
    ask(directory, f"delete_{kind}", **{kind: name}, **more)
    return CommandAnswer({"name": name, "deleted": True}, [f"{kind} {name} is deleted"])


@topic.command("list")
@directory_option
@answering
def list_topics(directory: str) -> CommandAnswer:
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
    rows = [
        (each["name"], each["partitions"], each["records"], size_text(each["file_bytes"])) for each in topics
    ]
    code = exits.DAMAGED if faults else exits.OK
    heads = ("topic", "partitions", "records", "files")
    return listed(topics, heads, rows, nothing="no topics", code=code)


@topic.command()
@click.argument("name")
@directory_option
@answering
def describe(name: str, directory: str) -> CommandAnswer:
    """Show a topic's settings, partitions and groups."""
    found, statistics = ask_all(directory, {"verb": "describe", "topic": name}, {"verb": "stats"})
    found["groups"] = [group for group in statistics["groups"] if name in group["topics"]]
    return CommandAnswer(found, _description(found))


def _changes(
    what: str, before: Mapping[str, Any], after: Mapping[str, Any], fields: Mapping[str, SettingField]
) -> RenderableType:
    """The settings that an `alter` has changed."""
    changed = [key for key in after if after[key] != before[key]]
    old, new = (dict(setting_rows({key: each[key] for key in changed}, fields)) for each in (before, after))
    result = "is altered" if changed else "has these settings already"
    return facts([(key, f"{old[key]} → {new[key]}") for key in changed], title=f"{what} {result}")


def _description(found: dict[str, Any]) -> Iterator[RenderableType]:
    """A topic for people, without the broker's own groups."""
    name, partitions = found["name"], found["partitions"]
    yield facts(setting_rows(found["settings"], TOPIC_FIELDS), title=f"topic {name}")
    yield ""
    rows = [
        (
            f"{each['partition']}",
            each["state"],
            *(each[key] for key in ("start_offset", "visible_end", "durable_end")),
            size_text(each["size_bytes"]),
            each["segments"],
        )
        for each in partitions
    ]
    yield table(
        ("partition", "state", "start", "end", "synced to", "size", "segments"), rows, words=["state"]
    )
    names = {group["group_id"]: group["name"] for group in found["groups"]}
    states = [
        (
            names.get(state["group_id"], state["group_id"]),
            f"{each['partition']}",
            state["floor"],
            state["pending"],
        )
        for each in partitions
        for state in each["groups"]
        if names.get(state["group_id"]) not in OWN_GROUPS
    ]
    if states:
        yield ""
        yield table(("group", "partition", "floor", "lag"), states)
    for each in partitions:
        for problem in (*each["damages"], *each["gaps"]):
            yield f"{name}/{each['partition']}: {problem}"


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
