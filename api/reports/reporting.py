"""Reporting: what happens in a runtime's tree, written to `logging`.

`open_runtime` subscribes a `Reporter` to the events of a runtime on a real directory; in a simulation nothing is
logged. There is one line for each event, with its path, its cause, and what to do; a crash is reported together with
what its supervisor decides. The traceback of a failure follows as a debug record. All fields of the event stand in the
record's attribute `callboard`, beside its name. No handler is installed: a program that configures nothing sees
warnings and errors on stderr, as `logging` does by itself. Of one event at one place (a group, an actor, a partition)
five lines a minute are written; the next one, or closing, says how many were left out. Failures of users' code are of
one kind only when the exception's type and the line of code are the same, and settings that differ when the same call
would change them: a new kind is reported at once, however many others there are.

=======================  ===============================================================
logger                   tells of
=======================  ===============================================================
`callboard.actors`       crashes, restarts, actors that stay down, dropped messages, bugs that requests met
`callboard.partitions`   recovery that takes long, hung or full disks, full topics, damage, dropped records, forgotten
                         producers, clocks that were ahead, what waits to be forwarded or published
`callboard.groups`       handlers that fail, dead letters, groups that expired, topics of a pattern that came, consumers
                         that stalled, leases that could not be released
`callboard.catalog`      operations that could not be carried out, what the catalog has lost
=======================  ===============================================================
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import attrs

from callboard.actors import notices
from callboard.actors.kernel import events
from callboard.actors.kernel.failures import with_counts
from callboard.log.limits import CAUSE_CHARACTERS, MISSED_COUNTED_MAX
from callboard.reports.crashes import WaitingCrashes
from callboard.reports.tracebacks import traceback_lines


class ReportLine(NamedTuple):
    """How an event is logged: `text` is formatted with the event's fields."""

    logger: str
    level: int
    text: str


