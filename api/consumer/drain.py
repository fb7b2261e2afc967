"""How a consumer is told to take no further message, without touching those that are in hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.log.errors import ConsumerDrained, RuntimeClosed

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveTopic
    from callboard.actors.partition.port import PartitionPort
    from callboard.consumer.messages import ConsumerLeases
    from callboard.consumer.notices import AwaitedPartitions


class Drains:
    """The part of a consumer that ends its waiting."""

    group: str
    leases: ConsumerLeases
    give_back_fetched: Callable[[], None]
    _awaited: AwaitedPartitions[PartitionPort]
    _lives: list[LiveTopic]
    _open: bool
    _is_draining: bool = False

    @property
    def is_draining(self) -> bool:
        """Whether `drain` was called."""
        return self._is_draining

    def drain(self) -> None:
        """Take no further message: give back what was fetched ahead, and end every wait for a message.

        `get`, `receive` and a batch raise `ConsumerDrained` from now on, also those that wait; iterating ends. Bodies
        that run, and messages in hand, are not touched: settle them, then leave the consumer. Does not wait.
        """
        self._is_draining = True
        if self._open:
            self.give_back_fetched()
            for live in self._lives:
                for port in live.ports:
                    self._awaited.noticed(port)
                    self.leases.noticed(port)

    def _check_taking(self) -> None:
        """Raise unless further messages may be taken."""
        if not self._open:
            raise self._closed()
        if self._is_draining:
            raise ConsumerDrained(
                f"the consumer of group {self.group!r} was drained: it takes no further message. Leave it when what is"
                " in hand is settled.",
                group=self.group,
            )

    @staticmethod
    def _closed() -> RuntimeClosed:
        return RuntimeClosed("the consumer is closed. Use it inside `async with topic.subscribe(...)`.")
