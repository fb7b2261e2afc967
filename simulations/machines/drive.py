"""One drive: the machines from one seed, under one plan, for this many inputs, and then until everything is settled.

An *event* is one input to a state machine: a publish, a fetch, a settlement, a commit, a lease that was read, an
ending, a step of the supervisor. In the end everything heals, and all that was published has to be settled within a
number of rounds.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Any, Final

import attrs

from callboard.simulations.machines.driver import CODES, FastPathDriver
from callboard.simulations.violations import Violation

EVENTS: Final = 4_000
TALE_MAX: Final = 40


@attrs.frozen
class Driven:
    """How a drive went."""

    seed: int
    events: int
    """Inputs given to state machines."""
    digest: str
    """Of every operation and its outcome: the same seed gives the same."""
    violation: Violation | None
    virtual_s: float
    hits: dict[int, int]
    """Per index of the plan: how often it struck."""
    crashes: int
    settled: int
    tale: tuple[str, ...]
    """The last operations, oldest first."""


def drive(seed: int, *, events: int = EVENTS, plan: Any = None) -> Driven:
    """Drive the machines for about `events` inputs, under `plan` (None: drawn from the seed), then heal and drain.

    A broken rule comes back as the violation; any other error of a state machine does too, as promise "machines".
    """
    driver = FastPathDriver(seed, events, plan)
    violation: Violation | None = None
    try:
        driver.run()
        driver.drain()
    except Violation as broken:
        violation = broken
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a machine raises is a finding
        violation = Violation("machines", f"{type(error).__name__}: {error}")
        violation.__cause__ = error
    mask = (1 << 63) - 1
    digest = blake2b(array("q", [code & mask for code in driver.trace]).tobytes(), digest_size=16).hexdigest()
    names = {code: name for name, code in CODES.items()}
    tale = tuple(f"{names[code & 15]} {code >> 8}" for code in driver.trace[-TALE_MAX:])
    settled = sum(group.ledger.settled.count(1) for _, group in driver.pairs)
    crashes = sum(partition.crashes for partition in driver.partitions)
    return Driven(
        driver.seed, driver.events, digest, violation, driver.now, dict(driver.hits), crashes, settled, tale
    )
