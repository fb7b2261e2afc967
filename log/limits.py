"""Every limit in one place. Inputs, queues, loops, retries and caches are bounded by a name in this file."""

from __future__ import annotations

from typing import Final

import attrs

from callboard.log.errors import join_problems

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# -- names
NAME_BYTES_MAX: Final = 200
"""UTF-8 bytes of a topic or group name; leaves room for suffixes within the 255 bytes of most file systems."""
NAMES_COMPARED_MAX: Final = 1000
"""Names that are compared with one that is not known, to suggest what may be meant."""

# -- messages
MESSAGE_BYTES_DEFAULT: Final = 1 * MIB
MESSAGE_BYTES_MAX: Final = 64 * MIB
KEY_BYTES_MAX: Final = 64 * KIB
HEADERS_COUNT_MAX: Final = 256
HEADERS_BYTES_MAX: Final = 64 * KIB
BATCH_RECORDS_MAX: Final = 100_000
"""Records in one publish_batch call, and in one frame."""
BATCH_BYTES_MAX: Final = 256 * MIB
COMMIT_BYTES_MAX: Final = 16 * MIB
"""A commit takes no further part once it holds this much, so one commit's memory and time are bounded."""

# -- publishing once
PRODUCERS_MAX: Final = 10_000
"""Producers that a partition knows; beyond it, the one that has been silent longest is forgotten."""
DEDUP_IDS_MAX: Final = 100_000
"""Deduplication ids that a partition holds; beyond it, the oldest is forgotten before its window has passed."""
DEDUP_ID_BYTES_MAX: Final = 256
PUBLISHERS_EVERY_BYTES: Final = 16 * MIB
"""Write the record of publishers again when the log has grown by this much. After a crash no more than
that is read."""
PUBLISHED_BYTES_MAX: Final = 128 * MIB
"""A larger record of publishers is taken for damage."""

# -- clocks
STAMP_TOLERANCE_S: Final = 3600.0
"""A stamp that is later than now by no more is believed; one further ahead counts as now, when it is noticed."""
STAMPS_NOTICED_MAX: Final = 16
"""Times at which it was noticed that a clock had been ahead, each by less than the time before; beyond it, the first
one is forgotten, and stamps that are ahead by so much count as noticed again."""
CLOCK_BYTES_MAX: Final = 4096
"""Of the file in which a partition keeps them; a longer one is passed over."""

# -- what is published later
YEAR_MAX: Final = 9900
"""Nothing is due after it begins: due times are rounded up and shown in zones, and the calendar ends."""

# -- recurring publishes
SCHEDULES_MAX: Final = 1000
"""Schedules in a directory."""
SCHEDULE_BYTES_MAX: Final = 16 * KIB
"""Of what a schedule publishes, with key and headers: all of it is in the catalog."""
CRON_LETTERS_MAX: Final = 200
SCHEDULE_EVERY_S_MIN: Final = 0.1
SCHEDULE_EVERY_S_MAX: Final = 100 * 366 * 86_400.0
CATCH_UP_MAX: Final = 100
"""Firings of one schedule that were missed and are published all the same: the latest of them."""
MISSED_COUNTED_MAX: Final = 1000
"""Firings of a cron expression that were missed and passed over are counted up to this at a time."""

# -- topics
PARTITIONS_MAX: Final = 1024
TOPICS_MAX: Final = 10_000
GROUPS_MAX: Final = 10_000
PATTERN_GROUPS_MAX: Final = 100
"""Groups that read the topics of a pattern: each new topic is held against every one of them."""
PATTERN_TOPICS_MAX: Final = 1_000
"""Topics that one of them reads."""
SEGMENT_BYTES_MIN: Final = 64 * KIB
SEGMENT_BYTES_DEFAULT: Final = 64 * MIB
SEGMENT_BYTES_MAX: Final = 2 * GIB

# -- frames on disk: checked before any allocation
FRAME_BODY_BYTES_MAX: Final = 512 * MIB
FRAME_DECOMPRESSED_BYTES_MAX: Final = 512 * MIB