LINES: Final[dict[object, ReportLine]] = {
    (events.IncarnationCrashed, "restarted"): ReportLine(
        "actors", logging.WARNING, "{path} crashed ({cause}{at}). It is restarted in {delay_s:.3g} s."
    ),
    (events.IncarnationCrashed, "gone"): ReportLine(
        "actors", logging.WARNING, "{path} crashed ({cause}{at}). It has ended and is not restarted."
    ),
    (events.IncarnationCrashed, "stopping"): ReportLine(
        "actors", logging.WARNING, "{path} crashed ({cause}{at}) while it was to stop."
    ),
    events.ActorRestarted: ReportLine(
        "actors", logging.INFO, "{path} is restarted in {delay_s:.3g} s, after: {cause}"
    ),
    events.ActorFailed: ReportLine(
        "actors",
        logging.ERROR,
        "{path} failed more often than its supervisor allows and stays down ({cause}{at}). Repair the cause, then call"
        " runtime.restart({path!r}).",
    ),
    events.Escalated: ReportLine(
        "actors",
        logging.ERROR,
        "{who} gave up: {blamed} failed more often than it allows ({cause}{at}). {then} Repair the cause.",
    ),
    events.MessageDropped: ReportLine(
        "actors",
        logging.WARNING,
        "{path} has dropped {dropped} messages ({reason}): its mailbox is full. Send less, or give it a larger one.",
    ),
    events.HookFailed: ReportLine(
        "actors", logging.WARNING, "a {hook} {whose} raised {cause}{at}. Correct it; nothing else happened."
    ),
    events.ActorEnded: ReportLine("actors", logging.DEBUG, "{path} has ended{why}"),
    notices.RequestFailed: ReportLine(
        "actors",
        logging.WARNING,
        "{path} could not answer {verb!r} ({cause}{at}). This is a bug in Callboard, please report it. The request was"
        " refused; others are answered.",
    ),
    (notices.PartitionStuck, True): ReportLine(
        "partitions",
        logging.WARNING,
        "{path} is stuck: its disk does not answer, and publishes are refused. Check the disk; it continues by itself.",
    ),
    (notices.PartitionStuck, False): ReportLine(
        "partitions", logging.INFO, "{path} continues: its disk answers again"
    ),
    (notices.PartitionFull, True): ReportLine(
        "partitions",
        logging.WARNING,
        "{path} is full: it holds {size_bytes} bytes of {retention_bytes}, and a durable group has not settled the"
        " oldest messages. Publishes are refused. Consume them, delete the group, raise retention_bytes, or set"
        " drop_unread=True.",
    ),
    (notices.PartitionLacksSpace, True): ReportLine(
        "partitions",
        logging.WARNING,
        "{path} refuses messages: {cause}",
    ),
    (notices.PartitionLacksSpace, False): ReportLine(
        "partitions", logging.INFO, "{path} takes messages again: its disk has space"
    ),
    (notices.PartitionFull, False): ReportLine("partitions", logging.INFO, "{path} has room again"),
    (notices.DamageFound, True): ReportLine(
        "partitions",
        logging.WARNING,
        "{path} is damaged: {damage}. The rest is served. Look with `callboard verify`; `callboard repair --accept`"
        " ends the reminders.",
    ),
    (notices.DamageFound, False): ReportLine(
        "partitions", logging.INFO, "{path} was damaged before: {damage}"
    ),
    notices.OpeningOverdue: ReportLine(
        "partitions",
        logging.WARNING,
        "{path} has been recovering for {after_s:g} s. Those who use it wait; if this lasts, its disk is slow or the"
        " processor busy.",
    ),
    notices.OpeningLacksSpace: ReportLine(
        "partitions",
        logging.ERROR,
        "{path} cannot recover on a full disk ({cause}). What is proven can be read; publishes are refused. Free space:"
        " it continues by itself.",
    ),
    notices.UnreadDropped: ReportLine(
        "partitions",
        logging.WARNING,
        "{path}: retention dropped {counted} that group {group} had not settled. Give the topic more"
        " retention, or the group more consumers.",
    ),
    notices.DeadLettered: ReportLine(
        "groups",
        logging.WARNING,
        "{path}: {counted} of group {group} became {letters}. Look with"
        " `topic.dead_letters({group!r})`, or in the group's dead_letter_topic.",
    ),
    notices.DeadLettersDropped: ReportLine(
        "groups",
        logging.WARNING,
        "{path}: {counted} that were kept as dead letters of group {group} went with the group.",
    ),
    notices.JournalSalvaged: ReportLine(
        "partitions",
        logging.ERROR,
        "{path}: the delivery journal was damaged and was repaired ({damage}). Messages whose acks it lost are"
        " delivered again.",
    ),
    notices.ProducerForgotten: ReportLine(
        "partitions",
        logging.WARNING,
        "{path} has forgotten producer {producer_id:#x}: {reason}. What it published before would not be known as a"
        " duplicate any more; its next publish has to begin anew.",
    ),
    notices.ClockWasAhead: ReportLine(
        "partitions",
        logging.WARNING,
        "{path}: a time that was written down is later than now by {ahead}: the clock was wrong then, or is now. What"
        " was stamped so counts as of now. Set the clock right; nothing else is to be done.",
    ),
    notices.PublishersLost: ReportLine(
        "partitions",
        logging.WARNING,
        "{path}: {damage}. What was published longer ago than the log reaches would not be known as a duplicate any"
        " more.",
    ),
    notices.DeadLettersHeld: ReportLine(
        "groups",
        logging.WARNING,
        "dead letters of {partition} cannot be forwarded to {topic}, and stay where they are: {cause} They are tried"
        " again by themselves.",
    ),
    notices.DelayedHeld: ReportLine(
        "partitions",
        logging.WARNING,
        "delayed messages of {partition} wait although they may be due: {cause} They are tried again by themselves.",
    ),
    notices.DelayedLost: ReportLine(
        "partitions",
        logging.ERROR,
        "{partition}: {records} messages that waited to be due are damaged or missing, and will not be delivered. Look"
        " with `callboard verify`.",
    ),
    notices.OutboxHeld: ReportLine(
        "partitions",
        logging.WARNING,
        "what acks of {partition} have published waits for {target}: {cause} It is tried again by itself.",
    ),
    notices.OutboxDropped: ReportLine(
        "partitions",
        logging.WARNING,
        "{counted} that acks of {partition} had published went with the deleted topic {topic_id}.",
    ),
    notices.OutboxLost: ReportLine(
        "partitions",
        logging.ERROR,
        "{partition}: {records} messages that acks have published are damaged or missing, and will not be delivered."
        " Look with `callboard verify`.",
    ),
    notices.ScheduleHeld: ReportLine(
        "partitions",
        logging.WARNING,
        "schedule {schedule} cannot publish: {cause} What is due waits, and is tried again by itself.",
    ),
    notices.ScheduleMissed: ReportLine(
        "partitions",
        logging.WARNING,
        "schedule {schedule} has missed {firings}; they are skipped, as its setting `missed` says.",
    ),
    notices.GroupExpired: ReportLine(
        "groups",
        logging.WARNING,
        "group {group} had no member for {after_s:g} s and was forgotten: its place is lost. Give it a longer"
        " group_expiry if it was to come back.",
    ),
    notices.GroupKept: ReportLine(
        "groups",
        logging.WARNING,
        "group {group} had no member for {after_s:g} s and is not forgotten: its partitions keep {counted} as dead"
        " letters. Look with `topic.dead_letters({group!r})`; then name a dead_letter_topic, or call"
        " runtime.group({group!r}).delete(drop_dead_letters=True).",
    ),
    notices.TopicFound: ReportLine(
        "groups", logging.INFO, "group {group} reads topic {topic} too: it matches its pattern."
    ),
    notices.TopicPassedOver: ReportLine(
        "groups",
        logging.WARNING,
        "group {group} does not read topic {topic}, although it matches its pattern: {cause}.",
    ),
    notices.HandlerFailed: ReportLine(
        "groups",
        logging.WARNING,
        "group {group}: the handler failed with {topic}/{partition}@{offset} (attempt {attempt}): {cause}{at}."
        " {outcome}",
    ),
    notices.WorkHindered: ReportLine(
        "groups",
        logging.WARNING,
        "group {group}: {cause} {outcome}",
    ),
    notices.LeaseReleaseFailed: ReportLine(
        "groups",
        logging.WARNING,
        "group {group}: the leases of a consumer that left run out by themselves ({cause})",
    ),
    notices.MemberStalled: ReportLine(
        "groups",
        logging.WARNING,
        "group {group}: consumer {consumer}{named} did nothing for {session_timeout:g} s while messages waited; its"
        " partitions go to others until it asks for messages again.",
    ),
    notices.HandOverForced: ReportLine(
        "groups",
        logging.WARNING,
        "group {group}: consumer {consumer} had not let go of {topic}/{partition} after {rebalance_timeout:g} s; its"
        " leases there have ended, and another member has the partition.",
    ),
    notices.CatalogDamaged: ReportLine(
        "catalog",
        logging.WARNING,
        "{path} has lost records ({damage}): topics, groups and settings that only they recorded are gone. {gone}."
        " Compare `callboard topic list` and `callboard group list` with what should be there, and create what is"
        " missing; `callboard repair --accept` ends the reminders.",
    ),
    notices.CatalogHeld: ReportLine(
        "catalog",
        logging.WARNING,
        "{path}: topics and groups can be used but not changed, because its journal cannot be written anew: {cause} The"
        " next change tries again.",
    ),
    notices.CatalogUnmaintained: ReportLine(
        "catalog",
        logging.WARNING,
        "{path}: its journal could not be maintained, and grows: {cause} The next change tries again.",
    ),
    notices.OperationFailed: ReportLine(
        "catalog",
        logging.WARNING,
        "{subject} could not be carried out ({cause}). The next opening of the directory tries again.",
    ),
}


