"""The lines of the log: for each event its logger, its level, and what it says."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from callboard.actors import notices
from callboard.actors.kernel import events


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
    (notices.GroupPaused, True): ReportLine(
        "groups", logging.INFO, "group {group} is paused: its consumers get no message until it is resumed"
    ),
    (notices.GroupPaused, False): ReportLine("groups", logging.INFO, "group {group} goes on"),
    (notices.TopicWritable, True): ReportLine(
        "partitions", logging.INFO, "topic {topic} takes messages again"
    ),
    (notices.TopicWritable, False): ReportLine(
        "partitions", logging.INFO, "topic {topic} is read-only: publishes are refused"
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
    notices.GroupPaused: "paused",
    notices.TopicWritable: "writable",
}
"""Events of two lines: which one is written depends on this field."""

TRACED: Final[dict[type, str]] = {
    events.HookFailed: "a {hook} {whose} raised",
    notices.HandlerFailed: "the handler failed",
    notices.RequestFailed: "{path} could not answer {verb!r}",
}
"""How the record at debug level begins that has the traceback."""
