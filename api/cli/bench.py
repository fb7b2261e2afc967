"""`callboard bench`: how fast this machine and disk are. The scripts in `benchmarks/` measure by it too.

The bare baseline writes the same bytes, appended to a file and synced after each write by the call that Callboard makes
too (`BareFile`), as a program would that wanted durability and nothing else. The second baseline overwrites a
preallocated file instead, which no append-only program can do without preparing for it. A ratio is the median over
interleaved pairs: each pair measures Callboard and the bare file right after each other, because machines drift.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import attrs
import click
import trio
from rich.console import Console, RenderableType

from callboard.cli.answers import CommandAnswer
from callboard.cli.files import BareFile, temporary_directory
from callboard.cli.interruption import run, telling_end
from callboard.cli.options import FiniteFloat, json_option
from callboard.cli.output import facts, table
from callboard.control.plain import plain
from callboard.log.errors import InvalidArgument
from callboard.log.limits import BATCH_BYTES_MAX
from callboard.log.seams.clock import Clock
from callboard.runtime import Runtime, open_runtime, session_of
from callboard.topic import Topic

FRAME_OVERHEAD_BYTES = 130
"""A frame's header and map heads; with the 8 bytes of ends per record, what Callboard writes beside payloads."""
RECORD_OVERHEAD_BYTES = 8
KEY_BYTES = 9
CONSUMED_RECORDS = 200_000
LATENCY_RATE = 1000


@attrs.frozen
class Measured:
    """One line of the report. `rate` is messages per second; ratios are medians over pairs."""

    name: str
    rate: float
    bare_rate: float
    of_bare: float
    of_overwrite: float
    worst: float
    best: float


@attrs.frozen
class BenchLatency:
    """Seconds from the call of publish to the handler, at a steady rate."""

    name: str
    p50: float
    p99: float
    worst: float


@attrs.frozen
class BenchPlan:
    """How long and how often to measure; `size` is the payload's bytes."""

    pairs: int = 5
    seconds: float = 1.0
    size: int = 100


