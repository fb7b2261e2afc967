"""The runtime: one directory, opened for writing, with all its actors inside an `async with`.

Opening takes the directory's lock and reads the catalog. The partitions then recover side by side, and what is asked of
one waits until it has. Closing stops the tree in reverse order: what was published is committed, and every failure that
no call reported is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, cast, overload

import trio
from trio.lowlevel import current_trio_token

from callboard import arguments
from callboard.actors.catalog.catalog import Catalog
from callboard.actors.catalog.commands import (
    CATALOG,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ListGroups,
)
from callboard.actors.catalog.directory import Directory
from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import Actor, ActorRef, ActorStart, Context, Logged, MailboxSpec, Reply
from callboard.actors.kernel.events import check_callback
from callboard.actors.mirror import MirroredTopic
from callboard.actors.names import check_name
from callboard.actors.partition.commands import Flush
from callboard.actors.partition.openings import TurnGiver
from callboard.actors.partition.spec import TURNS
from callboard.actors.settings import (
    GroupChanges,
    GroupOptions,
    GroupSettings,
    Start,
    TopicChanges,
    TopicOptions,
    check_topic,
)
from callboard.actors.timers.commands import WHEEL
from callboard.actors.timers.timer_wheel import TimerCounts, TimerWheel
from callboard.asking import ask_again
from callboard.background import BackgroundActors
from callboard.consumer.consumer import Consumer
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.handler_calls import Handler
from callboard.consumer.several_topics import check_group_name, read_topics
from callboard.consumer.work import GRACE_S, Working, check_settings_of_work
from callboard.dead_letters.topics import DeadLetterTopic
from callboard.group import Group
from callboard.log.errors import (
    ActorCrashed,
    CallboardError,
    InvalidArgument,
    MailboxFull,
    RestartLimitReached,
    WrongRun,
)
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.host.entropy import HostEntropy
from callboard.log.host.zones import load_zone
from callboard.log.limits import USUAL, Limits
from callboard.log.plain import is_a, refuse_copy, shown
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Disk, Lock
from callboard.log.seams.entropy import Entropy
from callboard.message import Record
from callboard.publishing.partitioning import Partitioner, check_partitioner
from callboard.publishing.schedules import Schedule
from callboard.reports.figures import (
    GroupDescription,
    GroupInfo,
    RuntimeStatistics,
    delayed_statistics,
    forwarding_statistics,
    outbox_statistics,
    schedule_statistics,
)
from callboard.reports.group_figures import group_infos
from callboard.reports.reporting import Reporter
from callboard.session import Session
from callboard.supervision import ChildSpec, SupervisorSpec, TreeNode, open_system
from callboard.supervision.policies import IMMEDIATE
from callboard.topic import Topic, live_of, raise_unawaited

if TYPE_CHECKING:
    from callboard.control.server import ControlServer

M = TypeVar("M")

FLUSH_TIMEOUT_S = 5.0
"""How long closing waits for `acks="none"` publishes to be synced, before it stops the partitions, which write them."""


class Runtime:
    """An open runtime. Made by `open_runtime`; use it inside `async with`."""

    __reduce_ex__ = refuse_copy

    _delivers_copies = False
    """Wire mode: the broker's actors send and answer copies of messages, encoded and decoded. For simulation."""

    def __init__(
        self,
        session: Session,
        open_disk: Callable[[], Disk],
        *,
        control: bool = False,
        on_event: Callable[[Any], object] | None = None,
        logs: bool = True,
        only_looks: bool = False,
    ) -> None:
        self._session = session
        self._open_disk = open_disk
        self._control = control
        self._on_event = on_event
        self._logs = logs
        self._only_looks = only_looks
        self._background: BackgroundActors
        self._disk: Disk | None = None
        self._lock: Lock | None = None
        self._server: ControlServer | None = None
        self._reporter = Reporter(session.clock.monotonic, session.mirror.name_of_group)

    @property
    def directory(self) -> str:
        """The directory, as messages name it."""
        return self._session.place

    def __repr__(self) -> str:
        return f"<Runtime {self.directory!r} {self._session.state}>"

    # -- opening and closing

    async def __aenter__(self) -> Self:
        session = self._session
        if session.state != "new":
            raise InvalidArgument("a runtime is opened once. Call open_runtime() again.")
        try:
            session.run = current_trio_token()
        except RuntimeError as error:
            raise WrongRun(
                "a runtime is opened inside trio, and this code is not run by it. Nothing was opened. Begin with"
                " trio.run(main)."
            ) from error
        session.state = "opening"
        disk = self._disk = self._open_disk()
        try:
            if self._control:  # before anything is opened: where no socket can be, nothing is left half open
                from callboard.control.server import ControlServer

                self._server = ControlServer(self, session.emit)
            self._lock = await disk.lock({"program": "callboard"})
            wire = None
            if self._delivers_copies:
                from callboard.actors.messages import broker_wire

                wire = broker_wire()
            directory = Directory(session.wheel, session.limits)
            session.system = open_system(
                self._spec(directory),
                clock=session.clock,
                entropy=session.entropy,
                disk=disk,
                limits=session.limits,
                wire=wire,
            )
            if self._logs:
                self._reporter.listen(session.system.events)
            if self._on_event is not None:
                session.system.events.subscribe(self._on_event)
            supervisors = session.system.root
            session.wheel.ref = supervisors.child(WHEEL)
            background = self._background = BackgroundActors(
                supervisors, session.wheel, session.load_zone, only_looks=self._only_looks
            )
            catalog = supervisors.child(CATALOG)
            directory.attach(
                catalog, supervisors.supervisor("topics"), supervisors.supervisor("groups"), background.start
            )
            session.begin(catalog)
            await session.system.__aenter__()
        except BaseException as error:
            await self._release()
            if isinstance(error, RestartLimitReached) and isinstance(error.__cause__, CallboardError):
                raise error.__cause__ from None  # what the catalog met, as itself
            raise
        session.state = "open"
        if self._server is not None:
            try:
                await self._server.listen()
                spec = ChildSpec(name="control", start=self._server.serve, significant=False)
                await session.system.spawn(spec)
            except BaseException as error:
                await self.__aexit__(type(error), error, error.__traceback__)
                raise
        return self

    def _spec(self, directory: Directory) -> SupervisorSpec:
        session = self._session
        return SupervisorSpec(
            name="runtime",
            children=(
                ChildSpec(name=WHEEL, start=partial(TimerWheel, TimerCounts()), backoff=IMMEDIATE),
                ChildSpec(
                    name=TURNS,
                    start=partial(
                        TurnGiver,
                        session.limits.openings,
                        session.limits.opening_bytes,
                        session.limits.window_bytes,
                    ),
                    backoff=IMMEDIATE,
                ),
                SupervisorSpec(name="topics"),
                SupervisorSpec(name="groups"),
                ChildSpec(
                    name=CATALOG,
                    start=partial(Catalog, directory),
                    mailbox=MailboxSpec(session.limits.mailbox),
                    shutdown_grace=30.0,
                ),
            ),
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        session = self._session
        if session.state != "open":
            return False  # nothing is open
        session.check_run()
        lives = session.mirror.topics()
        ports = [port for live in lives for port in live.all_ports]
        try:
            if error is None:
                await self._flush_all(ports)
            elif restarted := [port for port in ports if session.mirror.state_of(port) == "restarting"]:
                with trio.CancelScope(shield=True):
                    await self._flush_all(restarted)
        finally:
            session.state = "closing"
            try:
                absorbed = await session.system.__aexit__(kind, error, traceback)
            finally:
                session.state = "closed"
                await self._release()
                self._reporter.close()  # last: it calls the program's logging handlers
        if error is None:
            self._raise_unawaited(lives)
        return absorbed

    async def _flush_all(self, ports: Sequence[PartitionPort]) -> None:
        """Wait for what was published with `acks="none"`; what fails, or is too slow, is reported when all has stopped.

        A partition that crashes is waited for, so that it ends in good order.
        """
        asked: list[tuple[PartitionPort, Reply | None]] = []
        publishers = self._session.publishers.values()
        accounts = [account for publisher in publishers for account in publisher.accounts()]
        waiting = {account.port for account in accounts if account.unawaited_waiting}
        for port in ports:
            if port in waiting or self._session.mirror.has_run(port):
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
                        await ask_again(port.ref, Flush(), f"flushing {port.label}")

    def _raise_unawaited(self, lives: Sequence[MirroredTopic]) -> None:
        """Raise the failures that no call has reported, now that there will be no more."""
        found: list[CallboardError] = []
        for live in lives:
            publisher = self._session.publishers.get(live)
            if publisher is None:
                continue
            for account in publisher.accounts():
                account.give_up_unawaited()
            try:
                raise_unawaited(publisher)
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

    # -- topics

    async def create_topic(
        self, name: str, *, partitioner: Partitioner | None = None, **settings: Unpack[TopicOptions]
    ) -> Topic:
        """Create a topic, or return it if it exists; settings that are named must then be as they are.

        Settings: `partitions` (1), `segment_bytes` (64 MiB), `segment_age`, `retention_age`, `retention_bytes` (none),
        `drop_unread` (False), `compression` ("none"), `max_message_bytes` (1 MiB), `dedup_window` (none: no ids),
        `default_ttl` (none), `priorities` (False), `read_only` (False). `partitioner(key, partitions)` holds for the
        topic in this process, for all publishers, and is not stored; it must give the same partition each time.
        Returns once the topic is durable and its partitions run. Where there is no space for them, it raises `DiskFull`
        and leaves no topic behind.

        Raises `TopicExists`, `InvalidArgument`, `ConfigurationError` with all problems of the settings; `TopicNotFound`
        when another task deleted it before it was returned.
        """
        name = check_name(name, "topic")
        if partitioner is not None:
            check_partitioner(partitioner, name)
        session = self._session
        topic_id = await session.ask_catalog(CreateTopic(name, check_topic(name, settings)))
        return Topic(session, session.topic_of_id(topic_id, name), partitioner)

    def topic(self, name: str, *, partitioner: Partitioner | None = None) -> Topic:
        """The topic of that name. Raises `TopicNotFound`; `InvalidArgument` when keys go by another partitioner.

        The handle knows the topic's partitions and id, and publishes to them without asking for the topic first: so
        the topic must be there, unlike the group of a `Group`.
        """
        self._session.check_open()
        return Topic(self._session, self._session.find(name), partitioner)

    def dead_letters(self, topic: str) -> DeadLetterTopic:
        """What was forwarded to a topic that groups name as their `dead_letter_topic`: to be looked at, delivered
        again, or given up for good. Raises `TopicNotFound`. `Topic.dead_letters` has what stays in its partitions.
        """
        self._session.check_open()
        return DeadLetterTopic(self._session, self._session.find(topic), self._session.mirror.find)

    def topics(self) -> tuple[Topic, ...]:
        """All topics, by name."""
        self._session.check_open()
        return tuple(Topic(self._session, live) for live in self._session.mirror.topics())

    def schedules(self) -> tuple[Schedule, ...]:
        """The recurring publishes of all topics, by topic and name."""
        self._session.check_open()
        return tuple(Schedule(self._session, live) for live in self._session.mirror.schedules())

    async def alter_topic(self, name: str, **settings: Unpack[TopicChanges]) -> Topic:
        """Change settings of a topic (all but `partitions` and `priorities`). Raises as `create_topic` does, and
        `TopicNotFound`.

        With `read_only=True` the topic takes no message from then on, however it comes: publishing raises
        `TopicReadOnly`, and what was accepted before (delayed messages that come due, what acks published, dead letters
        of groups that name it) waits where it is, as do due firings of schedules. When this has returned, nothing more
        is stored in partitions that run. Reading, groups and retention go on.
        """
        name = arguments.topic_name(name)
        live = self._session.mirror.find(name)
        given = check_topic(name, settings, None if live is None else live.settings)
        topic_id = await self._session.ask_catalog(AlterTopic(name, given))
        return Topic(self._session, self._session.topic_of_id(topic_id, name))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Returns when its files are gone. Raises `TopicNotFound`;
        `StorageError`, indefinite when the topic is deleted and files of it are left until the next opening.
        """
        await self._session.ask_catalog(DeleteTopic(arguments.topic_name(name)))

    # -- consuming

    @overload
    def subscribe(
        self, topics: Sequence[str], group: str, *, name: str | None = None, **settings: Unpack[GroupOptions]
    ) -> Consumer: ...
    @overload
    def subscribe(
        self,
        *,
        pattern: str,
        group: str,
        dead_letters: bool = False,
        name: str | None = None,
        **settings: Unpack[GroupOptions],
    ) -> Consumer: ...
    def subscribe(
        self,
        topics: Sequence[str] | None = None,
        group: str | None = None,
        *,
        pattern: str | None = None,
        dead_letters: bool = False,
        name: str | None = None,
        **settings: Unpack[GroupOptions],
    ) -> Consumer:
        """A consumer of several topics in a group: `async with runtime.subscribe(["orders", "refunds"], "billing")`.

        Topics take turns; `topic` of a message or batch says which it is from. `name` and settings as in
        `Topic.subscribe`. When one of the topics is deleted, `TopicNotFound` is raised once where the consumer meets
        that, and the consumer goes on with the others when it is asked again.

        With a `pattern`, `runtime.subscribe(pattern="orders.*", group="billing")`, the group reads all topics whose
        names match: `*` stands for any characters, `?` for one. Its consumers take up new topics that match, from their
        beginning, and leave deleted ones without a word. Topics for dead letters match only with `dead_letters`.

        Raises `TopicNotFound`, and `InvalidArgument` for anything but a sequence of different names, or a pattern.
        """
        self._session.check_open()
        lives, wanted = read_topics(self._session.find, topics, pattern, dead_letters)
        fetcher = Fetcher(self._session, lives, check_group_name(group), settings, name, wanted)
        return Consumer(fetcher)

    @overload
    async def work(
        self,
        topics: Sequence[str],
        handler: Handler,
        group: str,
        *,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never: ...
    @overload
    async def work(
        self,
        *,
        pattern: str,
        handler: Handler,
        group: str,
        dead_letters: bool = False,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never: ...
    async def work(
        self,
        topics: Sequence[str] | None = None,
        handler: Handler | None = None,
        group: str | None = None,
        *,
        pattern: str | None = None,
        dead_letters: bool = False,
        concurrency: int = 1,
        grace: float = GRACE_S,
        name: str | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[GroupOptions],
    ) -> Never:
        """As `Topic.work`, for messages of several topics, or of a `pattern` as in `subscribe`.

        A named topic that is deleted is left out; the last one ends it.
        """
        self._session.check_open()
        check_settings_of_work(settings)
        lives, wanted = read_topics(self._session.find, topics, pattern, dead_letters)
        fetcher = Fetcher(self._session, lives, check_group_name(group), settings, name, wanted)
        await Working(fetcher, cast("Handler", handler), concurrency, grace).run(task_status)

    # -- groups

    async def groups(self) -> tuple[GroupInfo, ...]:
        """All consumer groups, by name, the broker's own too: `GroupInfo.own`."""
        return await group_infos(await self._session.ask_catalog(ListGroups()), self._session.mirror)

    def group(self, name: str) -> Group:
        """A consumer group by its name. Whether it exists, each call of the handle finds out.

        The handle is a name only, and does not raise where there is no such group, as `topic` does: a group comes with
        its first consumer and may expire, while a program holds the handle.

        Raises `InvalidArgument` for what cannot be a group's name.
        """
        self._session.check_open()
        return Group(self._session, arguments.group_name(name))

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
        self._session.check_open()
        return await self._session.system.spawn(actor, name=name)

    async def restart(self, path: str) -> None:
        """Restart the actor at `path`, for example "topics/orders/2"; revives one that has failed."""
        self._session.check_open()
        *above, name = arguments.actor_path(path).split("/")
        supervisor = self._session.system.root
        for part in above:
            supervisor = supervisor.supervisor(part)
        await supervisor.restart_child(name)

    def crash(self, path: str, error: BaseException) -> bool:
        """Make the actor at `path` fail with `error`, as if it had raised it: for tests and drills.

        Returns whether it will: an actor that is being restarted does not run, and cannot fail. Also while the runtime
        opens, for what hears of it by `on_event`. Raises `InvalidArgument` when there is no such actor.
        """
        if self._session.state != "opening":
            self._session.check_open()
        return self._session.system.actor(arguments.actor_path(path)).crash(error)

    def tree(self) -> TreeNode:
        """The live tree: states, restarts, mailboxes, last failures."""
        self._session.check_open()
        return self._session.system.tree()

    def events(self) -> tuple[Logged, ...]:
        """What happened lately in the tree: starts, crashes with their causes, restarts, dropped messages."""
        self._session.check_open()
        return self._session.system.events.recent()

    def subscribe_events(self, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call `callback` for each event from now on; returns what ends that."""
        self._session.check_open()
        return self._session.system.events.subscribe(callback)

    # -- statistics

    async def stats(self) -> RuntimeStatistics:
        """Offsets, sizes, states and groups of everything."""
        session = self._session
        ports = [port for live in session.mirror.topics() for port in live.ports]
        partitions, groups = await session.partition_statistics(ports), await self.groups()
        waiting = [port for live in session.mirror.topics() for port in live.waiting]
        outboxes = list(session.mirror.outboxes())
        ports = [*waiting, *(each.port for each in outboxes)]
        beside = await session.partition_statistics(ports)
        timers, background = await session.timer_statistics(), self._background
        forwarded = await background.forwarded()
        delayed, counted = await background.delayed_counts(), await background.outbox_counts()
        return RuntimeStatistics(
            directory=self.directory,
            partitions=partitions,
            groups=groups,
            dead_letters=session.system.dead_letters.total,
            leased_messages=len(session.renewed_leases),
            timers=timers,
            delayed=delayed_statistics(waiting, delayed, beside[: len(waiting)]),
            outbox=outbox_statistics(outboxes, beside[len(waiting) :], counted),
            forwarding=forwarding_statistics(forwarded, groups, partitions),
            schedules=tuple(
                [schedule_statistics(each, session.load_zone) for each in session.mirror.schedules()]
            ),
            catalog=session.mirror.losses,
        )


def session_of(runtime: Runtime) -> Session:
    """The inside of a runtime, for what works on one in this package."""
    return runtime._session


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
    inline = arguments.check_flag("sync_inline", sync_inline)
    return Runtime(
        Session(
            str(path) if disk is None else disk.root,
            HostClock() if clock is None else clock,
            HostEntropy(arguments.seed_of(seed)) if entropy is None else entropy,
            limits,
            load_zone,
            live_of,
        ),
        (lambda: HostDisk(path or "", inline=inline)) if disk is None else (lambda: disk),
        control=arguments.check_flag("control", control),
        on_event=on_event,
        logs=disk is None,
    )


def runtime_that_looks(disk: Disk) -> Runtime:
    """A runtime on a disk in which nothing is published by itself, for what looks at a directory in this package."""
    session = Session(disk.root, HostClock(), HostEntropy(), USUAL, load_zone, live_of)
    return Runtime(session, lambda: disk, only_looks=True)
