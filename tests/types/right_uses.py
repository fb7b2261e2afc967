"""How programs use Callboard: a type checker finds nothing to say here. `.ci/run` asks one."""

from __future__ import annotations

import callboard
from callboard.log.host.clock import HostClock
from callboard.log.host.entropy import HostEntropy
from callboard.supervision import SupervisorSpec, open_system


async def returns_from_a_runtime(directory: str) -> int:
    """The block ends as the body does."""
    async with callboard.open_runtime(directory) as runtime:
        return len(runtime.topics())


async def returns_from_a_message(runtime: callboard.Runtime) -> bytes | None:
    """Inside the block of a consumer."""
    async with runtime.topic("orders").subscribe("billing") as consumer, consumer.receive() as message:
        return message.value


async def returns_from_a_system() -> str:
    """Without a runtime."""
    async with open_system(SupervisorSpec(name="bank"), clock=HostClock(), entropy=HostEntropy()) as system:
        return system.tree().draw()
