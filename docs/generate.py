"""Writes the pages that are made from the code: python docs/generate.py, with Callboard installed.

A test compares what lies in the repository with what this would write, so a page cannot drift from its source.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tempfile
import typing
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import attrs
import click

import callboard
from callboard import events, hints, statistics
from callboard.actors import messages, settings
from callboard.cli import exits
from callboard.cli.command_line import callboard as command_line
from callboard.log import errors
from callboard.simulations.proof.proving import caught_by
from callboard.simulations.proof.safeguards import filled

HERE = Path(__file__).resolve().parent
HEAD = "<!-- Made from {source} by docs/generate.py: edit that, and run this again. -->\n"
ACTORS = "principles/actors.md"
TUTORIAL = "tutorial/test-your-first-actor.md"
TUTORIAL_LEAVES_OUT = (" waits at ", "takes from its mailbox", "from here on nothing fails")
"""Lines of the story that the tutorial does not need."""


API = {
    "Begin here": (
        "Everything lives inside `async with callboard.open_runtime(...)`, which gives topics, which give consumers.",
        "open_runtime Topic Consumer",
    ),
    "The runtime": (
        "What `open_runtime` gives.",
        "Runtime Group",
    ),
    "Publish and read": (
        "What a topic takes and gives.",
        (
            "Producer Message Receipt hints.Receipts hints.ScheduledReceipt Schedule Record RecordBatch"
            " hints.RecordReader hints.BatchReader hints.Partitioner"
        ),
    ),
    "Consume in a group": (
        "What a group's consumers are given, and how they settle it.",
        (
            "hints.Receiving ReceivedMessage hints.Batches ReceivedBatch hints.MixedBatch Retry Reject DeadLetter"
            " hints.KeptLetters DeadLetterTopic hints.ForwardedLetter hints.Redriven hints.DelayedMessages"
            " hints.DelayedMessage"
        ),
    ),
    "Settings": (
        "As they are now. [A page of their own](settings.md) says what each means.",
        "TopicSettings GroupSettings",
    ),
    "Statistics": (
        "What `Runtime.stats`, `Runtime.groups`, `Runtime.tree` and `Topic.describe` return.",
        (
            "statistics.RuntimeStatistics statistics.PartitionStatistics statistics.GroupStatistics"
            " statistics.GroupInfo statistics.ConsumerInfo statistics.TimerStatistics statistics.CatalogStatistics"
            " statistics.DelayedStatistics statistics.ForwardingStatistics statistics.OutboxStatistics"
            " statistics.ScheduleStatistics statistics.GroupDescription statistics.GroupPlace statistics.TreeNode"
            " statistics.ActorStatistics"
        ),
    ),
    "Actors of your own": (
        "[A how-to](../how-to/run-your-own-actor.md) shows them at work.",
        (
            "Actor DurableActor Context ActorRef Question Reply Envelope Batch MailboxSpec ChildSpec SupervisorSpec"
            " Backoff Terminated"
        ),
    ),
    "Events": (
        "What `Runtime.events` and `Runtime.subscribe_events` report, and `open_runtime(on_event=)`.",
        " ".join(f"events.{name}" for name in events.__all__),
    ),
    "Seams": (
        "What `open_runtime` takes in the place of the real world, for simulation.",
        "Clock Disk Entropy Limits",
    ),
}
"""The reference of `callboard`: sections, what each is about, and its names. `TYPES` come after them."""

INHERITING = frozenset(
    {"Runtime", "Consumer", "ReceivedMessage", "ReceivedBatch", "RecordBatch", "hints.ScheduledReceipt"}
)
"""Names of classes that users know with what they inherit."""

TYPES = (
    "Acks Start Headers Handler Codec GroupMode Distribution Ordering TopicOptions TopicChanges GroupOptions"
    " GroupChanges"
)
"""Names that only annotations use, shown with what they stand for."""


def api_page() -> str:
    """Every public name but the errors, by what it is for."""
    told = {name for _, names in API.values() for name in names.split()} | {
        f"hints.{name}" for name in TYPES.split()
    }
    if told != public_names():
        raise SystemExit(f"API and TYPES in {__file__} differ from api/__init__.pyi: {told ^ public_names()}")
    page = [
        HEAD.format(source="api"),
        "# Public names",
        "",
        "What a program calls is in `callboard` itself; what it only reads is in `callboard.events`,",
        "`callboard.statistics` and `callboard.hints`, which need no import of their own. Durations are seconds as",
        "`float`, instants are `datetime` with a zone, payloads are `bytes`; options that have defaults are",
        "keyword-only, but for what a call is about (`topic.read(0)`, `schedule.next(10)`) and the fields of small",
        "values (`Message(b'tea', b'ada')`, `Retry(60, 'busy')`). The errors have [a page of their own](errors.md).",
        "",
    ]
    for title, (about, names) in API.items():
        page += [f"## {title}", "", about, "", "```{eval-rst}"]
        for name in names.split():
            is_class = inspect.isclass(attrgetter(name)(callboard))
            page += [
                f".. auto{'class' if is_class else 'function'}:: callboard.{name}",
                *(["   :members:"] if is_class else []),
                *(["   :inherited-members:"] if name in INHERITING else []),
                "",
            ]
        page[-1] = "```"
        page.append("")
    page += [
        "## Names for annotations",
        "",
        "Calls that take settings take those of `TopicOptions` and the like as keyword arguments, so a dictionary of",
        "that type can be passed on with `**`. mypy and pyright know all types on this page.",
        "",
        "| name in `callboard.hints` | stands for |",
        "|---|---|",
        *(f"| `{name}` | {_stands_for(getattr(hints, name))} |" for name in TYPES.split()),
        "",
    ]
    return "\n".join(page)


def public_names() -> set[str]:
    """All but the errors, as they are named below `callboard`."""
    found = set(callboard.__all__) - set(errors.__all__)
    for module in (events, hints, statistics):
        found |= {f"{module.__name__.removeprefix('callboard.')}.{name}" for name in module.__all__}
    return found


def _stands_for(hint: object) -> str:
    """A type in Markdown, within a table."""
    if typing.is_typeddict(hint):
        held = typing.get_type_hints(hint)
        return "a dictionary with any of " + ", ".join(f"`{name}: {_named(held[name])}`" for name in held)
    return f"`{_named(hint)}`"


def _named(hint: object) -> str:
    """A type as it is written, without the modules of what it is made of."""
    if typing.get_origin(hint) is typing.Union:
        return " \\| ".join(map(_named, typing.get_args(hint)))
    name = hint.__name__ if inspect.isclass(hint) and not typing.get_args(hint) else str(hint)
    for module in ("collections.abc.", "typing.", "datetime."):
        name = name.replace(module, "")
    return name.replace("|", "\\|")


def errors_page() -> str:
    """Every error as a tree, and what each tells the caller to do."""
    page = [
        HEAD.format(source="log/errors.py"),
        "# Errors",
        "",
        inspect.cleandoc(errors.__doc__ or "").replace("*", "_"),
        "",
        "All are names in `callboard`.",
        "",
        *_tree(errors.CallboardError, 0),
        "",
    ]
    for error in _all_errors(errors.CallboardError):
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        page += [
            f"## {error.__name__}",
            "",
            f"Derives from {bases}.{' Indefinite.' if error.indefinite else ''}",
            "",
        ]
        page += [inspect.cleandoc(error.__doc__ or ""), ""]
    return "\n".join(page)


def _subclasses(error: type[errors.CallboardError]) -> list[type[errors.CallboardError]]:
    """The public ones, in the order in which the module defines them."""
    return [
        child
        for child in error.__subclasses__()
        if child.__module__ == errors.__name__ and child.__name__ in errors.__all__
    ]


def _tree(error: type[errors.CallboardError], depth: int) -> list[str]:
    name = error.__name__
    line = f"{'  ' * depth}- [{name}](#{name.lower()})"
    return [line, *(inner for child in _subclasses(error) for inner in _tree(child, depth + 1))]


def _all_errors(error: type[errors.CallboardError]) -> list[type[errors.CallboardError]]:
    return [error, *(inner for child in _subclasses(error) for inner in _all_errors(child))]


def settings_page() -> str:
    """Every setting of topics and groups: default, range, meaning."""
    page = [
        HEAD.format(source="actors/settings.py"),
        "# Settings",
        "",
        "The same names serve as keyword arguments, in TOML files and on the command line. Durations are seconds,",
        "sizes are bytes. All problems of a set of settings come in one `ConfigurationError`, before anything is",
        "changed.",
        "",
    ]
    for title, kind, fields, defaults in (
        ("Topics", "topic", settings.TOPIC_FIELDS, settings.TopicSettings()),
        ("Groups", "group", settings.GROUP_FIELDS, settings.GroupSettings()),
    ):
        values = attrs.asdict(defaults)
        page += [f"## {title}", "", "| setting | default | allowed | meaning |", "|---|---|---|---|"]
        page += [
            f"| `{name}` | {_default(name, field, values[name])} | {_allowed(name, field)} | {field.meaning} |"
            for name, field in fields.items()
        ]
        later = ", ".join(f"`{name}`" for name in sorted(settings.LATER[kind]))
        page += ["", f"Not in this version (`ConfigurationError`): {later}.", ""] if later else [""]
    return "\n".join(page)


def _default(name: str, field: settings.SettingField, value: object) -> str:
    """As it would be written in Python, and for people where that says little."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{value!r}`"
    amount = _amount(name, field, value)
    return f"`{value:_}`" + (
        "" if amount.replace(" s", "") in {f"{value:g}", f"{value:,}"} else f" ({amount})"
    )


