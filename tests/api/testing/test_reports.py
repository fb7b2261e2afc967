"""`--callboard-report`: the timeline of a failed simulated test, as a file and as a browser draws it."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest_plugins = ["pytester"]

HASTY_WORKER = """
from callboard.simulations.faults import At, Plan, PowerCut

@simulate(seeds=1, faults=Plan((PowerCut(At(0.05)),)))
async def test_every_order_is_shipped(world):
    todo, shipped = [b"order 0", b"order 1"], []

    async def worker(topic):
        async with topic.subscribe("shipping", visibility_timeout=1.0) as consumer:
            while message := await consumer.get(timeout=3.0):
                await message.ack()
                await trio.sleep(0.1)
                shipped.append(message.value)

    async def shop(machine):
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic("orders")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker, topic)
                while todo:
                    await topic.publish(todo[0])
                    todo.pop(0)
                    await trio.sleep(0.2)

    await world.machine_until_done(shop)
    always(len(shipped) == 2, f"shipped: {shipped}")
"""

DEADLOCK = """
async def transfer(source, target):
    async with source:
        await trio.sleep(1)
        async with target:
            pass

@simulate(seeds=1)
async def test_transfers(world):
    one, two = trio.Lock(), trio.Lock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transfer, one, two)
        nursery.start_soon(transfer, two, one)
"""


@pytest.fixture
def report_of(run_file: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> Callable[[str], str]:
    """The only report that a failing test file writes."""

    def report(source: str) -> str:
        result = run_file(source, "--callboard-report", "made/for this")
        result.assert_outcomes(failed=1)
        (path,) = (pytester.path / "made/for this").iterdir()
        result.stdout.fnmatch_lines([f"*Its timeline: made/for this/{path.name}"])
        return path.read_text(encoding="utf-8")

    return report


def data_of(page: str) -> Any:
    """What the page's script is given."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


class Body(html.parser.HTMLParser):
    """The attributes of a document's body, where the script says how it went."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.attributes: dict[str, str | None] = {}
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep those of the body."""
        if tag == "body":
            self.attributes = dict(attrs)


def test_messages_are_arrows_from_task_to_task(report_of: Callable[[str], str]) -> None:
    """A lane for each task, an arrow from each publish to its deliveries, the machine's outage, the broken promise."""
    data = data_of(report_of(HASTY_WORKER))
    tasks = [lane["name"] for lane in data["lanes"] if lane["kind"] == "task"]
    assert tasks == ["test_every_order_is_shipped", "shop", "worker"]
    lanes = [lane["name"] for lane in data["lanes"]]
    arrows = {
        tuple((lanes[data["entries"][at][2]], data["entries"][at][3]) for at in arrow)
        for arrow in data["arrows"]
    }
    assert arrows == {(("shop", "publish"), ("worker", "delivered"))}
    assert len(data["downs"]) == 1
    (broken,) = [entry for entry in data["entries"] if entry[5] & 2]
    assert lanes[broken[2]] == "test_every_order_is_shipped"
    assert "[test_it.py:" in broken[4]


def test_a_browser_draws_the_timeline_of_a_test(
    report_of: Callable[[str], str], browse: Callable[..., str]
) -> None:
    """No script fails, the broken promise is selected, and a link leads to a delivery with its line."""
    page = report_of(HASTY_WORKER)
    delivered = next(entry[0] for entry in data_of(page)["entries"] if entry[3] == "delivered")
    body = Body(document := browse(page)).attributes
    assert "data-error" not in body, body
    assert re.fullmatch(r"\d+ entries, \d+ lanes, [1-9]\d* arrows", str(body["data-ready"]))
    details = document.partition('id="details"')[2]
    assert "found a promise broken" in details
    details = browse(page, f"#entry={delivered}").partition('id="details"')[2]
    assert "consumer worker of shipping was handed orders/0@0" in details
    assert "comes from entry" in details


def test_a_deadlock_stands_at_the_top_of_its_report(
    report_of: Callable[[str], str], browse: Callable[..., str]
) -> None:
    """Tasks, lines, locks and the circle are in the page's head, before the story."""
    document = browse(report_of(DEADLOCK))
    assert "data-error" not in Body(document).attributes
    head = document.partition("<main")[0]
    assert "transfer waits at test_it.py:" in head
    assert "for a lock that transfer #2 holds: async with target:" in head
    assert "in a circle: transfer -&gt; transfer #2 -&gt; transfer" in head


def test_a_report_that_cannot_be_written_hides_no_failure(
    run_file: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    """The story says why there is no timeline; the test fails as it does without the option."""
    (pytester.path / "taken").write_text("a file")
    result = run_file(DEADLOCK, "--callboard-report", "taken")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*SimulationStuck: every task waits*", "*Its timeline could not be written: *"]
    )


def test_no_option_no_file(run_file: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    """Without the option nothing is written, and nothing is said of a timeline."""
    result = run_file(DEADLOCK)
    result.stdout.no_fnmatch_line("*timeline*")
    assert not list(pytester.path.rglob("*.html"))
