"""`callboard simulate package.module:Scenario`: a program's own scenario in sweeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-scenario.md"
TILL = '''
import attrs
import callboard
import trio
from callboard.testing import FaultSpace


@attrs.frozen
class Sales:
    amounts: tuple[int, ...]


class Till:
    """Counts a sale and then writes it down: a crash fits between the two."""

    space = FaultSpace(weights={"PowerCut": 1}, probes={"await": 40}, faults=(1, 2), horizon_s=9.0)
    name = "till"

    def workload(self, entropy):
        return Sales(tuple(1 + entropy.integer(6) for _ in range(1 + entropy.integer(3))))

    async def main(self, world, workload):
        paper, todo = [], list(workload.amounts)

        async def day(machine):
            while todo:
                await trio.sleep(1)
                paper.append(todo[0])
                await trio.sleep(1)
                todo.pop(0)

        await world.machine_until_done(day)
        world.sometimes("the machine stopped", world.boots > 1)
        world.sometimes("pigs fly", False)
        world.always(paper == list(workload.amounts), f"sold {workload.amounts}, written {paper}")


class Nothing:
    space = None
'''


@pytest.fixture
def shop(command: Any) -> Any:
    """The command in a folder with a package of a shop."""
    package = command.folder / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "till.py").write_text(TILL)
    return command


def test_a_failure_is_found_shrunk_and_told(shop: Any) -> None:
    """The workload is one that its function can draw; the story, the table and the command are those of any sweep."""
    done = shop.run("simulate", "shop.till:Till", "--seeds=40", "--jobs=1", code=6)
    out = done.out.decode()
    assert "shop.till:Till, seed " in out
    assert "What was made to fail:" in out
    assert re.search(r"amounts=\(1,\)", out), out
    assert "points         1 of 2 points reached" in out
    assert "never reached  pigs fly" in out
    command = re.search(r"callboard (simulate shop.till:Till --repro \S+)", out)
    assert command is not None
    again = shop.run(*command[1].split(), code=6)
    assert again.out.decode().splitlines()[-1].startswith("reproduced")


def test_the_story_tells_what_the_program_did(shop: Any) -> None:
    """Of a scenario that records nothing itself: its tasks, and the lines where they waited, also when run again."""
    found = shop.run("simulate", "shop.till:Till", "--seeds=40", "--jobs=1", code=6).out.decode()
    command = re.search(r"callboard (simulate shop.till:Till --repro \S+)", found)
    assert command is not None
    for out in (found, shop.run(*command[1].split(), code=6).out.decode()):
        assert re.search(r"waits at till\.py:\d+: await trio\.sleep\(1\)", out), out


def test_a_stored_failure_imports_nothing_by_itself(shop: Any) -> None:
    """Whoever runs one of a program's scenario must name the scenario."""
    shop.run("simulate", "shop.till:Till", "--seeds=40", "--jobs=1", "--shrink-runs=0", code=6)
    (stored,) = (shop.folder / ".callboard-simulate/failures").glob("shop.till-Till-*.found.failure")
    told = shop.run("simulate", "--repro", str(stored), code=2).err
    assert "callboard simulate shop.till:Till --repro" in told


def test_a_changed_program_begins_a_new_sweep(shop: Any) -> None:
    """What is done counts only for the same code, the program's included."""
    arguments = ("simulate", "shop.till:Till", "--seeds=1", "--jobs=1", "--json")
    text = TILL.replace("world.always(", "(")
    (shop.folder / "shop/till.py").write_text(text)
    shop.run(*arguments)
    first = json.loads((shop.folder / ".callboard-simulate/sweep.json").read_bytes())
    (shop.folder / "shop/till.py").write_text(f"{text}\n# changed\n")
    shop.run(*arguments)
    second = json.loads((shop.folder / ".callboard-simulate/sweep.json").read_bytes())
    assert first["code"] != second["code"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("shop.nowhere:Till", "No module named 'shop.nowhere'"),
        ("shop.till:Tell", "has no attribute 'Tell'"),
        ("shop.till:Nothing", "no FaultSpace `space`; it has no method `async main(world, workload)`"),
    ],
)
def test_what_is_no_scenario_is_refused(shop: Any, name: str, why: str) -> None:
    """Before anything is run, with all that it lacks."""
    assert why in shop.run("simulate", name, code=2).err


WRONG = """
from shop.till import Till


class Raises(Till):
    def workload(self, entropy):
        raise ValueError("a bad draw")


class Later(Till):
    def workload(self, entropy):
        if entropy.integer(3) == 5:
            raise ValueError("a bad draw")
        return super().workload(entropy)


class Needs(Till):
    def __init__(self, shop):
        self.shop = shop


class Unnamed(Till):
    name = "a till"


class Endless(Till):
    def workload(self, entropy):
        while True:
            pass


class Computes(Till):
    async def main(self, world, workload):
        while True:
            pass
"""


@pytest.fixture
def wrong(shop: Any) -> Any:
    """With scenarios that are wrong."""
    (shop.folder / "shop/wrong.py").write_text(WRONG)
    (shop.folder / "shop/broken.py").write_text("import os\n\nx = 1 / 0\n")
    return shop


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("wrong:Raises", r"its workload\(entropy\) raises ValueError: a bad draw, at \S+/shop/wrong\.py:7"),
        ("wrong:Needs", r"by calling the class without arguments: TypeError: Needs\.__init__\(\) missing"),
        ("wrong:Unnamed", r"it has no `name` of letters, digits and hyphens"),
        (
            "wrong:Endless",
            r"its workload\(entropy\) computes without end: .* and is at \S+/shop/wrong\.py:(27|28|29)",
        ),
        ("broken:X", r"cannot be imported: ZeroDivisionError: division by zero, at \S+/shop/broken\.py:3"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(wrong: Any, name: str, why: str) -> None:
    """What the program itself raised, and where."""
    told = " ".join(wrong.run("simulate", f"shop.{name}", code=2).err.split())
    assert re.search(why, told), told


def test_a_workload_that_cannot_be_drawn_is_a_failure_of_its_seed(wrong: Any) -> None:
    """Told with the error and its line; nothing is stored that could be run again."""
    out = wrong.run("simulate", "shop.wrong:Later", "--seeds=60", "--jobs=1", code=6).out.decode()
    assert "broken promise: the workload can be drawn" in out
    assert re.search(r"ValueError: a bad draw, at \S+/shop/wrong\.py:13", out), out


def test_a_scenario_that_computes_for_ever_is_told_with_its_line(wrong: Any) -> None:
    """After some seconds of processor time, and stored and told as any other failure."""
    out = wrong.run("simulate", "shop.wrong:Computes", "--seeds=1", "--jobs=1", code=6).out.decode()
    told = " ".join(out.split())
    assert re.search(r"main computes without ever waiting: .* and is at \S+/shop/wrong\.py:3[45]", told), out


def test_the_scenario_of_the_guide_runs(command: Any) -> None:
    """The page's classes in a module of their own, as it says."""
    (block,) = (
        text
        for text in re.findall(r"^```python\n(.*?)^```", HOW_TO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    (command.folder / "post_office.py").write_text(block.partition("\nfor seed in")[0])
    done = command.run("simulate", "post_office:PostOffice", "--seeds=10", "--jobs=1")
    assert "10 of 10 seeds (complete)" in done.out.decode() + done.err
    command.run("simulate", "post_office:PostOffice", "--check-determinism", "--jobs=1")
