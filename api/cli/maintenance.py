"""`callboard verify` and `callboard repair`: is every stored byte sound, and what to do when one is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import attrs
import click

from callboard.cli import exits
from callboard.cli.answers import CommandAnswer
from callboard.cli.interruption import run
from callboard.cli.journals import PartitionReset, content_problems, reset_groups, with_contents
from callboard.cli.options import directory_option, json_option
from callboard.cli.output import Advance, counted, progress, size_text
from callboard.log.errors import CallboardError
from callboard.log.host.clock import HostClock
from callboard.log.offline.inspected_log import LogKind, Problem
from callboard.log.offline.repair import RepairReport, repair_directory
from callboard.log.offline.verify import LogReport, Progress, VerifyReport, verify_directory
from callboard.offline import OfflineDirectory

Names = dict[str, str]


@click.command()
@directory_option
@json_option
def verify(directory: str, as_json: bool) -> int:
    """Check every stored byte: frames, offsets, indexes, journals. Changes nothing; needs no lock.

    Exits with 4 when something is damaged, and names the offsets that are lost. What crashes leave behind and
    opening the directory takes care of is only noted.
    """

    async def work() -> tuple[VerifyReport, Names]:
        async with OfflineDirectory(directory) as offline:
            names = await _names(offline)
            with progress("verifying", quiet=as_json) as advance:
                report = await verify_directory(offline.disk, progress=_teller(advance, names))
            return await with_contents(offline, report), names

    report, names = run(work)
    named = [log for log in report.partitions if _holds_messages(log)]
    document = {
        "ok": report.ok,
        "records": report.records,
        "size_bytes": report.size_bytes,
        "partitions": len(named),
        "messages": sum(log.records for log in named),
        "logs": [_log(log, names) for log in report.logs],
    }
    lines = [
        _line(log, problem, names, what)
        for log in report.logs
        for what, problems in (("DAMAGED", log.problems), ("note", log.notes))
        for problem in problems
    ]
    code = exits.OK if report.ok else exits.DAMAGED
    return CommandAnswer(document, [*lines, _summary(report)], code=code).print(as_json=as_json)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--reset-deliveries",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Also set back what the delivery journals say of this group (name, id, or '*': every group) where that makes"
    " no sense.",
)
@click.option("--accept", is_flag=True, help="Acknowledge what was lost: it is reported no more.")
@directory_option
@json_option
def repair(dry_run: bool, groups: tuple[str, ...], accept: bool, directory: str, as_json: bool) -> int:
    """Make damaged logs whole again. No record that can be read is lost.

    Damaged files go to quarantine as they are; offsets that cannot be read become a recorded gap. No process may have
    the directory open. What was lost is reported at every opening until --accept acknowledges it.

    With --dry-run nothing is changed, and the exit code is 4 when there is something to do.

    A journal whose bytes are sound but make no sense is left alone unless --reset-deliveries names the group: its
    state stays as it was before the first record that makes no sense, and what was settled after that is delivered
    again.
    """

    async def work() -> tuple[RepairReport, list[PartitionReset], list[Problem], Names]:
        async with OfflineDirectory(directory, writable=not dry_run) as offline:
            names = await _names(offline)
            senseless = await content_problems(offline)  # first: it may be too new to be touched
            with progress("repairing", quiet=as_json) as advance:
                report = await repair_directory(
                    offline.disk,
                    dry_run=dry_run,
                    accept=accept,
                    now_us=HostClock().wall_us(),
                    progress=_teller(advance, names),
                )
            resets = await reset_groups(offline, groups, dry_run=dry_run) if groups else []
            if groups and not dry_run:
                senseless = await content_problems(offline)
            return report, resets, [*report.left, *senseless], names

    report, resets, left, names = run(work)
    document = _repaired(report, names)
    document["resets"] = [attrs.asdict(reset) for reset in resets]
    document["left"] = [attrs.asdict(problem) for problem in left]
    lines = chain(
        _reset_lines(resets, dry_run),
        [f"left alone: {_label(problem.path, names)}: {problem.message}" for problem in left],
        _repair_lines(report, names, is_all=not resets and not left),
    )
    is_left = bool(left) or (dry_run and bool(report.actions or resets))
    return CommandAnswer(document, lines, code=exits.DAMAGED if is_left else exits.OK).print(as_json=as_json)


async def _names(offline: OfflineDirectory) -> Names:
    """Topic ids and names, as far as the catalog can be read: it may be what is damaged."""
    try:
        replay = await offline.catalog()
    except CallboardError:
        return {}
    return {topic_id: record.name for topic_id, record in replay.state.topics.items()}


def _teller(advance: Advance, names: Names) -> Callable[[Progress], None]:
    def tell(found: Progress) -> None:
        advance(_label(found.path, names), found.bytes_done, found.bytes_total)

    return tell


def _label(path: str, names: Names) -> str:
    """topics/<id>/<partition>[/...] by the topic's name, anything else as it is."""
    parts = path.split("/")
    if len(parts) >= 3 and parts[0] == "topics":
        return f"{names.get(parts[1], parts[1])}/{'/'.join(parts[2:])}"
    return path


