"""Stamps that are later than now: what a wall clock that was wrong once has left behind. Pure.

A *stamp* is a time that Callboard wrote down by the wall clock: when a record was appended, a segment begun, a group
left alone. A clock that is a year ahead for one publish leaves a stamp a year ahead, and code that compares it with the
time, to see how old something is, would find it young for a year.

So there is one rule for all that read stamps: one that is later than now, by more than a tolerance, counts as the
moment at which it was first noticed. What it stamps grows old from then on, and it is reported once. The code that
stamps notices that the last stamp is ahead, which is when the clock was set right: what is ahead was stamped before
that, though it is read much later. The stored stamp stays as it is. An instant that a user has named, such as
`deliver_at`, is no stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from callboard.log.limits import STAMP_TOLERANCE_S, STAMPS_NOTICED_MAX

TOLERANCE_US = round(STAMP_TOLERANCE_S * 1e6)


def is_ahead(stamp_us: int, now_us: int) -> bool:
    """Whether the clock was wrong when this was stamped, or is wrong now."""
    return stamp_us - now_us > TOLERANCE_US


@attrs.define(eq=False)
class Stamps:
    """What was noticed of stamps that are ahead. It may be kept over processes (`pairs`, `resume`)."""

    report: Callable[[int, int], object] = lambda stamp_us, now_us: None
    """Called with the first stamp that is ahead, and with now."""
    changed: Callable[[], object] = lambda: None
    """Called when more is noticed."""
    count: int = 0
    """How often one was noticed."""
    stamped_us: int = 0
    """What was stamped last. Once that is ahead the clock was set right: what is ahead was not noticed before that."""
    _noticed: list[tuple[int, int]] = attrs.Factory(list)
    """(Stamp, when it was noticed): the stamps fall, and none is above one that was noticed later, unless that was read
    first. What is stamped up to there was stamped before."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Stamps, and when each was noticed, for `resume`."""
        return tuple(self._noticed)

    def resume(self, pairs: Iterable[tuple[int, int]]) -> None:
        """An earlier process has noticed these; what this one knows already is later."""
        if not self._noticed:
            self._noticed = list(pairs)[-STAMPS_NOTICED_MAX:]

    def noticed_of(self, stamps_us: Iterable[int], now_us: int) -> tuple[tuple[int, int], ...]:
        """What is noticed, these stamps included: for others that read them."""
        for stamp_us in stamps_us:
            self.believed(stamp_us, now_us)
        return self.pairs

    def replace(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Take over what the writer of the stamps has noticed."""
        self._noticed = list(pairs)

    def notice(self, stamp_us: int, now_us: int) -> None:
        """This was stamped last, or is read now; what is ahead up to there was stamped before now."""
        noticed = self._noticed
        if not is_ahead(stamp_us, now_us) or any(stamp_us == known_us for known_us, _ in noticed):
            return
        outdated = [pair for pair in noticed if pair[0] < stamp_us and pair[1] <= now_us]
        self._noticed = sorted([*set(noticed).difference(outdated), (stamp_us, now_us)], reverse=True)
        del self._noticed[:-STAMPS_NOTICED_MAX]
        if all(at_us < now_us for _, at_us in outdated):  # else more is read of what was noticed just now
            self.count += 1
            if self.count == 1:
                self.report(stamp_us, now_us)
        self.changed()

    def believed(self, stamp_us: int, now_us: int) -> int:
        """The time for which the stamp counts."""
        if stamp_us - now_us <= TOLERANCE_US:
            return stamp_us
        self.notice(self.stamped_us, now_us)
        for noticed_us, at_us in reversed(self._noticed):
            if noticed_us >= stamp_us > at_us:
                # That was ahead itself when the clock was set back once more since.
                return min(self.believed(at_us, now_us), now_us)
        self.notice(stamp_us, now_us)
        return now_us
