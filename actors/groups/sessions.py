"""Sessions: a member of an exclusive group that does nothing while its partitions have messages is fenced.

Members live in the same process, so a heartbeat would prove nothing. What counts is what they do: a member is alive
while a call for messages is under way, while a body of `receive` or a handler of `work` holds a lease that is renewed,
and when it has fetched or settled anything since it was looked at last. One of which none of this is true for
`session_timeout`, while messages wait in its partitions, is stalled. It loses its partitions and its leases, and is a
member without any until it asks for messages again. While the group is paused, no message waits for it.

Members are looked at several times within `session_timeout`, so being stalled is found a little later than it is true.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.groups.commands import ShowActivity
from callboard.actors.kernel import notify
from callboard.actors.partition.commands import Describe
from callboard.actors.timing import Flag
from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from callboard.actors.groups.commands import Activity
    from callboard.actors.groups.membership import Member, Membership
    from callboard.actors.kernel import Context
    from callboard.actors.timing import Timers

LOOKS: Final = 4
"""How often members are looked at within a session timeout, at least."""
LOOK_MOST_S: Final = 5.0
PATIENCE_S: Final = 1.0
"""A partition that does not answer in this time is taken to have nothing, and a member to be alive."""


@attrs.define
class Stalling:
    """What is known of a member: its activity when it was looked at last, and since when it has let messages wait."""

    activity: Activity
    since: float | None = None

    def look(self, activity: Activity | None, has_messages: bool, now: float) -> float:
        """How many seconds the member has done nothing while messages wait. `activity`: None while it is alive."""
        if activity is None or activity != self.activity or not has_messages:
            self.activity, self.since = self.activity if activity is None else activity, None
            return 0.0
        if self.since is None:
            self.since = now
        return now - self.since


class Sessions:
    """What one incarnation of a coordinator knows of its members' sessions. `fence` is called with stalled ones."""

    def __init__(
        self,
        context: Context[Any],
        timers: Timers,
        group_id: int,
        membership: Membership,
        fence: Callable[[Member], None],
    ) -> None:
        self._context = context
        self._timers = timers
        self._group_id = group_id
        self._membership = membership
        self._fence = fence
        self._known: dict[int, Stalling] = {}
        self._heard: dict[int, Activity | None] = {}
        """What members have answered, until that is taken."""
        self._news = Flag()

    async def watch(self) -> None:
        """Look at the members, again and again."""
        while True:
            timeout = self._membership.settings.session_timeout
            await self._timers.sleep(LOOK_MOST_S if timeout is None else min(timeout / LOOKS, LOOK_MOST_S))
            members = self._membership.members
            self._known = {consumer: known for consumer, known in self._known.items() if consumer in members}
            for member in list(members.values()) if timeout is not None else ():
                await self._look(member)

    async def _look(self, member: Member) -> None:
        activity = await self._activity(member)
        if activity is None or member.is_suspended:
            self._known.pop(member.consumer, None)
            return
        known = self._known.setdefault(member.consumer, Stalling(activity))
        has_messages = await self._has_messages(member)
        timeout = self._membership.settings.session_timeout
        stalled_s = known.look(await self._activity(member), has_messages, self._context.clock.monotonic())
        is_member = self._membership.members.get(member.consumer) is member
        if timeout is not None and stalled_s >= timeout and is_member:
            del self._known[member.consumer]
            self._fence(member)

    async def _activity(self, member: Member) -> Activity | None:
        """Ask the member. None: it is alive for certain, or has gone, or did not answer in time."""
        self._heard.pop(member.consumer, None)
        if notify(self._context.ref, member.number, ShowActivity()):
            with trio.move_on_after(PATIENCE_S):
                while member.consumer not in self._heard:
                    await self._news.wait()
        return self._heard.pop(member.consumer, None)

    def heard(self, consumer: int, activity: Activity | None) -> None:
        """A member has answered."""
        self._heard[consumer] = activity
        self._news.set()

    async def _has_messages(self, member: Member) -> bool:
        """Whether something waits in the partitions that the member owns, and may be handed over."""
        if self._membership.settings.paused:
            return False
        for topic_id, index in self._membership.assignment.owned(member.consumer, is_moving=False):
            topic = self._membership.topics.get(topic_id)
            with suppress(CallboardError), trio.move_on_after(PATIENCE_S):
                part = None if topic is None else await topic.ports[index].ref.ask(Describe())
                groups = () if part is None else part.groups
                if any(group.group_id == self._group_id and group.ready for group in groups):
                    return True
        return False
