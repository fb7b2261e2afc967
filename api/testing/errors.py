"""What a simulated test can say about itself, beside the failures that it finds."""

from __future__ import annotations

from callboard.log.errors import CallboardError

__all__ = ["DrawnInside", "NeverHit", "NotRepeatable"]


class NeverHit(CallboardError, AssertionError):
    """Points marked `sometimes` were hit under no seed (only raised with `--callboard-strict`); `points` names them.

    The test does not reach what it is there for: give it more seeds, more faults, or a longer workload.
    """

    points: tuple[str, ...]


class NotRepeatable(CallboardError):
    """The same seed failed, and then did not: something that the simulator does not control decided.

    Look for it in the tested code: sets ordered by identity, threads, real time, state left over from an earlier
    run in globals or in fixtures that the seeds share.
    """

    seed: int


class DrawnInside(CallboardError):
    """Hypothesis was asked for data inside a simulated run. Draw before the run, and pass what was drawn into it.

    Hypothesis decides by its own replay what a draw returns and may end a test by an exception in the midst of one;
    inside the run that would tear down the loop, and the same seed would not give the same run.
    """
