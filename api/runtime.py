"""The runtime: one directory, opened for writing, with all its actors inside an `async with`.

Opening takes the directory's lock and reads the catalog. The partitions then recover side by side, and what is asked of
one waits until it has. Closing stops the tree in reverse order: what was published is committed, and every failure that
nobody heard of is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

import trio
from trio.lowlevel import TrioToken, current_trio_token

from callboard import arguments
from callboard.actors.catalog.catalog import Catalog
from callboard.actors.catalog.commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ListGroups,
)
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.groups.renewals import Lingers, Renewals, RenewedLeases
from callboard.actors.kernel import Actor, ActorRef, ActorStart, Context, Logged, MailboxSpec, Reply
from callboard.actors.kernel.events import check_callback
from callboard.actors.names import check_name, no_topic
from callboard.actors.partition.commands import Describe, Flush, PartitionStatistics
from callboard.actors.partition.port import PartitionPort
from callboard.actors.recurring.schedules import LiveSchedule
from callboard.actors.settings import (
    GroupChanges,
    GroupOptions,
    GroupSettings,
    Start,
    TopicChanges,
    TopicOptions,
    check_topic,
)
from callboard.actors.timers.timer_wheel import TimerWheel
from callboard.actors.timers.timers import Timers
from callboard.actors.topic_patterns import TopicPattern
from callboard.background import BackgroundActors
from callboard.consumer.consumer import Consumer
from callboard.consumer.several_topics import ReadsTopics
from callboard.dead_letters.topics import DeadLetterTopic
from callboard.group import Group
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    InvalidArgument,
    MailboxFull,
    RestartLimitReached,
    RuntimeClosed,
    WrongRun,
)
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.host.entropy import HostEntropy
from callboard.log.host.zones import load_zone
from callboard.log.limits import USUAL, Limits
from callboard.log.plain import is_a, shown, text
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Disk, Lock
from callboard.log.seams.entropy import Entropy
from callboard.message import Record
from callboard.outboxes import ReachesOutboxes
from callboard.publishing.partitioning import Partitioner, check_partitioner
from callboard.publishing.schedules import Schedule
from callboard.reports.figures import (
    DESCRIBE_TIMEOUT_S,
    GroupDescription,
    GroupInfo,
    RuntimeStatistics,
    delayed_statistics,
    forwarding_statistics,
    group_infos,
    outbox_statistics,
    schedule_statistics,
)
from callboard.reports.reporting import Reporter
from callboard.supervision import ChildSpec, SupervisorSpec, System, TreeNode, open_system
from callboard.supervision.policies import IMMEDIATE
from callboard.topic import Topic

if TYPE_CHECKING:
    from callboard.control.server import ControlServer

M = TypeVar("M")

FLUSH_TIMEOUT_S = 5.0
"""How long closing waits for `acks="none"` publishes to be synced, before it stops the partitions, which write them."""


class Runtime(ReachesOutboxes, ReadsTopics):
    """An open runtime. Made by `open_runtime`; use it inside `async with`."""

    def __init__(
        self,
        directory: str | arguments.PathLike | None,
        *,
        control: bool,
        sync_inline: bool,
        disk: Disk | None,
        clock: Clock | None,
        entropy: Entropy | None,
        seed: int | None,
        on_event: Callable[[Any], object] | None,
        limits: Limits,
        only_looks: bool = False,
    ) -> None:
        if (directory is None) == (disk is None):
            found = "neither was" if disk is None else "both were"
            raise InvalidArgument(f"open_runtime takes a directory or a disk, and {found} given.")
        path = arguments.path_of(directory)
        if disk is None and path is None:
            raise InvalidArgument(f"{shown(directory, 80)} is no name of a directory. Nothing was written.")
        if not is_a(limits, Limits):
            raise InvalidArgument(f"limits are Limits(...), not {shown(limits, 80)}. Nothing was opened.")
        if on_event is not None:
            check_callback("on_event", on_event)
        arguments.check_seams(disk, clock, entropy)
        self._disk = disk
        self._path = path
        self._inline = arguments.check_flag("sync_inline", sync_inline)
        self._control = arguments.check_flag("control", control)
        self._on_event = on_event
        self._only_looks = only_looks
        self.clock: Clock = HostClock() if clock is None else clock
        self.entropy: Entropy = HostEntropy(arguments.seed_of(seed)) if entropy is None else entropy
        self.timers = Timers(self.clock)
        self.renewed_leases, self.lingers = RenewedLeases(self.timers), Lingers(self.timers)
        self.limits = limits
        self._directory = Directory(self.timers, limits, load_zone)
        self._state = "new"
        self._run: TrioToken | None = None
        self._lock: Lock | None = None
        self._system: System
        self._server: ControlServer | None = None
        self._reporter = Reporter(self.clock.monotonic, self._directory.name_of_group)

    @property
    def directory(self) -> str:
        """The directory, as messages name it."""
        return self._disk.root if self._disk is not None else str(self._path)

    def __repr__(self) -> str:
        return f"<Runtime {self.directory!r} {self._state}>"

    # -- opening and closing

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise InvalidArgument("a runtime is opened once. Call open_runtime() again.")
        try:
            self._run = current_trio_token()
        except RuntimeError as error:
            raise WrongRun(
                "a runtime is opened inside trio, and this code is not run by it. Nothing was opened. Begin with"
                " trio.run(main)."
            ) from error
        self._state = "opening"
        if self._disk is None:
            self._disk = HostDisk(self._path or "", inline=self._inline)
        disk = self._disk
        try:
            if self._control:  # before anything is opened: where no socket can be, nothing is left half open
                from callboard.control.server import ControlServer

                self._server = ControlServer(self)
            self._lock = await disk.lock({"program": "callboard"})
            self._system = open_system(
                self._spec(), clock=self.clock, entropy=self.entropy, disk=disk, limits=self.limits
            )
            if self._path is not None or self._only_looks:
                self._reporter.listen(self._system.events)
            if self._on_event is not None:
                self._system.events.subscribe(self._on_event)
            supervisors = self._system.root
            background = BackgroundActors(supervisors, self._directory, only_looks=self._only_looks)
            self._directory.attach(
                supervisors.supervisor("topics"), supervisors.supervisor("groups"), background.start
            )
            self._directory.catalog = supervisors.child("catalog")
            await self._system.__aenter__()
        except BaseException as error:
            await self._release()
            if isinstance(error, RestartLimitReached) and isinstance(error.__cause__, CallboardError):
                raise error.__cause__ from None  # what the catalog met, as itself
            raise
        self._state = "open"
        if self._server is not None:
            try:
                await self._server.listen()
                spec = ChildSpec(name="control", start=self._server.serve, significant=False)
                await self._system.spawn(spec)
            except BaseException as error:
                await self.__aexit__(type(error), error, error.__traceback__)
                raise
        return self

    def _spec(self) -> SupervisorSpec:
        return SupervisorSpec(
            name="runtime",
            children=(
                ChildSpec(name="timer-wheel", start=partial(TimerWheel, self.timers), backoff=IMMEDIATE),
                SupervisorSpec(name="topics"),
                SupervisorSpec(name="groups"),
                ChildSpec(
                    name="catalog",
                    start=partial(Catalog, self._directory),
                    mailbox=MailboxSpec(self.limits.mailbox),
                    shutdown_grace=30.0,
                ),
                ChildSpec(name="renewals", start=partial(Renewals, self.renewed_leases, self.lingers)),
            ),
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._state != "open":
            return False  # nothing is open
        self.check_run()
        lives = [*self._directory.topics()]
        ports = [port for live in lives for port in live.all_ports]
        try:
            if error is None:
                await self._flush_all(ports)
            elif restarted := [port for port in ports if port.state == "restarting"]:
                with trio.CancelScope(shield=True):
                    await self._flush_all(restarted)
        finally:
            self._state = "closing"
            for port in ports:
                port.is_closing = True
            try:
                absorbed = await self._system.__aexit__(kind, error, traceback)
            finally:
                self._state = "closed"
                self.timers.end()
                await self._release()
                self._reporter.close()  # last: it calls the program's logging handlers
        if error is None:
            self._raise_unawaited(lives)
        return absorbed

    async def _flush_all(self, ports: Sequence[PartitionPort]) -> None:
        """Wait for what was published with `acks="none"`; what fails, or is too slow, is told when all has stopped.

        A partition that crashes is waited for, so that it ends in good order.
        """
        asked: list[tuple[PartitionPort, Reply | None]] = []
        for port in ports:
            if port.opened_before or port.unawaited_waiting:
                with suppress(CallboardError):
                    try:
                        asked.append((port, port.ref.ask_nowait(Flush())))
                    except MailboxFull:
                        asked.append((port, None))
        with trio.move_on_after(FLUSH_TIMEOUT_S):
            for port, reply in asked:
                with suppress(CallboardError):
                    try:
                        await (port.ref.ask(Flush()) if reply is None else reply.wait())
                    except ActorCrashed:
                        await self._flush_again(port)

    @staticmethod
    async def _flush_again(port: PartitionPort) -> None:
        while True:
            with suppress(ActorCrashed):
                await port.ref.ask(Flush())
                return

    def _raise_unawaited(self, lives: Sequence[LiveTopic]) -> None:
        """Raise the failures that nobody was told of, now that there will be no more."""
        found: list[CallboardError] = []
        for live in lives:
            for port in live.all_ports:
                port.give_up_unawaited()
            try:
                Topic(self, live).raise_unawaited()
            except CallboardError as error:
                found.append(error)
        for other in found[1:]:
            found[0].add_note(str(other))
        if found:
            raise found[0]

    async def _release(self) -> None:
        try:
            if self._server is not None:
                self._server.close()
        finally:
            try:
                if self._disk is not None:
                    with trio.CancelScope(shield=True):
                        await self._disk.aclose()
            finally:
                if self._lock is not None:
                    self._lock.release()
                    self._lock = None

    def check_open(self) -> None:
        """Raise `RuntimeClosed` unless the runtime is open, or still closing: actors may finish their work then.

        Raise `WrongRun` in another thread or trio run than the one that opened it. For other modules of the package.
        """
        if self._state not in ("open", "closing"):
            raise RuntimeClosed(
                f"the runtime on {self.directory} is {self._state}. Nothing was done. Use it inside `async with`."
            )
        try:
            if current_trio_token() is self._run:  # as in `check_run`; this is on every path
                return
        except RuntimeError:
            pass
        self.check_run()

    def check_run(self) -> None:
        """Raise `WrongRun` in another thread or trio run than the opening one: for other modules of the package."""
        try:
            run = current_trio_token()
        except RuntimeError:
            run = None
        if run is not self._run:
            raise WrongRun(
                f"the runtime on {self.directory} belongs to the trio run that opened it, and this is"
                f" {'a thread or program without one' if run is None else 'another'}. Nothing was done. From another"
                " thread use trio.from_thread.run(function, trio_token=...), with the token of the runtime's run."
            )

    def scheduler(self) -> ActorRef[Any]:
        """Who moves delayed messages to their topics; for the other modules of the package. Raises `RuntimeClosed`."""
        self.check_open()
        if "scheduler" not in self._system.root:  # it has stopped, and the rest closes still
            raise RuntimeClosed(
                f"the runtime on {self.directory} is closing. Nothing was done. Open it again."
            )
        return self._system.root.child("scheduler")

    def zone(self, name: str) -> tzinfo:
        """A time zone; for the other modules of the package."""
        return load_zone(name)

    def schedules_of(self, topic_id: str) -> Sequence[LiveSchedule]:
        """The recurring publishes of a topic; for the other modules of the package."""
        return self._directory.schedules.of_topic(topic_id)

    # -- topics

    async def create_topic(
        self, name: str, *, partitioner: Partitioner | None = None, **settings: Unpack[TopicOptions]
    ) -> Topic:
        """Create a topic, or return it if it exists; settings that are named must then be as they are.

        Settings: `partitions` (1), `segment_bytes` (64 MiB), `segment_age`, `retention_age`, `retention_bytes` (none),
        `drop_unread` (False), `compression` ("none"), `max_message_bytes` (1 MiB), `dedup_window` (none: no ids),
        `default_ttl` (none), `priorities` (False). `partitioner(key, partitions)` holds for the topic in this process,
        whoever publishes, and is not stored; it must give the same partition each time.
        Returns once the topic is durable and its partitions run. Where there is no space for them, it raises `DiskFull`
        and leaves no topic behind.

        Raises `TopicExists`, `InvalidArgument`, `ConfigurationError` with all problems of the settings.
        """
        name = check_name(name, "topic")
        if partitioner is not None:
            check_partitioner(partitioner, name)
        live = await self.ask_catalog(CreateTopic(name, check_topic(name, settings)))
        return Topic(self, live, partitioner)

    def topic(self, name: str, *, partitioner: Partitioner | None = None) -> Topic:
        """The topic of that name. Raises `TopicNotFound`; `InvalidArgument` when keys go by another partitioner."""
        self.check_open()
        return Topic(self, self._live(name), partitioner)

    def _live(self, name: str) -> LiveTopic:
        word = text(name)
        live = None if word is None else self._directory.find(word)
        if live is None:
            raise no_topic(name, (each.name for each in self._directory.topics()))
        return live

    def dead_letters(self, topic: str) -> DeadLetterTopic:
        """What was forwarded to a topic that groups name as their `dead_letter_topic`: to be looked at, delivered
        again, or given up for good. Raises `TopicNotFound`. `Topic.dead_letters` has what stays in its partitions.
        """
        self.check_open()
        return DeadLetterTopic(self, self._live(topic), self._directory.find)

    def topics(self) -> tuple[Topic, ...]:
        """All topics, by name."""
        self.check_open()
        return tuple(Topic(self, live) for live in self._directory.topics())

    def schedules(self) -> tuple[Schedule, ...]:
        """The recurring publishes of all topics, by topic and name."""
        self.check_open()
        return tuple(Schedule(self, live) for live in self._directory.schedules)

    async def alter_topic(self, name: str, **settings: Unpack[TopicChanges]) -> Topic:
        """Change settings of a topic (all but `partitions`). Raises as `create_topic` does, and `TopicNotFound`."""
        name = arguments.topic_name(name)
        live = self._directory.find(name)
        given = check_topic(name, settings, None if live is None else live.settings)
        return Topic(self, await self.ask_catalog(AlterTopic(name, given)))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Returns when its files are gone. Raises `TopicNotFound`;
        `StorageError`, indefinite when the topic is deleted and files of it are left until the next opening.
        """
        await self.ask_catalog(DeleteTopic(arguments.topic_name(name)))

    # -- groups

    def _consumer(
        self,
        lives: Sequence[LiveTopic],
        group: str,
        settings: GroupOptions,
        name: str | None,
        pattern: TopicPattern | None,
    ) -> Consumer:
        return Consumer(self, lives, group, settings, name, pattern)

    async def groups(self) -> tuple[GroupInfo, ...]:
        """All consumer groups, by name, the broker's own too: `GroupInfo.own`."""
        return group_infos(await self.ask_catalog(ListGroups()), self._directory)

    def group(self, name: str) -> Group:
        """A consumer group by its name. Whether it exists, each call of the handle finds out.

        Raises `InvalidArgument` for what cannot be a group's name.
        """
        self.check_open()
        return Group(self, self._directory, arguments.group_name(name))

    async def alter_group(self, name: str, **settings: Unpack[GroupChanges]) -> GroupSettings:
        """`Group.alter` of that group."""
        return await self.group(name).alter(**settings)

    async def describe_group(self, name: str) -> GroupDescription:
        """`Group.describe` of that group."""
        return await self.group(name).describe()

    async def seek_group(
        self, name: str, to: Start | Record, *, topic: str | None = None, partition: int | None = None
    ) -> dict[tuple[str, int], int]:
        """`Group.seek` of that group."""
        return await self.group(name).seek(to, topic=topic, partition=partition)

    async def reset_group(
        self, name: str, *, topic: str | None = None, partition: int | None = None
    ) -> dict[tuple[str, int], int]:
        """`Group.reset` of that group."""
        return await self.group(name).reset(topic=topic, partition=partition)

    async def delete_group(self, name: str, *, drop_dead_letters: bool = False) -> None:
        """`Group.delete` of that group."""
        await self.group(name).delete(drop_dead_letters=drop_dead_letters)

    # -- actors

    @overload
    async def spawn(self, actor: Callable[[], Actor[M]], *, name: str | None = None) -> ActorRef[M]: ...
    @overload
    async def spawn(
        self, actor: Callable[[Context[M]], Awaitable[object]], *, name: str | None = None
    ) -> ActorRef[M]: ...
    @overload
    async def spawn(self, actor: ChildSpec, *, name: str | None = None) -> ActorRef[Any]: ...
    async def spawn(self, actor: ChildSpec | ActorStart, *, name: str | None = None) -> ActorRef[Any]:
        """Run an actor of your own in this runtime's tree, below `user`, and wait until it has started.

        Raises `ActorStopped`, with the failure as its cause, when it cannot start the first time; it is gone then.
        The reference takes the messages that the actor's class names, `Actor[Add]`, or its function's context does,
        `Context[Add]`; of a `ChildSpec` type checkers know neither. What `ask` returns they know of a `Question`.
        """
        self.check_open()
        return await self._system.spawn(actor, name=name)

    async def restart(self, path: str) -> None:
        """Restart the actor at `path`, for example "topics/orders/2"; revives one that has failed."""
        self.check_open()
        *above, name = arguments.actor_path(path).split("/")
        supervisor = self._system.root
        for part in above:
            supervisor = supervisor.supervisor(part)
        await supervisor.restart_child(name)

    def crash(self, path: str, error: BaseException) -> bool:
        """Make the actor at `path` fail with `error`, as if it had raised it: for tests and drills.

        Returns whether it will: an actor that is being restarted does not run, and cannot fail. Also while the runtime
        opens, for those who hear of it by `on_event`. Raises `InvalidArgument` when there is no such actor.
        """
        if self._state != "opening":
            self.check_open()
        return self._system.actor(arguments.actor_path(path)).crash(error)

    def tree(self) -> TreeNode:
        """The live tree: states, restarts, mailboxes, last failures."""
        self.check_open()
        return self._system.tree()

    def events(self) -> tuple[Logged, ...]:
        """What happened lately in the tree: starts, crashes with their causes, restarts, dropped messages."""
        self.check_open()
        return self._system.events.recent()

    def subscribe_events(self, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call `callback` for each event from now on; returns what ends that."""
        self.check_open()
        return self._system.events.subscribe(callback)

    def emit(self, event: Any) -> None:
        """Put an event into the log of events: for the other modules of the package."""
        if self._system is not None:
            self._system.events.emit(event)

    # -- statistics

    async def stats(self) -> RuntimeStatistics:
        """Offsets, sizes, states and groups of everything."""
        ports = [port for live in self._directory.topics() for port in live.ports]
        partitions, groups = await self.partition_statistics(ports), await self.groups()
        return RuntimeStatistics(
            directory=self.directory,
            partitions=partitions,
            groups=groups,
            dead_letters=self._system.dead_letters.total,
            leased_messages=len(self.renewed_leases),
            timers=self.timers.statistics(),
            delayed=delayed_statistics(self._directory),
            outbox=outbox_statistics(self._directory),
            forwarding=forwarding_statistics(self._directory, groups, partitions),
            schedules=tuple(map(schedule_statistics, self._directory.schedules)),
            catalog=self._directory.catalog_losses,
        )

    async def partition_statistics(self, ports: Sequence[PartitionPort]) -> tuple[PartitionStatistics, ...]:
        """For other modules of the package: statistics, or only the state where none come in DESCRIBE_TIMEOUT_S."""
        self.check_open()
        found: dict[int, PartitionStatistics] = {}

        async def describe(place: int, port: PartitionPort) -> None:
            with suppress(CallboardError):
                found[place] = await port.ref.ask(Describe())

        with trio.move_on_after(DESCRIBE_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for place, port in enumerate(ports):
                    nursery.start_soon(describe, place, port)
        self.check_open()
        unknown = (PartitionStatistics(port.topic, port.index, port.state) for port in ports)
        return tuple(found.get(place, state) for place, state in enumerate(unknown))

    # -- for the other public modules

    async def ask_catalog(self, command: Any) -> Any:
        """Ask the catalog, for other modules of the package. Raises `RuntimeClosed`, indefinite once it was asked."""
        self.check_open()
        try:
            return await self._directory.catalog.ask(command)
        except (ActorStopped, ActorCrashed) as error:
            if isinstance(error, ActorCrashed) and self._state == "open":
                raise
            raise RuntimeClosed(
                "the runtime closed before it answered; the change may have been made. Open it again, and look.",
                indefinite=True,
            ) from error


def open_runtime(
    directory: str | arguments.PathLike | None = None,
    *,
    control: bool = False,
    sync_inline: bool = False,
    seed: int | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    on_event: Callable[[Any], object] | None = None,
    limits: Limits = USUAL,
) -> Runtime:
    """Open the runtime on a directory: `async with callboard.open_runtime("data") as runtime`.

    The directory is made when missing, and written by one process at a time. Returns once the directory is locked and
    its catalog read: partitions recover while the runtime is open, and what is asked of one waits until it has. The
    runtime belongs to the trio run that opens it; other threads reach it by `trio.from_thread.run`, else
    `WrongRun` refuses them. With `control`, a socket in the directory answers `callboard tree` and the like.
    `sync_inline` syncs in the event loop's own thread: a single publisher gains a third, and every timer of the program
    waits for the disk. `seed` fixes the runtime's randomness. `disk`, `clock` and `entropy` replace the real ones, for
    simulation. `on_event` hears every event of the tree from the first one on, those of opening included; it must not
    block. `limits` are for simulation too: smaller ones are reached sooner.

    Crashes, failures, hung disks, dropped records and the like go to `logging`, to loggers below `callboard`.

    Raises `DirectoryLocked` naming the holder, `StorageError` for an unreadable directory, `FormatTooNew`, `LogCorrupt`
    for a damaged catalog, `UnsupportedPlatform`.
    """
    return Runtime(
        directory,
        control=control,
        sync_inline=sync_inline,
        disk=disk,
        clock=clock,
        entropy=entropy,
        seed=seed,
        on_event=on_event,
        limits=limits,
    )
