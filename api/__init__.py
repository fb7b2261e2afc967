"""Callboard: a durable, partitioned message log and queue that lives inside a trio program.

What a program calls, and the errors it may meet, are names of this package. What it only reads is in three modules
beside them: `callboard.events`, `callboard.statistics` and `callboard.hints`. Each is loaded when first used, so
importing Callboard costs little.
"""

from __future__ import annotations

from callboard.lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(__name__, globals())
