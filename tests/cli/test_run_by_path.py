"""The command line is also run by the path of its file, as `spark-submit` runs programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import callboard


def test_the_package_is_a_program() -> None:
    """Its folder is then where Python looks first, so none of its modules may stand for one that Python imports."""
    program = Path(str(callboard.__file__)).with_name("__main__.py")
    done = subprocess.run([sys.executable, program, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == f"callboard {callboard.__version__}\n", done.stderr
