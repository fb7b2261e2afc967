"""Callboard's logs in Spark: `spark.read.format("callboard")`, once `register` was called with the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format "callboard" known to a session."""
    from callboard.spark.source import CallboardSource

    spark.dataSource.register(CallboardSource)