def _allowed(name: str, field: settings.SettingField) -> str:
    if field.kind == "choice":
        words = ", ".join(f"`{choice!r}`" for choice in field.choices)
    elif field.kind == "bool":
        words = "`True`, `False`"
    elif field.kind == "start":
        words = '`"beginning"`, `"end"`, an offset, a zoned `datetime`'
    elif field.kind == "delays":
        highest = _amount(name, attrs.evolve(field, kind="seconds"), field.high)
        words = f"0 s to {highest}, or a list of such"
    elif field.kind == "name":
        words = "the name of a topic"
    else:
        words = f"{_amount(name, field, field.low)} to {_amount(name, field, field.high)}"
    return f"{words}, or `None`" if field.optional else words


def _amount(name: str, field: settings.SettingField, value: float) -> str:
    """A number in the largest unit that makes it whole."""
    units: list[tuple[int, str]] = []
    if name.endswith("_bytes"):
        units = [(1 << 60, "EiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]
    elif field.kind == "seconds":
        units = [(int(settings.YEAR_S), "years"), (86_400, "days"), (1, "s")]
    for size, unit in units:
        if value and value % size == 0:
            return f"{int(value) // size} {unit}".replace("1 days", "1 day")
    return f"{value:,} s" if field.kind == "seconds" else f"{value:,}"


def command_line_page() -> str:
    """What `--help` says, of every command."""
    page = [
        HEAD.format(source="api/cli"),
        "# Command line",
        "",
        "What `--help` says, command by command.",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items()),
        "",
    ]
    for name, help_text in _commands(command_line, "callboard"):
        page += [f"## {name}", "", "```text", help_text, "```", ""]
    return "\n".join(page)


def _commands(command: click.Command, name: str, above: click.Context | None = None) -> list[tuple[str, str]]:
    """The command and all below it, by their full names."""
    settings = {"terminal_width": 100, "max_content_width": 100, **command.context_settings}
    context = click.Context(command, parent=above, info_name=name.split()[-1], **settings)
    found = [(name, command.get_help(context))]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            child = command.get_command(context, inner)
            if child is not None and not child.hidden:
                found += _commands(child, f"{name} {inner}", context)
    for inner, child in getattr(command, "below", dict)().items():
        found += _commands(child, f"{name} {inner}", context)
    return found


def proof_page() -> str:
    """The page about mutations, its table made anew."""
    return filled((HERE / "principles/proof.md").read_text(encoding="utf-8"), caught_by())


def actors_page() -> str:
    """The page about actors, its table of notices made anew."""
    page = (HERE / ACTORS).read_text(encoding="utf-8")
    rows = [
        f"| {sender} | {receiver} | {', '.join(f'`{kind.__name__}`' for kind in notices)} | {mark} |"
        for sender, receiver, notices, mark in messages.EXCHANGES
    ]
    before, mark, after = page.partition("<!-- exchanges: generated -->\n")
    head = ["| from | to | notices | mark |", "|---|---|---|---|"]
    return "".join([before, mark, "\n".join([*head, *rows, ""]), after[after.index("<!-- end -->") :]])


def tutorial_page() -> str:
    """The tutorial about a first test, with what pytest prints for it now."""
    page = (HERE / TUTORIAL).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_till.py").write_text("\n\n".join(blocks), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_till.py"]
        printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    story = [line.removeprefix("E").removeprefix(" " * 7) for line in printed.splitlines() if line[:1] == "E"]
    kept = [line.rstrip() for line in story if not any(words in line for words in TUTORIAL_LEAVES_OUT)]
    kept[0] = kept[0].removeprefix("callboard.simulations.violations.")
    before, mark, after = page.partition("\n```text\n")
    return "".join([before, mark, "\n".join(kept), after[after.index("\n```\n") :]])


PAGES: dict[str, Callable[[], str]] = {
    ACTORS: actors_page,
    "principles/proof.md": proof_page,
    "reference/api.md": api_page,
    "reference/command-line.md": command_line_page,
    "reference/errors.md": errors_page,
    "reference/settings.md": settings_page,
    TUTORIAL: tutorial_page,
}


def main() -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
