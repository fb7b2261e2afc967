"""`callboard workload`: traffic becomes a recording, that a profile, and that larger recordings. Jobs run on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import click

from callboard.cli import files
from callboard.cli.answers import CommandAnswer
from callboard.cli.command_line import CommandGroup
from callboard.cli.options import FiniteFloat
from callboard.cli.output import Cell, counted, facts, say, size_text, table
from callboard.cli.traffic_options import empty_key_option, parse_delimiter, time_format_option
from callboard.cli.workload.analyse import analyse
from callboard.cli.workload.compare import compare
from callboard.cli.workload.pipeline import pipeline
from callboard.cli.workload.rescale import made, rescale
from callboard.cli.workload.spark_job import SparkJob, bucket_option, spark_job
from callboard.log.errors import InvalidArgument
from callboard.message import from_us
from callboard.reports.reporting import mute_spark
from callboard.simulations.workload.behaviour import EVENTS_MIN
from callboard.simulations.workload.distances import BUCKETS_MIN
from callboard.simulations.workload.generating import generate as generate_recording
from callboard.simulations.workload.importing import (
    PARQUET,
    WINDOW_S,
    ImportReport,
    check_sources,
    import_traffic,
)
from callboard.simulations.workload.measuring import measure_recording
from callboard.simulations.workload.profile_format import (
    PROFILE_BYTES_MAX,
    SECOND_US,
    WorkloadProfile,
    profile_from_json,
)
from callboard.simulations.workload.scaling import Scaling, exact
from callboard.spark.files import check_new
from callboard.traffic.lines import LineColumns
from callboard.traffic.reading import Format
from callboard.traffic.times import time_form

FORMATS = [*(form.value for form in Format), PARQUET]


@click.group(cls=CommandGroup)
def workload() -> None:
    """Turn traffic into recordings and profiles, with Spark. Profiles become larger recordings.

    Needs `pip install 'callboard[spark]'` and Java 17 or later.
    """
    mute_spark()


workload.add_command(compare)
workload.add_command(analyse)
workload.add_command(pipeline)
workload.add_command(rescale)


@workload.command("import")
@click.argument("sources", nargs=-1, required=True, metavar="FILE...")
@click.option("--out", required=True, metavar="RECORDING", help="The recording to make; it must not exist.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What the files are.  [default: detected]")
@click.option("--time-column", metavar="NAME", help="The column, or JSON field, that holds the time.")
@click.option("--key-column", metavar="NAME", help="The column that holds the key.")
@click.option(
    "--value-column", metavar="NAME", help="The column that is the value.  [default: the whole line]"
)
@click.option(
    "--records",
    metavar="NAME",
    help="The file is one JSON object: its member, an array, whose elements are the records.",
)
@time_format_option
@empty_key_option
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    callback=parse_delimiter,
    help="What separates the fields of CSV; 'tab' for a tab.",
)
@click.option("--year", type=int, help="The year of syslog lines whose times have none.")
@click.option("--partitions", default=1, show_default=True, help="Partitions of the recording.")
@click.option(
    "--window",
    "window_s",
    type=FiniteFloat(0),
    default=WINDOW_S,
    show_default=True,
    metavar="SECONDS",
    help="Lines that are late by no more than this are sorted to their place.",
)
@click.option("--strict", "is_strict", is_flag=True, help="Fail when any line is bad or late.")
@click.option(
    "--bad", metavar="FILE", help="Where lines that are kept aside go.  [default: RECORDING.bad.jsonl]"
)
@spark_job
def import_command(
    sources: tuple[str, ...],
    out: str,
    form: str | None,
    time_column: str | None,
    key_column: str | None,
    value_column: str | None,
    records: str | None,
    time_format: str,
    empty_key: str,
    delimiter: str | None,
    year: int | None,
    partitions: int,
    window_s: float,
    is_strict: bool,
    bad: str | None,
    job: SparkJob,
) -> CommandAnswer:
    """Make a recording of raw traffic. Access logs, syslog, other lines that begin with a time, JSON lines or arrays,
    CSV, TSV or Parquet are read.

    FILE is a file (plain, .gz, .bz2 or .zst), a folder, or a pattern. Lines that cannot be read are kept aside with the
    reason.
    """
    columns = LineColumns(
        time_column,
        key_column,
        value_column,
        time_form(time_format),
        delimiter,
        year,
        records,
        keeps_empty_keys=empty_key == "keep",
    )
    check_new(out)
    check_sources(sources)
    with job.session("importing") as session:
        report = import_traffic(
            session,
            sources,
            out.rstrip("/"),
            form=form,
            columns=columns,
            partitions=partitions,
            window_s=window_s,
            is_strict=is_strict,
            bad=bad,
        )
    _say_what_was_kept_aside(report)
    return CommandAnswer(attrs.asdict(report), _import_lines(report, out))


def _import_lines(report: ImportReport, out: str) -> list[Any]:
    sorted_by = f"sorted; the latest line by {report.latest_late_us / SECOND_US:g} s"
    aside = "" if report.kept_aside is None else f"kept aside in {report.kept_aside}"
    counts = [
        ("lines", report.lines, f"{report.format}, in {counted(report.files, 'file')}"),
        ("records", report.records, f"{report.keyless:,} without a key" if report.keyless else ""),
        ("of these late", report.late, sorted_by if report.late else ""),
        ("bad", report.bad, aside if report.bad else ""),
        ("later than the window", report.too_late, aside if report.too_late else ""),
        ("empty lines and headers", report.skipped, ""),
        ("not UTF-8", report.not_utf8, "bytes are kept as they are"),
        ("empty files", report.empty_files, ""),
    ]
    always = 6
    rows = [row for index, row in enumerate(counts) if index < always or row[1]]
    heads = ("what", "how many", "note")
    return [table(heads, rows, words=("what", "note"), title=f"recording {out}"), f"digest {report.digest}"]


def _say_what_was_kept_aside(report: ImportReport) -> None:
    """Most lines are late where a file has the newest first: that may not look like an import that went well."""
    if report.too_late > report.records:
        window_s = -(-report.latest_late_us // SECOND_US)
        say(
            f"callboard: {counted(report.too_late, 'line')} of {report.lines:,} are earlier than lines before them, by"
            f" more than the window, and were kept aside. If the newest lines come first, import again into another"
            f" recording with --window {window_s}."
        )


@workload.command()
@click.argument("recording")
@click.option("--out", required=True, metavar="PROFILE.json", help="The profile to write.")
@click.option("--report", "report_path", metavar="HTML", help="Write a page with plots, too.")
@click.option(
    "--values/--no-values",
    "with_values",
    default=True,
    show_default=True,
    help="Learn what values look like: their fields, in numbers, and nothing of what they hold.",
)
@bucket_option("The length of a bucket of time.  [default: 1/200 of the recording, a second at least]")
@spark_job
def profile(
    recording: str,
    out: str,
    report_path: str | None,
    with_values: bool,
    bucket_us: int | None,
    job: SparkJob,
) -> CommandAnswer:
    """Measure a recording. Its rates, bursts, keys, sizes and the look of its values become a small file."""
    for path in filter(None, (out, report_path)):
        files.check_target(path)
    if report_path is not None and report_path == out:
        raise InvalidArgument("the profile and the report are one file. Name two.")
    with job.session("measuring") as session:
        found = measure_recording(session, recording, bucket_us=bucket_us, values=with_values)
    files.write_whole(out, found.to_json().encode())
    if report_path is not None:
        from callboard.simulations.workload.report import profile_page

        files.write_whole(report_path, profile_page(found, title=f"Profile of {recording}").encode())
    if found.events >= EVENTS_MIN and len(found.bucket_counts) < BUCKETS_MIN:
        say(
            f"callboard: {recording} is known in {counted(len(found.bucket_counts), 'bucket')} only. What is generated"
            " from so few waits in other queues than what was recorded: measure more time, or use workload rescale."
        )
    return CommandAnswer(
        {"events": found.events, "out": out, "report": report_path, "recording": found.recording},
        [facts(_profile_facts(found), title=f"profile {out}")],
    )


@workload.command()
@click.argument("profiles", nargs=-1, required=True, metavar="PROFILE.json...")
@click.option("--out", required=True, metavar="RECORDING", help="The recording to make; it must not exist.")
@click.option(
    "--scale",
    default="1",
    show_default=True,
    metavar="N",
    help="The volume: N times the events and keys.",
)
@click.option(
    "--seed", default="0", show_default=True, help="Another seed, another recording of the same character."
)
@click.option(
    "--duration", default="1", show_default=True, metavar="N", help="Repeat the recorded time this often."
)
@click.option(
    "--keys", default="1", show_default=True, metavar="N", help="How many keys for each that --scale makes."
)
@click.option(
    "--skew", default="1", show_default=True, metavar="N", help="0: keys are equally frequent; 2: squared."
)
@click.option(
    "--burst",
    default="1",
    show_default=True,
    metavar="N",
    help="Put the events of this many seconds into one.",
)
@click.option("--partitions", type=int, help="Partitions of the recording.  [default: the first profile's]")
@click.option(
    "--weight", "weights", multiple=True, metavar="N", help="For each profile: its share of the scale."
)
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="KIND@TIME,for=SECONDS,...",
    help="What if: flash-crowd (times=), hot-key (share=), retry-storm (times=, after=) or silence.",
)
@spark_job
def generate(
    profiles: tuple[str, ...],
    out: str,
    scale: str,
    seed: str,
    duration: str,
    keys: str,
    skew: str,
    burst: str,
    partitions: int | None,
    weights: tuple[str, ...],
    events: tuple[str, ...],
    job: SparkJob,
) -> CommandAnswer:
    """Generate a recording from one profile or several. Numbers are such as 10, 0.25 or 1/3."""
    scaling = Scaling(
        volume=exact(scale, "--scale"),
        duration=exact(duration, "--duration"),
        keys=exact(keys, "--keys"),
        skew=exact(skew, "--skew", is_above=False),
        burst=exact(burst, "--burst"),
    )
    shares = [exact(weight, "--weight") for weight in weights]
    read = [profile_from_json(files.read_whole(path, PROFILE_BYTES_MAX)) for path in profiles]
    check_new(out)
    with job.session("generating") as session:
        manifest = generate_recording(
            session,
            read,
            out.rstrip("/"),
            scaling=scaling,
            weights=shares,
            events=events,
            partitions=partitions,
            seed=seed,
        )
    document = {"records": manifest.records, "out": out, "digest": manifest.digest}
    return CommandAnswer(document, [made(out, manifest)])


def _profile_facts(found: WorkloadProfile) -> Iterator[tuple[str, Cell]]:
    yield "events", found.events
    if found.events:
        from callboard.simulations.workload.report import rate_text

        yield "from", from_us(found.start_us).isoformat()
        yield "to", from_us(found.start_us + found.span_us).isoformat()
        yield "mean rate", rate_text(found)
        yield "busiest second", found.burst[-1][0]
        yield "keys", found.distinct_keys
        yield "mean value", size_text(round(found.value_total_bytes / found.events))
