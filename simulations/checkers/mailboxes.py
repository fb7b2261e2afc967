"""Every message to an actor has one fate, and its sender hears of it at once.

A statement that was accepted is handled, or goes to the dead letters with the reason that is true: never both, and not
neither, also when its actor fails and is revived. What was refused, or given up while it waited for room, is never
handled. A question is answered as soon as its actor has answered, or has ended for good or failed, or the incarnation
that had it in hand has ended. Messages are handled in the order in which they were sent; mailboxes drop and refuse only
when they are full, and hold no more than they should; an actor with nothing else to do handles what waits. An actor
that is up, also when it was revived, refuses nothing because it once failed.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation
from callboard.supervision.spec import ChildSpec, SupervisorSpec

PROMISE = "every message to an actor has one fate"
OUTCOMES: Final = ("answered", "refused", "unsure", "told")
FAILED: Final = "RestartLimitReached"
"""How an actor refuses that has failed."""
DROPS: Final = ("drop_oldest", "drop_newest")
IN_HAND: Final = 2
"""Messages beyond the capacity that an actor may have taken, and not begun: the one that woke it, one put back."""


@attrs.define(eq=False)
class _Message:
    """One message, and what became of it."""

    sent: HistoryEntry
    outcome: HistoryEntry | None = None
    handled: list[HistoryEntry] = attrs.Factory(list)
    done: HistoryEntry | None = None
    replied: HistoryEntry | None = None
    letter: HistoryEntry | None = None

    @property
    def name(self) -> str:
        what = "question" if self.sent.kind == "ask" else "statement"
        return f"{what} {self.sent.ids[0]} to {self.sent.topic}"


@attrs.define(eq=False)
class _Mailbox:
    """One actor's, in one tree."""

    capacity: int
    when_full: str
    retries: int
    waiting: dict[int, _Message] = attrs.Factory(dict)
    """Sent and, for all that is known, neither refused nor handled."""
    told: set[int] = attrs.Factory(set)
    """Statements of these which were accepted, as their senders know."""
    in_hand: dict[int, _Message] = attrs.Factory(dict)
    open: dict[int, _Message] = attrs.Factory(dict)
    """Questions whose askers wait."""
    again: int | None = None
    """The message that was put back at a crash: the next to be handled."""
    life: int = 0
    """The number of its incarnation."""
    stopped_life: int = -1
    """The incarnation that is to stop after the message in hand."""
    is_free_since: float | None = None
    """Since when it has nothing in hand, and is up."""
    latest: int = -1
    """The number of the entry for the sending of the latest message that was handled."""
    has_failed: bool = False
    up_since: HistoryEntry | None = None
    """The start of the incarnation that lives now, and since when no end of it has been reported."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Messages with no fate or two, out of order, late; mailboxes that drop, refuse or hold what they should not."""
    if terms.tree is None:
        return []
    found: list[Violation] = []
    watch = _MailboxCheck(terms.tree, found)
    for entry in history.entries:
        watch.see(entry)
    return found


def specs_of(tree: SupervisorSpec) -> dict[str, ChildSpec]:
    """The actors of a tree of two levels, by path."""
    return {
        f"{team.name}/{child.name}": child
        for team in tree.children
        if isinstance(team, SupervisorSpec)
        for child in team.children
        if isinstance(child, ChildSpec)
    }


