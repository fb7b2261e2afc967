"""The table of safeguards: what each protects from, how it is switched off, and which scenarios should notice.

Scenarios are those of every sweep; "machines" is the fast path. They are tried in this order.
docs/principles/proof.md shows this table, and a test holds the page to it.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.simulations.proof import wrong
from callboard.simulations.proof.patches import Patch

LOG: Final = "callboard.log"
ACTORS: Final = "callboard.actors"
DISK: Final = "callboard.simulations.disk"

CRASHES: Final = ("crash-storms", "publish-and-recover")


@attrs.frozen
class Safeguard:
    """One safeguard of the product."""

    name: str
    protects: str
    """What happens without it."""
    off: str
    """How it is switched off."""
    patches: tuple[Patch, ...]
    scenarios: tuple[str, ...] = CRASHES


def is_log(path: str) -> bool:
    """Whether a path is that of a partition's own segment."""
    return path.startswith("topics/") and "/delivery/" not in path and ".log" in path


def is_journal(path: str) -> bool:
    """Whether a path is that of a delivery journal."""
    return "/delivery/" in path


_TABLE: Final = (
    Safeguard(
        "log sync",
        "records whose publish returned are gone after a power cut",
        "the disk leaves out the sync of partitions' segments",
        (Patch(f"{DISK}.verbs.VerbRunner._sync", wrong.leaves_out(is_log)),),
    ),
    Safeguard(
        "sync of each commit",
        "records whose publish returned are gone after a power cut, unless an ack had them synced",
        "a commit is synced only when an ack is in it",
        (Patch(f"{ACTORS}.partition.queues.Sequencer.take", wrong.commits_want_syncs(lambda _: False)),),
        ("publish-only", *CRASHES),
    ),
    Safeguard(
        "sync of a mixed commit",
        "records at level `all` are gone after a power cut that shared a commit with others",
        "a commit is synced only when all its records want it",
        (Patch(f"{ACTORS}.partition.queues.Sequencer.take", wrong.commits_want_syncs(wrong.is_pure)),),
        ("publish-only", *CRASHES),
    ),
    Safeguard(
        "journal sync",
        "messages whose ack returned are delivered again after a power cut",
        "the disk leaves out the sync of delivery journals",
        (Patch(f"{DISK}.verbs.VerbRunner._sync", wrong.leaves_out(is_journal)),),
    ),
    Safeguard(
        "directory sync",
        "a power cut takes whole files whose content was synced",
        "the disk leaves out the sync of directories",
        (Patch(f"{DISK}.inodes.MemoryDirectory.sync", wrong.returns(None)),),
    ),
    Safeguard(
        "checksum of bodies",
        "bytes that the disk has garbled are served as messages",
        "the checksum of a frame's body is not compared",
        (
            Patch(f"{LOG}.format.frame_walk.FrameWalk._body_holds", wrong.believes_bodies),
            Patch(f"{LOG}.format.frame_walk.FrameWalk.__init__", wrong.leaves_out_scanned_bodies),
        ),
        ("damaged-middle", *CRASHES),
    ),
    Safeguard(
        "frames by checksum",
        "a payload that looks like a frame is taken for a record, where the real frame is damaged",
        "a frame is found by its magic alone",
        (
            Patch(f"{LOG}.format.frame_walk.zlib", wrong.believes_any_checksum),
            Patch(f"{LOG}.format.frame.read_header", wrong.believes_headers),
        ),
        ("smuggled-frames",),
    ),
    Safeguard(
        "seed of checksums",
        "a frame of another segment, inside a payload, is taken for a record, where the real frame is damaged",
        "checksums do not begin with the segment's id",
        (Patch(f"{LOG}.format.frame.seed_of", wrong.returns(0)),),
        ("smuggled-frames",),
    ),
    Safeguard(
        "no belief in a second sync",
        "the pages that a failed sync has dropped are believed durable after the next sync",
        "a sync that failed is repeated until it succeeds",
        (Patch(f"{ACTORS}.partition.committer.DiskEngine._submit", wrong.retries_syncs),),
        ("failing-syncs", *CRASHES),
    ),
    Safeguard(
        "publish answered after the commit",
        "publishers hear of records that are not stored yet",
        "publishers are answered before the plan runs",
        (Patch(f"{ACTORS}.partition.participants.LogParticipant.stage", wrong.answers_before_the_commit),),
    ),
    Safeguard(
        "ack answered after the journal",
        "consumers hear of acks that are not stored yet",
        "a question that waits for the journal is answered before it is written",
        (Patch(f"{ACTORS}.partition.participants.JournalParticipant.stage", wrong.answers_at_once),),
    ),
    Safeguard(
        "acks in the journal",
        "after a restart everything is delivered again",
        "acks are left out of the journal",
        (Patch(f"{ACTORS}.delivery.events.GroupEvents.record", wrong.drops_acks),),
    ),
    Safeguard(
        "lease check",
        "two consumers work on the same message",
        "a consumer that finds nothing ready gets what another one has leased",
        (Patch(f"{ACTORS}.delivery.delivery.Delivery.lease", wrong.leases_what_is_leased),),
        ("many-groups", *CRASHES),
    ),
    Safeguard(
        "valid frames stay",
        "recovery cuts off records that are whole and acknowledged",
        "what lies past the proven end is cut off, valid or not",
        (Patch(f"{LOG}.partition.recovery.TailRecovery._take_unproven", wrong.returns(True)),),
    ),
    Safeguard(
        "check of the stored index",
        "a stale or damaged index hides records",
        "checksums of the stored index are not compared, nor whether it points at a frame",
        (
            Patch(f"{LOG}.format.index.SegmentIndex.decode", wrong.believes_index_bytes),
            Patch(f"{LOG}.segments.index_file.proves_itself", wrong.returns_async(True)),
        ),
        ("stored-index",),
    ),
    Safeguard(
        "mailbox outlives its actor",
        "what was asked while an actor restarted is never answered",
        "a restarted actor finds an empty mailbox",
        (Patch("callboard.actors.kernel.incarnation.ActorIncarnation.live", wrong.drops_the_mailbox),),
        ("plain-actors", "supervisor-trees", *CRASHES),
    ),
    Safeguard(
        "recovery at a restart",
        "a restarted partition has forgotten what was acked",
        "a restarted partition begins with an empty delivery state",
        (
            Patch(
                f"{ACTORS}.partition.delivery_journal._opened",
                wrong.actor_restarts_without_its_state,
            ),
        ),
    ),
    Safeguard(
        "offsets above all that were named",
        "an offset that a client knows is given to another record",
        "the next offset is where the log ends, whatever journal and `committed` file name",
        (Patch(f"{LOG}.partition.recovery.TailRecovery.plan_top", wrong.starts_at_the_end_of_the_log),),
        ("damaged-middle", "unsynced-and-seen"),
    ),
    Safeguard(
        "log synced before journal",
        "the journal names records that a power cut has taken",
        "the journal's part of a plan runs first",
        (Patch(f"{ACTORS}.partition.committer.DiskEngine._submit", wrong.journals_first),),
        ("lost-leases", "failing-journals", "failing-syncs"),
    ),
    Safeguard(
        "answers in the order of offsets",
        "publishers of one commit hear each other's offsets",
        "the answers of a commit are swapped",
        (Patch(f"{ACTORS}.partition.partition.Partition._appends_stored", wrong.swaps_answers),),
    ),
    Safeguard(
        "retention waits for groups",
        "records go that a durable group has not settled",
        "retention hears that everybody has settled everything",
        (Patch(f"{ACTORS}.partition.group_states.GroupStates.unsettled_from", wrong.nobody_is_unsettled),),
        ("retention-against-readers",),
    ),
    Safeguard(
        "restart intensity",
        "an actor that cannot live is restarted for ever",
        "every restart is admitted",
        (Patch("callboard.supervision.policies.RestartWindow.admit", wrong.returns(True)),),
        ("supervisor-trees", "machines"),
    ),
    Safeguard(
        "attempts are counted",
        "a message that kills its consumers looks new each time",
        "an attempt that failed is not counted",
        (Patch(f"{ACTORS}.delivery.receipts.LeaseState.counted", wrong.counts_no_attempts),),
        ("many-groups", "machines"),
    ),
    Safeguard(
        "fences within a key",
        "a message is handled while an earlier one of its key is out, or waits for another attempt",
        "records are read without their keys",
        (Patch(f"{ACTORS}.partition.choice.record_window.key_hash", wrong.returns(0)),),
        ("order-per-key",),
    ),
    Safeguard(
        "a snapshot covers what waits",
        "events are replayed that the snapshot holds already",
        "what a journal could not take is written after the snapshot that healed it",
        (
            Patch(
                f"{ACTORS}.partition.participants.JournalParticipant._write_state",
                wrong.writes_what_is_healed,
            ),
        ),
        ("failing-journals", "disk-full-and-healed"),
    ),
)

SAFEGUARDS: Final[dict[str, Safeguard]] = {safeguard.name: safeguard for safeguard in _TABLE}
"""By name."""


def table(caught_by: dict[str, str]) -> str:
    """The safeguards as a Markdown table; `caught_by`: what caught each."""
    lines = ["| safeguard | without it | switched off: | caught by |", "|---|---|---|---|"]
    for safeguard in SAFEGUARDS.values():
        caught = caught_by.get(safeguard.name, "")
        lines.append(f"| {safeguard.name} | {safeguard.protects} | {safeguard.off} | {caught} |")
    return "\n".join(lines)


def filled(page: str, caught_by: dict[str, str]) -> str:
    """`page` with everything between the generated marks replaced."""
    head, rest = page.split("<!-- safeguards: generated -->", 1)
    tail = rest.split("<!-- end -->", 1)[1]
    return f"{head}<!-- safeguards: generated -->\n{table(caught_by)}\n<!-- end -->{tail}"
