"""The pages as readers see them: they are built once, by the one command that builds them, and looked at.

This needs the `docs` extra beside `test`: `./test` and `.ci/run` install both.
"""

from __future__ import annotations

import ast
import html
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import callboard

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
FENCE = re.compile(r"^```\{?mermaid\}?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
SIGNATURE = re.compile(
    r'<dt class="sig sig-object py"(?: id="(?P<id>[^"]+)")?>(?P<inside>.*?)</dt>', re.DOTALL
)
PARAMETER = re.compile(r'<em class="sig-param">(.*?)</em>', re.DOTALL)
BLOCK = re.compile(r"<pre>(.*?)</pre>", re.DOTALL)
PUBLIC = {
    "Runtime": (
        "alter_group alter_topic crash create_topic dead_letters delete_group delete_topic describe_group directory"
        " events group groups reset_group restart schedules seek_group spawn stats subscribe subscribe_events topic"
        " topics tree work"
    ),
    "Group": "alter dead_letters delete describe pause reset resume seek",
    "Topic": (
        "dead_letters delayed describe flush name partitions producer publish publish_batch read read_batches schedule"
        " schedules settings subscribe topic_id work"
    ),
    "Consumer": "assigned batches drain flush get get_batch group is_draining name receive settings",
    "ReceivedMessage": (
        "ack append_time attempt deadline dedup_id expires_at extend headers is_tombstone key nack offset partition"
        " priority publish reject release settled timestamp topic ttl value"
    ),
    "ReceivedBatch": (
        "ack attempts dedup_ids headers keys nack offsets partition priorities publish reject release timestamps topic"
        " ttls values"
    ),
}
"""What these classes show: what users call, and read in the reference."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages; a warning ends the command."""
    folder = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [ROOT / "documentation", folder],
        env=os.environ | {"CALLBOARD_VENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"is the extra `docs` installed?\n{done.stdout}{done.stderr}"
    assert done.stdout == f"{folder}/index.html\n"
    return folder


def page(built: Path, name: str) -> str:
    """The HTML of a page."""
    return (built / name).read_text(encoding="utf-8")


def words(text: str) -> str:
    """What is read of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def signatures(text: str) -> dict[str, list[str]]:
    """The HTML of signatures by name; those after the first of a name are its overloads."""
    found: dict[str, list[str]] = {}
    name = ""
    for each in SIGNATURE.finditer(text):
        name = each["id"] or name
        found.setdefault(name, []).append(each["inside"])
    return found


def members(owner: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class, those of its bases too."""
    for name, member in inspect.getmembers(owner):
        if not name.startswith("_"):
            yield f"callboard.{owner.__name__}.{name}", member


def test_diagrams_are_drawn(built: Path) -> None:
    """Each fence of Mermaid is one drawing on its page, and its text is nowhere."""
    fences = {one: found for one in PAGES if (found := FENCE.findall(one.read_text(encoding="utf-8")))}
    assert sum(map(len, fences.values())) >= 4
    for one, texts in fences.items():
        seen = page(built, one.relative_to(ROOT / "docs").with_suffix(".html").as_posix())
        drawings = re.findall(r'<svg id="diagram-\d+".*?</svg>', seen, re.DOTALL)
        assert len(drawings) == len(texts), one
        assert all("<path" in drawing for drawing in drawings), one
        read = words(DRAWING.sub("", seen))
        raw = [line.strip() for text in texts for line in text.splitlines() if line.strip() in read]
        assert raw == [], one
    blocks = [each for path in built.rglob("*.html") for each in BLOCK.findall(path.read_text("utf-8"))]
    assert [each for each in map(words, blocks) if each.startswith(("flowchart", "stateDiagram"))] == []


def test_defaults_are_values(built: Path) -> None:
    """No signature shows how attrs calls a default in the code that it makes."""
    shown = {path.name for path in built.rglob("*.html") if "attr_dict[" in words(path.read_text("utf-8"))}
    assert shown == set()
    (message,) = signatures(page(built, "reference/api.html"))["callboard.Message"]
    assert words(PARAMETER.findall(message)[1]) == "key: bytes | None = None"


@pytest.mark.parametrize("owner", [callboard.Runtime, callboard.Topic, callboard.Consumer])
def test_methods_show_their_types(built: Path, owner: type) -> None:
    """Each public method is in the reference, each parameter has a type, and so has what is returned."""
    found = signatures(page(built, "reference/api.html"))
    wanted = dict(members(owner))
    assert len(wanted) >= 8
    assert sorted(set(wanted) - set(found)) == []
    untyped = []
    for name, member in wanted.items():
        for inside in found[name]:
            parameters = [words(each) for each in PARAMETER.findall(inside)]
            untyped += [(name, each) for each in parameters if ":" not in each and each not in ("*", "/")]
            if callable(member) and 'class="sig-return-typehint"' not in inside:
                untyped.append((name, "what it returns"))
            if not callable(member) and f"{name.rpartition('.')[2]}: " not in words(inside):
                untyped.append((name, "what it is"))
    assert untyped == []


@pytest.mark.parametrize("name", PUBLIC)
def test_no_method_is_shown_that_users_never_call(built: Path, name: str) -> None:
    """What the reference shows of a class is what is listed here."""
    found = signatures(page(built, "reference/api.html"))
    shown = {each.rpartition(".")[2] for each in found if each.startswith(f"callboard.{name}.")}
    assert shown == set(PUBLIC[name].split())


def test_every_figure_has_words() -> None:
    """Each field of what `stats`, `groups` and `describe` give is explained, and so in the reference."""
    without = []
    for name in callboard.statistics.__all__:
        found = getattr(callboard.statistics, name)
        tree = ast.parse(Path(inspect.getfile(found)).read_text(encoding="utf-8"))
        (body,) = [
            node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name
        ]
        for field, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and not (
                isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            ):
                without.append(f"{name}: {ast.unparse(field.target)}")
    assert without == []


def test_the_plain_publish_comes_first(built: Path) -> None:
    """Before those for delayed messages."""
    publishes = signatures(page(built, "reference/api.html"))["callboard.Topic.publish"]
    returned = [words(each).partition(" → ")[2].removesuffix("¶") for each in publishes]
    assert returned == ["Receipt", "ScheduledReceipt", "ScheduledReceipt"]


def test_the_reference_begins_where_readers_begin(built: Path) -> None:
    """With `open_runtime`, `Topic` and `Consumer`, in this order."""
    top = [name for name in signatures(page(built, "reference/api.html")) if name.count(".") == 1]
    assert top[:3] == ["callboard.open_runtime", "callboard.Topic", "callboard.Consumer"]


def test_the_front_page_has_what_is_needed_to_begin(built: Path) -> None:
    """The line that installs, then an example."""
    blocks = [words(each) for each in BLOCK.findall(page(built, "index.html"))]
    assert blocks[0].startswith("pip install .")
    assert "async with callboard.open_runtime(" in blocks[1]
    assert "consumer.receive() as message" in blocks[1]
