"""The Spark session of a job."""

from __future__ import annotations

import signal
from typing import Any


def test_ctrl_c_stays_what_it_was(spark: Any) -> None:
    """Spark takes it for itself when it starts; then trio could defer it no more."""
    assert spark.version
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
