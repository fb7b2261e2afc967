"""Every Python block in the README and in docs/ runs, as a reader would run it.

Vocabulary: a *block* is fenced with ```python. It runs as a program of its own in an empty directory; a bare `await`,
`async with` or `async for` is run by trio. A comment on the line before the fence may say otherwise:

- `<!-- continues -->`: the block goes on where the one before it on that page ended, in the same program.
- `<!-- not run: the reason -->`: for what cannot run, such as half a function.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
FENCE = re.compile(r"^(?P<indent> *)```python\s*$")
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*) -->")
CONTINUES = "<!-- continues -->"

# The program around a program: lines are numbered as on the page, and a bare `await` is run by trio.
RUN = """
import ast, inspect, sys, trio
path, = sys.argv[1:]
code = compile(sys.stdin.read(), path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
names = {"__name__": "__main__"}
async def main():
    with trio.fail_after(30):
        await eval(code, names)
if code.co_flags & inspect.CO_COROUTINE:
    trio.run(main)
else:
    exec(code, names)
"""


@attrs.frozen
class Snippet:
    """A program on a page, with empty lines for all that is not code; `reason` when it is not to be run."""

    page: str
    line: int
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(page: str, text: str) -> Iterator[Snippet]:
    """The programs on a page."""
    lines = text.splitlines()
    program: Snippet | None = None
    for number, line in enumerate(lines):
        if not (fence := FENCE.match(line)):
            continue
        indent = fence["indent"]
        end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
        block = [inner.removeprefix(indent) for inner in lines[number + 1 : end]]
        above = next((before.strip() for before in reversed(lines[:number]) if before.strip()), "")
        not_run = NOT_RUN.fullmatch(above)
        if above == CONTINUES:
            assert program is not None, f"{page}:{number + 1}: continues nothing"
            gap = number + 1 - len(program.text.splitlines())
            program = attrs.evolve(program, text="\n".join([program.text, *[""] * (gap - 1), "", *block]))
            continue
        if program is not None:
            yield program
        program = Snippet(
            page=page,
            line=number + 1,
            text="\n".join([*[""] * (number + 1), *block]),
            reason=not_run["reason"] if not_run else None,
        )
    if program is not None:
        yield program


def _pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


SNIPPETS = [
    snippet
    for path in _pages()
    if "_build" not in path.parts
    for snippet in snippets(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("snippet", [one for one in SNIPPETS if one.reason is None], ids=str)
def test_the_snippet_runs(snippet: Snippet, tmp_path: Path, forking: Any) -> None:
    """The program ends without an error."""
    program = [sys.executable, "-P", "-c", RUN, snippet.page]
    run = forking.run(program, cwd=tmp_path, stdin=snippet.text.encode(), timeout=SECONDS_MAX)
    if run.returncode:
        pytest.fail(f"{snippet}\n{(run.stdout + run.stderr).decode()}", pytrace=False)


def test_exemptions_have_reasons() -> None:
    """A block that is not run says why."""
    assert [str(one) for one in SNIPPETS if one.reason is not None and len(one.reason) < 10] == []


def test_a_page_is_cut_into_programs() -> None:
    """Blocks keep their line numbers; a continued block joins the one before it; others stand alone."""
    page = "\n".join(
        [
            "text",
            "```python",
            "a = 1",
            "```",
            "",
            CONTINUES,
            "```python",
            "b = a",
            "```",
            "```python",
            "c",
            "```",
        ]
    )
    first, second = snippets("page", page)
    assert first.text.splitlines() == ["", "", "a = 1", "", "", "", "", "b = a"]
    assert second.text.splitlines() == [*[""] * 10, "c"]


def test_a_block_may_be_exempt() -> None:
    """The comment before the fence, empty lines between them or not, holds the reason."""
    (only,) = snippets("page", "<!-- not run: half a function -->\n\n```python\n...\n```")
    assert only.reason == "half a function"
