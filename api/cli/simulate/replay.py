"""`callboard simulate replay`: a recording replayed in the simulated world, under faults, each record accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import attrs
import click

from callboard.cli import exits
from callboard.cli.answers import CommandAnswer
from callboard.cli.files import read_whole
from callboard.cli.options import json_option
from callboard.cli.output import facts, progress
from callboard.cli.recording import from_option, parse_span, to_option
from callboard.cli.replay import fraction_option, keys_option, speed_option
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.limits import PARTITIONS_MAX
from callboard.recordings.reader import Recording
from callboard.replay.pacing import MAX_SPEED
from callboard.replay.positions import Selection
from callboard.simulations.faults import NO_FAULTS, Plan
from callboard.simulations.faults.plan import PLAN_BYTES_MAX
from callboard.simulations.replays.files import checked_recording
from callboard.simulations.replays.running import SimulatedReplay, random_plan, simulate_replay, topic_of
from callboard.simulations.violations import Violation

HORIZON_MAX_S: Final = 3_600.0
HORIZON_MIN_S: Final = 1.0


@click.command("replay")
@click.argument("path", metavar="RECORDING")
@speed_option
@from_option
@to_option
@keys_option
@fraction_option
@click.option(
    "--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="[default: as many as the recording has]"
)
@click.option("--seed", type=click.IntRange(0, 1 << 40), default=0, show_default=True)
@click.option("--faults", "file", metavar="PLAN.json", help="A fault plan.")
@click.option("--random-faults", is_flag=True, help="A plan drawn from the seed, and a scheduler too.")
@click.option("--digest", "trace", is_flag=True, help="Print a digest of all that happened; slower.")
@json_option
def simulate_replay_command(
    path: str,
    speed: float,
    start: str | None,
    stop: str | None,
    keys: tuple[str, ...],
    fraction: Fraction | None,
    partitions: int | None,
    seed: int,
    file: str | None,
    random_faults: bool,
    trace: bool,
    as_json: bool,
) -> int:
    """Replay a recording in the simulated world: production code, a virtual clock, any faults.

    A consumer group reads everything back, and each record is compared with the recording. Exits with 6 when one is
    missing, altered or there twice, or anything else that is promised was broken.
    """
    if file is not None and random_faults:
        raise InvalidArgument("--faults and --random-faults exclude each other. Nothing was run.")
    plan = NO_FAULTS if file is None else Plan.from_json(read_whole(file, PLAN_BYTES_MAX))
    selection = Selection(span=parse_span(start, stop), keys=keys, fraction=fraction)
    with progress("simulating", quiet=as_json) as advance:
        advance("checking the recording", 0, None)
        with checked_recording(path, selection) as (recording, selected):
            if random_faults:
                plan = random_plan(
                    seed,
                    partitions or len(recording.manifest.partitions),
                    _horizon(recording, speed),
                    topic_of(recording),
                )
            found = simulate_replay(
                recording,
                selected=selected,
                speed=speed,
                selection=selection,
                partitions=partitions,
                seed=seed,
                plan=plan,
                scheduler=None if random_faults else "fifo",
                trace=trace,
                on_progress=lambda records, now: advance(
                    f"{records:,} of {selected:,} records, virtual second {now:,.0f}", records, selected
                ),
            )
    code = exits.OK if found.failure is None else exits.VIOLATED
    return _answer(found, plan, code).print(as_json=as_json)


def _horizon(recording: Recording, speed: float) -> float:
    """Within how many virtual seconds faults come."""
    manifest = recording.manifest
    span_s = ((manifest.last_time_us or 0) - (manifest.first_time_us or 0)) / 1e6
    wanted = 0.0 if speed == MAX_SPEED else span_s / speed
    return min(max(wanted, HORIZON_MIN_S), HORIZON_MAX_S)


def _answer(found: SimulatedReplay, plan: Plan, code: int) -> CommandAnswer:
    failure = found.failure
    if failure is not None and not isinstance(failure, CallboardError):
        raise failure
    words = None if failure is None else f"{type(failure).__name__}: {failure}"
    fields = attrs.asdict(found, filter=lambda field, _: field.name != "failure")
    lines = [facts(_lines(found))]
    if plan != NO_FAULTS:
        lines.append(plan.words())
    if words is not None:
        lines.append(words if isinstance(failure, Violation) else f"the run failed: {words}")
    said = [f"without effect: {fault}" for fault in found.idle]
    return CommandAnswer(fields | {"failure": words, "plan": plan.to_data()}, lines, said=said, code=code)


def _lines(found: SimulatedReplay) -> Sequence[tuple[str, str]]:
    lines = [
        ("topic", found.topic),
        ("records", f"{found.records:,} as recorded, once each"),
        ("lost by the disk", f"{found.missing:,}"),
        ("calls of replay", f"{found.runs:,}, in {found.lives:,} lives of the machine"),
        ("delivered", f"{found.delivered:,}"),
        ("virtual seconds", f"{found.virtual_s:,.1f}"),
        (
            "lateness p99, worst",
            f"{found.lateness.p99_s * 1e3:,.1f} ms, {found.lateness.max_s * 1e3:,.1f} ms",
        ),
        (
            "faults that hit",
            ", ".join(f"{kind} {count}" for kind, count in sorted(found.faults.items())) or "none",
        ),
    ]
    return [*lines, ("digest", found.digest)] if found.digest else lines
