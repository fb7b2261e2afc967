"""Reporting: what happens in a runtime's tree, told to `logging`.

`open_runtime` subscribes `report` to the events of a runtime on a real directory; in a simulation nothing is logged.
There is one line for each event, with its path, its cause, and what to do; the frames of a crash follow as a debug
record. All fields of the event stand in the record's attribute `callboard`, beside its name. No handler is installed: a
program that configures nothing sees warnings and errors on stderr, as `logging` does by itself.

=======================  ===============================================================
logger                   tells of
=======================  ===============================================================
`callboard.actors`       crashes, restarts, actors that stay down, dropped messages
`callboard.partitions`   recovery that takes long, hung disks, full topics, damage, dropped records
`callboard.groups`       groups that expired, other settings than theirs, leases that could not be released
`callboard.catalog`      operations that could not be carried out
=======================  ===============================================================
"""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

import attrs

from callboard.actors import notices
from callboard.actors.kernel import events


class Line(NamedTuple):
    """How an event is told: `text` is formatted with the event's fields."""

    logger: str
    level: int
    text: str


LINES: Final[dict[object, Line]] = {
    events.IncarnationCrashed: Line(
        "actors",
        logging.WARNING,
        "{path} crashed ({cause}). Its supervisor restarts it, or says that it does not.",
    ),
    events.ActorRestarted: Line(
        "actors", logging.INFO, "{path} is restarted in {delay_s:.3g} s, after: {cause}"
    ),
    events.ActorFailed: Line(
        "actors",
        logging.ERROR,
        "{path} failed more often than its supervisor allows and stays down ({cause}). Repair the cause, then call"
        " runtime.restart({path!r}).",
    ),
    events.Escalated: Line(
        "actors",
        logging.ERROR,
        "the supervisor {path!r} gave up: {child} failed more often than it allows ({cause}). All below it is"
        " restarted, or ends with the runtime. Repair the cause.",
    ),
    events.MessageDropped: Line(
        "actors",
        logging.WARNING,
        "{path} has dropped {dropped} messages ({reason}): its mailbox is full. Send less, or give it a larger one.",
    ),
    events.HookFailed: Line(
        "actors", logging.WARNING, "a {hook} of {path!r} raised {cause}. Correct it; nothing else happened."
    ),
    events.ActorEnded: Line("actors", logging.DEBUG, "{path} has ended ({cause})"),
    (notices.PartitionStuck, True): Line(
        "partitions",
        logging.WARNING,
        "{path} is stuck: its disk does not answer, and publishes are refused. Check the disk; it continues by itself.",
    ),
    (notices.PartitionStuck, False): Line(
        "partitions", logging.INFO, "{path} continues: its disk answers again"
    ),
    (notices.PartitionFull, True): Line(
        "partitions",
        logging.WARNING,
        "{path} is full: it holds {size_bytes} bytes of {retention_bytes}, and a durable group has not settled the"
        " oldest messages. Publishes are refused. Consume them, delete the group, raise retention_bytes, or set"
        " drop_unread=True.",
    ),
    (notices.PartitionFull, False): Line("partitions", logging.INFO, "{path} has room again"),
    (notices.DamageFound, True): Line(
        "partitions",
        logging.WARNING,
        "{path} is damaged: {damage}. The rest is served. Look with `callboard verify`; `callboard repair --accept`"
        " ends the reminders.",
    ),
    (notices.DamageFound, False): Line("partitions", logging.INFO, "{path} was damaged before: {damage}"),
    notices.OpeningOverdue: Line(
        "partitions",
        logging.WARNING,
        "{path} has been recovering for {after_s:g} s. Those who use it wait; check its disk if this lasts.",
    ),
    notices.OpeningLacksSpace: Line(
        "partitions",
        logging.ERROR,
        "{path} cannot recover on a full disk ({cause}). What is proven can be read; publishes are refused. Free space:"
        " it continues by itself.",
    ),
    notices.UnreadDropped: Line(
        "partitions",
        logging.WARNING,
        "{path}: retention dropped {records} records that group {group_id} had not settled. Give the topic more"
        " retention, or the group more consumers.",
    ),
    notices.JournalSalvaged: Line(
        "partitions",
        logging.ERROR,
        "{path}: the delivery journal was damaged and was repaired ({damage}). Messages whose acks it lost are"
        " delivered again.",
    ),
    notices.ProducerForgotten: Line(
        "partitions",
        logging.WARNING,
        "{path} has forgotten producer {producer_id:#x}: {reason}. What it published before would not be known as a"
        " duplicate any more; its next publish has to begin anew.",
    ),
    notices.PublishersLost: Line(
        "partitions",
        logging.WARNING,
        "{path}: {damage}. What was published longer ago than the log reaches would not be known as a duplicate any"
        " more.",
    ),
    notices.DeadLettersHeld: Line(
        "groups",
        logging.WARNING,
        "dead letters of {partition} cannot be forwarded to {topic}, and stay where they are: {cause} They are tried"
        " again by themselves.",
    ),
    notices.GroupExpired: Line(
        "groups",
        logging.WARNING,
        "group {group} had no member for {after_s:g} s and was forgotten: its place is lost. Give it a longer"
        " group_expiry if it was to come back.",
    ),
    notices.SettingsDiffer: Line(
        "groups",
        logging.WARNING,
        "group {group} has other settings than its new consumer names, and keeps them: {stored}. To change them call"
        " {call}.",
    ),
    notices.HandlerFailed: Line(
        "groups",
        logging.WARNING,
        "group {group}: the handler failed with {topic}/{partition}@{offset} (attempt {attempt}): {cause}. The message"
        " is delivered again.",
    ),
    notices.WorkHindered: Line(
        "groups",
        logging.WARNING,
        "group {group}: {cause} Its handlers go on; what is not settled is delivered again.",
    ),
    notices.LeaseReleaseFailed: Line(
        "groups",
        logging.WARNING,
        "group {group}: the leases of a consumer that left run out by themselves ({cause})",
    ),
    notices.MemberStalled: Line(
        "groups",
        logging.WARNING,
        "group {group}: consumer {consumer} ({name}) did nothing for {session_timeout:g} s while messages waited; its"
        " partitions go to others until it asks for messages again.",
    ),
    notices.HandOverForced: Line(
        "groups",
        logging.WARNING,
        "group {group}: consumer {consumer} had not let go of {topic}/{partition} after {rebalance_timeout:g} s; its"
        " leases there have ended, and another member has the partition.",
    ),
    notices.OperationFailed: Line(
        "catalog",
        logging.WARNING,
        "{subject} could not be carried out ({cause}). The next opening of the directory tries again.",
    ),
}


