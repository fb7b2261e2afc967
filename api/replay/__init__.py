"""Replaying recordings into a runtime: at the recorded pace, N times that, or as fast as possible. See `replay`."""

from __future__ import annotations

from callboard.replay.checking import check_recording
from callboard.replay.lateness import Lateness
from callboard.replay.pacing import MAX_SPEED, check_speed
from callboard.replay.progress import ReplayProgress, ReplayReport
from callboard.replay.replaying import replay

__all__ = [
    "MAX_SPEED",
    "Lateness",
    "ReplayProgress",
    "ReplayReport",
    "check_recording",
    "check_speed",
    "replay",
]
