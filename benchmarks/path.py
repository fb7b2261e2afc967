"""Counts what one message runs through: the functions and files of Callboard between `publish` and the end of `ack`.

Usage: `python benchmarks/path.py`. It uses the public names only, so it counts any two versions alike.
One message is published, received and acknowledged on a warm runtime with one topic, one partition and one group. Every
function of the package that begins meanwhile in the loop's thread is counted once. Not counted: comprehensions, which
are functions of their own in some versions of Python only, and tasks that were there before and merely go on.
"""

from __future__ import annotations

import dis
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trio

import callboard


def house(code: CodeType) -> str | None:
    """The module that defines `code`, when it is one of the package's."""
    return _MODULES.get(code.co_filename)


_MODULES: dict[str, str] = {}


def _learn_modules() -> None:
    for name, module in sys.modules.items():
        if name.split(".")[0] == "callboard" and getattr(module, "__file__", None):
            _MODULES[str(module.__file__)] = name


@cache
def _beginning(code: CodeType) -> int:
    """Where a call of `code` stands when it begins: a coroutine that is resumed stands further on."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


async def follow() -> dict[CodeType, int]:
    """Every code object entered between `publish` and `ack` of one message, with the number of calls."""
    entered: dict[CodeType, int] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_lasti <= _beginning(frame.f_code) and "<" not in frame.f_code.co_name:
            entered[frame.f_code] = entered.get(frame.f_code, 0) + 1

    with tempfile.TemporaryDirectory() as directory:
        async with callboard.open_runtime(Path(directory) / "data") as runtime:
            topic = await runtime.create_topic("orders")
            async with topic.subscribe("kitchen") as consumer:
                for warm in range(20):
                    await topic.publish(b"%d" % warm, key=b"a")
                    message = await consumer.get()
                    assert message is not None
                    await message.ack()
                await trio.sleep(0.1)
                sys.setprofile(profile)
                try:
                    await topic.publish(b"value", key=b"a")
                    message = await consumer.get()
                    assert message is not None
                    await message.ack()
                finally:
                    sys.setprofile(None)
    return entered


def main() -> None:
    """Print the two numbers, then the functions by module."""
    entered = trio.run(follow)
    _learn_modules()
    ours = {code: calls for code, calls in entered.items() if house(code) is not None}
    modules: dict[str, list[str]] = {}
    for code, calls in ours.items():
        modules.setdefault(str(house(code)), []).append(f"{code.co_qualname} ({calls})")
    print(f"functions {len(ours)}, files {len(modules)}, calls {sum(ours.values())}")
    if "--names" in sys.argv:
        for module in sorted(modules):
            print(f"{module}: {', '.join(sorted(modules[module]))}")


if __name__ == "__main__":
    main()