class Bench:
    """Measures one runtime. `say` is called before each measurement, for progress."""

    def __init__(self, runtime: Runtime, bare: BareFile, plan: BenchPlan, say: Callable[[str], None]) -> None:
        self.runtime = runtime
        self.clock: Clock = session_of(runtime).clock
        self._bare = bare
        self._plan = plan
        self._say = say
        self._topics = 0

    async def topic(self) -> Topic:
        """A new topic of one partition."""
        self._topics += 1
        return await self.runtime.create_topic(f"bench-{self._topics}")

    def payload(self, count: int) -> tuple[list[bytes], list[bytes | None]]:
        """Prebuilt values and keys."""
        entropy = session_of(self.runtime).entropy
        values = [entropy.bytes(self._plan.size) for _ in range(count)]
        return values, [b"key%06d" % number for number in range(count)]

    async def paired(self, name: str, measure: Callable[[], Awaitable[float]], count: int) -> Measured:
        """Interleaved pairs of `measure` and the bare file, in writes of `count` records."""
        pairs = []
        # What `count` records take on disk, nearly.
        size = count * (self._plan.size + KEY_BYTES + RECORD_OVERHEAD_BYTES) + FRAME_OVERHEAD_BYTES
        seconds = self._plan.seconds / 2
        for number in range(self._plan.pairs):
            self._say(f"{name}: pair {number + 1} of {self._plan.pairs}")
            before = self._bare.rate(size, seconds) * count
            rate = await measure()
            bare = (before + self._bare.rate(size, seconds) * count) / 2
            over = self._bare.rate(size, seconds, overwrite=True) * count
            pairs.append((rate, bare, rate / bare, rate / over))
        rate, bare, of_bare, of_overwrite = map(statistics.median, zip(*pairs, strict=True))
        ratios = [pair[2] for pair in pairs]
        return Measured(name, rate, bare, of_bare, of_overwrite, min(ratios), max(ratios))

    # -- publishing

    async def publish_batches(self, count: int) -> Measured:
        """One task, batches of `count`, each awaited."""
        topic = await self.topic()
        values, keys = self.payload(count)

        async def measure() -> float:
            done, start = 0, self.clock.monotonic()
            while self.clock.monotonic() - start < self._plan.seconds:
                await topic.publish_batch(values, keys=keys)
                done += count
            return done / (self.clock.monotonic() - start)

        return await self.paired(f"publish_batch of {count:,}", measure, count)

    async def publish_singly(self, tasks: int) -> Measured:
        """`tasks` tasks, each publishing one message after the other."""
        topic = await self.topic()
        values, keys = self.payload(64)

        async def measure() -> float:
            counter = [0] * tasks
            start = self.clock.monotonic()
            async with trio.open_nursery() as nursery:
                for task in range(tasks):
                    nursery.start_soon(publish, task, counter, start + self._plan.seconds)
            return sum(counter) / (self.clock.monotonic() - start)

        async def publish(task: int, counter: list[int], until: float) -> None:
            value, key = values[task % 64], keys[task % 64]
            while self.clock.monotonic() < until:
                await topic.publish(value, key=key)
                counter[task] += 1

        return await self.paired(f"single publishes, {tasks} task{'s' if tasks > 1 else ''}", measure, 1)

    # -- consuming

    async def consume(self, count: int) -> Measured:
        """Batches of `count` (1: one by one, acks coalesced), each acked before the next."""
        records = CONSUMED_RECORDS if count > 1 else CONSUMED_RECORDS // 10
        values, keys = self.payload(1000)
        runs = 0

        async def measure() -> float:
            nonlocal runs
            runs += 1
            topic = await self.topic()
            for _ in range(records // 1000):
                await topic.publish_batch(values, keys=keys)
            start = self.clock.monotonic()
            async with topic.subscribe(f"group-{topic.name}") as consumer:
                done = 0
                if count == 1:
                    async for message in consumer:
                        await message.ack(wait=False)
                        done += 1
                        if done == records:
                            break
                else:
                    async for batch in consumer.batches(max_records=count):
                        done += len(batch.values())
                        await batch.ack()
                        if done == records:
                            break
            rate = records / (self.clock.monotonic() - start)
            await self.runtime.delete_topic(topic.name)
            return rate

        return await self.paired(f"consume in {count:,}s with acks", measure, count)

    # -- latency

    async def latency(self) -> BenchLatency:
        """From the call of publish to the handler that has the message, at 1,000 messages a second."""
        self._say("end to end at 1,000 msg/s")
        topic = await self.topic()
        values, _ = self.payload(1)
        total = max(1000, int(LATENCY_RATE * self._plan.seconds * self._plan.pairs))
        sent, taken = [0.0] * total, [0.0] * total

        async def publish(number: int) -> None:
            sent[number] = self.clock.monotonic()
            await topic.publish(values[0], headers={"n": str(number)})

        async def handle() -> None:
            async with topic.subscribe("latency") as consumer:
                for _ in range(total):
                    message = await consumer.get()
                    if message is not None:
                        taken[int(message.headers["n"])] = self.clock.monotonic()
                        await message.ack(wait=False)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle)
            await trio.sleep(0.1)
            start = self.clock.monotonic()
            for number in range(total):
                await trio.sleep_until(start + number / LATENCY_RATE)
                nursery.start_soon(partial(publish, number))
        spans = sorted(late - early for early, late in zip(sent, taken, strict=True))
        return BenchLatency(
            "end to end at 1,000 msg/s", spans[total // 2], spans[int(total * 0.99)], spans[-1]
        )


SIZE_MAX = BATCH_BYTES_MAX // 1000 - KEY_BYTES
"""Bytes of a value, so that a batch of 1,000 is allowed."""
MEASURES: dict[str, Callable[[Bench], Awaitable[Measured | BenchLatency]]] = {
    "publish_batch of 1,000": partial(Bench.publish_batches, count=1000),
    "publish_batch of 100": partial(Bench.publish_batches, count=100),
    "single publishes, 1 task": partial(Bench.publish_singly, tasks=1),
    "single publishes, 64 tasks": partial(Bench.publish_singly, tasks=64),
    "single publishes, 512 tasks": partial(Bench.publish_singly, tasks=512),
    "consume in 1,000s with acks": partial(Bench.consume, count=1000),
    "consume in 1s with acks": partial(Bench.consume, count=1),
    "end to end at 1,000 msg/s": Bench.latency,
}


LEGEND: Final = (
    ("msg/s", 'messages of Callboard per second, synced (acks "all")'),
    (
        "append msg/s",
        "the same bytes appended to a bare file, each write synced by the call that Callboard makes",
    ),
    ("of append", "msg/s divided by append msg/s, measured right after each other: the median of the pairs"),
    (
        "worst to best",
        "the same in the worst and in the best pair; if they differ much, the machine was busy",
    ),
    ("of overwrite", "msg/s divided by the rate of overwriting a prepared file, which syncs faster"),
)
NOISE_MAX: Final = 10
"""A disk is too noisy when the best pair exceeds the worst by this factor."""
LATENCY_LEGEND: Final = (
    ("latency", "from the call of publish until the handler has the message"),
    ("p50, p99", "half of the messages are faster; 99 of 100 are"),
)


def _row(line: Measured) -> tuple[str, ...]:
    spread = f"{line.worst:.2f} to {line.best:.2f}"
    ratios = f"{line.of_bare:.2f}", spread, f"{line.of_overwrite:.2f}"
    return line.name, f"{line.rate:,.0f}", f"{line.bare_rate:,.0f}", *ratios


def noise(measured: Iterable[Measured]) -> str | None:
    """What to tell of lines whose pairs differ so much that their median says nothing."""
    noisy = [line.name for line in measured if line.best > NOISE_MAX * line.worst]
    if not noisy:
        return None
    return (
        f"this disk is too noisy to compare: the best pair is more than {NOISE_MAX} times the worst in"
        f" {'; '.join(noisy)}. Run again with more --pairs and --seconds, or when the machine is idle."
    )


@click.command()
@click.option(
    "--pairs", type=click.IntRange(1, 100), default=3, show_default=True, help="Interleaved pairs per line."
)
@click.option(
    "--seconds", type=FiniteFloat(0.05, 600), default=0.5, show_default=True, help="Length of each run."
)
@click.option(
    "--size", type=click.IntRange(1, SIZE_MAX), default=100, show_default=True, help="Bytes of a value."
)
@click.option("--inline", is_flag=True, help="Sync in the event loop's own thread.")
@click.option("--only", multiple=True, help="Only lines whose name contains this.")
@click.option(
    "--in", "folder", default=None, help="Make the temporary directory here: name the disk to measure."
)
@json_option
def bench(
    pairs: int,
    seconds: float,
    size: int,
    inline: bool,
    only: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> int:
    """Measure publishing, consuming and latency. Rates are compared with bare synced writes of the same bytes."""
    for part in only:
        if not any(part in name for name in MEASURES):
            raise InvalidArgument(
                f"no line's name contains {part!r:.60}. The lines are: {'; '.join(MEASURES)}."
            )
    wanted = [do for name, do in MEASURES.items() if not only or any(part in name for part in only)]

    async def work() -> list[Measured | BenchLatency]:
        with Console(stderr=True).status("starting") as status:
            async with open_runtime(directory + "/runtime", sync_inline=inline) as runtime:
                made = Bench(runtime, BareFile(directory), BenchPlan(pairs, seconds, size), status.update)
                found = [await measure(made) for measure in wanted]
        return found

    with telling_end("the measurement"), temporary_directory(keep=False, parent=folder) as directory:
        found = run(work)
    measured = [line for line in found if isinstance(line, Measured)]
    latencies = [line for line in found if isinstance(line, BenchLatency)]
    document = {"measured": plain(measured), "latency": plain(latencies)}
    said = filter(None, [noise(measured)])
    return CommandAnswer(document, _tables(measured, latencies), said=said).print(as_json=as_json)


def _tables(measured: Sequence[Measured], latencies: Sequence[BenchLatency]) -> Iterator[RenderableType]:
    if measured:
        heads = ("work", "msg/s", "append msg/s", "of append", "worst to best", "of overwrite")
        yield from (table(heads, map(_row, measured)), "", facts(LEGEND))
    if measured and latencies:
        yield ""
    if latencies:
        rows = [
            (one.name, *(f"{s * 1e3:,.2f} ms" for s in (one.p50, one.p99, one.worst))) for one in latencies
        ]
        yield from (table(("latency", "p50", "p99", "worst"), rows), "", facts(LATENCY_LEGEND))
