"""For all tests: no deadlines for Hypothesis on a busy machine, a small system of actors, and runtimes in memory."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import attrs
import hypothesis
import pytest
import trio

import callboard
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.inodes import Choose, lose_unsynced
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.workload.session import check_packages, check_spark, open_session
from callboard.supervision import ChildSpec, SupervisorSpec, open_system

hypothesis.settings.register_profile("callboard", deadline=None, print_blob=True)
hypothesis.settings.load_profile("callboard")

# Spark's jobs of tests are short: what Java's second compiler gains, it costs. A seventh of what such a Java takes is
# verifying the classes of Spark that it loads.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

SMALL_JOBS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of Spark: for some thousand rows, writing and compiling Java, and planning again, take longer than the rows do."""

# A shell that runs the tests in the background has them ignore Ctrl-C: tests that wait for one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG_FIRST = ("simulations/workload", "spark", "cli", "types", "simulations/users", "faults")
"""The folders with the longest files come first, so that both processes end at about the same time."""

ROUND_EXAMPLES = 5000
"""Hypothesis remembers each example of a round, and many of them take gigabytes."""

COUNTS_CALLS = "tests/api/test_steps.py"
"""Wire mode makes calls of its own."""

Story = Callable[[Any], Awaitable[object]]
"""What a client does with a runtime."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--examples`: how long property tests search. `--wire`: runtimes open in wire mode."""
    parser.addoption(
        "--wire",
        action="store_true",
        help="the actors of every runtime send and answer copies of messages, encoded and decoded",
    )
    parser.addoption(
        "--examples",
        type=int,
        metavar="N",
        help="run property tests alone, each with this many examples instead of its own number, in rounds",
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `--wire`, every runtime of the tests opens in wire mode."""
    if config.getoption("--wire"):
        callboard.Runtime._delivers_copies = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the folders of `LONG_FIRST` first, each in its order. With `--examples`, keep the property tests alone; with
    `--wire`, leave out tests that count calls.
    """
    if config.getoption("--wire"):
        counting = [item for item in items if item.nodeid.startswith(COUNTS_CALLS)]
        config.hook.pytest_deselected(items=counting)
        items[:] = [item for item in items if item not in counting]
    if examples := config.getoption("--examples"):
        searching = {item for item in items if searches(item, min(examples, ROUND_EXAMPLES))}
        config.hook.pytest_deselected(items=[item for item in items if item not in searching])
        rounds = -(-examples // ROUND_EXAMPLES)
        items[:] = [item for item in items if item in searching for _ in range(rounds)]
    places = [f"tests/{folder}/" for folder in LONG_FIRST]

    def place(item: pytest.Item) -> int:
        starts = [item.nodeid.startswith(place) for place in places]
        return starts.index(True) if any(starts) else len(places)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Freeze what has been imported and collected: what tests leave as garbage is looked for in the rest."""
    gc.collect()
    gc.freeze()


def searches(item: pytest.Item, examples: int) -> bool:
    """Whether it is a property test; it has so many examples from now on."""
    case, test = getattr(item, "cls", None), getattr(item, "obj", None)
    if isinstance(getattr(case, "settings", None), hypothesis.settings):  # of a state machine
        case.settings = hypothesis.settings(case.settings, max_examples=examples)
        return True
    test = getattr(test, "__func__", test)
    if not getattr(test, "is_hypothesis_test", False):
        return False
    own = test._hypothesis_internal_use_settings
    test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=examples)
    return True


@pytest.fixture
def seams():
    """The seams of a system without a disk; its time is virtual in tests that take `autojump_clock`."""
    return {"clock": VirtualClock(), "entropy": SeededEntropy(7)}


@pytest.fixture
def stage(seams):
    """Make a system: keyword arguments name the actors and what starts them (or a dict for ChildSpec)."""

    def make(*, supervisor=None, disk=None, **actors):
        children = tuple(
            ChildSpec(name=name, **(start if isinstance(start, dict) else {"start": start}))
            for name, start in actors.items()
        )
        spec = SupervisorSpec(name="test", children=children, **(supervisor or {}))
        return open_system(spec, disk=disk, **seams)

    return make


@pytest.fixture(scope="session")
def nasa_log() -> pathlib.Path:
    """The recorded web server log; without it, a failure in CI and a loud skip elsewhere."""
    root = pathlib.Path(__file__).parents[1]
    directory = pathlib.Path(os.environ.get("CALLBOARD_TRAFFIC_DIR", root / "../shared/data"))
    path = directory / "nasa-http" / "nasa_19950801.tsv"
    if path.is_file():
        return path
    message = f"RECORDED TRAFFIC IS MISSING: {path} (set CALLBOARD_TRAFFIC_DIR)"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def _need(check: Callable[[], None]) -> None:
    """What a test needs of Spark is missing: a failure in CI, else a skip."""
    try:
        check()
    except callboard.InvalidArgument as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(f"SPARK IS MISSING: {error}")


@pytest.fixture(scope="session")
def spark_packages() -> None:
    """PySpark and what it needs of Python; no Java."""
    _need(check_packages)


@pytest.fixture(scope="session")
def spark_and_java() -> None:
    """PySpark, and a Java to run it."""
    _need(check_spark)


@pytest.fixture(scope="session")
def spark(spark_and_java: None) -> Iterator[Any]:
    """One Spark session for all tests of the process. Commands that tests run have one with Spark's own settings."""
    with open_session("local[2]") as session:
        for name, value in SMALL_JOBS.items():
            session.conf.set(name, value)
        yield session


@pytest.fixture(scope="session")
def java_settings(spark_and_java: None) -> Iterator[dict[str, str]]:
    """What has Spark run in one Java for all programs, as `spark-submit` has it: starting one takes seconds."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    settings = SparkConf(loadDefaults=False)
    settings.set("spark.sql.shuffle.partitions", "2").set("spark.ui.enabled", "false")
    settings.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    gateway = launch_gateway(settings)
    parameters = gateway.gateway_parameters
    yield {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    gateway.shutdown()
    gateway.proc.stdin.close()  # that ends it
    gateway.proc.wait(60)


@pytest.fixture
def one_java(java_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's programs of the test run in one Java, one after the other."""
    for name, value in java_settings.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def browse(tmp_path: pathlib.Path) -> Callable[..., str]:
    """What a browser makes of a page: the document after its script ran, from disk and without a network."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("NO BROWSER: chromium is not installed, so nobody saw the report drawn")

    def document_of(page: str, fragment: str = "", *options: str) -> str:
        path = tmp_path / "report.html"
        path.write_text(page, encoding="utf-8")
        done = subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--window-size=1400,900",
                f"--user-data-dir={tmp_path / 'profile'}",
                *options,
                "--dump-dom",
                f"{path.as_uri()}{fragment}",
            ],
            capture_output=True,
            timeout=120,
            check=False,
            text=True,
        )
        assert "<body" in done.stdout, done.stderr[-2000:]
        return done.stdout

    return document_of


@pytest.fixture(scope="session")
def script_of() -> Callable[[pathlib.Path], ModuleType]:
    """Import a script that lies beside tests, and is no part of a package."""

    def module_at(path: pathlib.Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return module_at


FRESH = bool(os.environ.get("CALLBOARD_FRESH_COMMANDS"))
"""Start every program anew, as users do."""
PYTHONPATH = os.environ.get("PYTHONPATH")


class Forking:
    """Forks the programs that tests run to their end: most of a short one's time is what it imports."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, pathlib.Path(__file__).with_name("fork_server.py"), str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(
        self, command: Sequence[str], *, cwd: pathlib.Path, stdin: bytes = b"", timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """As `subprocess.run` of the installed command, or of `[sys.executable, "-P", "-c", code, ...]`."""
        if FRESH or os.environ.get("PYTHONPATH") != PYTHONPATH:
            return subprocess.run(
                command, cwd=cwd, input=stdin, capture_output=True, timeout=timeout, check=False
            )
        argv, code = list(command), "import sys, callboard.cli; sys.exit(callboard.cli.main())"
        if command[0] == sys.executable:
            _, _, name, code, *arguments = command
            argv = [name, *arguments]
        request = {"argv": argv, "code": code, "folder": str(cwd), "environment": dict(os.environ)}
        (its_in, our_in), (our_out, its_out), (our_err, its_err) = os.pipe(), os.pipe(), os.pipe()
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [its_in, its_out, its_err])
        finally:
            for number in (its_in, its_out, its_err):
                os.close(number)
        self._control.settimeout(timeout)
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_write_all, our_in, stdin)
            out, err = threads.submit(_read_all, our_out), threads.submit(_read_all, our_err)
            try:
                exit_code = int(self._control.recv(100))
            except TimeoutError:
                self.close()
                raise
        return subprocess.CompletedProcess(command, exit_code, out.result(), err.result())

    def close(self) -> None:
        """End the server, and a program that does not end."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()


def _read_all(number: int) -> bytes:
    with open(number, "rb") as stream:
        return stream.read()


def _write_all(number: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(number, "wb", buffering=0) as stream:
        view = memoryview(data)
        while view:
            view = view[stream.write(view) :]


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Forks the programs of all tests of the process."""
    forking = Forking()
    yield forking
    forking.close()


