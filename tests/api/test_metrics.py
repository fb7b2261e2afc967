"""Metrics for Prometheus: names, units and labels, a bounded number of samples, and numbers that are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard import measures

prometheus_client = pytest.importorskip("prometheus_client")
from callboard import metrics  # noqa: E402 - only with the extra

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "metrics.md"


def found_in(collector: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """What a scrape reads: the samples of each metric by the values of their labels."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in registry.collect():
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def test_names_units_and_labels_are_as_prometheus_wants_them() -> None:
    """A prefix, base units in plural at the end, `_total` for counters alone, no label in a name; and each once."""
    names = [family.full_name for family in measures.FAMILIES]
    assert len(set(names)) == len(names)
    for level in measures.LEVELS:
        for family in level.families:
            assert re.fullmatch(r"callboard_[a-z]+(_[a-z]+)*", family.full_name)
            assert family.full_name.endswith("_total") == (family.kind == "counter")
            assert not {"ms", "us", "kb", "mb", "count", "sum", "bucket"} & set(family.name.split("_"))
            assert not set(family.name.split("_")) & set(level.labels)
            assert family.meaning.endswith(".")
        assert not {"le", "quantile", "job", "instance"} & set(level.labels)


def test_the_page_names_every_metric() -> None:
    """And no other."""
    told = set(re.findall(r"`(callboard_[a-z_]+)`", PAGE.read_text("utf-8")))
    assert told == {family.full_name for family in measures.FAMILIES} | {"callboard_build_info"}


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    head, _, body = block.partition("async with")
    lines = f"{head}async def main():\n" + "".join(
        f"    {line}\n" for line in f"async with{body}".splitlines()
    )
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(compile(lines, str(PAGE), "exec"), scope)
    trio.run(scope["main"])


def test_rows_are_bounded_by_leaving_labels_out_from_the_last() -> None:
    """Nothing is lost of the sums."""
    rows = [((group, topic, str(index)), 1.0) for group in "ab" for topic in "xyz" for index in range(10)]
    assert measures.bounded(rows, 60) == dict(rows)
    assert measures.bounded(rows, 59) == {(group, topic, ""): 10.0 for group in "ab" for topic in "xyz"}
    assert measures.bounded(rows, 5) == {("a", "", ""): 30.0, ("b", "", ""): 30.0}
    assert measures.bounded(rows, 1) == {("", "", ""): 60.0}
    assert measures.bounded(rows, 1, max) == {("", "", ""): 1.0}
    assert measures.bounded([], 1) == {}
    assert measures.bounded([((), 3.0)], 1) == {(): 3.0}


def test_a_partition_is_hot_above_three_times_the_mean_of_its_topic() -> None:
    """Of at least four partitions, and with enough messages."""
    before = {("jobs", index): 100 for index in range(8)} | {("other", index): 0 for index in range(3)}
    after = {("jobs", index): 100 + 10 for index in range(7)} | {("jobs", 7): 230}
    after |= {("other", 0): 1000, ("other", 1): 0, ("other", 2): 0}
    (hot,) = measures.hot_partitions(before, after, 10.0)
    assert (hot.topic, hot.partition, hot.messages_per_s, hot.mean_per_s) == ("jobs", 7, 13.0, 2.5)
    assert hot.ratio == 5.2
    assert "callboard peek" in hot.advice
    even = {key: offset + 50 for key, offset in before.items()}
    assert measures.hot_partitions(before, even, 10.0) == ()
    few = {("jobs", index): 100 for index in range(7)} | {("jobs", 7): 199}
    assert measures.hot_partitions(before, few, 10.0) == ()
    assert measures.hot_partitions({}, after, 10.0) == ()  # what is new there was not seen to come