# -- memory of a partition
PENDING_BYTES_MAX: Final = 64 * MIB
"""Payload bytes waiting for a commit in one partition; publishers wait beyond it."""
TAIL_CACHE_BYTES: Final = 8 * MIB
"""Recently committed batches kept in memory for readers that keep up."""
WAITING_CACHE_BYTES: Final = 4 * MIB
"""The same of a partition of delayed messages: they are read when they are due, and not when they are new."""
UNSYNCED_BYTES_MAX: Final = 8 * MIB
"""`leader` records kept in memory until a sync proves them; a sync is forced beyond it."""
TAIL_COMPACT_BATCHES: Final = 1024
"""Places of batches that the tail cache has let go are removed in runs of this many."""
CANCELLED_SIFT_BYTES: Final = 1 * MIB
"""Appends are searched for publishers that gave up when this many bytes wait."""
GATHER_BYTES: Final = 64 * KIB
"""Records that no task awaits are written at once when this many bytes have come."""
READ_BYTES_DEFAULT: Final = 1 * MIB
READ_TASKS_MAX: Final = 100_000
"""Tasks into which options divide one read from Spark; each takes some hundred bytes where they are planned."""

RETRIES_MAX: Final = 100
"""Delays in the `retry` of a group."""
DEAD_LETTERS_MAX: Final = 10_000
"""Dead letters that a partition keeps of a group; beyond it, messages that failed before are not delivered. Those that
expired are counted by ranges of neighbours, and apart."""
OUTBOX_MAX: Final = 10_000
"""Messages that acks have published from one partition and that are not forwarded yet; beyond it, such acks are
refused."""
OUTBOX_BYTES_MAX: Final = 1024 * MIB
"""What the payloads of those messages take on disk."""
PUBLISHES_MAX: Final = 1000
"""Messages that one ack publishes."""
PUBLISHES_BYTES_MAX: Final = MESSAGE_BYTES_MAX
"""Bytes of the messages that one ack publishes."""
FAILED_IN_MAX: Final = 8
"""Consumers that are named with a failed message: the first ones."""
FAILURE_RANGES_MAX: Final = 100_000
"""Ranges of unsettled messages of which a partition knows, for a group, when they failed first; of others the last
failure counts as the first."""
REASONS_COUNTED_MAX: Final = 1000
"""Reasons of dead letters that are counted apart; others are counted together."""
NAMED_CONSUMERS_MAX: Final = 64
"""Consumers whose names a partition knows, for a group, beyond the end of their process."""
HOLDERS_MAX: Final = 10_000
"""Consumers whose leases a partition lists, for a group; those of others it does not."""
WINDOW_BYTES_MAX: Final = 64 * MIB
"""What the record windows of a runtime hold of unsettled records; beyond it, those used longest ago are read again."""
RANGE_RECORDS_MAX: Final = 100_000
"""Unsettled records that a group with an order may have before it in one partition; then it waits for settlements."""
WINDOW_SPAN_RECORDS: Final = 4096
"""Records that one read takes into a record window."""
WINDOW_COMPACT_RECORDS: Final = 256
"""Settled records that are dropped from a record window together, at least."""
WITHHELD_MAX: Final = 1_000
"""Records that a consumer may give a partition back until it is done with others; then it is leased nothing of it."""

# -- actors
MAILBOX_CAPACITY_MAX: Final = 1_000_000_000
WIRE_DEPTH_MAX: Final = 64
"""Levels of nesting in a message that is encoded."""
WIRE_CAUSES_MAX: Final = 8
"""Causes of an error, each the cause of the one before, that are encoded with it."""
MAILBOX_CAPACITY_DEFAULT: Final = 1024
"""Messages that wait for an actor, unless its specification says otherwise."""
PARTITION_MAILBOX_CAPACITY: Final = 16_384
RECEIVE_BATCH_MAX: Final = 4096
DEAD_LETTERS_KEPT: Final = 1000
EVENTS_KEPT: Final = 1000
CRASH_FRAMES_KEPT: Final = 8
"""Innermost stack frames named in a crash event."""
TRACEBACK_BYTES: Final = 4096
"""Of a traceback in an event: a few dozen frames. The middle of longer ones is left out."""
CRASHES_WAITING_MAX: Final = 1000
"""Crashes that wait to be logged until their supervisor has decided."""
CAUSES_NAMED: Final = 3
"""Exceptions of a group that its one line names; the others are counted."""
CAUSE_CHARACTERS: Final = 120
"""Of each of them, and of the place of a failure."""
BACKOFF_S_MIN: Final = 1e-6
"""The shortest first delay of a restart backoff, unless there is none at all."""
BACKOFF_S_MAX: Final = 1e6
RESTART_INTENSITY_MAX: Final = 1_000_000
CHILDREN_MAX: Final = 100_000
"""Children of one supervisor."""

