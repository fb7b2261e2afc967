"""`callboard group`: list, describe, alter, pause, resume, seek, reset, delete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import click
from rich.console import RenderableType

from callboard.actors.names import OWN_GROUPS, check_name, check_not_own_group
from callboard.actors.settings import GROUP_FIELDS
from callboard.cli.answers import CommandAnswer, answering, listed
from callboard.cli.asking import ask
from callboard.cli.command_line import CommandGroup
from callboard.cli.options import all_option, directory_option
from callboard.cli.output import facts, table, to_json
from callboard.cli.places import zoned
from callboard.cli.topics import alter_settings, delete_named, setting_rows, settings_argument
from callboard.control.verbs import is_negative, parse_place
from callboard.log.errors import InvalidArgument

Command = Callable[..., Any]
PARTITION: Final = re.compile(r"[^/]+/[0-9]{1,9}")
MESSAGE: Final = re.compile(r"(?P<topic>[^/]+)/(?P<partition>[0-9]{1,9})@(?P<offset>-?[0-9]+)")
"""As places are printed: orders/0@17. A topic's name has no slash."""


@click.group(cls=CommandGroup)
def group() -> None:
    """Describe, alter, pause, seek, reset and delete groups.

    Settings are name=value, with the same names as in Python: visibility_timeout=60 retry=1,10,60.
    """


@group.command("list")
@all_option
@directory_option
@answering
def list_groups(directory: str, with_own: bool) -> CommandAnswer:
    """List groups with their members and lag."""
    found = ask(directory, "stats")
    found["groups"] = [each for each in found["groups"] if with_own or each["name"] not in OWN_GROUPS]
    stands = [place for partition in found["partitions"] for place in partition["groups"]]
    rows = []
    for each in found["groups"]:
        own = [place for place in stands if place["group_id"] == each["group_id"]]
        each["lag"] = sum(place["pending"] for place in own)
        each["in_flight"] = sum(place["leased"] for place in own)
        topics = each["pattern"] or ", ".join(each["topics"])
        state = "paused" if each["settings"]["paused"] else ""
        rows.append((each["name"], topics, each["members"], each["lag"], each["in_flight"], state))
    heads = ("group", "topics", "members", "lag", "in flight", "state")
    return listed(found["groups"], heads, rows, words=("group", "topics", "state"), nothing="no groups")


@group.command()
@click.argument("name")
@directory_option
@answering
def describe(name: str, directory: str) -> CommandAnswer:
    """Show a group's settings, members and offsets."""
    check_name(name, "group")
    found = ask(directory, "describe_group", group=name)
    return CommandAnswer(found, _description(name, found["group"], found["places"]))


def _description(name: str, about: dict[str, Any], places: list[dict[str, Any]]) -> Iterator[RenderableType]:
    read = [] if about["pattern"] is None else [("pattern", about["pattern"])]
    yield facts([*read, *setting_rows(about["settings"], GROUP_FIELDS)], title=f"group {name}")
    yield ""
    owned = {each["consumer"]: each["assigned"] for each in about["consumers"]}
    members = [
        (
            f"{each['consumer']}",
            each["name"],
            ", ".join(each["topics"]),
            " ".join(f"{topic}/{partition}" for topic, partition in owned[each["consumer"]]),
            each["in_flight"],
            (each["oldest_leased"] or "")[:19],
        )
        for each in about["consumers"]
    ]
    if members:
        heads = ("consumer", "name", "topics", "owns", "in flight", "oldest leased")
        yield table(heads, members, words=("name", "topics", "owns"))
        yield ""
    rows = [
        (
            f"{place['topic']}/{place['partition']}",
            *(place[key] for key in ("floor", "end", "lag", "in_flight", "dead")),
            (place["oldest_unsettled"] or "")[:19],
        )
        for place in places
    ]
    place_heads = ("partition", "floor", "end", "lag", "in flight", "dead", "oldest unsettled")
    yield table(place_heads, rows, words=("partition",))


@group.command("alter")
@click.argument("name")
@settings_argument
@directory_option
@answering
def alter_group(name: str, settings: tuple[str, ...], directory: str) -> CommandAnswer:
    """Change settings of a group. All but those that are fixed once it exists, such as `mode` and `start`, can change.

    Printed is what has changed. Also while a runtime has the directory open with control=True: they hold for its
    consumers from then on.
    """
    check_name(name, "group")
    check_not_own_group(name)
    return alter_settings("group", name, settings, directory)


@group.command()
@click.argument("name")
@directory_option
@answering
def pause(name: str, directory: str) -> CommandAnswer:
    """Hand over no further message to a group. Its setting `paused` is true until `resume`.

    What consumers hold can be settled; nothing is lost. Also while a runtime has the directory open with control=True.
    """
    return _set_paused(name, directory, paused=True)


