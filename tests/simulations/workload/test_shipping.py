"""Callboard's code as a file for Spark's workers."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from callboard.simulations.workload.shipping import write_package

READING = "callboard.spark.source, callboard.traffic.reading"
GENERATING = "callboard.simulations.workload.generating, callboard.simulations.workload.content"


def test_all_of_the_package_is_in_the_file(tmp_path: Path) -> None:
    """Data too, each file once, and nothing that Python compiled."""
    path = tmp_path / "callboard.zip"
    write_package(str(path))
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert {"callboard/py.typed", "callboard/__init__.py", "callboard/log/errors.py"} <= set(names)
    assert len(names) == len(set(names))
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.usefixtures("spark_packages")
@pytest.mark.parametrize("modules", [READING, GENERATING])
def test_python_imports_from_the_file(tmp_path: Path, modules: str) -> None:
    """Although the package is installed as well: what is shipped comes first."""
    path = tmp_path / "callboard.zip"
    write_package(str(path))
    program = f"import sys; sys.path.insert(1, {str(path)!r}); import {modules}; print(callboard.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False, text=True
    )
    assert (done.stdout.strip(), done.stderr) == (f"{path}/callboard/__init__.py", "")
