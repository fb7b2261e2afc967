"""The Spark session of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.cli import exits


def test_ctrl_c_stays_what_it_was(spark: Any) -> None:
    """Spark takes it for itself when it starts; then trio could defer it no more."""
    assert spark.version
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("spark_and_java")
def test_a_master_that_is_none_is_told_in_one_message(small_profile_text: str, tmp_path: Path) -> None:
    """Java's error becomes ours, and nothing is written."""
    (tmp_path / "p.json").write_text(small_profile_text)
    command = Path(sys.executable).with_name("callboard")
    done = subprocess.run(
        [command, "workload", "generate", "p.json", "--out", "r", "--master", "sparks://nowhere"],
        cwd=tmp_path,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == exits.USAGE
    assert "Spark could not be started at sparks://nowhere" in done.stderr
    assert "Check --master" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]
