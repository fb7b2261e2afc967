"""How `callboard simulate` prints what it found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rich.console import RenderableType

from callboard.cli.output import Cell, counted, facts, table
from callboard.cli.simulate.sweep import Search
from callboard.simulations.machines import MACHINES
from callboard.simulations.search.coverage import CoverageRow, uncovered
from callboard.simulations.search.sweep import Result, ScenarioTally
from callboard.simulations.world import in_wire_mode


def scenario_table(scenarios: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """The scenarios there are."""
    rows = [
        (name, f"{about['share']:g}", f"{about['seconds']:g}", about["least"], about["faults"])
        for name, about in scenarios.items()
    ]
    return table(("scenario", "share", "s/seed", "least seeds", "kinds of faults"), rows)


def proof_table(proofs: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Which seed missed each safeguard."""
    rows = [
        (
            proof["name"],
            proof["scenario"] if proof["caught"] else "no seed",
            str(proof["seed"]) if proof["caught"] else "",
            proof["tried"],
            f"{proof['seconds']:.1f}",
            proof["promise"],
        )
        for proof in proofs
    ]
    heads = ("safeguard switched off", "caught by", "seed", "seeds tried", "s", "broken promise")
    return table(heads, rows, words=(heads[0], "caught by", "broken promise"))


def searched_lines(found: Search, rows: Sequence[CoverageRow], *, verbose: bool = False) -> Iterator[Any]:
    """Tables and lines for people: what failed, then what was searched and met.

    `verbose` gives every fault and point a row; otherwise those are named that were not met.
    """
    sweep = found.sweep
    if found.resumed:
        yield found.resumed
    for failure in found.failures:
        yield failure.story
        if failure.note and failure.note not in failure.story:
            yield f"({failure.note})"
        if failure.report:
            yield f"Its timeline: {failure.report}"
        yield ""
    if found.failures:
        yield _summary(found)
        yield ""
    heads = ("scenario", "seeds", "wire mode", "virtual time", "boots", "ticks")
    yield table(heads, [_scenario_row(name, tally) for name, tally in sweep.tallies.items()])
    if rows:
        yield ""
        if verbose:
            yield table(("met", "times", "remark"), map(_coverage_row, rows), words=("met", "remark"))
        else:
            yield facts(_coverage_facts(rows))
    missing = len(uncovered(rows))
    if missing:
        yield (
            f"{missing} of {len(rows)} faults and points were not met: only a whole sweep is expected to meet all."
            f"{'' if verbose else ' `--verbose` counts each.'}"
        )
    if not found.failures:
        yield _summary(found)


def _scenario_row(name: str, tally: ScenarioTally) -> tuple[Cell, ...]:
    return (
        name,
        f"{tally.done.count:,}/{tally.seeds:,}",
        _in_wire_mode(name, tally),
        _hours(tally.virtual_s),
        tally.boots,
        tally.events or tally.ticks,
    )


def _in_wire_mode(name: str, tally: ScenarioTally) -> int:
    """How many of the seeds that are done were in wire mode: machines send no messages."""
    seeds = chain.from_iterable(range(first, end) for first, end in tally.done)
    return 0 if name == MACHINES else sum(map(in_wire_mode, seeds))


def _is_in_wire_mode(result: Result) -> bool:
    return result.scenario != MACHINES and in_wire_mode(result.seed)


def _coverage_row(row: CoverageRow) -> tuple[Cell, ...]:
    rare = f"rare: {row.rare}" if row.rare and not row.hits else ""
    return f"{row.kind} {row.name}", row.hits, "never met" if row.is_missing else rare


def _coverage_facts(rows: Sequence[CoverageRow]) -> Iterator[tuple[str, str]]:
    """The same in a few lines: how many were met how often, and the names of those that were not."""
    for kind, title, met in (("fault", "faults", "hit"), ("sometimes", "points", "reached")):
        mine = [row for row in rows if row.kind == kind]
        if not mine:
            continue
        count, times = sum(row.hits > 0 for row in mine), sum(row.hits for row in mine)
        of = counted(len(mine), "kind" if kind == "fault" else "point")
        yield title, f"{count:,} of {of} {met}, {counted(times, 'time')}"
        missing = [row.name for row in mine if row.is_missing]
        if missing:
            yield f"never {met}", "; ".join(_variants_together(missing))
        if rare := sum(bool(row.rare) and not row.hits for row in mine):
            yield "rare", f"{rare:,} more not {met}: no sweep has to"


def _variants_together(names: Iterable[str]) -> Iterator[str]:
    """`FailVerb:sync:EIO` and `FailVerb:open:EIO` as one: `FailVerb (sync:EIO, open:EIO)`."""
    variants: dict[str, list[str]] = {}
    for name in names:
        kind, colon, variant = name.partition(":")
        whole = " " in kind  # words, not a kind of fault
        variants.setdefault(name if whole else kind, []).extend([variant] if colon and not whole else [])
    for kind, found in variants.items():
        yield f"{kind} ({', '.join(found)})" if found else kind


def _summary(found: Search) -> str:
    sweep = found.sweep
    virtual_s = sum(tally.virtual_s for tally in sweep.tallies.values())
    boots = sum(tally.boots for tally in sweep.tallies.values())
    state = "complete" if sweep.is_complete else "not complete, the same command continues"
    failed = len(sweep.failures)
    kept = "no promise was broken" if sweep.is_complete else "no promise was broken by those that ended"
    kept = kept if sweep.done else "nothing is known"
    broken = f"{failed} seed{'s' * (failed > 1)} broke a promise" if failed else kept
    return (
        f"{sweep.done:,} of {sweep.seeds:,} seeds ({state}) in {found.seconds:,.1f} s, {found.rate:,.1f}/s:"
        f" {_hours(virtual_s)} of virtual time, {boots:,} boots,"
        f" {counted(sum(sweep.faults.values()), 'fault')} hit; {broken}"
    )


def _hours(seconds: float) -> str:
    if seconds < 3_600:
        return f"{seconds:,.1f} s"
    return f"{seconds / 3_600:,.1f} h" if seconds < 48 * 3_600 else f"{seconds / 86_400:,.1f} days"


def searched_to_dict(found: Search, rows: Sequence[CoverageRow]) -> dict[str, Any]:
    """The same for scripts."""
    sweep = found.sweep
    return {
        "seeds": sweep.seeds,
        "done": sweep.done,
        "complete": sweep.is_complete,
        "resumed": found.resumed,
        "seconds": round(found.seconds, 3),
        "seeds_per_second": round(found.rate, 3),
        "scenarios": {
            name: {
                "seeds": tally.seeds,
                "done": tally.done.count,
                "virtual_s": round(tally.virtual_s, 3),
                "boots": tally.boots,
                "wire_mode": _in_wire_mode(name, tally),
                "ticks": tally.ticks,
                "events": tally.events,
            }
            for name, tally in sweep.tallies.items()
        },
        "faults": {row.name: row.hits for row in rows if row.kind == "fault"},
        "points": {row.name: row.hits for row in rows if row.kind == "sometimes"},
        "missing": [row.name for row in uncovered(rows)],
        "failures": [
            {
                "scenario": failure.result.scenario,
                "seed": failure.result.seed,
                "wire_mode": _is_in_wire_mode(failure.result),
                "promise": failure.result.promise,
                "words": failure.result.words,
                **{
                    name: getattr(failure, name)
                    for name in ("stored_in", "report", "command", "story", "note")
                },
            }
            for failure in found.failures
        ],
    }
