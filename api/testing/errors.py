"""The errors of a simulated test that are not failures of the tested code."""

from __future__ import annotations

from callboard.log.errors import CallboardError


class NeverHit(CallboardError, AssertionError):
    """No seed hit the `sometimes` points, or met the faults of a `Plan`, that `points` names. Raised only with
    `--callboard-strict`.

    The test does not reach the cases that it is for: give it more seeds, more faults, or a longer workload.
    """

    points: tuple[str, ...]


class NotRepeatable(CallboardError):
    """Two runs of one seed differed: one failed and the other did not, for example.

    Something that the simulator does not control decides the run.
    Look for it in the tested code: sets ordered by identity, threads, real time, state left over from an earlier
    run in globals or in fixtures that the seeds share.
    """

    seed: int


class DrawnInside(CallboardError):
    """Hypothesis was asked for data inside a simulated run. Draw before the run, and pass what was drawn into it.

    Hypothesis decides by its own replay what a draw returns, and may end a test by an exception from a draw. Inside the
    run that would end the event loop, and the same seed would not give the same run.
    """
