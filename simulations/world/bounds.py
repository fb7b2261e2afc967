"""Looking inside a runtime that runs: do the broker's own invariants hold, and is everything within its limit?

`inside` is called at steps of clients, when every actor stands between two of its own. What it looks at is private; the
invariants are those that the modules state at their top, and the limits those of `Limits`. It changes nothing, and
costs as many steps as there are ranges of offsets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from callboard.actors.clients.account import Account
from callboard.actors.delivery.invariants import check_all
from callboard.actors.delivery.receipts import OFFSET_END
from callboard.actors.partition.choice.priorities import PriorityOrder
from callboard.actors.partition.choice.record_window import RECORDS_LEAST
from callboard.actors.timers.commands import LOOK_S, NEVER, TICK_MAX, TICKS, WHEEL
from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.actors.partition.choice.keys import KeyOrder
    from callboard.actors.partition.group_state import GroupState
    from callboard.actors.partition.partition import Partition
    from callboard.consumer.consumer import Consumer
    from callboard.consumer.leases import ConsumerLease
    from callboard.runtime import Runtime
    from callboard.simulations.world.world import Machine

NOTHING_DUE: Final = -math.inf
"""A time at which no delay is over: nothing is changed then."""
PROMISE: Final = "every table, queue and cache is within its bound"
SLACK_S: Final = 1e-6
CLIENTS: Final = 5
"""Of a partition: the handles of a runtime, and each actor that stores records of others."""
SIDE_BY_SIDE: Final = 20
"""Tasks that share a consumer may each send an ack, or one for each lease of a batch, before any of them waits."""


def inside(machine: Machine, largest_bytes: int) -> str | None:
    """What is wrong inside the runtime of a machine, in words; None when nothing is, or nothing can be looked at.

    `largest_bytes`: of the payload that is published at a time.
    """
    runtime = machine.runtime
    if runtime is None or machine.dead:
        return None
    try:
        return next(_problems(runtime, largest_bytes), None)
    except CallboardError as error:
        return str(error)


def left_in_hand(runtime: Runtime, topics: tuple[str, ...]) -> str | None:
    """When nothing publishes: which of these topics' partitions counts bytes in hand, and has none; None for none."""
    for live in runtime._session.mirror.topics():
        for port in live.ports if live.name in topics else ():
            cell = port.ref._cell
            partition = running(cell)
            life: Any = cell.incarnation
            is_idle = not len(cell.mailbox) and life is not None and life._batch is None
            if partition is None or not is_idle:
                continue
            for account in _accounts(cell):
                # A client that publishes without waiting may have its turn, and not have sent it yet.
                taken = 0 if account.unawaited_waiting else account.credit.waiting_bytes
                if taken and not _queued_bytes(partition)[account.number]:
                    return f"{taken} bytes of credit are taken at {port.label}, and nothing has them (AC1)"
    return None


def left_behind(runtime: Runtime) -> str | None:
    """When all consumers and readers have gone, and nothing fails: what is still there of one of them, in words."""
    if len(runtime._session.renewed_leases):
        return f"{len(runtime._session.renewed_leases)} leases are renewed, and no body runs"
    for live in runtime._session.mirror.topics():
        for port in live.ports:
            partition = running(port.ref._cell)
            for group in () if partition is None else partition._core.states:
                name = f"group {group.group_id} in {port.label}"
                leases = group.delivery.offsets.leased_in(0, OFFSET_END)
                for what, count in (("wait", len(group.waiting)), ("are notified", len(group.notified))):
                    if count:
                        return f"{count} consumers {what} in {name}, and all have gone"
                if leases or group.pending:
                    return f"{leases} are leased in {name}, and {len(group.pending)} leases pending, to no consumer"
    return None


def _accounts(cell: Any) -> list[Account]:
    """Those of all clients of a partition."""
    return [peer.party for peer in cell.peers.values() if isinstance(peer.party, Account)]


def _queued_bytes(partition: Partition) -> Counter[int]:
    """What the partition holds of each client, by number."""
    in_flight = partition._log_part.in_flight
    found = Counter({} if in_flight is None else in_flight.sizes)
    for part in partition._core.sequencer._parts:
        found[part.client] += part.size_bytes
    return found


def _cut_off(lease: ConsumerLease) -> int:
    """At most this many messages of a lease were settled, and that was cut off."""
    return sum(found.count for found in (lease.unsure_acks, lease._given_back) if found is not None)