# -- the event loop
STEP_ITEMS: Final = 1024
"""Ranges, records, leases or topics after which a long step lets other tasks run: some 10 ms at most."""

# -- the control plane
OPENINGS_MAX: Final = 16
"""Partitions that recover at once, at most half of them of one topic; the others wait for their turn."""
OPENING_BYTES_MAX: Final = 256 * MIB
"""What the partitions that recover at once may hold in memory, by estimate."""
OPENING_BYTES_LEAST: Final = 16 * MIB
"""What a recovering partition is estimated to hold besides its delivery journal."""
OPENING_TURN_S: Final = 5.0
"""A recovery that takes longer no longer keeps the next one waiting: its disk may hang for ever."""
LAUNCHED_AT_ONCE: Final = 128
"""Partitions that an opening launches before it lets other tasks run: each has a task, a mailbox and a budget."""
OPERATIONS_MAX: Final = 10_000
"""Operations on topics and groups that wait or run; more are refused."""
RELEASES_AT_ONCE: Final = 256
"""Consumers that left together and whose leases a partition is asked to release at a time."""
RELEASES_SHARED: Final = 32
"""Partitions of a topic that one task asks to release leases, unless more consumers left than are asked at a time: a
task for each would take most of the memory that a group has."""
CONSUMER_IDS_PER_BLOCK: Final = 1000
"""Consumer ids are reserved durably in blocks of this size, so that no consumer costs a sync of its own."""

# -- journals
JOURNAL_RESERVE_BYTES: Final = 256 * KIB
"""Zeroed space a journal keeps ahead of itself, so that acknowledgements go on when the disk is full."""
JOURNAL_SEGMENT_BYTES: Final = 8 * MIB
JOURNAL_HISTORY_BYTES: Final = 8 * MIB
"""Segments of a partition's journal that only hold the past; `retention_bytes` counts them too."""
JOURNAL_UNPROVEN_BYTES_MAX: Final = 1 * MIB
"""Appends without a sync are synced all the same beyond this: what an unclean open rewrites stays small."""
SNAPSHOT_EVERY_BYTES: Final = 1 * MIB
"""Bytes of a delivery journal after which a snapshot shortens the next recovery; they replay in under half a second."""
CATALOG_SNAPSHOT_EVERY_BYTES: Final = 256 * KIB
SNAPSHOT_BYTES_MAX: Final = 256 * MIB

# -- damage
DAMAGES_KEPT: Final = 1000
"""Damages that a partition remembers; the oldest stay, since the first is where to look for the cause."""
LOSSES_NAMED: Final = 100
"""Topics and groups that a damaged catalog is known to miss."""

# -- offsets
OFFSET_MAX: Final = 2**62
"""Offsets beyond it are taken for damage: no log ever comes near it."""
OFFSET_JUMP_MAX: Final = 2**40
"""Offsets that a log may be missing at a time: what claims more lost records than a disk could hold is damage."""

# -- disk
STUCK_AFTER_S: Final = 5.0
"""A plan in flight for longer marks its partition `stuck`."""
DISK_THREADS_MAX: Final = 16
"""Threads of one disk for plans and reads that answer; further ones wait in order."""
DISK_HUNG_AFTER_S: Final = 1.0
"""A plan or read that takes longer does not count towards DISK_THREADS_MAX."""
DISK_THREADS_HUNG_MAX: Final = 240
"""Threads that may hang in this way, in addition; beyond it healthy files wait too."""
FOLDERS_LOOK_S: Final = 0.25
"""Opening no longer looks for what the catalog does not know once no topic's folder has answered for this long."""
FOLDERS_LOOKERS: Final = 4
"""Tasks that look into the folders of topics at a time."""

DESCRIPTORS_MIN: Final = 48
"""File descriptors that the process must be allowed to have."""
DESCRIPTORS_RESERVE: Final = 32
"""Descriptors left to the rest of the program, or a quarter of them if that is more."""
DESCRIPTORS_MAX: Final = 65_536
"""More are never used, whatever the process is allowed."""

# -- segments
QUARANTINE_BYTES_MAX: Final = 64 * MIB
"""Bytes a partition keeps in quarantine; the oldest files go first."""
INDEX_INTERVAL_BYTES: Final = 32 * KIB
"""A segment's index has an entry for about this many bytes; a read scans no more before it finds its offset."""
INDEX_CHECKPOINT_BYTES: Final = 1 * MIB
"""The index of the segment in use is stored whenever it grew by this; recovery scans no more than this."""
OPEN_SEGMENTS_MAX: Final = 8
"""Sealed segments a partition keeps open for its readers."""

