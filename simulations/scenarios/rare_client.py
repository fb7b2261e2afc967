"""Who makes calls that programs make seldom, and what becomes of them. See `rare_calls.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio

from callboard.log.errors import CallboardError, ConfigurationError, InvalidArgument
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.scenarios.mistakes import REFUSALS
from callboard.simulations.scenarios.operator import is_passing, leaves
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

PROMISE: Final = "a seldom call does what it says"
Turn = Callable[[Any], Awaitable[None]]
"""It is given a `RareClient`, or one of a kind that it needs."""


class RareClient:
    """Makes turns on one runtime."""

    turn_s: ClassVar[float] = 12.0
    """How long a turn may take."""

    def __init__(self, world: World, machine: Machine, runtime: Any, draws: SeededEntropy, name: str) -> None:
        self.world = world
        self.machine = machine
        self.runtime = runtime
        self.draws = draws
        self._name = name
        self._made = 0

    async def make(self, turn: Turn) -> None:
        """Make a turn; what is refused because something has failed ends it."""
        self.world.probe("turn", turn.__name__)
        with passing(self.world, turn.__name__), trio.move_on_after(self.turn_s):
            await turn(self)

    def new_name(self) -> str:
        """A name for a topic or a group that nobody else has."""
        self._made += 1
        return f"{self._name}-{self._made}"

    async def new_topic(self, **settings: Any) -> Any:
        """A topic that nobody else has."""
        return await self.runtime.create_topic(self.new_name(), **settings)

    async def filled(self, count: int, **settings: Any) -> Any:
        """A topic with this many messages, `b"0"` and so on, of which each second is a moment later."""
        topic = await self.new_topic(**settings)
        for number in range(count):
            await topic.publish(b"%d" % number, acks=one_of(self.draws, ("all", "all", "leader")))
            if number % 2:
                await trio.sleep(0.01)
        return topic

    async def refused(
        self,
        error: type[BaseException] | tuple[type[BaseException], ...],
        call: Callable[..., Any],
        *given: Any,
        **named: Any,
    ) -> None:
        """Make a call that must be refused with that error. What has failed meanwhile is raised."""
        words = f"{getattr(call, '__qualname__', call)}{given!r:.60}{named or ''!r:.60}"
        try:
            found = call(*given, **named)
            if isinstance(found, Awaitable):
                await found
        except error:
            return
        except REFUSALS as other:
            raise self.broken(f"{words} raised {other!r:.200}") from other
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as other:
            raise self.broken(f"{words} raised {other!r:.200}") from other
        raise self.broken(f"{words} raised nothing")

    def expect(self, found: object, wanted: object, what: str) -> None:
        """Compare what a call gave with what it should give."""
        if found != wanted:
            raise self.broken(f"{what} gave {found!r:.200}, and should give {wanted!r:.200}")

    def broken(self, words: str) -> Violation:
        """The violation, noted."""
        return self.world.broken(Violation(PROMISE, words))


@contextmanager
def passing(world: World, what: str) -> Iterator[None]:
    """Leave what is refused because something has failed."""
    try:
        yield
    except (CallboardError, BaseExceptionGroup) as error:
        if not is_passing(error):
            raise
        found = leaves(error)
        wrong = [leaf for leaf in found if isinstance(leaf, (InvalidArgument, ConfigurationError))]
        if wrong:
            raise world.broken(Violation(PROMISE, f"{what} is refused: {wrong[0]!r:.300}")) from error
        world.note(f"{what}: {', '.join(f'{type(leaf).__name__}: {leaf}' for leaf in found)}"[:200])
