"""The HTML report of a failed run: a timeline with a lane per actor or client, messages as arrows, the story beside.

One file that opens from disk: no network, and a content policy that forbids any. Everything that comes from the run is
data to the page: it is escaped, and its script only ever sets text. `report.html` beside this module is the page; it
draws on a canvas, so ten thousand entries are no burden.
"""

from __future__ import annotations

import html
import json
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

from callboard.log.errors import InternalError
from callboard.simulations.history import HistoryEntry
from callboard.simulations.search.story import FAULTS, WAITING, Story, StoryLine, entry_words, first_of
from callboard.simulations.world import Run

ENTRIES_MAX: Final = 30_000
ARROWS_MAX: Final = 60_000
IDS_MAX: Final = 40
WORDS_MAX: Final = 1_000

FAULT, BROKEN, COMPUTER, HEALED = 1, 2, 4, 8
COMPUTERS: Final = frozenset({"booted", "power cut", "killed", "closed"})
LANE_ORDER: Final = ("world", "machine", "task", "publisher", "actor", "consumer")
ARROWS: Final = {"publish": "delivered", "asks actor": "takes", "tells actor": "takes"}
"""What messages go from and to, by kinds of entries."""


def report_page(run: Run, story: Story) -> str:
    """The report as the text of one HTML file; `story` is that of the run."""
    failure = run.failure
    page = pkgutil.get_data(__package__, "report.html")
    if page is None:
        raise InternalError(
            "the page of reports was not packaged; this is a bug in Callboard", invariant="packaged"
        )
    parts = {
        "TITLE": html.escape(story.title),
        "HEAD": _head(story, broken=failure is not None),
        "COMMAND": html.escape(story.command),
        "STORY": "\n".join(_story(story)),
        "DATA": _embedded(_data(run.history.entries, first_of(run), story.words)),
    }
    # One pass, so that nothing that was filled in can be taken for a place to fill in.
    pieces = page.decode("utf-8").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, closing, rest = piece.partition("}}")
        filled.append(f"{parts[name]}{rest}" if closing and name in parts else "{{" + piece)
    return "".join(filled)


def _head(story: Story, *, broken: bool) -> str:
    subject, _, rest = story.title.partition(": ")
    kind = "promise" if broken else "well"
    head = (
        f'<h1>{html.escape(subject)}: <span class="{kind}">{html.escape(rest)}</span></h1>\n'
        f"<p>{html.escape(story.words[:4_000])}</p>"
    )
    if not story.waiting:
        return head
    lines = "".join(f"<li>{html.escape(line[:WORDS_MAX])}</li>\n" for line in story.waiting)
    return f'{head}\n<h2>{WAITING}</h2>\n<ul class="waiting">\n{lines}</ul>'


def _story(story: Story) -> Iterator[str]:
    if story.remarks:
        yield "<h2>What was run</h2>"
        yield from (f'<p class="remark">{html.escape(remark[:WORDS_MAX])}</p>' for remark in story.remarks)
    if story.faults:
        yield '<h2>What was made to fail</h2>\n<ul class="faults">'
        for fault in story.faults:
            idle = ' class="idle"' if fault.endswith("(no effect)") else ""
            yield f"<li{idle}>{html.escape(fault[:WORDS_MAX])}</li>"
        yield "</ul>"
    yield "<h2>What happened</h2>\n<ol>"
    for line in story.lines:
        yield _story_line(line)
    yield "</ol>"


def _story_line(line: StoryLine) -> str:
    words = html.escape(line.words[:WORDS_MAX])
    if line.number < 0:
        return f'<li class="omitted">{words}</li>'
    kind = "broken" if line.is_divergence else "fault" if line.is_fault else ""
    return (
        f'<li><button type="button" class="{kind}" data-entry="{line.number}"><i>{line.number}</i>'
        f"<time>{line.time} s</time><span>{words}</span></button></li>"
    )


def _embedded(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(entries: Sequence[HistoryEntry], first: HistoryEntry | None, words: str) -> dict[str, Any]:
    """What the page's script draws; see there for the order of an entry's parts."""
    entries = _kept(entries, first)
    names = [_lane(entry) for entry in entries]
    kinds = _lane_kinds(entries, names)
    # Tasks in the order in which they appear, the others by name.
    lanes = sorted(kinds, key=lambda name: (LANE_ORDER.index(kinds[name]), kinds[name] != "task" and name))
    at = {name: index for index, name in enumerate(lanes)}
    return {
        "words": words,
        "lanes": [{"name": name, "kind": kinds[name]} for name in lanes],
        "entries": [
            [
                entry.number,
                round(entry.time, 6),
                at[name],
                entry.kind,
                entry_words(entry)[:WORDS_MAX],
                _mark(entry, first),
                entry.machine,
                list(entry.ids[:IDS_MAX]),
            ]
            for entry, name in zip(entries, names, strict=True)
        ],
        "arrows": _arrows(entries),
        "downs": _downs(entries),
    }


def _kept(entries: Sequence[HistoryEntry], first: HistoryEntry | None) -> Sequence[HistoryEntry]:
    """All, or of very many those around the broken promise (else the last)."""
    if len(entries) <= ENTRIES_MAX:
        return entries
    end = len(entries) if first is None else min(len(entries), first.number + ENTRIES_MAX // 4)
    end = max(end, ENTRIES_MAX)
    return entries[end - ENTRIES_MAX : end]


def _lane(entry: HistoryEntry) -> str:
    if entry.kind in COMPUTERS:
        return "machine"
    if not entry.who or entry.kind in ("fault", "healed"):
        return "world"
    return f"{entry.who} ({entry.group})" if entry.group and not entry.where else entry.who


def _lane_kinds(entries: Sequence[HistoryEntry], names: Sequence[str]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for entry, name in zip(entries, names, strict=True):
        if name in ("world", "machine"):
            kinds[name] = name
        elif entry.where or kinds.get(name) == "task":
            kinds[name] = "task"
        elif entry.group:
            kinds[name] = "consumer"
        elif entry.kind in ("publish", "published", "flushed"):
            kinds[name] = "publisher"
        else:
            kinds.setdefault(name, "actor")
    return kinds


def _mark(entry: HistoryEntry, first: HistoryEntry | None) -> int:
    mark = FAULT if entry.kind in FAULTS else 0
    if entry.kind in COMPUTERS:
        mark |= COMPUTER
    if entry.kind == "healed":
        mark |= HEALED
    return mark | BROKEN if first is not None and entry.number == first.number else mark


def _arrows(entries: Sequence[HistoryEntry]) -> list[list[int]]:
    """From where each message is sent to where it arrives, by position."""
    sent: dict[int, tuple[int, str]] = {}
    arrows: list[list[int]] = []
    for at, entry in enumerate(entries):
        if entry.kind in ARROWS:
            for number in entry.ids:
                sent[number] = at, ARROWS[entry.kind]
        elif entry.kind in ARROWS.values() and len(arrows) < ARROWS_MAX:
            sources = {
                sent[number][0] for number in entry.ids if number in sent and sent[number][1] == entry.kind
            }
            arrows += [[source, at] for source in sorted(sources)]
    return arrows


def _downs(entries: Sequence[HistoryEntry]) -> list[list[int]]:
    """From where to where the machine was down, by position; -1 for ever."""
    downs: list[list[int]] = []
    for at, entry in enumerate(entries):
        if entry.kind in ("power cut", "killed"):
            downs.append([at, -1])
        elif entry.kind == "booted" and downs and downs[-1][1] < 0:
            downs[-1][1] = at
    return downs
