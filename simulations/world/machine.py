"""A machine: one life of the simulated computer, from its boot to its end or to a power cut."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from callboard.log.errors import CallboardError
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

if TYPE_CHECKING:
    from callboard.simulations.world.world import World


class Machine:
    """One life of the computer. Programs under test run in its tasks, on its seams."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        """From 1 on."""
        self.dead = False
        """Its power was cut, or its process killed: none of its tasks is stepped any more."""
        self.over = trio.Event()
        self.scope = trio.CancelScope()
        """Around its boot, and all that it starts in nurseries of its own."""
        self.runtime: Runtime | None = None
        """The runtime that is open, or opening."""
        self.entropy: SeededEntropy = world.entropy.fork(f"machine {number}")

    def __repr__(self) -> str:
        return f"<Machine {self.number}{', dead' if self.dead else ''}>"

    @property
    def disk(self) -> MemoryDisk:
        """The computer's disk, the same in all lives."""
        return self.world.disk

    @property
    def clock(self) -> VirtualClock:
        """The computer's clock, the same in all lives."""
        return self.world.clock

    def open_runtime(self) -> OpenRuntime:
        """The production runtime on this machine: `async with machine.open_runtime() as runtime`."""
        return OpenRuntime(self)

    def topic_names(self) -> dict[str, str]:
        """Names of the topics of the runtime that is open, by id."""
        try:
            return (
                {}
                if self.runtime is None
                else {topic.topic_id: topic.name for topic in self.runtime.topics()}
            )
        except CallboardError:
            return {}

    def crash(self, path: str, error: BaseException) -> bool:
        """Let the actor at `path` fail with `error`; whether there was one."""
        if self.runtime is None or self.dead:
            return False
        with suppress(CallboardError):
            self.runtime.crash(path, error)
            return True
        return False


class OpenRuntime:
    """Opens a runtime and reports its events to the world."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._runtime = open_runtime(
            disk=machine.disk,
            clock=machine.clock,
            entropy=machine.entropy,
            on_event=self._heard,
            limits=machine.world.limits,
        )
        self._runtime._delivers_copies = machine.world.delivers_copies

    def _heard(self, event: Any) -> None:
        self._machine.world.heard(self._machine, event)

    async def __aenter__(self) -> Runtime:
        self._machine.runtime = self._runtime
        return await self._runtime.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await self._runtime.__aexit__(kind, error, traceback)
        finally:
            if self._machine.runtime is self._runtime:
                self._machine.runtime = None
