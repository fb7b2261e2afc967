"""Work in steps: what a pure core has much of to do is a generator, which yields after `STEP_ITEMS` items (`limits`).

An actor drives it by `in_steps`, which lets other tasks run between two steps. What has only one step to do does not
yield.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import trio

Result = TypeVar("Result")


async def in_steps(steps: Generator[Any, None, Result]) -> Result:
    """What the steps return, with a checkpoint between each two."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await trio.lowlevel.checkpoint()
