"""Segment files and how they are walked: what partitions, journals and offline tools have in common."""