# -- consumers
PREFETCH_MAX: Final = 64
"""Messages that one-by-one iteration leases at a time, at most."""
LEASED_BATCHES_MAX: Final = 16
"""Batches that one lease covers, at most; together they are at most a quarter of `max_in_flight`, or one batch."""
FETCH_BYTES_MAX: Final = 8 * MIB
"""Payload bytes handed over at a time; one message may be larger."""
LAZY_ACKS_MAX: Final = 10_000
"""`ack(wait=False)` calls whose outcome a consumer remembers until `flush`; beyond it, it waits for the oldest."""


@attrs.frozen(kw_only=True)
class Limits:
    """The limits that one runtime keeps to: those above, or smaller ones, so that a simulated run reaches them.

    None of them shows in what is stored: a directory may be opened with others each time. Raises `ConfigurationError`
    naming all that are below 1.
    """

    # memory of a partition
    pending_bytes: int = PENDING_BYTES_MAX
    commit_bytes: int = COMMIT_BYTES_MAX
    frame_records: int = BATCH_RECORDS_MAX
    """Single records, or journal events, that are joined in one frame."""
    tail_cache_bytes: int = TAIL_CACHE_BYTES
    unsynced_bytes: int = UNSYNCED_BYTES_MAX
    tail_compact_batches: int = TAIL_COMPACT_BATCHES
    cancelled_sift_bytes: int = CANCELLED_SIFT_BYTES
    gather_bytes: int = GATHER_BYTES

    window_bytes: int = WINDOW_BYTES_MAX
    """Of all partitions together."""
    range_records: int = RANGE_RECORDS_MAX
    window_span_records: int = WINDOW_SPAN_RECORDS
    window_compact_records: int = WINDOW_COMPACT_RECORDS

    # publishing once
    producers: int = PRODUCERS_MAX
    dedup_ids: int = DEDUP_IDS_MAX
    publishers_every_bytes: int = PUBLISHERS_EVERY_BYTES
    dead_letters: int = DEAD_LETTERS_MAX
    """Of one group in one partition."""
    outbox: int = OUTBOX_MAX
    outbox_bytes: int = OUTBOX_BYTES_MAX
    """Of one partition."""

    # mailboxes
    mailbox: int = MAILBOX_CAPACITY_DEFAULT
    """Messages that wait for the catalog, or for a coordinator."""
    partition_mailbox: int = PARTITION_MAILBOX_CAPACITY
    receive_batch: int = RECEIVE_BATCH_MAX

    # the event loop
    step_items: int = STEP_ITEMS
    """Of the leases and delays of a group that end together."""

    # the control plane
    openings: int = OPENINGS_MAX
    opening_bytes: int = OPENING_BYTES_MAX
    consumer_ids_per_block: int = CONSUMER_IDS_PER_BLOCK

    # journals
    journal_segment_bytes: int = JOURNAL_SEGMENT_BYTES
    journal_reserve_bytes: int = JOURNAL_RESERVE_BYTES
    journal_unproven_bytes: int = JOURNAL_UNPROVEN_BYTES_MAX
    journal_history_bytes: int = JOURNAL_HISTORY_BYTES
    snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES
    catalog_snapshot_every_bytes: int = CATALOG_SNAPSHOT_EVERY_BYTES

    # segments
    segment_bytes: int = SEGMENT_BYTES_MAX
    """A segment is rolled at this size, whatever its topic allows."""
    index_checkpoint_bytes: int = INDEX_CHECKPOINT_BYTES
    open_segments: int = OPEN_SEGMENTS_MAX

    # consumers
    prefetch: int = PREFETCH_MAX
    leased_batches: int = LEASED_BATCHES_MAX
    fetch_bytes: int = FETCH_BYTES_MAX
    lazy_acks: int = LAZY_ACKS_MAX

    def __attrs_post_init__(self) -> None:
        values = attrs.asdict(self, recurse=False).items()
        problems = [
            f"{name} must be a whole number from 1, not {_shown(value)}"
            for name, value in values
            if type(value) is not int or value < 1
        ]
        if problems:
            raise join_problems("Limits", problems)


def _shown(value: object) -> str:
    """A number, or the type of anything else, whose own code is not run."""
    if type(value) is not int:
        return type(value).__name__
    return str(value) if value > -(10**20) else "an enormous number"


USUAL: Final = Limits()
"""The limits of every runtime that is not given others."""