@group.command()
@click.argument("name")
@directory_option
@answering
def resume(name: str, directory: str) -> CommandAnswer:
    """Have a paused group go on."""
    return _set_paused(name, directory, paused=False)


def _set_paused(name: str, directory: str, *, paused: bool) -> CommandAnswer:
    check_name(name, "group")
    check_not_own_group(name)
    settings = ask(directory, "alter_group", group=name, settings=to_json({"paused": paused}))
    said = [f"group {name} {'is paused' if paused else 'goes on'}"]
    return CommandAnswer({"name": name, "settings": settings}, said=said)


def where(command: Command) -> Command:
    """The options that say which partitions are meant."""
    for option in (
        click.option("--partition", type=click.IntRange(min=0), default=None, help="Only in this partition."),
        click.option("--topic", default=None, help="Only in this topic."),
    ):
        command = option(command)
    return command


class Seek(click.Command):
    """The command `seek`: it reads a negative offset, and a partition with its offset behind it, as what they are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's. Raises `InvalidArgument` for what it would tell of as an option, or an argument too many."""
        for index, given in enumerate(args):
            before = args[index - 1] if index else ""
            if is_negative(given) and not before.startswith("--"):
                parse_place(given)
            if given.isascii() and given.isdecimal() and PARTITION.fullmatch(before):
                raise InvalidArgument(
                    f"the offset of a partition is said in one word: {before}@{given}. Nothing was changed."
                )
        return super().parse_args(ctx, args)


@group.command(cls=Seek)
@click.argument("name")
@click.argument("to")
@where
@directory_option
@answering
def seek(name: str, to: str, topic: str | None, partition: int | None, directory: str) -> CommandAnswer:
    """Have a group go on from TO. That is beginning, end, an instant (ISO 8601, UTC without a zone), or an offset of
    one partition, as TOPIC/PARTITION@OFFSET, or alone where only one partition is meant.

    Also while a runtime has the directory open with control=True: its consumers go on from there.
    """
    to, topic, partition = _of_message(to, topic, partition)
    place = parse_place(to)
    if isinstance(place, datetime):
        to = zoned(to).isoformat()
    return _seek(name, to, topic, partition, directory)


def _of_message(to: str, topic: str | None, partition: int | None) -> tuple[str, str | None, int | None]:
    """The offset, topic and partition in TOPIC/PARTITION@OFFSET, as `seek` prints places; else all as it was."""
    found = MESSAGE.fullmatch(to)
    if found is None:
        if PARTITION.fullmatch(to):
            raise InvalidArgument(
                f"{to:.300} is a partition, and no place in it. Nothing was changed. Say {to:.300}@OFFSET."
            )
        return to, topic, partition
    named, index, offset = found["topic"], int(found["partition"]), found["offset"]
    if topic not in (None, named) or partition not in (None, index):
        raise InvalidArgument(
            f"{to:.300} names the topic and the partition, and --topic or --partition names others. Nothing was"
            " changed. Leave the options out."
        )
    return offset, named, index


@group.command()
@click.argument("name")
@where
@directory_option
@answering
def reset(name: str, topic: str | None, partition: int | None, directory: str) -> CommandAnswer:
    """Have a group begin anew, where its setting `start` says."""
    return _seek(name, "", topic, partition, directory)


def _seek(name: str, to: str, topic: str | None, partition: int | None, directory: str) -> CommandAnswer:
    check_name(name, "group")
    check_not_own_group(name)
    places = ask(
        directory,
        "seek_group",
        group=name,
        to=to,
        topic="" if topic is None else check_name(topic, "topic"),
        partition="" if partition is None else str(partition),
    )
    said = [
        f"group {name} goes on from {each['topic']}/{each['partition']}@{each['offset']}" for each in places
    ]
    return CommandAnswer({"name": name, "places": places}, said=said)


@group.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--drop-dead-letters", is_flag=True, help="Those that its partitions keep go with it.")
@directory_option
@answering
def delete(name: str, yes: bool, drop_dead_letters: bool, directory: str) -> CommandAnswer:
    """Forget a group: its place in every topic is lost.

    A group whose partitions keep dead letters is only deleted with --drop-dead-letters. Also while a runtime has the
    directory open with control=True: consumers of the group then fail with GroupNotFound.
    """
    check_name(name, "group")
    check_not_own_group(name)
    question = (
        f"Forget group {name!r} in {directory}, with its place in every topic? Consumers that it has now fail with"
        " GroupNotFound."
    )
    more = {"drop_dead_letters": "yes"} if drop_dead_letters else {}
    return delete_named("group", name, directory, question, yes=yes, **more)
