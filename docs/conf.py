"""How Sphinx builds the documentation. `./documentation` in the folder above does it, with the `docs` extra."""

import re
from importlib.metadata import version as installed_version
from typing import Any, get_args, get_type_hints

import mermaidx
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import callboard

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
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Callboard {release}"
html_theme_options = {"light_css_variables": {"code-font-size": "75%"}}
html_static_path = ["_static"]
html_css_files = ["callboard.css"]


WIDE = '%%{init: {"flowchart": {"nodeSpacing": 120}}}%%'
"""Room between states, where the words on arrows would lie on each other."""
SHOWN_MOST = 60
"""Of the characters of a default."""
GROUND = "background: white; border-radius: 0.3em; padding: 0.5em; margin-bottom: 1em; overflow-x: auto"


class Mermaid(SphinxDirective):
    """A diagram, drawn while the page is built: readers need no script, and nothing from somebody else's host."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The drawing, on a ground of its own, because it has no dark colours. Without HTML, its text."""
        text = "\n".join(self.content)
        if self.env.app.builder.format != "html":
            return [nodes.literal_block(text, text, language="text")]
        name = f"diagram-{self.env.new_serialno('diagram')}"
        is_wide = text.startswith("stateDiagram")
        drawn = mermaidx.render(f"{WIDE}\n{text}" if is_wide else text).svg().replace("my-svg", name)
        return [nodes.raw("", f'<div style="{GROUND}">{drawn}</div>', format="html")]


def only_what_is_ours(
    app: Any, what: str, name: str, item: object, skip: bool, options: object
) -> bool | None:
    """Leave out what the root package imports for itself, errors, which have a page of their own, and what is public
    between modules only.
    """
    home = str(getattr(item, "__module__", "callboard"))
    if home.startswith("sphinx") and "SLOTS" in repr(item):  # its stand-in for a slot; shown only with words
        return None
    is_ours = home.startswith("callboard") and home != "callboard.log.errors"
    return None if is_ours and "other modules of the package" not in (item.__doc__ or "") else True


def no_constructor_of_what_is_given(
    app: Any, what: str, name: str, item: Any, options: object, signature: str, returns: str
) -> tuple[str, None] | None:
    """What Callboard makes, and a user never calls: its constructor takes things that have no public name."""
    if what not in ("class", "exception"):
        return None
    try:
        hints = get_type_hints(item.__init__)
    except (NameError, AttributeError):  # named for type checkers only
        return "", None
    return ("", None) if any(map(_is_hidden, hints.values())) else None


def defaults_as_values(app: Any, item: Any, is_bound: bool) -> None:
    """A default that the source names, as attrs' constructors do for all of theirs, is shown as its value if that is
    short: the name says nothing to readers.
    """
    function = getattr(item, "__func__", item)
    signature, code = getattr(function, "__signature__", None), getattr(function, "__code__", None)
    if signature is None or code is None:
        return
    positional = code.co_varnames[: code.co_argcount]
    values = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    values |= function.__kwdefaults__ or {}
    parameters = [
        each.replace(default=Shown(_shown(str(each.default), values[name]))) if name in values else each
        for name, each in signature.parameters.items()
    ]
    function.__signature__ = signature.replace(parameters=parameters)


class Shown(str):
    """Words for a default: printed as they are."""

    __repr__ = str.__str__


def _shown(source: str, value: object) -> str:
    is_made = source in ("NOTHING", "attr.NOTHING") or source.startswith("attr_dict[")
    if not is_made and not source.isupper():
        return source
    factory = getattr(value, "factory", None)
    text = repr(value) if factory is None else f"{factory.__name__}()"
    if len(text) > SHOWN_MOST or text.startswith("<"):
        return "..." if is_made else source
    return text


PUBLIC = {
    name
    for module in (callboard, callboard.events, callboard.statistics, callboard.hints)
    for name in module.__all__
}


def _is_hidden(hint: Any) -> bool:
    home = str(getattr(hint, "__module__", ""))
    if isinstance(hint, type) and home.startswith("callboard") and hint.__name__ not in PUBLIC:
        return True
    return any(map(_is_hidden, get_args(hint)))


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
    app.connect("autodoc-before-process-signature", defaults_as_values, priority=900)
    app.connect("autodoc-process-docstring", code_between_single_backticks)
    app.connect("autodoc-process-signature", no_constructor_of_what_is_given)
    app.connect("autodoc-skip-member", only_what_is_ours)
    app.add_directive("mermaid", Mermaid)
