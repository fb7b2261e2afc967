"""Writes the timelines of failed simulated tests, where `--callboard-report` asks for them."""

from __future__ import annotations

import pathlib
import re
from typing import Final

from callboard.simulations.search.report_html import report_page
from callboard.simulations.search.story import Story
from callboard.simulations.world import Run

NAME_CHARACTERS_MAX: Final = 150
UNNAMEABLE: Final = re.compile(r"[^\w.,=@+-]+")


def write_report(folder: str, node: str, run: Run, story: Story) -> str:
    """Write the timeline of a run into `folder`, which is made when missing; returns a line that says where it is.

    A file that cannot be written is no error: that line says why.
    """
    name = UNNAMEABLE.sub("-", node).strip("-")[-NAME_CHARACTERS_MAX:]
    path = pathlib.Path(folder, f"{name or 'simulation'}-seed-{run.seed}.html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report_page(run, story), encoding="utf-8", errors="replace")
    except OSError as error:
        return f"Its timeline could not be written: {error}"
    return f"Its timeline: {path}"