async def test_counters_are_what_a_run_did(autojump_clock: Any, world: Any) -> None:
    """Published, redelivered, ran out, rejected, expired, delayed, forwarded, fired: each as often as it happened."""
    async with world.open() as runtime:
        collector = metrics.RuntimeCollector(runtime)
        assert found_in(collector) == {}
        jobs = await runtime.create_topic("jobs", partitions=2)
        await runtime.create_topic("dead")
        await jobs.publish_batch([b"x"] * 10, partition=0)
        await jobs.publish_batch([b"x"] * 5, partition=1)
        await jobs.publish(b"gone", ttl=1.0, partition=1)
        await jobs.publish(b"later", delay=5.0, partition=0)
        await jobs.publish(b"much later", delay=5000.0, partition=0)
        await jobs.schedule("tick", value=b"tick", every=100.0, partition=1)
        await trio.sleep(2.0)
        async with jobs.subscribe(
            "group", visibility_timeout=10.0, dead_letter_topic="dead", retry=1.0
        ) as one:
            held = [await one.get() for _ in range(6)]
            await held[0].ack()
            await held[1].nack()
            await held[2].reject(reason="no use")
            await held[3].reject(reason="no use")
            await trio.sleep(70.0)  # two run out; the delayed one comes
            while (message := await one.get(timeout=2.0)) is not None:
                if message.partition == 0:
                    await message.ack()
            await runtime.group("group").pause()
            await collector.refresh()
            found = found_in(collector)
        appended = found["callboard_appended_messages_total"]
        assert appended == {
            (topic.name, str(index)): part.next_offset
            for topic in runtime.topics()
            for index, part in enumerate(await topic.describe())
        }
        assert (appended["jobs", "0"], appended["jobs", "1"], appended["dead", "0"]) == (11, 6, 2)
        zero, one_ = ("group", "jobs", "0"), ("group", "jobs", "1")
        places = {
            (part.topic, part.partition): part.groups[0] for part in await jobs.describe() if part.groups
        }
        for name, field in (
            ("lag_messages", "pending"),
            ("redelivered_messages_total", "redelivered"),
            ("ran_out_messages_total", "expired"),
            ("dead_lettered_messages_total", "dead_lettered"),
            ("expired_messages_total", "expired_records"),
        ):
            samples = found[f"callboard_{name}"]
            assert [samples[zero], samples[one_]] == [
                getattr(places["jobs", 0], field),
                getattr(places["jobs", 1], field),
            ]
        assert (
            found["callboard_redelivered_messages_total"][zero]
            + found["callboard_redelivered_messages_total"][one_]
            >= 3
        )
        assert sum(found["callboard_dead_lettered_messages_total"].values()) == 2
        assert found["callboard_forwarded_dead_letters_total"] == {("dead",): 2}
        assert found["callboard_expired_messages_total"][one_] == 1
        assert found["callboard_lag_messages"][zero] == 0
        assert list(found["callboard_lag_seconds"]) == [one_]
        assert 70.0 < found["callboard_lag_seconds"][one_] < 100.0
        assert found["callboard_delayed_messages"]["jobs", "0"] == 1
        assert found["callboard_moved_delayed_messages_total"]["jobs", "0"] == 1
        assert found["callboard_paused"] == {("group",): 1}
        assert found["callboard_consumers"] == {("group",): 1}
        assert found["callboard_read_only"] == {("dead",): 0, ("jobs",): 0}
        assert found["callboard_partitions"] == {("dead", "running"): 1, ("jobs", "running"): 2}
        assert found["callboard_actor_restarts_total"][("topics",)] == 0
        text = prometheus_client.generate_latest(_registered(collector)).decode()
        assert 'callboard_lag_messages{group="group",partition="0",topic="jobs"} 0.0' in text


def _registered(collector: Any) -> Any:
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    return registry


async def test_a_partition_that_does_not_answer_keeps_its_numbers(autojump_clock: Any, world: Any) -> None:
    """Counters never fall for want of an answer; its state tells."""
    async with world.open() as runtime:
        jobs = await world.topic_of(runtime, 5)
        collector = metrics.RuntimeCollector(runtime)
        await collector.refresh()
        while (await jobs.describe())[0].state != "failed":
            runtime.crash("topics/jobs/0", RuntimeError("a drill"))
            await trio.sleep(0.26)
        await collector.refresh()
        found = found_in(collector)
        assert found["callboard_appended_messages_total"] == {("jobs", "0"): 5}
        assert found["callboard_partitions"] == {("jobs", "failed"): 1, ("jobs", "running"): 0}
        assert found["callboard_failed_actors"][("topics",)] == 1
        assert found["callboard_actor_restarts_total"][("topics",)] >= 5


async def test_hot_partitions_are_named_while_they_are_hot(autojump_clock: Any, world: Any) -> None:
    """By the rate of the last minute, with what to do."""
    async with world.open() as runtime:
        jobs = await runtime.create_topic("jobs", partitions=4)
        collector = metrics.RuntimeCollector(runtime, rows_max=3)
        await collector.refresh()
        await jobs.publish_batch([b"x"] * 1000, partition=2)
        await trio.sleep(60.0)
        await collector.refresh()
        assert [(hot.topic, hot.partition, hot.ratio) for hot in collector.hot] == [("jobs", 2, 4.0)]
        assert found_in(collector)["callboard_hot_ratio"] == {("jobs", "2"): 4.0}
        assert found_in(collector)["callboard_appended_messages_total"] == {("jobs", ""): 1000}
        await trio.sleep(70.0)
        await collector.refresh()
        assert collector.hot == ()


async def test_it_runs_beside_a_program_and_says_what_is_wrong(autojump_clock: Any, world: Any) -> None:
    """Until it is cancelled; what makes no sense is refused."""
    async with world.open() as runtime:
        await world.topic_of(runtime, 1)
        for wrong in (0, "many", 2.5):
            with pytest.raises(callboard.InvalidArgument):
                metrics.RuntimeCollector(runtime, rows_max=wrong)
        collector = metrics.RuntimeCollector(runtime)
        for wrong in (0, "often", -1.0):
            with pytest.raises(callboard.InvalidArgument):
                await collector.run(every=wrong)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collector.run)
            await trio.sleep(20.0)
            before = found_in(collector)["callboard_refresh_timestamp_seconds"][()]
            await trio.sleep(15.0)
            assert found_in(collector)["callboard_refresh_timestamp_seconds"][()] == before + 15.0
            nursery.cancel_scope.cancel()


def test_nothing_of_it_is_imported_without_being_asked_for() -> None:
    """Neither by `import callboard` nor by opening a runtime; and without the extra the error says what to install."""
    program = (
        "import sys, callboard, callboard.runtime; assert 'prometheus_client' not in sys.modules\n"
        "sys.modules['prometheus_client'] = None\n"
        "try:\n    import callboard.metrics\n"
        "except ImportError as error:\n    assert 'callboard[prometheus]' in str(error)\n"
        "else:\n    raise SystemExit('it was imported')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