FLAGS: Final[dict[type, str]] = {
    notices.PartitionStuck: "stuck",
    notices.PartitionFull: "full",
    notices.PartitionLacksSpace: "lacking",
    notices.DamageFound: "is_new",
}
"""Events of two lines: which one is written depends on this field."""

TRACED: Final[dict[type, str]] = {
    events.HookFailed: "a {hook} {whose} raised",
    notices.HandlerFailed: "the handler failed",
    notices.RequestFailed: "{path} could not answer {verb!r}",
}
"""How the record at debug level begins that has the traceback."""

PLACES: Final = ("path", "group", "partition", "subject")
"""The first of these fields that an event has is the place it speaks of."""
WINDOW_S: Final = 60.0
LINES_MAX: Final = 5
"""Lines of one event at one place that are logged in a window, at most."""
KINDS_MAX: Final = 1000
"""Kinds that are counted, at most; the one that was reported longest ago is forgotten first."""
NAMED_MAX: Final = 5
"""Places that the line at closing names, and things that the line of a damaged catalog names, at most."""

Kind = tuple[object, ...]
"""The event and its place first; of failures of users' code also the exception's type and the line of code."""


@attrs.define
class _CountedEvent:
    """One event at one place: the window that began last, and what was left out since a line was written."""

    since: float
    logged: int = 0
    left_out: int = 0


