"""`callboard stats` and `callboard tree`: inspect a runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.tree import Tree

from callboard.actors.names import OWN_GROUPS
from callboard.cli.answers import CommandAnswer, answering
from callboard.cli.asking import ask
from callboard.cli.interruption import run
from callboard.cli.options import all_option, directory_option
from callboard.cli.output import counted, size_text, table
from callboard.control.client import ControlClient
from callboard.message import from_us
from callboard.offline import require_directory

_PARTITION_COUNTS = {
    "start_offset": "start",
    "visible_end": "end",
    "size_bytes": "size",
    "commits": "commits*",
    "failed_commits": "failed*",
    "lost_records": "lost",
}
_PARTITION_RARE = {
    "duplicates": "duplicates*",
    "dedup_forgotten": "ids forgotten early*",
    "dropped_dead_letters": "dead letters dropped*",
    "stamps_ahead": "times ahead*",
}
"""Counts that have a column when any is not 0, and its head, with a star when the count begins anew at opening."""
_GROUP_COUNTS = {
    "floor": "floor",
    "ready": "ready",
    "leased": "leased",
    "pending": "lag",
    "redelivered": "redelivered",
    "expired": "leases expired",
}
_GROUP_RARE = {
    "dead": "dead letters kept",
    "expired_records": "messages expired*",
    "promoted": "promoted since they starved*",
}
_COORDINATED = {
    "rebalances": "rebalances",
    "forced_handovers": "forced hand-overs",
    "stalled_members": "stalled members",
}
"""Counts of exclusive groups that have a column when any is not 0, and its head."""
_NOTE = (
    "* since the directory was opened, or its partition restarted; redelivered, leases expired: since the group began;"
    " all else as it is now"
)
_OUTBOX_NOW = ("pending", "held")
_OUTBOX_SINCE = ("forwarded", "refused", "dropped", "lost", "discarded")


@click.command()
@all_option
@directory_option
@answering
def stats(directory: str, with_own: bool) -> CommandAnswer:
    """Show offsets, sizes, states and groups of every partition.

    Of dead letters that are kept, messages that expired, duplicates and the like there is a column when there are any.
    With --json all groups are there, those of the broker's own too. What is counted since the directory was opened has
    a star, or says so.
    """
    found = ask(directory, "stats")
    return CommandAnswer(found, _stats_lines(found, with_own=with_own))


def _stats_lines(found: dict[str, Any], *, with_own: bool) -> Iterator[RenderableType]:
    yield _partitions(found["partitions"])
    for lines in (
        _groups(found["partitions"], found["groups"], with_own=with_own),
        _coordinated(found["groups"]),
        _forwarding(found["forwarding"]),
    ):
        if lines is not None:
            yield from ("", lines)
    yield from ("", _NOTE, "")
    yield from _losses(found["partitions"], found["catalog"])
    for outbox in found["outbox"]:
        now, since = (
            ", ".join(f"{outbox[key]:,} {key}" for key in keys) for keys in (_OUTBOX_NOW, _OUTBOX_SINCE)
        )
        yield f"published with acks of {_label(outbox)}: {now} now; {since} since the directory was opened"
    yield from _delayed(found["delayed"])
    if found["schedules"]:
        yield from _schedules(found["schedules"])
    timers = found["timers"]
    yield (
        f"timers (ends of leases, pauses before retries, delays): {timers['armed']:,} wait,"
        f" {timers['came']:,} came since the directory was opened"
    )


def _label(partition: dict[str, Any]) -> str:
    return f"{partition['topic']}/{partition['partition']}"


def _occurring(heads: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, str]:
    """Those of the counts that are not 0 everywhere, with their heads."""
    return {key: head for key, head in heads.items() if any(row.get(key) for row in rows)}


def _partitions(partitions: list[dict[str, Any]]) -> RenderableType:
    columns = _PARTITION_COUNTS | _occurring(_PARTITION_RARE, partitions)
    rows = [
        (
            _label(each),
            each["state"],
            *(size_text(each[key]) if key == "size_bytes" else each[key] for key in columns),
        )
        for each in partitions
    ]
    return table(("partition", "state", *columns.values()), rows, words=("partition", "state"))


def _groups(
    partitions: list[dict[str, Any]], groups: list[dict[str, Any]], *, with_own: bool
) -> RenderableType | None:
    names = {group["group_id"]: group["name"] for group in groups}
    states = [state for partition in partitions for state in partition["groups"]]
    columns = _GROUP_COUNTS | _occurring(_GROUP_RARE, states)
    rows = [
        (names.get(state["group_id"], "?"), _label(partition), *(state[key] for key in columns))
        for partition in partitions
        for state in partition["groups"]
        if with_own or names.get(state["group_id"]) not in OWN_GROUPS
    ]
    return (
        table(("group", "partition", *columns.values()), rows, words=("group", "partition")) if rows else None
    )


def _coordinated(groups: list[dict[str, Any]]) -> RenderableType | None:
    columns = _occurring(_COORDINATED, groups)
    rows = [
        (group["name"], *(group[key] for key in columns))
        for group in groups
        if any(group[key] for key in columns)
    ]
    title = "since the directory was opened"
    return table(("group", *columns.values()), rows, words=("group",), title=title) if rows else None


def _forwarding(found: list[dict[str, Any]]) -> RenderableType | None:
    rows = [(each["topic"], each["forwarded"], each["kept"], each["held"]) for each in found]
    heads = ("dead letters for", "forwarded*", "kept", "held because")
    return table(heads, rows, words=("dead letters for", "held because")) if rows else None


def _delayed(found: list[dict[str, Any]]) -> Iterator[str]:
    """Of each topic that has, or had, delayed messages since the opening."""
    for topic in sorted({each["topic"] for each in found}):
        parts = [each for each in found if each["topic"] == topic]
        counts = [sum(part[count] for part in parts) for count in ("pending", "moved", "cancelled", "lost")]
        if any(counts):
            pending, moved, cancelled, lost = counts
            due = min((part["next_due"] for part in parts if part["next_due"]), default=None)
            # The first of them may be due later: its moment is not looked for among all that wait.
            first = f" (none is due before {due[:19]} UTC)" if due else ""
            yield (
                f"delayed messages of {topic}: {pending:,} wait{first}; {moved:,} came, {cancelled:,} cancelled,"
                f" {lost:,} lost since the directory was opened"
            )


def _schedules(found: list[dict[str, Any]]) -> Iterator[str]:
    fired, over = (sum(each[count] for each in found) for count in ("fired", "passed_over"))
    paused = sum(each["is_paused"] for each in found)
    yield (
        f"schedules: {len(found):,}, {paused:,} paused; {fired:,} firings published, {over:,} passed over since the"
        " directory was opened"
    )
    for each in found:
        if each["problem"]:
            yield f"schedule {each['topic']}/{each['name']} waits: {each['problem']}"


def _losses(partitions: list[dict[str, Any]], catalog: dict[str, Any]) -> Iterator[str]:
    """What was found damaged or given up by a repair, as long as it is not acknowledged."""
    yield from catalog["damages"]
    if catalog["missing"]:
        yield f"catalog: not known any more: {', '.join(catalog['missing'])}"
    for partition in partitions:
        for damage in partition["damages"]:
            yield f"{_label(partition)}: {damage}"
    if catalog["damages"] or any(partition["lost_records"] for partition in partitions):
        yield "Lost records are reported until `callboard repair --accept` acknowledges them."


@click.command()
@directory_option
@click.option(
    "--events", is_flag=True, help="Also show the latest events, such as restarts with their causes."
)
@answering
def tree(directory: str, events: bool) -> CommandAnswer:
    """Show the tree of actors in a running runtime. Each has a state, restarts and their causes, a mailbox."""
    require_directory(directory)

    async def work() -> tuple[Any, Any]:
        client = ControlClient(directory)
        return await client.request("tree"), await client.request("events") if events else []

    found, happened = run(work)
    return CommandAnswer(
        {"tree": found, "events": happened} if events else found, [_drawn(found), *map(_event_line, happened)]
    )


def _event_line(event: dict[str, Any]) -> str:
    """One event on one line: when, what, and its fields."""
    when = from_us(event["wall_us"])
    rest = {key: value for key, value in event.items() if key not in ("wall_us", "kind", "frames")}
    fields = "  ".join(f"{key}={value}" for key, value in rest.items() if value is not None)
    return f"{when.isoformat(timespec='milliseconds')}  {event['kind']}  {fields}"


def _drawn(node: dict[str, Any], tree: Tree | None = None) -> Tree:
    facts = [node["state"]]
    if node["restarts"]:
        facts.append(counted(node["restarts"], "restart"))
    if node["mailbox_depth"]:
        facts.append(f"{node['mailbox_depth']} waiting")
    if node["rate_per_s"] >= 0.05:
        facts.append(f"{node['rate_per_s']:.1f}/s")
    if node["last_failure"]:
        facts.append(f"last failure: {node['last_failure']}")
    label = f"{node['name']}  ({', '.join(facts)})"
    branch = Tree(label, highlight=False) if tree is None else tree.add(label, highlight=False)
    for child in node["children"]:
        _drawn(child, branch)
    return branch
