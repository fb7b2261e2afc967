"""The tables in the guides are those in the code. To rewrite them: python tests/supervision/test_guide.py."""

import re
from pathlib import Path

import pytest

from callboard.actors.kernel import WHEN_FULL
from callboard.supervision import RESTARTS, STRATEGIES
from callboard.supervision.policies import RESTART_KINDS
from callboard.supervision.roster import TRANSITIONS

PRINCIPLES = Path(__file__).resolve().parents[2] / "docs" / "principles"
ENDINGS = ("finished", "crashed", "killed")


def table(head, rows):
    """A table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |\n" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head) + "\n")
    return "".join(lines)


def restarts_table():
    """Kind of child against how it ended."""
    rows = [
        [f"`{kind}`", *("restarted" if RESTARTS[kind, ending] else "not restarted" for ending in ENDINGS)]
        for kind in RESTART_KINDS
    ]
    return table(["", *ENDINGS], rows)


def phases_table():
    """The transitions of a child."""
    return table(["phase", "input", "next phase"], [[a, event, b] for (a, event), b in TRANSITIONS.items()])


TABLES = [
    ("actors.md", "when full", lambda: table(["`when_full`", "what happens"], described(WHEN_FULL))),
    ("supervision.md", "restarts", restarts_table),
    ("supervision.md", "strategies", lambda: table(["strategy", "what is restarted"], described(STRATEGIES))),
    ("supervision.md", "phases", phases_table),
]


def described(meanings):
    """Rows of a name and its meaning."""
    return [[f"`{name}`", meaning] for name, meaning in meanings.items()]


def block(name):
    """The part of a page between the marks of `name`."""
    return re.compile(rf"(<!-- {re.escape(name)}: generated -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@pytest.mark.parametrize(("page", "name", "make"), TABLES, ids=[name for _, name, _ in TABLES])
def test_tables_have_not_drifted(page, name, make):
    """A table in the guide says what the table in the code says."""
    found = block(name).search((PRINCIPLES / page).read_text(encoding="utf-8"))
    assert found is not None
    assert found.group(2) == make(), "run: python tests/supervision/test_guide.py"


def main():
    """Write the tables into the pages."""
    for page, name, make in TABLES:
        path = PRINCIPLES / page
        text = path.read_text(encoding="utf-8")
        made = make()
        path.write_text(block(name).sub(lambda m, made=made: m[1] + made + m[3], text), encoding="utf-8")


if __name__ == "__main__":
    main()
