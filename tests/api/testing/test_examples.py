"""The documented examples do what the documentation says of them, under pytest, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def run_page(pytester: pytest.Pytester) -> Any:
    """Run the Python blocks of a page as one test file."""

    def run(page: str, *options: str) -> pytest.RunResult:
        blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
        pytester.makepyfile(test_page="\n".join(blocks))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run


def test_the_tutorial_finds_the_till_at_fault(run_page: Any) -> None:
    """One test fails, by the same sale rung up before and after the power cut; the repaired till passes, strictly."""
    result = run_page("tutorial/test-your-first-actor.md", "-W", "error", "--callboard-strict")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *Violation: always: the till holds 12, and not *",
            "E *test_sales_and_power_cuts, seed *: broken promise: always",
            "E *(once)",
            "E *a sale of * is rung up*",
            "E * machine 1 was *",
            "E *machine 2 booted",
            "E *a sale of * is rung up*",
            "E *pytest test_page.py::test_sales_and_power_cuts --callboard-seed=*",
        ]
    )


def test_the_how_to_finds_the_withdrawals(run_page: Any) -> None:
    """The race is found and shrunk to two withdrawals; all other tests of the page pass."""
    result = run_page("how-to/test-your-own-code.md", "-W", "error", "--callboard-strict")
    result.assert_outcomes(passed=4, failed=2)
    result.stdout.re_match_lines([r"E +Workload: \(\d+, \d+\)"])


@pytest.fixture
def run_bank(pytester: pytest.Pytester) -> Any:
    """Run the bank's tests; `careless` takes away the `raises` around the planted mistake."""

    def run(*options: str, careless: bool = False) -> pytest.RunResult:
        tests = (DOCS / "examples/test_bank.py").read_text(encoding="utf-8")
        if careless:
            tests, count = re.subn(r"with pytest\.raises\(.*\):", "if True:", tests)
            assert count == 1
        pytester.makepyfile(bank=(DOCS / "examples/bank.py").read_text(encoding="utf-8"), test_bank=tests)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run


def test_the_careful_bank_passes_and_the_careless_one_is_caught(run_bank: Any) -> None:
    """The repaired teller passes all seeds, every interesting case met; the planted mistake is found within 60."""
    run_bank("-W", "error", "--callboard-strict").assert_outcomes(passed=2)


def test_the_story_of_the_bank_names_the_culprit(run_bank: Any) -> None:
    """It is one transfer and one fault, between the debit and the sending, and then the teller who knows it already."""
    result = run_bank("-k", "careless", careless=True)
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.re_match_lines(
        [
            r"E .*Violation: always: no money is lost: 200 at first, now \d+",
            r"E +Workload: \(Transfer\(number=\d+, source='\w+', amount=\d+\),\)",
            r"E .*Shrunk by \d+ more runs: faults \d to 1, every task in its turn\.",
            r"E .*the teller debits transfer",
            r"E .*(killed|was cut)",
            r"E .*machine 2 booted",
            r"E .*the teller knows transfer \d+ already",
            r"E +pytest test_bank.py::test_the_careless_bank_is_caught --callboard-seed=\d+",
        ]
    )
    assert not [line for line in result.outlines if "the vault receives" in line and line.startswith("E ")]
