"""The `docs` extra has all that the documented modules import: `./documentation` installs nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
DOCUMENTED = re.compile(r"(?:autofunction|autoclass|automodule):: (callboard[\w.]*)")
IMPORT = """
import importlib, pydoc, sys
blocked = set(sys.argv[1].split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for name in sys.argv[2:]:
    assert pydoc.locate(name) is not None, name
"""
TEST_TOOLS = ("hypothesis", "pytest", "pytest-trio", "pytest-xdist", "mypy", "basedpyright")


def _named_by_docs() -> set[str]:
    found = [line for line in requires("callboard") or [] if "extra" not in line or 'extra == "docs"' in line]
    return {re.split(r"[^\w-]", line, maxsplit=1)[0].lower() for line in found}


def test_every_documented_name_can_be_imported_with_the_docs_extra_alone() -> None:
    """Without the tools of the other extras."""
    absent = [tool for tool in TEST_TOOLS if tool not in _named_by_docs()]
    modules = [
        module
        for module, distributions in packages_distributions().items()
        if set(map(str.lower, distributions)) & set(absent)
    ]
    names = sorted(
        {
            name
            for page in REFERENCE.glob("*.md")
            for name in DOCUMENTED.findall(page.read_text(encoding="utf-8"))
        }
    )
    assert len(names) > 50
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, ",".join(modules), *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
