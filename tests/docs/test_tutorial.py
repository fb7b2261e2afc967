"""The tutorial's worker is stopped as services are: by SIGTERM from outside."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import trio

import callboard
from tests.docs.test_snippets import RUN, snippets

OF_ITSELF = "os.kill(os.getpid(), signal.SIGTERM)"
"""How the page's program sends the signal. Here it tells that it could be sent, and goes on when it has come."""
FROM_OUTSIDE = """print("begun", flush=True)
                    while not consumer.is_draining:
                        await trio.sleep(0.01)"""


def test_a_worker_that_is_terminated_finishes_what_it_has(docs: Path, tmp_path: Path) -> None:
    """It ends without an error when "first" is done; "second" stays for the next one, at its first attempt."""
    page = (docs / "tutorial" / "index.md").read_text(encoding="utf-8").partition("\n## A crash\n")[0]
    (program,) = snippets("tutorial", page)
    assert program.text.count(OF_ITSELF) == 1
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", RUN, "tutorial"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    with running:
        running.stdin.write(program.text.replace(OF_ITSELF, FROM_OUTSIDE))
        running.stdin.close()
        while running.stdout.readline() != "begun\n":
            assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == "finished first\n"
        assert running.wait() == 0
    assert trio.run(next_message, tmp_path / "data") == (b"second", 1)


def test_a_message_whose_handler_fails_comes_again(docs: Path, tmp_path: Path) -> None:
    """The page's program prints what the page says: the same message, at its second attempt."""
    page = (docs / "tutorial" / "index.md").read_text(encoding="utf-8")
    (program,) = snippets("tutorial", page)
    command = [sys.executable, "-P", "-c", RUN, "tutorial"]
    ran = subprocess.run(
        command, cwd=tmp_path, input=program.text, capture_output=True, text=True, check=True, timeout=60
    )
    shown = page.partition("\n## A crash\n")[2].partition("```console\n")[2].partition("```")[0]
    assert ran.stdout.endswith(shown)
    assert shown.count("at second") == 2


async def next_message(directory: Path) -> tuple[bytes, int]:
    """What the next worker is given, and which attempt it is."""
    async with callboard.open_runtime(directory) as runtime:
        async with runtime.topic("orders").subscribe("kitchen") as consumer:
            message = await consumer.get(timeout=10.0)
            assert message is not None
            await message.ack()
            assert await consumer.get(timeout=0) is None
    return message.value, message.attempt
