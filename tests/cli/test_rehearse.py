"""`callboard rehearse`, through the real entry point: then and now of a topic with failures on purpose."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

import callboard
from callboard.cli import exits

MODULE = """
import callboard

async def handle(message):
    if message.attempt == 1:
        raise callboard.Retry(0.01)

async def always(message):
    pass

async def unready(message):
    if message.attempt == 1:
        raise ValueError("not yet")

def not_async(message):
    pass
"""


@pytest.fixture
def tuesday(command: Any) -> Any:
    """A directory of 20 messages, two of which were rejected then."""

    async def handle(message: callboard.ReceivedMessage) -> None:
        if message.value in {b"3", b"13"}:
            raise callboard.Reject("unlucky")

    async def fill() -> None:
        async with callboard.open_runtime(command.folder / "tuesday") as runtime:
            topic = await runtime.create_topic("orders", partitions=2)
            await topic.publish_batch([b"%d" % number for number in range(20)])
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(topic.work, handle, "billing"))
                while (await runtime.group("billing").describe()).lag:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()

    trio.run(fill)
    (command.folder / "todays_code.py").write_text(MODULE)
    return command


ARGUMENTS = ("rehearse", "tuesday", "--topic=orders", "--group=billing", "--speed=max")


def test_then_and_now_are_side_by_side(tuesday: Any) -> None:
    """As JSON and for people; nothing is left."""
    before = sorted(path.name for path in tuesday.folder.iterdir())
    arguments = (*ARGUMENTS, "--handler=todays_code:handle")
    found = tuesday.run(*arguments, "--json", code=exits.WORSE).json
    assert (found["then"]["dead_letters"], found["now"]["dead_letters"]) == (2, 0)
    assert (found["then"]["redelivered"], found["now"]["redelivered"]) == (0, 20)
    assert (found["then"]["messages"], found["now"]["messages"], found["now"]["settled"]) == (20, 20, 20)
    assert found["verdict"]["dead letters"] == "better"
    assert found["verdict"]["redelivered"] == found["verdict"]["nacked"] == "worse"
    told = tuesday.run(*arguments, code=exits.WORSE).out.decode()
    assert "then and now" in told
    assert "Worse now: redelivered, nacked.\n" in told
    assert "are not judged" in told
    assert max(map(len, told.splitlines())) <= 80
    after = sorted(path.name for path in tuesday.folder.iterdir())
    assert [name for name in after if name != "__pycache__"] == before


def test_lags_and_times_are_judged_at_the_recorded_pace_alone(tuesday: Any) -> None:
    """Faster, they are those of another load; a handler that does better is worse in nothing, and exits with 0."""
    found = tuesday.run(*ARGUMENTS, "--handler=todays_code:always", "--json").json
    assert found["verdict"] == {"dead letters": "better"}
    assert found["speed"] == "max"


def test_failures_that_are_counted_are_not_logged_too(tuesday: Any) -> None:
    """Nor is the number of log lines told that were left out."""
    assert tuesday.run(*ARGUMENTS, "--handler=todays_code:unready", code=exits.WORSE).err == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--handler=todays_code:not_async",), "no async function"),
        (("--handler=todays_code:missing",), "cannot be imported"),
        (("--handler=nowhere",), "cannot be imported"),
        (("--handler=todays_code:handle", "--group=bill"), "no group 'bill'"),
        (("--handler=todays_code:handle", "--topic=order"), "order"),
        (("--handler=todays_code:handle", "--keep=tuesday"), "not empty"),
        (("--handler=todays_code:handle", "--patience=nan"), "'--patience': 'nan' is not a finite number"),
    ],
)
def test_mistakes_are_told_in_a_line(tuesday: Any, change: tuple[str, ...], words: str) -> None:
    """Nothing is run."""
    told = tuesday.run(*ARGUMENTS, *change, code=None).err
    assert words in told
    assert "Traceback" not in told
