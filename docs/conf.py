"""How Sphinx builds the documentation: sphinx-build -W docs docs/_build, with the `docs` extra installed."""

from importlib.metadata import version as installed_version

project = "Callboard"
author = "The Callboard developers"
project_copyright = "2026, The Callboard developers"
release = installed_version("callboard")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "decisions/template.md"]
# Docstrings put code between single backticks.
default_role = "code"

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = f"Callboard {release}"
