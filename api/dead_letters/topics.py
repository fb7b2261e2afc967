"""Topics of dead letters: look at what was forwarded to one, have it delivered again, or be done with it.

A topic of dead letters is a topic like others. What of it was redriven or purged is `handled`; `redriving` publishes it
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callboard.actors.names import topic_read_only
from callboard.actors.partition.commands import Describe
from callboard.arguments import check_flag
from callboard.dead_letters.forwarded import Chooses, ChosenLetters, ForwardedLetter
from callboard.dead_letters.handled import HandledLetters
from callboard.dead_letters.kept import check_choose
from callboard.dead_letters.reasons import ReasonCounts
from callboard.dead_letters.redriving import Redrive, Redriven
from callboard.log.errors import InvalidArgument, TopicNotFound
from callboard.log.plain import number, refuse_copy, shown, text

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic
    from callboard.session import Session


class DeadLetterTopic:
    """What was forwarded to one topic and is neither redriven nor purged. From `Runtime.dead_letters`."""

    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        session: Session,
        live: MirroredTopic,
        find: Callable[[str], MirroredTopic | None],
        ends: Sequence[int] | None = None,
    ) -> None:
        self._session = session
        self._live = live
        self._find = find
        self._handled = HandledLetters(session, live, ends)

    async def list(self, choose: Chooses | None = None, *, limit: int = 1000) -> tuple[ForwardedLetter, ...]:
        """The first `limit` dead letters that `choose` returns True for, partition by partition, oldest first."""
        letters, found = ChosenLetters(self._handled, choose, limit), list[ForwardedLetter]()
        while page := await letters.next():
            found += page
            letters.done = len(found)
        return tuple(found)

    async def count(self, choose: Chooses | None = None, *, full: bool = False) -> dict[str | None, int]:
        """How many there are by reason, the most frequent first.

        Reasons that differ in numbers and quoted words only are one, and so are failures of handlers by exceptions of
        one type in one place; with `full` all that differ are counted apart. Beyond `REASONS_COUNTED_MAX`, 1,000, they
        are counted together, as "(other reasons)".
        """
        return (await self._counted(choose, full=full, is_by_group=False)).counts()

    async def _counted(self, choose: Chooses | None, *, full: bool, is_by_group: bool) -> ReasonCounts:
        counts = ReasonCounts(full=check_flag("full", full))
        letters = ChosenLetters(self._handled, choose, None)
        while page := await letters.next():
            for letter in page:
                counts.add(letter.reason, letter.group if is_by_group else None)
        return counts

    async def redrive(
        self,
        choose: Chooses | None = None,
        *,
        to: str | None = None,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Publish dead letters again: to where they are from, or to the topic `to`. Returns when that is synced.

        Sent back, a message is delivered only to the group that gave it up; the other groups of the topic settle it
        unseen. `choose` says which are redriven (None: all), at most `limit` of them, at most `rate` a second, evenly:
        after a delay they do not come in a burst. With `dry_run` nothing is done. What is redriven is not listed any
        more, so another redrive does not repeat it; one that was interrupted can simply be begun again.

        Messages whose topic or group is gone, or that were lost before they were forwarded, are passed over.
        Raises `TopicNotFound` and `TopicReadOnly` for `to`, and as `publish` does: what was published until then is
        redriven.
        """
        check_choose(choose)
        check_flag("dry_run", dry_run)
        given_rate, rate = rate, number(rate)
        if given_rate is not None and not (rate is not None and 0 < rate < math.inf):
            raise InvalidArgument(
                f"rate is {shown(given_rate, 40)}, not messages a second. Nothing was redriven."
            )
        given_to, to = to, text(to)
        if given_to is not None and (to is None or self._find(to) is None):
            raise TopicNotFound(
                f"there is no topic {shown(given_to)}. Nothing was redriven. Create it.", topic=to
            )
        if to is not None and (target := self._find(to)) is not None and target.settings.read_only:
            raise topic_read_only(to)
        if to == self._live.name:
            raise InvalidArgument(
                f"to is {to!r}, the topic that the dead letters are in: there they would be no dead letters any more."
                " Nothing was redriven. Name another topic, or none."
            )
        redrive = Redrive(
            self._session,
            self._live,
            self._handled,
            find=self._find,
            choose=choose,
            to=to,
            rate=rate,
            dry_run=dry_run,
        )
        return await redrive.run(limit)

    async def purge(self, choose: Chooses | None = None, *, limit: int | None = None) -> int:
        """Remove dead letters for good, without doing anything with them; returns how many, once that is synced."""
        letters = ChosenLetters(self._handled, choose, limit)
        while page := await letters.next():
            await self._handled.settle([letter.record for letter in page])
            letters.done += len(page)
        return letters.done


async def ends_of(letters: DeadLetterTopic) -> Sequence[int]:
    """Where each partition of the topic ends now."""
    handled = letters._handled
    return [(await handled.ask(port, Describe())).visible_end for port in handled.ports]


def letters_below(letters: DeadLetterTopic, ends: Sequence[int]) -> DeadLetterTopic:
    """The same dead letters without those appended after the partitions ended at `ends`."""
    live = letters._live
    if len(ends) != len(live.ports):
        raise InvalidArgument(
            f"there are {len(ends)} ends of partitions, and topic {live.name!r} has {len(live.ports)} partitions."
            " Nothing was done. Ask for them again."
        )
    return DeadLetterTopic(letters._session, live, letters._find, ends)


async def count_by_group(
    letters: DeadLetterTopic, choose: Chooses | None = None, *, full: bool = False
) -> Sequence[tuple[str | None, str | None, int]]:
    """As `DeadLetterTopic.count`, but for each group by itself, as (group, reason, messages)."""
    return (await letters._counted(choose, full=full, is_by_group=True)).by_group()
