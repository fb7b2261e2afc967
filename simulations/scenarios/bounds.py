"""Bounds of workloads: what a stored one may ask for at most, so that none fills the memory of who runs it again.

They are far above what any scenario draws. Only too much is refused: of too little, down to negative numbers, each
scenario makes the least that makes sense, and shrinking goes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from callboard.log.errors import InvalidArgument
from callboard.log.limits import GIB

__all__ = ["ACTORS_MAX", "BYTES_MAX", "COUNT_MAX", "NAMES_MAX", "check_counts"]

COUNT_MAX: Final = 1_000_000
"""Messages, and whatever goes by messages."""
ACTORS_MAX: Final = 10_000
"""Tasks, actors, partitions: each holds memory of its own."""
NAMES_MAX: Final = 100
"""Items of a tuple."""
BYTES_MAX: Final = 1 * GIB
"""Payloads of all messages together."""


def check_counts(what: str, counts: Mapping[str, tuple[int, int]]) -> None:
    """Raises `InvalidArgument` with every count that is above its bound; `counts` has both by name."""
    problems = [
        f"{name}: {count if count < 1 << 64 else '2**64 or more'}, where {most:,} is the most"
        for name, (count, most) in counts.items()
        if count > most
    ]
    if problems:
        raise InvalidArgument(f"{what} asks for too much ({'; '.join(problems)})")