class Floods:
    """Which lines are logged, so that one that comes again and again leaves room for others. Pure."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Kind, _CountedEvent] = OrderedDict()
        self._forgotten = 0
        """What was left out of kinds that are forgotten."""

    def admit(self, kind: Kind, now: float) -> int | None:
        """How many lines of its kind were left out before this one; None when this one is left out too."""
        counted = self._kinds.setdefault(kind, _CountedEvent(now))
        self._kinds.move_to_end(kind)
        if len(self._kinds) > KINDS_MAX:
            self._forgotten += self._kinds.popitem(last=False)[1].left_out
        if now - counted.since >= WINDOW_S:
            counted.since, counted.logged = now, 0
        if counted.logged == LINES_MAX:
            counted.left_out += 1
            return None
        counted.logged += 1
        left_out, counted.left_out = counted.left_out, 0
        return left_out

    def left_out(self) -> Counter[object]:
        """How many lines were left out that no line has counted, by place; None stands for forgotten ones."""
        left_out: Counter[object] = Counter({None: self._forgotten})
        for kind, counted in self._kinds.items():
            left_out[kind[1]] += counted.left_out
        return +left_out


class Reporter:
    """Logs what happens in one runtime. `now` gives seconds that only grow, `group_of` names of groups."""

    def __init__(self, now: Callable[[], float], group_of: Callable[[int], str] = str) -> None:
        self._now, self._group_of = now, group_of
        self._floods = Floods()
        self._crashes = WaitingCrashes()

    def listen(self, log: events.EventLog) -> None:
        """Log what `log` hears from now on, with tracebacks."""
        log.trace = traceback_lines
        log.subscribe(self.report)

    def report(self, event: Any) -> None:
        """Log one event, if it is of interest; a crash when its supervisor has decided."""
        settled = self._crashes.settled(event)
        besides: dict[str, Any] = {}
        if settled is not None:
            crash, fate = settled
            if fate == "restarted":
                self._log(crash, (events.IncarnationCrashed, fate), {"delay_s": event.delay_s})
                return
            if fate == "decided":
                besides = {"place": crash.place, "frames": crash.frames}
            else:
                self._log(crash, (events.IncarnationCrashed, fate), besides)
        if isinstance(event, events.IncarnationCrashed):
            if (oldest := self._crashes.add(event)) is not None:
                self._log_undecided(oldest)
            return
        flag = FLAGS.get(type(event))
        self._log(event, type(event) if flag is None else (type(event), getattr(event, flag)), besides)

    def _log_undecided(self, crash: events.IncarnationCrashed) -> None:
        self._log(crash, (events.IncarnationCrashed, "stopping"), {})

    def _log(self, event: Any, key: object, besides: dict[str, Any]) -> None:
        """Log one event with its own fields and those `besides`."""
        line = LINES.get(key)
        if line is None:
            return
        logger = logging.getLogger(f"callboard.{line.logger}")
        if not logger.isEnabledFor(line.level):
            return
        left_out = self._floods.admit((key, *_kind(event)), self._now())
        if left_out is None:
            return
        fields = {
            field.name: getattr(event, field.name)
            for field in attrs.fields(type(event))
            if field.name != "exception"
        }
        fields |= besides
        extra = {"callboard": {"event": type(event).__name__, **fields, "left_out": left_out}}
        text = line.text.format(**self._phrases(fields))
        if left_out:
            text += f" ({left_out} more such lines came before, and were left out.)"
        logger.log(line.level, "%s", text, extra=extra)
        if fields.get("frames"):
            what = TRACED.get(type(event), "{path} crashed").format(**self._phrases(fields))
            logger.debug("%s at:\n  %s", what, "\n  ".join(fields["frames"]), extra=extra)

    def _phrases(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What texts of lines name: the fields, groups by name, numbers with their noun, no full stop after causes."""
        words = {"at": "", **fields}
        if "child" in words:
            words["who"] = f"the supervisor {words['path']!r}" if words["path"] else "the root supervisor"
            ends = "All below it is restarted, or ends with the runtime."
            words["then"] = ends if words["path"] else "The runtime ends."
            counts = words["restarts"]
            words["blamed"] = words["child"] if len(counts) < 2 else f"{with_counts(counts)} together"
        if "stamp_us" in words:
            words["ahead"] = f"{(words['stamp_us'] - words['now_us']) / 3.6e9:,.1f} hours"
        if "group_id" in words:
            words["group"] = self._group_of(words["group_id"])
        if "records" in words:
            noun = "record" if "group_id" in words and "reason" not in words else "message"
            words["letters"] = _letters(words["records"], words.get("reason"))
            words["counted"] = f"{words['records']} {noun}{'' if words['records'] == 1 else 's'}"
        if words.get("max_deliveries"):
            words["attempt"] = f"{words['attempt']} of {words['max_deliveries']}"
        if "firings" in words:
            at_least = " or more" if words["firings"] == MISSED_COUNTED_MAX else ""
            words["firings"] = f"{words['firings']}{at_least} firing{'' if words['firings'] == 1 else 's'}"
        if "name" in words:
            words["named"] = _bracketed(words["name"])
        if "place" not in words and "cause" in words:
            words["why"] = _bracketed(words["cause"])
        if "place" in words:
            words["at"] = f", at {words['place']}" if words["place"] else ""
            words["cause"] = words["cause"].removesuffix(".")
        if "missing" in words:
            named = ", ".join(words["missing"][:NAMED_MAX])
            more = len(words["missing"]) - NAMED_MAX
            named += f" and {more} more" if more > 0 else ""
            words["gone"] = f"Not known any more: {named}" if named else "Which they are is not known"
        if "hook" in words:
            words["whose"] = f"of {words['path']!r}" if words["path"] else "to events"
        return words

    def close(self) -> None:
        """The runtime is closed: say what waits, and how many lines were left out that no other line has counted.

        What a logging handler raises ends that: nothing is left to hear of it, and how the runtime ended comes first.
        """
        with suppress(Exception):
            self._log_rest()

    def _log_rest(self) -> None:
        for crash in self._crashes.take_all():
            self._log_undecided(crash)
        left_out = self._floods.left_out()
        if not left_out:
            return
        total = left_out.total()
        named = [f"{count} of {place}" for place, count in left_out.most_common(NAMED_MAX) if place]
        more = ", ..." if len(left_out) > len(named) > 0 else ""
        logging.getLogger("callboard").warning(
            "%d line%s like the ones before %s left out%s",
            total,
            "" if total == 1 else "s",
            "was" if total == 1 else "were",
            f": {', '.join(named)}{more}" if named else "",
        )


