"""How `callboard simulate` prints what it found."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from callboard.cli.simulate_sweep import Search
from callboard.simulations.search.coverage import Row, uncovered


def scenario_table(scenarios: Mapping[str, Mapping[str, Any]]) -> Table:
    """The scenarios there are."""
    table = _table("scenario", "share", "s/seed", "least seeds", "kinds of faults")
    for name, about in scenarios.items():
        table.add_row(
            name,
            f"{about['share']:g}",
            f"{about['seconds']:g}",
            f"{about['least']:,}",
            f"{about['faults']:,}",
        )
    return table


def proof_table(proofs: Sequence[Mapping[str, Any]]) -> Table:
    """Which seed missed each safeguard."""
    words = ("caught by", "broken promise")
    table = _table(
        "safeguard switched off", "caught by", "seed", "seeds tried", "s", "broken promise", words=words
    )
    for proof in proofs:
        seed = str(proof["seed"]) if proof["caught"] else ""
        caught = proof["scenario"] if proof["caught"] else "no seed"
        table.add_row(
            proof["name"], caught, seed, f"{proof['tried']:,}", f"{proof['seconds']:.1f}", proof["promise"]
        )
    return table


def searched_lines(found: Search, rows: Sequence[Row]) -> Iterator[Any]:
    """Tables and lines for people: what failed, then what was searched and met."""
    sweep = found.sweep
    if found.resumed:
        yield found.resumed
    for failure in found.failures:
        yield failure.story
        if failure.note:
            yield f"({failure.note})"
        if failure.report:
            yield f"Its timeline: {failure.report}"
        yield ""
    if found.failures:
        yield _summary(found)
        yield ""
    scenarios = _table("scenario", "seeds", "virtual time", "boots", "ticks")
    for name, tally in sweep.tallies.items():
        scenarios.add_row(
            name,
            f"{tally.done.count:,}/{tally.seeds:,}",
            _hours(tally.virtual_s),
            f"{tally.boots:,}",
            f"{tally.events or tally.ticks:,}",
        )
    yield scenarios
    if rows:
        coverage = _table("met", "times", "")
        for row in rows:
            rare = f"rare: {row.rare}" if row.rare and not row.hits else ""
            remark = "never met" if row.is_missing else rare
            coverage.add_row(f"{row.kind} {row.name}", f"{row.hits:,}", remark)
        yield coverage
    missing = len(uncovered(rows))
    if missing:
        yield f"{missing} of {len(rows)} faults and points were not met; only a whole sweep of standard size has to"
    if not found.failures:
        yield _summary(found)


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
        f" {_hours(virtual_s)} of virtual time, {boots:,} boots, {sum(sweep.faults.values()):,} faults hit; {broken}"
    )


def _hours(seconds: float) -> str:
    if seconds < 3_600:
        return f"{seconds:,.1f} s"
    return f"{seconds / 3_600:,.1f} h" if seconds < 48 * 3_600 else f"{seconds / 86_400:,.1f} days"


def _table(*heads: str, words: Collection[str] = ("",)) -> Table:
    """A table whose first column, and those that `words` names, hold words; the others hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, justify="left" if head in (heads[0], *words) else "right")
    return table


def searched_to_dict(found: Search, rows: Sequence[Row]) -> dict[str, Any]:
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
