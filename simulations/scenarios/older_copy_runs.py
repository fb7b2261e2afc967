"""The scenario of directories of which a part is of another time, or of another place.

A program lives twice. In its first life it publishes, in its second one a group rejects, acks and publishes with its
acks, messages are delayed, retention drops, and an actor counts. Then parts of the directory take the place of others,
while it is closed: the catalog, or the record of publishers, is what it was before the second life; two
partitions exchange their records of publishers, their folders, or those of their delivery journals, and two actors
those of their journals; a folder is copied to another topic; the journal of an actor has no header left, or is gone. It
is known what each of them costs, and that must be reported, exactly: everything else is there in the third life, and in
the fourth, after the damage was accepted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import cbor2
import trio

from callboard.actors.kernel import DurableActor
from callboard.actors.partition.publishing.publishers import HEAD_BYTES, PUBLISHERS_NAME
from callboard.log.errors import CallboardError
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.journal.journal_floor import FLOOR_NAME, FLOORS
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.segments.segment_file import SEGMENT_SUFFIX, base_offset_of, segment_path
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import COUNT_MAX, between, check_counts, one_of
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedMessage
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

REPORTED: Final = "what an older copy or a wrong place costs is reported, and nothing else"
SERVED: Final = "what an older copy or a wrong place does not cost is served"
TOPIC: Final = "orders"
TARGET: Final = "taken"
PARTITIONS: Final = (0, 1)
EARLY: Final = "early"
"""A group of which an older catalog knows."""
FORGOTTEN: Final = "forgotten"
"""A group of which an older catalog knows nothing: it is of the second life."""
NEW: Final = "new"
"""A group of the third life."""
KEEPER: Final = "keeper"
SECOND: Final = "second"
"""Another actor, which counts twice where the first one does once."""
ACTORS: Final = "actors/user"
JOURNAL: Final = f"{ACTORS}/{KEEPER}"
WRONGS: Final = ("catalog", "older publishers", "exchanged publishers", "strange folders", "headless actor")
HEADLESS: Final = ("gone", "blank", "garbled", "folder gone")
SIZE: Final = 4_000
"""Of a message, where retention is to drop some."""
DELAY_S: Final = 40.0
VISIBLE_S: Final = 2.0
LIVENESS_S: Final = 300.0
LOOK_S: Final = 0.5


class CopyKeeper(DurableActor[int, int]):
    """Keeps a sum."""

    def __init__(self) -> None:
        self.sum = 0

    async def receive(self, message: int) -> int:
        """Add the message; returns the sum."""
        await self.persist(message)
        return self.sum

    def apply(self, event: int) -> None:
        """Add it."""
        self.sum += event


@attrs.frozen(kw_only=True)
class CopiedTraffic:
    """A workload: how many messages each of the first two lives publishes to each partition, and what is wrong then."""

    messages: int = 4
    later: int = 4
    drops: bool = False
    """Whether messages are large, and retention drops the oldest."""
    is_early: bool = False
    """Whether the first life has a group, and delays a message."""
    at_once: bool = True
    """Whether the third life begins with a new group."""
    wrongs: tuple[str, ...] = ("catalog",)
    is_exchanged: bool = False
    """Whether the folders of two partitions lie in each other's places, too."""
    journals: str = ""
    """Which journals have exchanged their folders: those of the partitions' "deliveries", or of "actors"; or an actor's
    only segment is "misnamed".
    """
    headless: str = "gone"
    """What becomes of the segments of the actor's journal, or of its whole folder."""
    leaves_copies: bool = False
    """Whether folders that were copied to another topic are still there when the directory is opened."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__, {"messages": (self.messages, COUNT_MAX), "later": (self.later, COUNT_MAX)}
        )


class OlderCopies:
    """Parts of a directory are of an earlier life or of another place, while actors crash and the process is killed."""

    name = "older-copies"
    space = FaultSpace(
        weights={"KillProcess": 2, "PowerCut": 1, "CrashActor": 6, "FailVerb": 1},
        actors=("topics/orders/0", "topics/orders/1", "catalog", "scheduler", "outbox"),
        paths=("/delivery/", "/publishers", "catalog/", ""),
        verbs=("write", "sync", "create"),
        probes={"disk.sync": 60},
        faults=(0, 2),
        horizon_s=8.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def workload(self, entropy: SeededEntropy) -> CopiedTraffic:
        """One or two things that are wrong; where retention drops, there is more to drop."""
        drops = one_of(entropy, (False, False, True))
        return CopiedTraffic(
            messages=between(entropy, 1, 6),
            later=between(entropy, 40, 60) if drops else between(entropy, 3, 6),
            drops=drops,
            is_early=one_of(entropy, (False, True)),
            wrongs=tuple(dict.fromkeys(one_of(entropy, WRONGS) for _ in range(between(entropy, 1, 2)))),
            at_once=one_of(entropy.fork("new"), (False, True)),
            headless=one_of(entropy, HEADLESS),
            is_exchanged=one_of(entropy.fork("places"), (False, False, True)),
            journals=one_of(entropy.fork("journals"), ("", "deliveries", "actors", "misnamed")),
            leaves_copies=one_of(entropy.fork("copies"), (False, True)),
        )

    async def main(self, world: World, workload: CopiedTraffic) -> None:
        """Run it in as many lives as it takes."""
        copying = _Copying(world, workload)
        world.spawn(copying.watch)
        await world.machine_until_done(copying.live)
        expect_no_bugs(world)


class _Copying:
    """One run; it outlives its machines."""

    def __init__(self, world: World, workload: CopiedTraffic) -> None:
        self._world = world
        self._workload = workload
        self._stage = 0
        self._is_done = False
        self._ids: dict[str, str] = {}
        """Of the topics, by name."""
        self._offsets: dict[tuple[int, bytes], int] = {}
        """By partition and deduplication id: where the message is."""
        self._known_below: dict[int, int] = {}
        """For each partition whose record of publishers is wrong: the ids of offsets below are known, those of the log
        besides."""
        self._acked: dict[str, set[bytes]] = {EARLY: set(), FORGOTTEN: set(), NEW: set()}
        """By group: those whose acks returned."""
        self._maybe_acked = set[tuple[str, bytes]]()
        """By group and value: those whose acks may count, and which need not come again."""
        self._older: dict[str, bytes] = {}
        """The directory as the first life has left it."""
        self._forgotten: set[str] = set()
        """Folders which the catalog does not know any more."""
        self._strange: set[str] = set()
        """Folders which it never knew, and which are of another topic."""
        self._lost_publishers: set[int] = set()
        self._is_repaired = False
        """Whether a repair has begun."""
        self._left_to_do = ["ack", "reject", "publish"]
        """What the forgotten group still does, with a message each."""
        self._attempts = 0
        self._sums = {KEEPER: (0, 0), SECOND: (0, 0)}
        """What each actor has surely counted, and what it may have."""
        self._moved = 0
        """How many folders lie in the places of others."""

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self._world)
        await self._world.rest(LIVENESS_S)
        if not self._is_done:
            words = f"stage {self._stage} has not come to its end {LIVENESS_S:g} s after the last fault"
            raise self._world.broken(Violation(SERVED, words))

    async def live(self, machine: Machine) -> None:
        """Four lives; what is wrong becomes so between the second and the third, and is accepted before the fourth."""
        offline = (self._wrong, self._judge)
        stages = (self._first, self._second, *offline, self._third, self._accept, self._fourth)
        while self._stage < len(stages):
            stage = stages[self._stage]
            if stage in (*offline, self._accept):
                await live_until_done(self._world, stage)
            else:
                await live_until_done(self._world, partial(self._in_runtime, machine, stage))
            self._stage += 1
        self._is_done = True

    async def _in_runtime(self, machine: Machine, stage: Any) -> None:
        async with machine.open_runtime() as runtime, trio.open_nursery() as nursery:
            nursery.start_soon(restart_failed, runtime, name="operator")
            await stage(runtime)
            nursery.cancel_scope.cancel()

    # -- before

    async def _first(self, runtime: Any) -> None:
        taken = await runtime.create_topic(TARGET)
        kept = {
            "segment_bytes": SEGMENT_BYTES_MIN,
            "retention_bytes": 2 * SEGMENT_BYTES_MIN,
            "drop_unread": True,
        }
        limits = kept if self._workload.drops else {}
        orders = await runtime.create_topic(TOPIC, partitions=len(PARTITIONS), dedup_window=3600, **limits)
        self._ids = {TOPIC: orders.topic_id, TARGET: taken.topic_id}
        await self._publish(orders, b"first", self._workload.messages)
        if self._workload.is_early:
            await orders.publish(self._unique(b"early and late"), partition=0, delay=DELAY_S)
            await self._take_early(orders)

    async def _second(self, runtime: Any) -> None:
        if not self._older:
            self._older = self._world.disk.files()
        orders = runtime.topic(TOPIC)
        await self._publish(orders, b"second", self._workload.later)
        if self._workload.is_early:
            await self._take_early(orders)
        async with orders.subscribe(FORGOTTEN, visibility_timeout=VISIBLE_S) as consumer:
            while self._left_to_do:
                message, what = await consumer.get(), self._left_to_do[0]
                if what == "reject":
                    await message.reject()
                else:
                    if what == "publish":
                        await message.publish(TARGET, self._unique(b"by ack"), delay=DELAY_S)
                    await self._ack(FORGOTTEN, message)
                self._left_to_do.pop(0)
        await orders.publish(self._unique(b"late"), partition=1, delay=DELAY_S)
        await self._count(runtime, KEEPER)
        await self._count(runtime, SECOND, 2)
        await self._world.rest(1.0)

    async def _publish(self, orders: Any, word: bytes, count: int) -> None:
        for number in range(max(0, count)):
            for at in PARTITIONS:
                name = b"%s %d in %d" % (word, number, at)
                value = name + bytes(SIZE if self._workload.drops else 0)
                receipt = await orders.publish(value, dedup_id=name.decode(), partition=at)
                self._offsets[at, name] = receipt.offset

    def _unique(self, word: bytes) -> bytes:
        """A value that begins with the word: what is broken off is published once more, under another one."""
        self._attempts += 1
        return b"%s/%d" % (word, self._attempts)

    async def _take_early(self, orders: Any) -> None:
        async with orders.subscribe(EARLY, visibility_timeout=VISIBLE_S) as consumer:
            await self._ack(EARLY, await consumer.get())

    async def _ack(self, group: str, message: ReceivedMessage) -> None:
        if message.value in self._acked[group]:
            words = f"group {group!r} was handed {message.value!r:.40} once more, which it had acked"
            raise self._world.broken(Violation(SERVED, words))
        value = bytes(message.value or b"")
        try:
            await message.ack()
        except CallboardError as error:
            if error.indefinite:
                self._maybe_acked.add((group, value))
            raise
        self._acked[group].add(value)

    async def _count(self, runtime: Any, name: str, times: int = 1) -> None:
        """The actor counts one more, `times` times, and says as much as it has counted."""
        keeper = await runtime.spawn(CopyKeeper, name=name)
        for _ in range(times):
            least, most = self._sums[name]
            self._sums[name] = (least, most + 1)
            found = await keeper.ask(1)
            if not least < found <= most + 1:
                words = f"the actor has counted {found}, and it should be {least + 1} to {most + 1}"
                raise self._world.broken(Violation(SERVED, words))
            self._sums[name] = (found, found)

    # -- what is wrong

    async def _wrong(self) -> None:
        """What is wrong is so durably, and at once."""
        for wrong in self._workload.wrongs:
            {
                "catalog": self._put_back_catalog,
                "older publishers": self._put_back_publishers,
                "exchanged publishers": self._exchange_publishers,
                "strange folders": self._copy_folders,
                "headless actor": self._behead_actor,
            }[wrong]()
        topic, floors = (
            f"topics/{self._ids[TOPIC]}",
            [f"{FLOORS}/{ACTORS}/{name}" for name in (KEEPER, SECOND)],
        )
        if self._workload.is_exchanged:
            self._exchange_folders(f"{topic}/0", f"{topic}/1")
            self._world.sometimes("two partitions have exchanged their folders", True)
        elif self._workload.journals == "deliveries":
            self._exchange_folders(f"{topic}/0/delivery", f"{topic}/1/delivery")
            self._world.sometimes("two delivery journals have exchanged their folders", True)
        is_known = {f"{floor}/{FLOOR_NAME}" for floor in floors} <= self._world.disk.files().keys()
        if self._workload.journals == "actors" and is_known and "headless actor" not in self._workload.wrongs:
            self._exchange_folders(JOURNAL, f"{ACTORS}/{SECOND}")
            self._world.sometimes("two actors have exchanged the folders of their journals", True)

        if self._workload.journals == "misnamed":
            self._rename_segment(f"{ACTORS}/{SECOND}")

    def _rename_segment(self, folder: str) -> None:
        """The only segment of a journal gets another name: that costs nothing."""
        paths = [path for path in self._world.disk.files() if path.rpartition("/")[0] == folder]
        segments = [path for path in paths if path.endswith(SEGMENT_SUFFIX)]
        if len(segments) == 1:
            self._world.disk.tree.rename(segments[0], segment_path(folder, 7))
            self._world.disk.tree.directory(folder).sync()
        self._world.sometimes("the only segment of a journal had another name", len(segments) == 1)

    def _exchange_folders(self, one: str, other: str) -> None:
        tree = self._world.disk.tree
        for folder, place in ((one, f"{one}.aside"), (other, one), (f"{one}.aside", other)):
            tree.rename(folder, place)
        for folder in (one, other):
            tree.directory(folder.rpartition("/")[0]).sync()
        self._moved += 2

    def _put_back_catalog(self) -> None:
        files = self._world.disk.files()
        for path in files:
            if path.startswith("catalog/") and path not in self._older:
                self._unlink(path)
        for path, content in self._older.items():
            if path.startswith("catalog/"):
                self._world.disk.plant_file(path, content)
        kinds = {_kind(folder) for folder in _log_folders(self._older)}
        folders = _log_folders(files) - self._strange
        self._forgotten = {folder for folder in folders if _kind(folder) not in kinds}
        self._world.sometimes("the catalog had forgotten folders", bool(self._forgotten))

    def _put_back_publishers(self) -> None:
        path = self._publishers(0)
        content = self._older[path]
        self._world.disk.plant_file(path, content)
        end = cbor2.loads(content[HEAD_BYTES:])["end"]
        self._lost_publishers.discard(0)
        self._known_below.pop(0, None)
        if end < self._start(0):
            self._lost_publishers.add(0)
            self._known_below[0] = end
        self._world.sometimes("an older record of publishers ends before the log", 0 in self._lost_publishers)

    def _exchange_publishers(self) -> None:
        one, other = (self._world.disk.file(self._publishers(at)) for at in PARTITIONS)
        for at, content in zip(PARTITIONS, (other, one), strict=True):
            self._world.disk.plant_file(self._publishers(at), content)
            self._lost_publishers.add(at)
            self._known_below[at] = 0
        self._world.sometimes("two partitions have exchanged their records of publishers", True)

    def _copy_folders(self) -> None:
        """What was delayed, and the outbox, have a copy each in the folder of the other topic, which has neither."""
        here, there = f"topics/{self._ids[TOPIC]}/", f"topics/{self._ids[TARGET]}/"
        files = self._world.disk.files()
        has = {_kind(folder) for folder in _log_folders(files)}
        for path, content in files.items():
            folder = path.removeprefix(here).partition("/")[0]
            target = there + path.removeprefix(here)
            is_copied = path.startswith(here) and folder in ("delayed-0", "outbox-0")
            if is_copied and _kind(there + folder) not in has:
                self._world.disk.plant_file(target, content)
                self._strange.add(there + folder)
        self._world.sometimes("a folder was copied to another topic", bool(self._strange))

    def _behead_actor(self) -> None:
        files = self._world.disk.files()
        is_all = self._workload.headless == "folder gone" and f"{FLOORS}/{JOURNAL}/{FLOOR_NAME}" in files
        self._world.sometimes("the folder of an actor's journal was gone", is_all)
        for path, content in files.items():
            if is_all and path.startswith(f"{JOURNAL}/"):
                self._unlink(path)
                continue
            if path.startswith(f"{JOURNAL}/") and path.endswith(SEGMENT_SUFFIX):
                if self._workload.headless in ("gone", "folder gone"):
                    self._unlink(path)
                else:
                    byte = b"\0" if self._workload.headless == "blank" else b"\xa5"
                    self._world.disk.plant_file(path, byte * max(len(content), SEGMENT_HEADER_BYTES))
        self._sums[KEEPER] = (0, 0)
        self._world.sometimes("no header was left of an actor's journal", True)

    def _unlink(self, path: str) -> None:
        self._world.disk.tree.unlink(path)
        self._world.disk.tree.directory(path.rpartition("/")[0]).sync()

    def _publishers(self, at: int) -> str:
        return f"topics/{self._ids[TOPIC]}/{at}/delivery/{PUBLISHERS_NAME}"

    def _start(self, at: int) -> int:
        folder = f"topics/{self._ids[TOPIC]}/{at}"
        names = [path.rpartition("/") for path in self._world.disk.files()]
        bases = [base_offset_of(name) for where, _, name in names if where == folder]
        return min(base for base in bases if base is not None)

    async def _judge(self) -> None:
        """Verify and repair name the records of publishers that are wrong, and the journal without a header."""
        disk = self._world.disk
        wrong = {self._publishers(at) for at in self._lost_publishers}
        report = await verify_directory(disk)
        is_first, self._is_repaired = not self._is_repaired, True
        needs_repair = bool(self._moved) or "headless actor" in self._workload.wrongs
        is_left = bool(self._strange) and self._workload.leaves_copies and not needs_repair
        repaired = await repair_directory(disk, dry_run=is_left)
        if is_first:
            moved = [action for action in repaired.actions if action.kind == "move"]
            self._expect("the number of folders that repair moves back:", len(moved), self._moved)
        placed = await verify_directory(disk) if self._moved else report
        for who, problems in (("verify", placed.problems), ("repair", repaired.left)):
            found = {problem.path for problem in problems if problem.kind == "publishers"}
            self._expect(f"{who} names records of publishers", found, wrong)
        if "headless actor" in self._workload.wrongs:
            if is_first:  # and no repair was broken off
                kinds = {log.kind for log in report.logs if log.path == JOURNAL and not log.ok}
                self._expect("verify calls the actor's log, which is damaged,", kinds, {"journal"})
                self._expect("repair names as lost", {path for path, *_ in repaired.lost}, {JOURNAL})
            again = await verify_directory(disk)
            self._expect(
                "once repaired, there is",
                [log.path for log in again.logs if log.path == JOURNAL and not log.ok],
                [],
            )

    def _expect(self, who: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise self._world.broken(Violation(REPORTED, f"{who} {found!r:.300}, and not {wanted!r:.300}"))

    # -- after

    async def _third(self, runtime: Any) -> None:
        """All that is not lost is there, and what is lost is reported."""
        orders, taken = runtime.topic(TOPIC), runtime.topic(TARGET)
        if self._workload.at_once:
            async with orders.subscribe(NEW, visibility_timeout=VISIBLE_S):
                pass  # the group is there before partitions hear that the forgotten one is not
        await self._expect_reported(runtime)
        await self._publish_again(orders)
        async with orders.subscribe(NEW, visibility_timeout=VISIBLE_S) as consumer:
            letters = await orders.dead_letters(NEW).list()
            if letters:
                words = f"a new group has dead letters: {letters!r:.200}"
                raise self._world.broken(Violation(SERVED, words))
            while await self._is_left(orders):
                if (message := await consumer.get(timeout=LOOK_S)) is not None:
                    await self._ack(NEW, message)
        if self._workload.is_early:
            await orders.publish(self._unique(b"for the early"), partition=0)
            await self._take_early(orders)
        for name in (KEEPER, SECOND):
            await self._count(runtime, name)
        late = [b"late", *([b"early and late"] if self._workload.is_early else [])]
        for word in () if self._workload.drops else late:
            await self._until_there(orders, word)
        await self._until_there(taken, b"by ack")

    async def _until_there(self, topic: Any, word: bytes) -> None:
        while not any([(record.value or b"").startswith(word) async for record in topic.read()]):
            await self._world.rest(LOOK_S)

    async def _is_left(self, orders: Any) -> bool:
        there = {record.value async for record in orders.read()}
        return any(value not in self._acked[NEW] and (NEW, value) not in self._maybe_acked for value in there)

    async def _publish_again(self, orders: Any) -> None:
        """What has the id of a message that is known is not stored."""
        starts = {each.partition: each.start_offset for each in await orders.describe()}
        for (at, name), offset in sorted(self._offsets.items()):
            if self._known_below.get(at, offset + 1) <= offset < starts[at]:
                continue  # only the lost record of publishers knew it
            receipt = await orders.publish(b"again", dedup_id=name.decode(), partition=at)
            if receipt.offset != offset:
                words = f"the id of offset {offset} of partition {at} was given to offset {receipt.offset}"
                raise self._world.broken(Violation(SERVED, words))

    async def _expect_reported(self, runtime: Any) -> None:
        folders = self._forgotten
        statistics = await runtime.topic(TOPIC).describe()
        found = {each.partition for each in statistics if PUBLISHERS_NAME in str(each.damages)}
        self._expect("partitions report that publishers are lost:", found, self._lost_publishers)
        damages = (await runtime.stats()).catalog.damages
        found_folders = {words for words in damages if any(folder in words for folder in folders)}
        self._expect(
            "the catalog reports, besides what it has forgotten,", set(damages) - found_folders, set()
        )
        self._expect("the number of folders that the catalog reports:", len(damages), len(folders))
        outboxes = {f"topics/{self._ids[each.topic]}/outbox-0" for each in (await runtime.stats()).outbox}
        self._expect("topics have strange outboxes:", outboxes & self._strange, set())

    async def _accept(self) -> None:
        """It is known now what is lost."""
        self._forgotten, self._lost_publishers = set(), set()
        await repair_directory(self._world.disk, accept=True)

    async def _fourth(self, runtime: Any) -> None:
        """What was accepted is reported no more, and the new group goes on from where it was."""
        await self._expect_reported(runtime)
        orders = runtime.topic(TOPIC)
        await self._publish_again(orders)
        value = self._unique(b"last")
        await orders.publish(value, partition=0)
        async with orders.subscribe(NEW, visibility_timeout=VISIBLE_S) as consumer:
            while value not in self._acked[NEW]:
                await self._ack(NEW, await consumer.get())
        for name in (KEEPER, SECOND):
            await self._count(runtime, name)


def _log_folders(files: dict[str, bytes]) -> set[str]:
    """The folders of waiting partitions and outboxes that hold a segment."""
    folders = {path.rpartition("/")[0] for path in files if path.endswith(SEGMENT_SUFFIX)}
    return {folder for folder in folders if folder.rpartition("/")[2].startswith(("delayed-", "outbox-"))}


def _kind(folder: str) -> str:
    """Topic and kind of such a folder."""
    return folder.rpartition("-")[0]