def _offsets(first: int | None, last: int | None) -> str | None:
    if first is None or last is None or last < first:
        return None
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _line(log: LogReport, problem: Problem, names: Names, what: str) -> str:
    place = problem.path if problem.position is None else f"{problem.path}, byte {problem.position}"
    offsets = _offsets(problem.first_offset, problem.last_offset)
    found = f"{offsets}: {problem.message}" if offsets else problem.message
    return f"{what}: {_label(log.path, names)}: {problem.kind}: {found} ({place})"


def _holds_messages(log: LogReport) -> bool:
    """Whether these are messages of a topic, not what waits beside it, or what the broker keeps for itself."""
    return log.kind is LogKind.PARTITION and log.path.rpartition("/")[2].isdecimal()


def _summary(report: VerifyReport) -> str:
    named = [log for log in report.partitions if _holds_messages(log)]
    records = sum(log.records for log in named)
    own = len(report.logs) - len(named)
    what = (
        f"{counted(len(named), 'partition')} with {counted(records, 'message')}, and {counted(own, 'log')} of the"
        f" broker's own with {counted(report.records - records, 'record')}, in {size_text(report.size_bytes)}"
    )
    if report.ok:
        return f"{what}: sound"
    damaged = sum(not log.ok for log in report.logs)
    return (
        f"{what}: {counted(len(report.problems), 'problem')} in {damaged:,} of them. `callboard repair --dry-run` says"
        " what can be done."
    )


def _reset_lines(resets: list[PartitionReset], dry_run: bool) -> Iterator[str]:
    would = "would be " if dry_run else ""
    for reset in resets:
        yield (
            f"{would}reset: {reset.label}: group {reset.group}: {reset.forgotten_records:,} journal records"
            f" {would}forgotten; what is not settled is delivered again from offset {reset.floor} on,"
            f" {reset.settled_above:,} offsets above it stay settled"
        )
        for path in reset.quarantined:
            yield f"kept: {path}"


def _repair_lines(report: RepairReport, names: Names, *, is_all: bool) -> Iterator[str]:
    for action in report.actions:
        yield f"{action.kind}: {_label(action.path, names)}: {action.message}"
    for path, first, last in report.lost:
        word = "would be given up" if report.dry_run else "given up"
        yield f"lost: {_label(path, names)}: {_offsets(first, last) or 'no offset'} {word}"
    for path in report.quarantined:
        yield f"kept: {path}"
    if not report.actions:
        yield "nothing is damaged: nothing to do" if is_all else "no bytes are damaged"
    elif report.dry_run:
        yield f"{counted(len(report.actions), 'thing')} to do; nothing was changed"
    else:
        yield f"{counted(len(report.actions), 'thing')} done"


def _log(log: LogReport, names: Names) -> dict[str, Any]:
    return {"name": _label(log.path, names), **attrs.asdict(log)}


def _repaired(report: RepairReport, names: Names) -> dict[str, Any]:
    return {
        "dry_run": report.dry_run,
        "changed": report.changed,
        "logs": [_log(log, names) for log in report.before],
        "actions": [
            {"name": _label(action.path, names), **attrs.asdict(action)} for action in report.actions
        ],
        "lost": [
            {"name": _label(path, names), "path": path, "first_offset": first, "last_offset": last}
            for path, first, last in report.lost
        ],
        "quarantined": list(report.quarantined),
    }
