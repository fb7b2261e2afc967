"""The HTML report: what is in it, that nothing in it can act, and that a browser draws it."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Callable
from typing import Any

from callboard.simulations.faults import At, Plan, PowerCut
from callboard.simulations.history import History
from callboard.simulations.search.report_html import ENTRIES_MAX, report_page
from callboard.simulations.search.story import tell
from callboard.simulations.violations import Violation

HOSTILE = "</script><script>document.body.dataset.error='ran'</script><img src=x onerror=\"alert(1)\">{{DATA}}\u2028'"


def fill(history: History, count: int, detail: str = "all") -> None:
    """A life of a machine: publishes and deliveries, a power cut, and a second life."""
    history.booted(1)
    for number in range(count):
        history.message(b"%d" % number)
        place = {"topic": "orders", "partition": 0, "ids": (number,)}
        history.record(1, "publish", "p0", number, detail=detail, **place)
        history.record(
            1, "delivered", "c0", number, group="billing", offsets=(number,), attempts=(1,), **place
        )
    history.ended(1, "power cut")
    history.booted(2)
    history.healed()


def page_of(made: Callable[..., Any], count: int = 20, detail: str = "all") -> str:
    """The report of such a run, which breaks a promise at its fifth entry."""
    run = made(
        plan=Plan((PowerCut(At(1.0)),)), hits={0: 1}, tell=lambda history: fill(history, count, detail)
    )
    run.failure = Violation("nothing lost", detail, run.history.entries[4])
    return report_page(run, tell(run, f"callboard simulate --repro '{detail}'", "shop"))


def empty_page(made: Callable[..., Any]) -> str:
    """The report of a run that did nothing but fail."""
    run = made(ValueError("no"))
    return report_page(run, tell(run, "callboard simulate", "shop"))


class Elements(html.parser.HTMLParser):
    """Every element with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect it."""
        self.found.append((tag, dict(attrs)))


def data_of(page: str) -> Any:
    """What the page's script is given."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_lanes_arrows_faults_and_the_broken_promise_are_there(made: Callable[..., Any]) -> None:
    """A lane per actor or client, an arrow per delivery, marks on faults and on the entry where the promise broke."""
    data = data_of(page_of(made))
    assert [lane["name"] for lane in data["lanes"]] == ["world", "machine", "p0", "c0 (billing)"]
    assert len(data["arrows"]) == 20
    assert all(data["entries"][begin][3] == "publish" for begin, _ in data["arrows"])
    assert [entry[0] for entry in data["entries"] if entry[5] & 2] == [4]
    assert [entry[3] for entry in data["entries"] if entry[5] & 1] == ["power cut"]
    ((begin, end),) = data["downs"]
    assert (data["entries"][begin][3], data["entries"][end][3]) == ("power cut", "booted")


def test_the_page_reaches_for_nothing(made: Callable[..., Any]) -> None:
    """No address, no source, no font from elsewhere; and a content policy that would forbid it."""
    page = page_of(made)
    assert "://" not in page
    assert "url(" not in page
    assert "@import" not in page
    for tag, attributes in Elements(page).found:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "href"} & set(attributes)
    assert "default-src 'none'" in page


def test_text_of_the_run_stays_text(made: Callable[..., Any]) -> None:
    """Markup in names and errors makes no element, ends no element, and fills no other place."""
    plain, hostile = page_of(made), page_of(made, detail=HOSTILE)
    assert [tag for tag, _ in Elements(plain).found] == [tag for tag, _ in Elements(hostile).found]
    assert any(HOSTILE in entry[4] for entry in data_of(hostile)["entries"])
    assert not any(name.startswith("on") for _, attributes in Elements(hostile).found for name in attributes)


def test_a_very_long_run_is_cut_around_its_failure(made: Callable[..., Any]) -> None:
    """The page has an end; the entry at which the promise broke is in it."""
    data = data_of(page_of(made, count=ENTRIES_MAX))
    assert len(data["entries"]) == ENTRIES_MAX
    assert any(entry[5] & 2 for entry in data["entries"])


def test_a_run_without_history_has_a_page(made: Callable[..., Any]) -> None:
    """Nothing to draw is drawn without an error."""
    page = empty_page(made)
    assert data_of(page)["entries"] == []


def body_of(document: str) -> dict[str, str | None]:
    """The attributes of the body, where the script says how it went."""
    return next(attributes for tag, attributes in Elements(document).found if tag == "body")


def test_a_browser_draws_ten_thousand_entries(made: Callable[..., Any], browse: Callable[..., str]) -> None:
    """All entries, lanes and arrows are taken, the broken promise is selected, and no script failed."""
    document = browse(page_of(made, count=5_000))
    body = body_of(document)
    assert "data-error" not in body, body
    assert body["data-ready"] == "10004 entries, 4 lanes, 5000 arrows"
    assert 'aria-current="true"' in document
    assert "consumer c0 of billing was handed orders/0@1" in document.partition('id="details"')[2]


def test_a_link_leads_to_an_entry(made: Callable[..., Any], browse: Callable[..., str]) -> None:
    """The fragment names an entry, whose details are shown."""
    document = browse(page_of(made), "#entry=41")
    details = document.partition('id="details"')[2].partition("</main>")[0]
    assert "the power of machine 1 was cut" in details


def test_a_browser_runs_nothing_of_the_runs_text(
    made: Callable[..., Any], browse: Callable[..., str]
) -> None:
    """Hostile text is shown as text: no script of it ran, no element came of it."""
    document = browse(page_of(made, detail=HOSTILE))
    body = body_of(document)
    assert "data-error" not in body, body
    assert str(body["data-ready"]).startswith("44 entries")
    assert "<img" not in document


def test_an_empty_run_is_drawn_too(made: Callable[..., Any], browse: Callable[..., str]) -> None:
    """Without a single entry the script still gets to its end."""
    body = body_of(browse(empty_page(made)))
    assert "data-error" not in body, body
    assert str(body["data-ready"]).startswith("0 entries")
