"""Test your own trio code in Callboard's simulator with many schedules, faults and crashes, all of them repeatable.

`simulate` turns `async def test_x(world)` into a pytest test that runs it once per seed, under virtual time and
with faults that the seed draws. `sometimes`, `always`, `eventually` and `note` are for the test and what it calls.
The pytest plugin (`callboard.testing.plugin`) adds the options `--callboard-seeds`, `--callboard-seed`,
`--callboard-strict`, `--callboard-check-determinism`, `--callboard-report` and the fixture `simulation`. Names are
loaded when they are first used, so that the plugin costs nothing in other test runs.
"""

from __future__ import annotations

from callboard.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, globals())
