"""What a program loads of Callboard: what it uses, and neither the simulator, nor the command line, nor Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMED = {"callboard", "callboard.lazy"}
"""What `import callboard` loads."""
USED = {
    "actors",
    "arguments",
    "asking",
    "background",
    "consumer",
    "dead_letters",
    "group",
    "lazy",
    "log",
    "message",
    "open_acks",
    "publishing",
    "renewals",
    "reports",
    "runtime",
    "session",
    "supervision",
    "topic",
}
"""The modules and packages of Callboard that a program loads which publishes and consumes."""
FOREIGN = {"cbor2", "cronsim", "zstandard"}
"""The packages of others that it loads, beyond those of trio."""
PROGRAM = """
async def main():
    async with callboard.open_runtime(sys.argv[1]) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"a book")
        async with topic.subscribe("billing") as consumer, consumer.receive() as message:
            assert message.value == b"a book"
        await runtime.stats()

trio.run(main)
"""


def _loaded(program: str, folder: Path) -> list[str]:
    """The modules that a program loads after trio, but for those of Python."""
    code = f"import sys, trio; before = set(sys.modules); import callboard\n{program}\n"
    code += "print(*sorted(n for n in sys.modules.keys() - before if n.split('.')[0] not in sys.stdlib_module_names))"
    command = [sys.executable, "-c", code, str(folder / "data")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_importing_callboard_loads_two_modules(tmp_path: Path) -> None:
    """Every name is loaded when it is first used."""
    assert set(_loaded("", tmp_path)) == NAMED


def test_a_program_loads_what_it_uses(tmp_path: Path) -> None:
    """Of Callboard and of others: what publishes and consumes needs no simulator, command line or Spark."""
    loaded = _loaded(PROGRAM, tmp_path)
    parts = [name.split(".") for name in loaded]
    assert {part[1] for part in parts if part[0] == "callboard" and len(part) > 1} == USED
    foreign = {part[0] for part in parts} - {"callboard"}
    assert {name for name in foreign if not name.startswith("_")} == FOREIGN
