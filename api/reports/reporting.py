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
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import attrs

from callboard.actors.kernel import events
from callboard.log.limits import CAUSE_CHARACTERS
from callboard.reports.crashes import WaitingCrashes
from callboard.reports.floods import Floods, Kind
from callboard.reports.lines import FLAGS, LINES, TRACED
from callboard.reports.phrases import NAMED_MAX, phrases_of
from callboard.reports.tracebacks import traceback_lines

PLACES: Final = ("path", "group", "partition", "subject")
"""The first of these fields that an event has is the place it speaks of."""


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
        text = line.text.format(**phrases_of(fields, self._group_of))
        if left_out:
            text += f" ({left_out} more such lines came before, and were left out.)"
        logger.log(line.level, "%s", text, extra=extra)
        if fields.get("frames"):
            what = TRACED.get(type(event), "{path} crashed").format(**phrases_of(fields, self._group_of))
            logger.debug("%s at:\n  %s", what, "\n  ".join(fields["frames"]), extra=extra)

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
