"""What Spark hands to a task."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from callboard.spark.slices import Slice


class SliceTask(InputPartition):
    """One task: a slice."""

    def __init__(self, piece: Slice) -> None:
        self.piece = piece