def of_consumer(consumer: Consumer) -> str | None:
    """What is wrong with the counts of a consumer, in words."""
    fetcher = consumer._fetcher
    leases = fetcher.leases
    left = sum(lease.left for lease in leases._leases)
    if leases.in_flight != left:
        return f"{consumer!r} counts {leases.in_flight} messages in flight, and has {left} (LE1)"
    asked = [*fetcher.questions.late.values(), *filter(None, [fetcher.questions.asked])]
    kept = sum(each.limit for each in asked if not each.is_late)
    # What was settled, and cut off, is in flight again: its room may be asked for, and the answer is given back.
    if kept > max(0, leases.room()) + sum(map(_cut_off, leases._leases)):
        words = f"{leases.in_flight} messages in flight, of {leases.max_in_flight}, and has asked for {kept}"
        return f"{consumer!r} has {words} (FE2)"
    acks = fetcher.lazy_acks
    if len(acks.sent) > fetcher.session.limits.lazy_acks + SIDE_BY_SIDE:
        return f"{consumer!r} remembers {len(acks.sent)} acks that are not awaited"
    return None


def _problems(runtime: Runtime, largest_bytes: int) -> Iterator[str]:
    limits = runtime._session.limits
    wheel = runtime._session.system.kernel._refs.get(WHEEL)
    if wheel is not None:  # a tree that gives up loses its actors one after the other
        yield from _of_timers(wheel._cell)
    yield from _of_renewed(runtime)
    partitions: list[Partition] = []
    for live in runtime._session.mirror.topics():
        for port in live.ports:
            cell = port.ref._cell
            partition = running(cell)
            if partition is not None:
                partitions.append(partition)
            queued = Counter() if partition is None else _queued_bytes(partition)
            accounts = _accounts(cell)
            if len(accounts) > CLIENTS:
                yield f"{len(accounts)} clients have credit at {port.label}, and no more than {CLIENTS} live"
            for account in accounts:
                yield from _of_account(port.label, account, queued[account.number], largest_bytes)
            if partition is not None:
                yield from _of_partition(port.label, partition, largest_bytes)
    yield from _of_windows(partitions, limits.window_bytes)


def _of_windows(partitions: list[Partition], window_bytes: int) -> Iterator[str]:
    """Each allowance counts its ranges, which exceed it only while they are used or answered (RW3); all that was
    granted is within the budget (WS1).
    """
    for partition in partitions:
        windows, label = partition._window_share.allowance, partition._spec.label
        sizes = sum(windows._sizes.values())
        if windows.size_bytes != sizes:
            yield f"the record windows of {label} count {windows.size_bytes} bytes, and have {sizes} (RW3)"
        large = sum(size for records, size in windows._sizes.items() if records.count > RECORDS_LEAST)
        is_in_use = windows.wanted_bytes or any(records.in_use for records in windows._sizes)
        if large > windows.bytes_max and not is_in_use:
            yield f"the record windows of {label} have {windows.size_bytes} of {windows.bytes_max} bytes (RW3)"
    granted = sum(partition._window_share.allowance.bytes_max for partition in partitions)
    if granted > window_bytes:
        yield f"{granted} bytes of {window_bytes} are granted to record windows (WS1)"


def running(cell: Any) -> Partition | None:
    """The partition's actor, when it has started and is not stopping."""
    life = cell.incarnation
    actor = None if life is None or cell.closed or cell.state != "running" else life._actor
    return actor if actor is not None and actor._has_started and actor._state == "running" else None


def _of_account(label: str, account: Account, queued: int, largest_bytes: int) -> Iterator[str]:
    credit = account.credit
    taken, limit = credit.waiting_bytes, credit._limit
    if taken < 0 or taken > max(limit, largest_bytes):
        yield f"{taken} bytes of credit are taken at {label}, of {limit}"
    if queued > taken:
        yield f"{queued} bytes of a client wait in {label}, and it has taken {taken} (AC1)"
    if credit._queue and credit._fits(credit._queue[0].size_bytes):
        size = credit._queue[0].size_bytes
        yield f"a publisher waits for {size} bytes at {label}, and there is room: {taken} are taken"


def _of_timers(cell: Any) -> Iterator[str]:
    """Of what owners have armed the wheel knows, or will at its next turn, and it does not sleep past it."""
    if cell.state != "running" or not cell.incarnation.is_running:  # owners arm again at the next one
        return
    if cell.incarnation._batch is not None:  # what it has in hand is on its way
        return
    wheel = cell.incarnation._actor
    now = cell.services.clock.monotonic()
    for peer in cell.peers.values():
        for timer in peer.party.known.values():
            if timer in peer.marks or timer.deadline > TICK_MAX / TICKS:
                continue
            moment = wheel._armed.moment_of(peer.number, timer.number)
            if moment > timer.deadline + 1 / TICKS + SLACK_S:
                yield f"a timer is armed for {timer.deadline:.3f} s, and the wheel knows of {moment:.3f} s (TM6)"
            until = now + LOOK_S if timer.is_instant else max(timer.deadline, now)
            if wheel._wakes_at > until + 1 / TICKS + SLACK_S:
                yield f"something is due at {until:.3f} s, and the wheel sleeps until {wheel._wakes_at:.3f} s (TM2)"


