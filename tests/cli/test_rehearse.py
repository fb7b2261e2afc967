"""`callboard rehearse`, through the real entry point: then and now of a topic with failures on purpose."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

import callboard

MODULE = """
import callboard

async def handle(message):
    if message.attempt == 1:
        raise callboard.Retry(0.01)

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
                while (await runtime.describe_group("billing")).lag:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()

    trio.run(fill)
    (command.folder / "todays_code.py").write_text(MODULE)
    return command


ARGUMENTS = ("rehearse", "tuesday", "--topic=orders", "--group=billing", "--speed=max")


def test_then_and_now_are_side_by_side(tuesday: Any) -> None:
    """As JSON and for people; nothing is left."""
    before = sorted(path.name for path in tuesday.folder.iterdir())
    found = tuesday.run(*ARGUMENTS, "--handler=todays_code:handle", "--json").json
    assert (found["then"]["dead_letters"], found["now"]["dead_letters"]) == (2, 0)
    assert (found["then"]["redelivered"], found["now"]["redelivered"]) == (0, 20)
    assert (found["then"]["messages"], found["now"]["messages"], found["now"]["settled"]) == (20, 20, 20)
    assert found["verdict"]["dead letters"] == "better"
    assert found["verdict"]["redelivered"] == found["verdict"]["nacked"] == "worse"
    told = tuesday.run(*ARGUMENTS, "--handler=todays_code:handle").out.decode()
    assert "then and now" in told
    assert "Worse now: redelivered, nacked" in told
    assert max(map(len, told.splitlines())) <= 80
    after = sorted(path.name for path in tuesday.folder.iterdir())
    assert [name for name in after if name != "__pycache__"] == before


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
