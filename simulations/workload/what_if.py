"""What happens to the events of a generated workload: crowds, hot keys, retries, silence. See `scaling.WhatIf`.

Copies of an event have its number. What distinguishes them is their `copy`, counted anew whenever events are copied: an
event with copy c becomes those from c x (times + 1) on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from callboard.simulations.workload.drawing import GOLDEN, below, permuted, words
from callboard.simulations.workload.pieces import Events, ProfilePart
from callboard.simulations.workload.profile_format import SECOND_US
from callboard.simulations.workload.scaling import WhatIf


def changed(part: ProfilePart, events: Events, what_ifs: Sequence[WhatIf]) -> Events:
    """What becomes of the events of a piece, one thing after the other."""
    for index, what_if in enumerate(what_ifs):
        within = (events.time_us >= what_if.start_us) & (events.time_us < what_if.stop_us)
        events = _CHANGES[what_if.kind](part, index, what_if, events, within)
    return events


def _silence(part: ProfilePart, index: int, what_if: WhatIf, events: Events, within: Any) -> Events:
    del part, index, what_if
    return events.rows(~within)


def _hot_key(part: ProfilePart, index: int, what_if: WhatIf, events: Events, within: Any) -> Events:
    drawn = below(_of_each(part.stream("hot key", index), events), what_if.share.denominator)
    hot = below(words(part.stream("the hot key", index), np.zeros(1, np.int64)), part.keys.count)[0]
    return events._replace(key=np.where(within & (drawn < what_if.share.numerator), hot, events.key))


def _flash_crowd(part: ProfilePart, index: int, what_if: WhatIf, events: Events, within: Any) -> Events:
    events, crowd, _ = _copied(events, within, what_if.times - 1)
    drawn = _of_each(part.stream("flash crowd", index), crowd)
    place = (drawn % np.uint64(part.profile.events)).astype(np.int64)
    second = crowd.time_us - (crowd.time_us - part.start_us) % SECOND_US
    crowd = crowd._replace(
        time_us=second + part.offsets(words(part.stream("flash crowd times", index), drawn)),
        key=part.keys.at(place, drawn),
        size=part.sizes.at(permuted(part.stream("flash crowd sizes", index), place, part.profile.events)),
        word=drawn,
    )
    return _joined(events, crowd)


def _retry_storm(part: ProfilePart, index: int, what_if: WhatIf, events: Events, within: Any) -> Events:
    del part, index
    events, again, tries = _copied(events, within, what_if.times)
    delays = np.array([what_if.after_us * (2**tried - 1) for tried in range(what_if.times + 1)], np.int64)
    return _joined(events, again._replace(time_us=again.time_us + delays[tries]))


_CHANGES: Final = {
    "silence": _silence,
    "hot-key": _hot_key,
    "flash-crowd": _flash_crowd,
    "retry-storm": _retry_storm,
}


def _copied(events: Events, within: Any, times: int) -> tuple[Events, Events, Any]:
    """The events, this many copies of those within, and which copy of its event each is, from 1 on."""
    events = events._replace(copy=events.copy * (times + 1))
    rows = np.flatnonzero(within)
    which = np.tile(np.arange(1, times + 1), len(rows))
    found = events.rows(np.repeat(rows, times))
    return events, found._replace(copy=found.copy + which), which


def _of_each(stream: int, events: Events) -> Any:
    """A word for each event, whatever its number and copy."""
    return words(stream ^ GOLDEN, words(stream, events.number) + events.copy.astype(np.uint64))


def _joined(first: Events, second: Events) -> Events:
    return Events(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