def _of_renewed(runtime: Runtime) -> Iterator[str]:
    """A lease that a body has lasts as long for its consumer, and no longer than for its partition: others get the
    message then.
    """
    for lease in runtime._session.renewed_leases._leases:
        partition = None if lease.due == NEVER else running(lease.port.ref._cell)
        for group in () if partition is None else partition._core.states:
            known = (
                group.delivery.offsets.lease_of(lease.lease_id) if group.group_id == lease.group_id else None
            )
            holder: Any = lease.holder
            for own in holder._leases:
                is_it = own.lease_id == lease.lease_id and own.port is lease.port
                if is_it and own.deadline != lease.deadline:
                    until = f"until {lease.deadline:.3f} s, and its consumer until {own.deadline:.3f} s"
                    yield f"a body at {lease.port.label}@{lease.offset} has its lease {until}"
            if known is not None and lease.deadline > known.deadline + SLACK_S:
                until = f"until {lease.deadline:.3f} s, and its partition until {known.deadline:.3f} s"
                yield f"a body at {lease.port.label}@{lease.offset} has its lease {until}"


def _of_partition(label: str, partition: Partition, largest_bytes: int) -> Iterator[str]:
    core, log, limits = partition._core, partition._log, partition.context.limits
    in_flight = partition._log_part.in_flight
    if in_flight is not None and in_flight.size_bytes > limits.commit_bytes + largest_bytes:
        yield f"a commit of {label} holds {in_flight.size_bytes} bytes, of {limits.commit_bytes}"
    tail = log._tail
    held = tail._totals[tail._first :]
    if held:
        # The newest batch stays, and so does what no sync has proven.
        proven = tail.size_bytes - tail.bytes_from(min(log.durable_end, tail._bases[-1]))
        if proven > tail.limit_bytes and log.durable_end >= tail.end_offset:
            yield f"the tail cache of {label} has {proven} bytes that are durable, of {tail.limit_bytes}"
    now = partition.context.clock.monotonic()
    due = core.states.next_deadline()
    if due is not None and min(core.deliveries.armed, partition._due.deadline) > max(due, now) + SLACK_S:
        yield f"something is due in {label} at {due:.3f} s, and nothing is watched before {core.deliveries.armed:.3f} s"
    for group in core.states:
        yield from _of_group(label, group, core.visible_end)


def _of_group(label: str, group: GroupState, visible_end: int) -> Iterator[str]:
    delivery, name = group.delivery, f"group {group.group_id} in {label}"
    check_all(delivery.offsets)
    if group.choice is not None:
        yield from _of_choice(name, group.choice, visible_end)
    else:
        for consumer in group.waiting:
            ready = _ready_for(consumer, group, visible_end)
            if ready > len(group.notified):
                words = f"consumer {consumer} waits and {len(group.notified)} are notified"
                yield f"{words} in {name}, where {ready} messages are ready for it (PC4)"
                break
    unknown = [
        key
        for key in group.pending
        if delivery.offsets.lease_of(key) is None and key >= delivery.offsets.next_lease_id
    ]
    if unknown:
        yield f"lease {unknown[0]} is pending in {name}, and was never given"


def _ready_for(consumer: int, group: GroupState, visible_end: int) -> int:
    """How many messages the consumer could be leased, of one more than consumers are notified."""
    withheld = group.withheld_from(consumer)
    is_owner = group.ownership is None or consumer == group.ownership.owner
    if withheld is None or not is_owner or group.handing_over is not None:
        return 0
    if group.is_expired_full or group.is_paused:
        return 0
    with group.delivery.offsets.without(withheld):
        return group.delivery.leasable_count(NOTHING_DUE, visible_end, len(group.notified) + 1, consumer)


def _of_choice(name: str, choice: KeyOrder, visible_end: int) -> Iterator[str]:
    """Of the records that were seen, the first unsettled one of each key is out, and no other (KO1)."""
    records = choice.records
    records.check()
    if choice._lives != records.lives:
        return  # evicted, and not looked at since
    hashes, first = records.columns[choice.columns[0]], dict[int, int]()
    for index in range(records.seen):
        key = hashes[index]
        if key and records.is_unsettled(index):
            first.setdefault(key, records.offsets[index])
    if first != choice._heads:
        missing = next(iter({*first.items()} ^ {*choice._heads.items()}))
        yield f"offset {missing[1]} is the first of its key, or is taken for it, and not both, in {name} (KO1)"
    if choice.is_uniform and records.offsets:
        yield f"the record window of {name} is uniform, and holds {len(records.offsets)} records (KO4)"
    elif isinstance(choice, PriorityOrder) and not choice.is_uniform and records.seen == len(records.offsets):
        places = [offset for index, offset in enumerate(records.offsets) if records.is_unsettled(index)]
        fenced = [
            offset
            for offset in places
            if choice._heads.get(hashes[records.index_of(offset)], offset) != offset
        ]
        free = sum(choice._is_free(offset) for offset in places) - len(fenced)
        if free != choice._free_count():
            yield f"{free} records are free in {name}, and {choice._free_count()} are counted (PO2)"
    if records.end > visible_end:
        yield f"the record window of {name} ends at {records.end}, past the visible end {visible_end}"
