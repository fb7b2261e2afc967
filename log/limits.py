"""Every limit in one place. Inputs, queues, loops, retries and caches are bounded by a name in this file."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# -- names
NAME_BYTES_MAX: Final = 200
"""UTF-8 bytes of a topic or group name; leaves room for suffixes within the 255 bytes of most file systems."""

# -- messages
MESSAGE_BYTES_DEFAULT: Final = 1 * MIB
MESSAGE_BYTES_MAX: Final = 64 * MIB
KEY_BYTES_MAX: Final = 64 * KIB
HEADERS_COUNT_MAX: Final = 256
HEADERS_BYTES_MAX: Final = 64 * KIB
BATCH_RECORDS_MAX: Final = 100_000
"""Records in one publish_batch call, and in one frame."""
BATCH_BYTES_MAX: Final = 256 * MIB

# -- topics
PARTITIONS_MAX: Final = 1024
TOPICS_MAX: Final = 10_000
GROUPS_MAX: Final = 10_000
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
UNSYNCED_BYTES_MAX: Final = 8 * MIB
"""`leader` records kept in memory until a sync proves them; a sync is forced beyond it."""
READ_BYTES_DEFAULT: Final = 1 * MIB

# -- actors
MAILBOX_CAPACITY_DEFAULT: Final = 1024
PARTITION_MAILBOX_CAPACITY: Final = 16_384
RECEIVE_BATCH_MAX: Final = 4096
DEAD_LETTERS_KEPT: Final = 1000
EVENTS_KEPT: Final = 1000
CRASH_FRAMES_KEPT: Final = 8
"""Innermost stack frames named in a crash event."""
BACKOFF_S_MIN: Final = 1e-6
"""The shortest first delay of a restart backoff, unless there is none at all."""
BACKOFF_S_MAX: Final = 1e6
RESTART_INTENSITY_MAX: Final = 1_000_000
CHILDREN_MAX: Final = 100_000
"""Children of one supervisor."""

# -- journals
JOURNAL_RESERVE_BYTES: Final = 256 * KIB
"""Zeroed space a journal keeps ahead of itself, so that acknowledgements go on when the disk is full."""
JOURNAL_SEGMENT_BYTES: Final = 8 * MIB
SNAPSHOT_BYTES_MAX: Final = 256 * MIB

# -- offsets
OFFSET_MAX: Final = 2**62
"""Offsets beyond it are taken for damage: no log ever comes near it."""
OFFSET_JUMP_MAX: Final = 2**40
"""Offsets that a log may be missing at a time: what claims more lost records than a disk could hold is damage."""

# -- disk
STUCK_AFTER_S: Final = 5.0
"""A plan in flight for longer marks its partition `stuck`."""
DISK_THREADS_MAX: Final = 16
"""Threads of one disk. Each plan or read in flight holds one, a hanging one for ever; the others then wait."""

# -- segments
QUARANTINE_BYTES_MAX: Final = 64 * MIB
"""Bytes a partition keeps in quarantine; the oldest files go first."""
INDEX_INTERVAL_BYTES: Final = 32 * KIB
"""A segment's index has an entry for about so many bytes; a read scans no more before it finds its offset."""
INDEX_CHECKPOINT_BYTES: Final = 1 * MIB
"""The index of the segment in use is stored whenever it grew by this; recovery scans no more than this."""
OPEN_SEGMENTS_MAX: Final = 8
"""Sealed segments a partition keeps open for its readers."""

# -- consumers
PREFETCH_MAX: Final = 64
"""Messages that one-by-one iteration leases at a time, at most."""
FETCH_BYTES_MAX: Final = 8 * MIB
"""Payload bytes handed over at a time; one message may be larger."""
LAZY_ACKS_MAX: Final = 10_000
"""`ack(wait=False)` calls whose outcome a consumer remembers until `flush`; beyond it, it waits for the oldest."""
