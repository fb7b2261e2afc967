"""The mailbox and the reply of an actor in wire mode: what passes through them is delivered as a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from callboard.actors.kernel.mailbox import Mailbox
from callboard.actors.kernel.reply import Envelope, LateReplies, Reply

if TYPE_CHECKING:
    from callboard.actors.kernel.mailbox_spec import MailboxSpec
    from callboard.actors.kernel.wire import Wire
    from callboard.log.errors import MailboxFull

M = TypeVar("M")


class CopyingMailbox(Mailbox[M]):
    """Takes copies of messages. Raises `InternalError` in the sender for one that does not survive: it is not sent."""

    __slots__ = ("_wire",)

    def __init__(
        self,
        path: str,
        spec: MailboxSpec,
        dropped: Callable[[Envelope[M], MailboxFull], None],
        wire: Wire,
    ) -> None:
        super().__init__(path, spec, dropped)
        self._wire = wire

    def put(self, envelope: Envelope[M]) -> bool:
        return super().put(self._copy(envelope))

    async def put_waiting(self, envelope: Envelope[M]) -> None:
        await super().put_waiting(self._copy(envelope))

    def force(self, message: M) -> None:
        super().force(self._wire.copy(message))

    def take_notice(self) -> Envelope[M]:
        return self._copy(super().take_notice())

    def _copy(self, envelope: Envelope[M]) -> Envelope[M]:
        return Envelope(self._wire.copy(envelope.message), envelope.reply)


class CopyingReply(Reply):
    """Answers with a copy. Raises `InternalError` in the actor for an answer that does not survive."""

    __slots__ = ("_wire",)

    def __init__(self, wire: Wire, cell: LateReplies) -> None:
        super().__init__(cell)
        self._wire = wire

    def answer(self, value: Any = None) -> bool:
        return super().answer(value if self.done else self._wire.copy(value, "an answer"))

    def fail(self, error: BaseException) -> bool:
        return super().fail(error if self.done else self._wire.copy(error, "an answer"))