@attrs.define
class World:
    """A disk in memory and the time on it. Tests that use it run under trio's autojumping clock."""

    disk: MemoryDisk
    clock: VirtualClock
    lives: int = 0

    def open(self, **settings: Any) -> Any:
        """A runtime on the disk, for `async with`; each has randomness of its own."""
        self.lives += 1
        entropy = SeededEntropy(self.lives)
        return callboard.open_runtime(disk=self.disk, clock=self.clock, entropy=entropy, **settings)

    @staticmethod
    async def topic_of(runtime: Any, count: int, **settings: Any) -> Any:
        """A topic "jobs" whose first partition holds `count` messages: 0, 1, 2, ..."""
        topic = await runtime.create_topic("jobs", **settings)
        if count:
            await topic.publish_batch([b"%d" % number for number in range(count)], partition=0)
        return topic

    @staticmethod
    async def group_of(topic: Any, partition: int = 0) -> Any:
        """What the first partition tells of its only group."""
        (group,) = (await topic.describe())[partition].groups
        return group

    async def live(self, story: Story, power_lasts: int | None = None) -> None:
        """Run `story` in a runtime that loses power after so many verbs, or at its end; no closing counts."""
        if power_lasts is not None:
            self.disk.crash_after(power_lasts)
        with trio.CancelScope() as life:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end_with_power, life)
                    async with self.open() as runtime:
                        await story(runtime)
                        if power_lasts is None:
                            self.disk.crash(lose_unsynced)
                        else:
                            await trio.sleep_forever()
                        life.cancel()
                        await trio.lowlevel.checkpoint()
            except* callboard.CallboardError:
                if not (self.disk.is_off or life.cancel_called):
                    raise
        self.disk.power_on()

    async def _end_with_power(self, life: trio.CancelScope) -> None:
        await self.disk.crashed.wait()
        life.cancel()

    @asynccontextmanager
    async def doomed(self, choose: Choose | None = None) -> AsyncIterator[Any]:
        """A runtime whose process is dead when the block ends: nothing of its closing reaches the disk.

        With `choose` the power is lost, too, and it says what survives of what was not synced.
        """
        with trio.CancelScope() as life:
            try:
                async with self.open() as runtime:
                    yield runtime
                    if choose is None:
                        self.disk.kill()
                    else:
                        self.disk.crash(choose)
                    life.cancel()
                    await trio.lowlevel.checkpoint()
            except callboard.CallboardError:
                if not life.cancel_called:
                    raise

    async def values(self, runtime: Any, topic: str = "orders") -> dict[int, bytes]:
        """Every record of a topic with one partition, by offset."""
        return {record.offset: record.value async for record in runtime.topic(topic).read()}

    async def drain(self, runtime: Any, topic: str = "orders", group: str = "group") -> dict[int, bytes]:
        """Consume and ack what a group has to do in a topic with one partition; fails when something comes twice."""
        found: dict[int, bytes] = {}
        async with runtime.topic(topic).subscribe(group) as consumer:
            while (message := await consumer.get(timeout=1.0)) is not None:
                assert message.offset not in found
                found[message.offset] = message.value
                await message.ack()
        return found

    def segments(self, directory: str = "topics/") -> list[str]:
        """The log segments of all partitions."""
        return [
            path
            for path in sorted(self.disk.files())
            if path.startswith(directory) and path.endswith(".log") and "/delivery/" not in path
        ]

    def journals(self) -> list[str]:
        """The delivery journals' segments."""
        return [path for path in sorted(self.disk.files()) if "/delivery/" in path and path.endswith(".log")]

    def put(self, path: str, data: bytes) -> None:
        """Replace the content of a file, durably, whatever a process may have open."""
        self.disk.plant_file(path, data)


@pytest.fixture
def world() -> World:
    """An empty disk in memory."""
    clock = VirtualClock()
    return World(MemoryDisk(clock=clock), clock)
