"""What the tests of traffic share: an entropy with a seed, and the recorded traffic's place."""

import os
import pathlib
import random

import pytest


class _Seeded:
    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self.random = self._source.random

    def integer(self, bits: int) -> int:
        return self._source.getrandbits(bits)

    def bytes(self, count: int) -> bytes:
        return self._source.randbytes(count)


@pytest.fixture
def seeded():
    """Makes an Entropy from a seed."""
    return _Seeded


@pytest.fixture(scope="session")
def nasa_log() -> pathlib.Path:
    """The recorded web server log; without it, a failure in CI and a loud skip elsewhere."""
    root = pathlib.Path(__file__).parents[3]
    directory = pathlib.Path(os.environ.get("CALLBOARD_TRAFFIC_DIR", root / "../shared/data"))
    path = directory / "nasa-http" / "nasa_19950801.tsv"
    if path.is_file():
        return path
    message = f"RECORDED TRAFFIC IS MISSING: {path} (set CALLBOARD_TRAFFIC_DIR)"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
