"""`callboard stats` and `callboard tree`: inspect a runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click
from rich.tree import Tree

from callboard.actors.names import OWN_GROUPS
from callboard.cli.found import find_topic
from callboard.cli.interruption import run
from callboard.cli.options import all_option, directory_option, json_option
from callboard.cli.output import counted, print_json, show, size_text, table
from callboard.control.client import ControlClient
from callboard.control.verbs import VERBS, answer
from callboard.log.errors import ControlError, DirectoryLocked
from callboard.looking import look_at
from callboard.message import from_us
from callboard.offline import require_directory
from callboard.runtime import Runtime, open_runtime


def ask_runtime(directory: str, *requests: dict[str, str], is_made: bool = False) -> list[Any]:
    """What the runtime that has the directory open answers to these requests.

    When none answers, and a request changes something, it is opened, and made if it is missing and `is_made`; else its
    files are read, and nothing is changed.
    """
    if not is_made:
        require_directory(directory)
    only_looks = all(_looks(request) for request in requests)

    async def look(runtime: Runtime) -> list[Any]:
        return [await _answer(runtime, **request) for request in requests]

    async def work() -> list[Any]:
        client = ControlClient(directory)
        if only_looks and not await _is_listening(client):
            return await look_at(directory, look)
        found: list[Any] = []
        async with asking(directory) as ask:
            found += [await ask(**request) for request in requests]
        return found

    return run(work)


def _looks(request: dict[str, str]) -> bool:
    """Whether a request changes nothing."""
    return not VERBS[request["verb"]].changes or request.get("dry_run") == "yes"


async def _is_listening(client: ControlClient) -> bool:
    """Whether a runtime answers. Raises `ControlError` when one is there and does not."""
    try:
        await client.request("ping")
    except ControlError as refused:
        if refused.is_listening:
            raise
        return False
    return True


async def _answer(runtime: Runtime, verb: str, **arguments: str) -> Any:
    if arguments.get("topic"):
        find_topic(runtime, arguments["topic"])
    return await answer(runtime, verb, arguments)


@asynccontextmanager
async def asking(directory: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """What asks the runtime that has the directory open; when there is none, it is opened for the body."""
    client = ControlClient(directory)
    if await _is_listening(client):
        yield client.request
    else:
        try:
            async with open_runtime(directory) as runtime:
                yield partial(_answer, runtime)
        except DirectoryLocked as locked:
            raise DirectoryLocked(
                f"{locked} It has no control socket: open it there with control=True to ask it.",
                directory=directory,
            ) from locked


_PARTITION_COUNTS = ("start_offset", "visible_end", "commits", "failed_commits", "lost_records")
_PARTITION_HEADS = ("partition", "state", "start", "end", "size", "commits*", "failed*", "lost")
_OUTBOX_NOW = ("pending", "held")
_OUTBOX_SINCE = ("forwarded", "refused", "dropped", "lost", "discarded")
_GROUP_COUNTS = ("floor", "ready", "leased", "pending", "redelivered", "expired")
_GROUP_HEADS = {"pending": "lag", "expired": "leases expired"}
_PARTITION_RARE = {
    "duplicates": "duplicates*",
    "dedup_forgotten": "ids forgotten early*",
    "dropped_dead_letters": "dead letters dropped*",
    "stamps_ahead": "times ahead*",
}
_GROUP_RARE = {
    "dead": "dead letters kept",
    "expired_records": "messages expired*",
    "promoted": "promoted since they starved*",
}
"""Counts that have a column when any is not 0, and its head, with a star when the count begins anew at opening."""
_NOTE = (
    "* since the directory was opened, or its partition restarted; redelivered, leases expired: since the group began;"
    " all else as it is now"
)

_COORDINATED = {
    "rebalances": "rebalances",
    "forced_handovers": "forced hand-overs",
    "stalled_members": "stalled members",
}
"""Counts of exclusive groups that have a column when any is not 0, and its head."""


@click.command()
@all_option
@directory_option
@json_option
def stats(directory: str, with_own: bool, as_json: bool) -> None:
    """Show offsets, sizes, states and groups of every partition.

    Of dead letters that are kept, messages that expired, duplicates and the like there is a column when there are any.
    With --json all groups are there, those of the broker's own too. What is counted since the directory was opened has
    a star, or says so.
    """
    (found,) = ask_runtime(directory, {"verb": "stats"})
    if as_json:
        print_json(found)
        return
    names = {group["group_id"]: group["name"] for group in found["groups"]}
    rows, groups = [], []
    rare = _occurring(_PARTITION_RARE, found["partitions"])
    group_rare = _occurring(_GROUP_RARE, [each for part in found["partitions"] for each in part["groups"]])
    for partition in found["partitions"]:
        label = f"{partition['topic']}/{partition['partition']}"
        counts = [f"{partition[key]:,}" for key in (*_PARTITION_COUNTS, *rare)]
        counts.insert(2, size_text(partition["size_bytes"]))
        rows.append((label, partition["state"], *counts))
        for group in partition["groups"]:
            if names.get(group["group_id"]) in OWN_GROUPS and not with_own:
                continue
            counts = [f"{group[key]:,}" for key in (*_GROUP_COUNTS, *group_rare)]
            groups.append((names.get(group["group_id"], "?"), label, *counts))
    heads = (*_PARTITION_HEADS, *rare.values())
    show(table(heads, rows, words=("partition", "state")))
    if groups:
        counted_heads = (*(_GROUP_HEADS.get(key, key) for key in _GROUP_COUNTS), *group_rare.values())
        show("", table(("group", "partition", *counted_heads), groups, words=("group", "partition")))
    if occurring := _occurring(_COORDINATED, found["groups"]):
        coordinated = [
            (each["name"], *(f"{each[key]:,}" for key in occurring))
            for each in found["groups"]
            if any(each[key] for key in occurring)
        ]
        heads = ("group", *occurring.values())
        show("", table(heads, coordinated, words=("group",), title="since the directory was opened"))
    if found["forwarding"]:
        show("", _forwarding(found["forwarding"]))
    show("", _NOTE, "")
    _show_losses(found)
    for outbox in found["outbox"]:
        label = f"{outbox['topic']}/{outbox['partition']}"
        now, since = (
            ", ".join(f"{outbox[key]:,} {key}" for key in keys) for keys in (_OUTBOX_NOW, _OUTBOX_SINCE)
        )
        show(f"published with acks of {label}: {now} now; {since} since the directory was opened")
    for line in _delayed(found["delayed"]):
        show(line)
    if found["schedules"]:
        show(_schedules(found["schedules"]))
    timers = found["timers"]
    show(
        f"timers (ends of leases, pauses before retries, delays): {timers['armed']:,} wait,"
        f" {timers['came']:,} came since the directory was opened"
    )


def _occurring(heads: dict[str, str], counted: list[dict[str, Any]]) -> dict[str, str]:
    """Those of the counts that are not 0 everywhere, with their heads."""
    return {key: head for key, head in heads.items() if any(each.get(key) for each in counted)}


def _forwarding(found: list[dict[str, Any]]) -> Any:
    rows = [
        (each["topic"], f"{each['forwarded']:,}", f"{each['kept']:,}", each["held"] or "") for each in found
    ]
    heads = ("dead letters for", "forwarded*", "kept", "held because")
    return table(heads, rows, words=("dead letters for", "held because"))


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


def _schedules(found: list[dict[str, Any]]) -> str:
    fired, over = (sum(each[count] for each in found) for count in ("fired", "passed_over"))
    paused = sum(each["is_paused"] for each in found)
    counts = (
        f"schedules: {len(found):,}, {paused:,} paused; {fired:,} firings published, {over:,} passed over since the"
        " directory was opened"
    )
    waits = [each for each in found if each["problem"]]
    return "\n".join(
        (counts, *(f"schedule {each['topic']}/{each['name']} waits: {each['problem']}" for each in waits))
    )


def _show_losses(found: dict[str, Any]) -> None:
    """What was found damaged or given up by a repair, as long as it is not acknowledged."""
    partitions, catalog = found["partitions"], found["catalog"]
    for damage in catalog["damages"]:
        show(damage)
    if catalog["missing"]:
        show(f"catalog: not known any more: {', '.join(catalog['missing'])}")
    for partition in partitions:
        for damage in partition["damages"]:
            show(f"{partition['topic']}/{partition['partition']}: {damage}")
    if catalog["damages"] or any(partition["lost_records"] for partition in partitions):
        show("Lost records are reported until `callboard repair --accept` acknowledges them.")


@click.command()
@directory_option
@click.option(
    "--events", is_flag=True, help="Also show the latest events, such as restarts with their causes."
)
@json_option
def tree(directory: str, events: bool, as_json: bool) -> None:
    """Show the tree of actors in a running runtime. Each has a state, restarts and their causes, a mailbox."""
    require_directory(directory)

    async def work() -> tuple[Any, Any]:
        client = ControlClient(directory)
        return await client.request("tree"), await client.request("events") if events else []

    found, happened = run(work)
    if as_json:
        print_json({"tree": found, "events": happened} if events else found)
        return
    show(_drawn(found))
    for event in happened:
        show(_event_line(event))


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