def _bracketed(text: str | None) -> str:
    return "" if text is None else f" ({text})"


def _letters(records: int, reason: str | None) -> str:
    """That this many messages are dead letters, and why, as far as a reason was given."""
    if reason is None:
        return "a dead letter" if records == 1 else "dead letters"
    return (
        f"a dead letter: {reason!r}" if records == 1 else f"dead letters, the last one because of: {reason!r}"
    )


def _kind(event: Any) -> Kind:
    """The place that an event speaks of; of a failure of users' code also what distinguishes it from others there."""
    name = next((name for name in PLACES if hasattr(event, name)), None)
    where = getattr(event, name) if name else None
    place = f"group {where}" if name == "group" else where or "subscribers to events"
    if not hasattr(event, "place"):
        return (place,)
    return place, event.cause.partition(":")[0][:CAUSE_CHARACTERS], event.place


def mute_spark() -> None:
    """Let go nowhere what Spark logs at Ctrl-C, with a traceback: without a logger of its own, and with py4j's."""
    logging.getLogger().addFilter(lambda _: False)
    py4j = logging.getLogger("py4j")
    py4j.addHandler(logging.NullHandler())
    py4j.propagate = False


def mute_groups() -> None:
    """Log nothing of groups, in a command that reports failures by itself.

    By its level: lines that go nowhere would be counted, and reported when the runtime closes.
    """
    logging.getLogger("callboard.groups").setLevel(logging.CRITICAL + 1)
