"""What clients did and saw in a run, in order; and what the disk holds afterwards."""

from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History

__all__ = ["HistoryEntry", "History"]
