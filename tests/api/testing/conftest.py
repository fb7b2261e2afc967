"""A pytest of its own for each test: the files of a user, run with the plugin, beside pytest-trio and Hypothesis."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

# pytester forgets what was first imported in an inner pytest: the next one would have half of it anew.
import callboard.simulations.scenarios
import callboard.testing.simulation
import callboard.testing.strategies  # noqa: F401

HEAD = """
import attrs
import trio
import callboard
from callboard.testing import always, eventually, note, simulate, sometimes
"""


@pytest.fixture
def run_file(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Write a test file and run it: `result = run_file(source, "--callboard-strict")`. In this process: faster."""
    pytester.makeini("[pytest]\ntrio_mode = true\nfilterwarnings = error")

    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + textwrap.dedent(source))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return run
