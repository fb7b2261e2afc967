"""`callboard replay`: publish a recording into a topic, at its own pace or another."""

from __future__ import annotations

import gc
from fractions import Fraction
from functools import partial
from typing import Final, Literal

import attrs
import click

from callboard.actors.names import check_name
from callboard.actors.settings import TOPIC_FIELDS, TopicSettings, topic_settings
from callboard.cli.answers import CommandAnswer
from callboard.cli.files import is_unused
from callboard.cli.interruption import run
from callboard.cli.options import json_option, parse_settings
from callboard.cli.output import Advance, counted, facts, progress, say
from callboard.cli.recording import from_option, parse_span, to_option
from callboard.cli.streams import check_directory
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.message import from_us
from callboard.offline import OfflineDirectory, recording_at
from callboard.recordings.sharing import check_fraction
from callboard.replay import ReplayProgress, ReplayReport, check_recording, check_speed, replay
from callboard.replay.pacing import check_rate
from callboard.replay.positions import Selection
from callboard.runtime import open_runtime

PARTS: Final = 1_000
"""Of a progress bar."""


speed_option = click.option(
    "--speed",
    default="1",
    metavar="N|max",
    callback=lambda _context, _option, given: check_speed(given),
    show_default=True,
    help="1: as recorded; 10: ten times that; max: without waiting.",
)
fraction_option = click.option(
    "--fraction",
    metavar="N",
    default=None,
    callback=lambda _context, _option, given: None if given is None else check_fraction(given),
    help="Only this part of the keys, such as 0.1, each with all of its records.",
)
keys_option = click.option(
    "--key", "--keys", "keys", multiple=True, help="Only keys that match this pattern, such as 'user-*'."
)


@click.command("replay")
@click.argument("path", metavar="RECORDING")
@click.argument("settings", nargs=-1, metavar="[SETTING=VALUE]...")
@click.option("--into", "directory", required=True, help="The directory of the runtime; made when missing.")
@click.option("--topic", required=True, help="The topic; made when missing, with the settings.")
@speed_option
@click.option(
    "--rate",
    metavar="N",
    default=None,
    callback=lambda _context, _option, given: None if given is None else check_rate(given),
    help="Publish N records a second, in the order of their times, instead of a speed.",
)
@from_option
@to_option
@keys_option
@fraction_option
@click.option("--loop", is_flag=True, help="Again and again, until it is interrupted.")
@click.option("--passes", type=click.IntRange(1), default=None, help="How often, in all. [default: 1]")
@click.option("--acks", type=click.Choice(["leader", "all"]), default="all", show_default=True)
@json_option
def replay_command(
    path: str,
    settings: tuple[str, ...],
    directory: str,
    topic: str,
    speed: float,
    rate: float | None,
    start: str | None,
    stop: str | None,
    keys: tuple[str, ...],
    fraction: Fraction | None,
    loop: bool,
    passes: int | None,
    acks: Literal["leader", "all"],
    as_json: bool,
) -> int:
    """Publish a recording into a topic at its own pace. Each record is published when its time comes.

    Settings of the topic are name=value, as in `topic create`; by default it gets as many partitions as the recording
    has. Interrupted, the same command continues: no record is lost, none is there twice.
    """
    if loop and passes is not None:
        raise InvalidArgument("--loop and --passes exclude each other. Nothing was written.")
    if rate is not None and speed != 1:
        raise InvalidArgument("--speed and --rate exclude each other. Nothing was written.")
    check_name(topic, "topic")
    check_directory(directory)
    given = parse_settings(settings, TOPIC_FIELDS, partial(topic_settings, where=f"topic {topic!r}"))
    made = topic_settings(given, f"topic {topic!r}")
    span = parse_span(start, stop)
    bounds = [None if us is None else from_us(us) for us in (span.from_us, span.to_us)]
    stored: list[int] = []

    async def work(advance: Advance) -> ReplayReport:
        async with recording_at(path) as recording:
            # Before the directory is opened, which would make it.
            advance("checking the recording", 0, None)
            limit_bytes = await _max_message_bytes(directory, topic, made)
            checked = await check_recording(
                recording,
                Selection(span=span, keys=keys, fraction=fraction),
                max_message_bytes=limit_bytes,
            )
            async with open_runtime(directory) as runtime:
                # Python would look through all that was imported while records are due: up to 50 ms at a time.
                gc.collect()
                gc.freeze()
                report = await replay(
                    recording,
                    runtime,
                    topic,
                    speed=speed,
                    rate=rate,
                    start=bounds[0],
                    stop=bounds[1],
                    keys=keys,
                    fraction=fraction,
                    passes=None if loop else passes or 1,
                    acks=acks,
                    settings=given,
                    checked=checked,
                    on_progress=lambda found: _advance(advance, found, stored),
                )
        return report

    try:
        with progress("replaying", quiet=as_json) as advance:
            report = run(partial(work, advance))
    except (CallboardError, SystemExit):
        if stored:
            say(f"{counted(stored[-1], 'record')} stored by then. The same command continues there.")
        raise
    said = f"{path} was replayed into {topic} already: nothing was left to do. --passes replays it again."
    is_idle = report.is_resumed and not report.records
    answer = CommandAnswer(
        attrs.asdict(report), [facts(report_lines(report))], said=[said] if is_idle else ()
    )
    return answer.print(as_json=as_json)


async def _max_message_bytes(directory: str, topic: str, made: TopicSettings) -> int:
    """The limit of the topic that is there, or would be made."""
    if is_unused(directory):
        return made.max_message_bytes
    async with OfflineDirectory(directory) as offline:
        found = (await offline.catalog()).state.topic(topic)
    return (made if found is None else found.settings).max_message_bytes


def _advance(advance: Advance, found: ReplayProgress, stored: list[int]) -> None:
    stored[:] = [found.records]
    text = progress_text(found)
    advance(text, round((found.part or 0) * PARTS), None if found.part is None else PARTS)


def progress_text(found: ReplayProgress) -> str:
    """Where a replay stands, on one line."""
    late = f", {found.behind_s:.1f} s behind" if found.behind_s >= 0.1 else ""
    eta = "" if found.eta_s is None else f", {_span_text(found.eta_s)} left"
    return f"{found.records:,} records, {found.rate:,.0f}/s{late}{eta}"


def _span_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def report_lines(report: ReplayReport) -> list[tuple[str, str]]:
    """A report for people."""
    late = report.lateness
    lines = [
        ("records", f"{report.records:,}" + (" (continued)" if report.is_resumed else "")),
        ("rate", f"{report.rate:,.0f}/s in {report.elapsed_s:,.2f} s"),
        ("partitions", "copied one to one" if report.is_raw else "chosen by key"),
    ]
    if late.records:
        lines += [
            (
                "lateness p50, p99, worst",
                ", ".join(f"{s * 1e3:,.1f} ms" for s in (late.p50_s, late.p99_s, late.max_s)),
            ),
            ("drift over the run", f"{late.drift_s * 1e3:,.2f} ms"),
        ]
    held = f"{report.held_s:,.2f} s in the partition held up longest, {report.held_batches:,} batches in all"
    return [*lines, ("held up by the log", held)]
