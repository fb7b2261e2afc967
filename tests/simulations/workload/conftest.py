"""A session of Spark, the recorded traffic, and a small profile: eight events, three keys, a minute and 1.5 seconds."""

from __future__ import annotations

import json
import pathlib
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture(scope="session")
def drawing(spark_packages: None) -> Any:
    """`callboard.simulations.workload.drawing`, which needs numpy."""
    return import_module("callboard.simulations.workload.drawing")


@pytest.fixture(scope="session")
def pieces(spark_packages: None) -> Any:
    """`callboard.simulations.workload.pieces`."""
    return import_module("callboard.simulations.workload.pieces")


@pytest.fixture(scope="session")
def content(spark_packages: None) -> Any:
    """`callboard.simulations.workload.content`."""
    return import_module("callboard.simulations.workload.content")


@pytest.fixture(scope="session")
def what_if(spark_packages: None) -> Any:
    """`callboard.simulations.workload.what_if`."""
    return import_module("callboard.simulations.workload.what_if")


@pytest.fixture
def small_profile() -> dict[str, Any]:
    """The document of a profile: alice at 0, 0, 1, 61.5 s, bob at 1 s twice, carol at 2 s, and one without a key."""
    return {
        "format": "callboard-profile",
        "version": 1,
        "events": 8,
        "start_us": 1_000_000_000,
        "span_us": 61_500_000,
        "time_step_us": 1_000,
        "bucket_us": 60_000_000,
        "bucket_counts": [7, 1],
        "sub_buckets": [[[2, 2], [3, 1]], [[1, 1]]],
        "burst": [[1, 1], [2, 2], [3, 1]],
        "arrival_log2_us": [[0, 4], [20, 2], [26, 1]],
        "key_top": [4, 2],
        "key_tail": {"keys": 1, "events": 1},
        "keyless": 1,
        "key_bytes": [[3, 1], [5, 2]],
        "gap_log2_us": [[0, 2], [20, 1], [26, 1]],
        "session_idle_us": 30_000_000,
        "session_events": [[1, 2], [2, 2]],
        "session_log2_us": [[0, 3], [20, 1]],
        "value_bin_bytes": 16,
        "value_bytes": [[0, 7], [4, 1]],
        "value_total_bytes": 100,
        "partitions": 2,
        "recording": None,
    }


@pytest.fixture
def small_profile_text(small_profile: dict[str, Any]) -> str:
    """The same as text."""
    return json.dumps(small_profile)


@pytest.fixture(scope="session")
def azure_code(nasa_log: pathlib.Path) -> pathlib.Path:
    """A trace of inference requests, beside the web server's log."""
    return nasa_log.parents[1] / "azure-llm" / "AzureLLMInferenceTrace_code.csv"


@pytest.fixture(scope="session")
def azure_conv(azure_code: pathlib.Path) -> pathlib.Path:
    """Another one."""
    return azure_code.with_name("AzureLLMInferenceTrace_conv.csv")
