"""The plugin itself: what it costs those who do not use it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points


def test_loading_the_plugin_imports_next_to_nothing() -> None:
    """pytest loads it for everybody who has Callboard installed: no trio, no hypothesis, no engine."""
    code = (
        "import sys, pytest; before = set(sys.modules); import callboard.testing.plugin; "
        "print(*sorted(n for n in sys.modules.keys() - before if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [
        "callboard",
        "callboard.lazy",
        "callboard.testing",
        "callboard.testing.plugin",
        "callboard.testing.session",
    ]


def test_pytest_finds_the_plugin_by_itself() -> None:
    """The installed distribution names it."""
    (found,) = entry_points(group="pytest11", name="callboard")
    assert found.value == "callboard.testing.plugin"


def test_what_needs_hypothesis_says_so() -> None:
    """Without it everything else is there: for `help`, and for whoever imports all names."""
    code = (
        "import sys; sys.modules['hypothesis'] = None; sys.meta_path.insert(0, type('No', (), {'find_spec': "
        "staticmethod(lambda name, *_: None)})()); import importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *a: None if name == 'hypothesis' else find(name, *a); "
        "import callboard.testing; from callboard.testing import *; print('strategies' in callboard.testing.__all__); "
        "import pydoc; print('simulate' in pydoc.render_doc(callboard.testing))\n"
        "try:\n    import callboard.testing.strategies\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[:2] == ["False", "True"]
    assert "pip install hypothesis" in run.stdout