FLAGS: Final[dict[type, str]] = {
    notices.PartitionStuck: "stuck",
    notices.PartitionFull: "full",
    notices.DamageFound: "is_new",
}
"""Events of two lines: which one is told depends on this field."""


def report(event: Any) -> None:
    """Log one event, if it is of interest."""
    flag = FLAGS.get(type(event))
    line = LINES.get(type(event) if flag is None else (type(event), getattr(event, flag)))
    if line is None:
        if isinstance(event, str):
            logging.getLogger("callboard").warning("%s", event)
        return
    logger = logging.getLogger(f"callboard.{line.logger}")
    if logger.isEnabledFor(line.level):
        fields = {field.name: getattr(event, field.name) for field in attrs.fields(type(event))}
        extra = {"callboard": {"event": type(event).__name__, **fields}}
        logger.log(line.level, "%s", line.text.format(**fields), extra=extra)
        if isinstance(event, events.IncarnationCrashed):
            logger.debug("%s crashed at:\n  %s", event.path, "\n  ".join(event.frames), extra=extra)
        elif isinstance(event, notices.HandlerFailed) and event.frames:
            logger.debug("the handler failed at:\n  %s", "\n  ".join(event.frames), extra=extra)


def mute_spark() -> None:
    """Let go nowhere what Spark logs at Ctrl-C, with a traceback: without a logger of its own, and with py4j's."""
    logging.getLogger().addFilter(lambda _: False)
    py4j = logging.getLogger("py4j")
    py4j.addHandler(logging.NullHandler())
    py4j.propagate = False
