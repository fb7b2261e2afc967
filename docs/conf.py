"""How Sphinx builds the documentation: sphinx-build -W docs docs/_build, with the `docs` extra installed."""

import re
from importlib.metadata import version as installed_version
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

project = "Callboard"
author = "The Callboard developers"
project_copyright = "2026, The Callboard developers"
release = installed_version("callboard")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "decisions/template.md"]

myst_heading_anchors = 3
# Where the pages lie on a forge, the forge draws ```mermaid by itself.
myst_fence_as_directive = ["mermaid"]
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"Callboard {release}"


class Mermaid(Directive):
    """A diagram as its text, which reads well enough: drawing it would need a script from somebody else's host."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The text, as it stands."""
        text = "\n".join(self.content)
        return [nodes.literal_block(text, text, language="text")]


def only_what_is_ours(
    app: Any, what: str, name: str, item: object, skip: bool, options: object
) -> bool | None:
    """Leave out what the lazy root package imports for itself, and errors, which have a page of their own."""
    home = str(getattr(item, "__module__", "callboard"))
    return True if not home.startswith("callboard") or home == "callboard.log.errors" else None


CODE = re.compile(r"(?<![`:\w])`(?P<code>[^`]+)`(?P<glued>\w)?")


def code_between_single_backticks(
    app: Any, what: str, name: str, item: object, options: object, lines: list[str]
) -> None:
    """Docstrings write code as Markdown does, also with an ending glued to it: `Record`s."""
    lines[:] = [
        CODE.sub(lambda m: f"``{m['code']}``" + (f"\\ {m['glued']}" if m["glued"] else ""), line)
        for line in lines
    ]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", code_between_single_backticks)
    app.connect("autodoc-skip-member", only_what_is_ours)
    app.add_directive("mermaid", Mermaid)