class _MailboxCheck:
    """Follows one tree after the other."""

    def __init__(self, tree: SupervisorSpec, found: list[Violation]) -> None:
        self._specs = specs_of(tree)
        self._found = found
        self._begin(0)

    def _begin(self, machine: int) -> None:
        self._machine = machine
        self._messages: dict[int, _Message] = {}
        self._mailboxes = {
            path: _Mailbox(spec.mailbox.capacity, spec.mailbox.when_full, spec.retry_in_hand)
            for path, spec in self._specs.items()
        }
        self._is_closing = False
        self._woken: dict[int, tuple[float, _Message]] = {}
        """Questions whose askers must be answered now."""

    def _broken(self, words: str, entry: HistoryEntry) -> None:
        self._found.append(Violation(PROMISE, words, entry))

    def see(self, entry: HistoryEntry) -> None:
        """One entry more."""
        if entry.kind == "tree begins":
            self._begin(entry.machine)
            return
        if entry.machine != self._machine:
            return
        self._overdue(entry)
        match entry.kind:
            case "ask" | "tell":
                self._sent(entry)
            case "answered" | "refused" | "unsure" | "told" if entry.operation in self._messages:
                self._outcome(self._messages[entry.operation], entry)
            case "handled" | "done" | "replied" | "free" | "ActorStarted":
                self._worked(entry)
            case "IncarnationCrashed" | "left" | "stopped":
                self._ended(entry)
            case "stops itself" | "stop asked" | "stopping" if entry.who in self._mailboxes:
                self._stops(self._mailboxes[entry.who])
            case "begins":
                self._mailboxes[entry.who].life = entry.attempts[0]
            case "ActorFailed" | "ActorEnded":
                self._refuses(entry)
            case "closing":
                self._is_closing = True
                self._asleep(entry)
            case "dead letter":
                self._letter(entry)
            case "tree ended":
                self._fates(entry)

    # -- senders

    def _sent(self, entry: HistoryEntry) -> None:
        message = self._messages[entry.operation] = _Message(entry)
        mailbox = self._mailboxes[entry.topic]
        mailbox.waiting[entry.ids[0]] = message
        if entry.kind == "ask":
            mailbox.open[entry.ids[0]] = message

    def _outcome(self, message: _Message, entry: HistoryEntry) -> None:
        message.outcome = entry
        number = entry.ids[0]
        mailbox = self._mailboxes[entry.topic]
        mailbox.open.pop(number, None)
        self._woken.pop(number, None)
        if mailbox.again == number and entry.kind != "told":
            mailbox.again = None  # an asker that gave up at that instant may have done so before the crash
        if entry.kind == "told":
            mailbox.told.add(number)
            waits = len(mailbox.told & mailbox.waiting.keys())
            if (
                mailbox.when_full in ("wait", "fail")
                and waits > mailbox.capacity + IN_HAND
                and not mailbox.has_failed
            ):
                words = f"{waits} statements wait for {entry.topic}, whose mailbox has room for {mailbox.capacity}"
                self._broken(words, entry)
        if entry.kind == "answered" and message.replied is None:
            self._broken(f"{message.name} was never answered", entry)
        if entry.kind == "refused":
            self._refused(message, entry, mailbox)
        if entry.detail == "ActorCrashed" and not message.handled:
            self._broken(f"{message.name} is said to have been in hand at a crash, and never was", entry)

    def _refused(self, message: _Message, entry: HistoryEntry, mailbox: _Mailbox) -> None:
        number = entry.ids[0]
        if message.handled:
            self._broken(f"{message.name} failed definitely ({entry.detail}), and had been handled", entry)
        if entry.detail == "MailboxFull" and mailbox.when_full != "drop_oldest":
            waits = len(mailbox.waiting) - (number in mailbox.waiting)
            if waits < mailbox.capacity:
                words = f"{message.name} was refused by a full mailbox, in which {waits} of {mailbox.capacity} waited"
                self._broken(words, entry)
        up = mailbox.up_since
        if entry.detail == FAILED and up is not None and up.number < message.sent.number:
            self._broken(
                f"{message.name} was refused by a failed actor, which is up since {up.time:.3f} s", entry
            )
        mailbox.waiting.pop(number, None)

    # -- actors

    def _worked(self, entry: HistoryEntry) -> None:
        mailbox = self._mailboxes[entry.who]
        mailbox.life = entry.attempts[0]
        if entry.kind == "ActorStarted":
            mailbox.up_since = entry
        if entry.kind in ("free", "ActorStarted"):
            mailbox.is_free_since = None if mailbox.stopped_life == mailbox.life else entry.time
            return
        number = entry.ids[0]
        message = next((m for m in self._messages.values() if m.sent.ids[0] == number), None)
        if message is None:
            self._broken(f"{entry.who} got message {number}, which was sent to another tree", entry)
        elif entry.kind == "handled":
            self._handled(message, entry, mailbox)
        elif entry.kind == "done":
            message.done = entry
            mailbox.in_hand.pop(number, None)
            is_busy = entry.detail or mailbox.stopped_life == mailbox.life
            mailbox.is_free_since = None if is_busy else entry.time
        else:
            message.replied = entry
            if number in mailbox.open:
                self._woken[number] = (entry.time, message)

    def _handled(self, message: _Message, entry: HistoryEntry, mailbox: _Mailbox) -> None:
        number = entry.ids[0]
        message.handled.append(entry)
        if message.outcome is not None and message.outcome.kind == "refused":
            self._broken(
                f"{message.name} failed definitely ({message.outcome.detail}), and is handled", entry
            )
        if mailbox.stopped_life == mailbox.life:
            self._broken(f"{message.name} is handled after its actor was asked to stop", entry)
        if mailbox.again is not None and mailbox.again != number:
            self._broken(
                f"{message.name} is handled, and message {mailbox.again} was to be handled again first", entry
            )
        mailbox.again = None
        if len(message.handled) > 1 + mailbox.retries:
            self._broken(f"{message.name} is handled for the {len(message.handled)}th time", entry)
        if message.done is not None:
            self._broken(f"{message.name} is handled again, though nothing went wrong", entry)
        if len(message.handled) == 1 and message.sent.number < mailbox.latest:
            self._broken(f"{message.name} is handled after another that was sent later", entry)
        mailbox.latest = max(mailbox.latest, message.sent.number)
        mailbox.waiting.pop(number, None)
        mailbox.in_hand[number] = message
        self._slept(mailbox, [message], entry)
        mailbox.is_free_since = None

    def _ended(self, entry: HistoryEntry) -> None:
        """An incarnation has ended: those that wait for what it had in hand are answered before the next one begins."""
        mailbox = self._mailboxes[entry.who]
        mailbox.is_free_since = mailbox.up_since = None
        for number, message in mailbox.in_hand.items():
            is_again = entry.kind == "IncarnationCrashed" and len(message.handled) <= mailbox.retries
            is_waited_for = message.sent.kind == "tell" or message.outcome is None
            if is_again and is_waited_for and message.replied is None:
                mailbox.again = number
        for number, message in mailbox.open.items():
            if message.handled and message.replied is None and number != mailbox.again:
                self._woken[number] = (entry.time, message)
        if entry.kind != "left":  # an actor that left may crash at once, by one of its tasks
            mailbox.in_hand.clear()

    @staticmethod
    def _stops(mailbox: _Mailbox) -> None:
        """The incarnation takes no message more, if it has one in hand, or may take one."""
        mailbox.is_free_since = None
        mailbox.stopped_life = mailbox.life

    def _refuses(self, entry: HistoryEntry) -> None:
        """An actor has failed, or ended for good: every asker is answered now."""
        mailbox = self._mailboxes[entry.who]
        mailbox.has_failed = True
        mailbox.up_since = None
        mailbox.again = None  # a question that was put back fails
        if entry.kind == "ActorEnded":
            mailbox.waiting.clear()
            mailbox.life, mailbox.stopped_life = 0, -1  # another actor of its path counts its lives from 1
        for number, message in mailbox.open.items():
            self._woken[number] = (entry.time, message)

    # -- what is late

    def _overdue(self, entry: HistoryEntry) -> None:
        """Every asker should have been answered before time went on."""
        for number, (time, message) in tuple(self._woken.items()):
            if entry.time > time + SLACK_S:
                del self._woken[number]
                words = (
                    f"{message.name} was answered, or cannot be any more, and its asker does not hear of it"
                )
                self._broken(words, entry)

    def _slept(self, mailbox: _Mailbox, messages: list[_Message], entry: HistoryEntry) -> None:
        free = mailbox.is_free_since
        for message in messages:
            if free is None or message.outcome is None or message.outcome.kind != "told":
                continue
            since = max(free, message.outcome.time)
            if entry.time > since + SLACK_S:
                idle_s = entry.time - since
                words = f"{message.sent.topic} had nothing to do for {idle_s:g} s while {message.name} waited"
                self._broken(words, entry)

    def _asleep(self, entry: HistoryEntry) -> None:
        """The tree closes: no actor may have slept beside its messages."""
        for mailbox in self._mailboxes.values():
            waiting = [message for number, message in mailbox.waiting.items() if number in mailbox.told]
            if mailbox.when_full not in DROPS:
                self._slept(mailbox, waiting, entry)

    # -- the end

    def _letter(self, entry: HistoryEntry) -> None:
        number = entry.ids[0]
        message = next((m for m in self._messages.values() if m.sent.ids[0] == number), None)
        if message is None:
            return
        if message.letter is not None:
            self._broken(f"{message.name} is a dead letter twice", entry)
        message.letter = entry
        is_drop = entry.detail in DROPS
        if is_drop and entry.detail != self._mailboxes[entry.who].when_full:
            self._broken(f"{message.name} was dropped by a policy that {entry.who} does not have", entry)
        if message.done is not None:
            self._broken(f"{message.name} was handled, and is a dead letter ({entry.detail})", entry)
        elif (entry.detail == "crashed") != bool(message.handled):
            self._broken(
                f"{message.name} is a dead letter for a reason that is not true: {entry.detail}", entry
            )

    def _fates(self, entry: HistoryEntry) -> None:
        """The tree has ended: every statement that was accepted has its fate."""
        for message in self._messages.values():
            outcome = message.outcome
            if outcome is None or outcome.kind != "told" or message.done is not None:
                continue
            if message.letter is None:
                self._broken(f"{message.name} was accepted, and it is unknown what became of it", entry)
        self._messages = {}
        self._woken.clear()
