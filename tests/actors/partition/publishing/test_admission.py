"""What of a commit's appends is stored, and what is told of the rest, against a model that looks through the log."""

from __future__ import annotations

import zlib
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
import trio
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from callboard.actors.kernel.steps import in_steps
from callboard.actors.partition.commands import BeginProducer, Guard, Level, PublishMany, PublishOne
from callboard.actors.partition.publishing.admission import Admission
from callboard.actors.partition.publishing.dedup import DedupTable
from callboard.actors.partition.publishing.producers import (
    EPOCH_MAX,
    PRODUCER_AGE_S,
    RUNS_KEPT,
    SEQUENCE_END,
    Begun,
    KnownProducer,
    ProducerTable,
    heard,
)
from callboard.actors.partition.publishing.publishers import decode_in_steps, encode_in_steps
from callboard.actors.partition.queues import Appends, Sequencer
from callboard.actors.source_ids import SOURCE_EPOCH
from callboard.log.errors import (
    CallboardError,
    FormatTooNew,
    InvalidArgument,
    OffsetMismatch,
    ProducerFenced,
    SequenceOutOfOrder,
)
from callboard.log.format.columns import Columns
from callboard.log.limits import Limits

WINDOW_US = 10_000_000


def encode(admission: Admission, end: int) -> bytes:
    """The bytes of the file."""
    return trio.run(in_steps, encode_in_steps(admission, end))


def decode(data: bytes, admission: Admission, now_us: int) -> None:
    """Put what the file says into the tables, and forget what is old."""
    for _ in decode_in_steps(data, admission):
        pass
    for _ in admission.forget_old_in_steps(now_us):
        pass


GOLDEN = (
    "4342505501000000bcab2064a863656e64076970726f6475636572735820050000000000000003000000000000000100"
    "00000000000001000000000000006574696d65734800000000000000006472756e735818000000000000000002000000"
    "000000000400000000000000636964734261626a69645f6c656e6774687344020000006a69645f6f6666736574734806"
    "000000000000006869645f74696d6573480000000000000000"
)


@attrs.frozen
class Stored:
    """A record of the model's log."""

    value: bytes
    time_us: int
    producer: tuple[int, int, int] | None = None
    dedup_id: bytes | None = None


@attrs.define
class Waiting:
    """A guarded publish of the model, and what it was told."""

    kind: str
    values: list[bytes]
    guard: Any
    producer: tuple[int, int, int] = (0, 0, 0)
    ids: list[bytes | None] = attrs.Factory(list)


class Model:
    """The same rules, by looking through the whole log for every record."""

    def __init__(self) -> None:
        self.log: list[Stored] = []
        self.begun: dict[int, int] = {}

    def last(self, log: list[Stored], producer_id: int) -> int | None:
        return max(self.sequences(log, producer_id), default=None)

    def sequences(self, log: list[Stored], producer_id: int) -> set[int]:
        return {row.producer[2] for row in log if row.producer and row.producer[0] == producer_id}

    def epoch(self, log: list[Stored], producer_id: int) -> int:
        found = [row.producer[1] for row in log if row.producer and row.producer[0] == producer_id]
        return max([self.begun.get(producer_id, 0), *found])

    def place(self, log: list[Stored], producer_id: int, sequence: int) -> int:
        return max(
            at
            for at, row in enumerate(log)
            if row.producer and (row.producer[0], row.producer[2]) == (producer_id, sequence)
        )

    def decide(self, log: list[Stored], part: Waiting, now_us: int) -> Any:
        """What the part is told; `log` grows by what is stored."""
        if part.kind == "begin":
            producer_id = part.producer[0]
            epoch, last = self.epoch(log, producer_id) + 1, self.last(log, producer_id)
            self.begun[producer_id] = epoch
            return epoch, 0 if last is None else last + 1
        rows, offsets = list(log), []
        if part.kind == "producer":
            producer_id, epoch, first = part.producer
            last = self.last(log, producer_id)
            if epoch < self.epoch(log, producer_id):
                return ProducerFenced
            if first > (0 if last is None else last + 1):
                return SequenceOutOfOrder
            for sequence, value in enumerate(part.values, first):
                if sequence in self.sequences(log, producer_id):
                    offsets.append(self.place(log, producer_id, sequence))
                else:
                    offsets.append(len(rows))
                    rows.append(Stored(value, now_us, (producer_id, epoch, sequence)))
        else:
            for value, dedup_id in zip(part.values, part.ids or [None] * len(part.values), strict=True):
                known = [
                    at
                    for at, row in enumerate(rows)
                    if dedup_id is not None and row.dedup_id == dedup_id and now_us < row.time_us + WINDOW_US
                ]
                offsets.append(known[-1] if known else len(rows))
                if not known:
                    rows.append(Stored(value, now_us, None, dedup_id))
        expected = part.guard.expected_offset
        if len(rows) > len(log) and expected not in (None, len(log)):
            return OffsetMismatch
        log[:] = rows
        return tuple(offsets)


class Publishing(RuleBasedStateMachine):
    """Guarded and other publishes in commits that may fail, with restarts of the actor and of the process."""

    @initialize()
    def begin_life(self) -> None:
        self.model = Model()
        self.begun = Begun()
        self.batches: list[Columns] = []
        self.now_us = 1_000_000
        self.queue: list[Waiting] = []
        self.snapshot: bytes | None = None
        self.snapshot_end = 0
        self._start()
        self.admission.is_guarded = True

    def _start(self) -> None:
        self.admission = Admission("t/0", begun=self.begun, window_us=WINDOW_US)
        self.sequencer = Sequencer()
        self.queue = []

    @rule(
        producer_id=st.integers(1, 2),
        back=st.integers(-1, 4),
        count=st.integers(1, 4),
        older=st.integers(0, 2),
        offset=st.sampled_from([None, None, 0, 1]),
    )
    def publish_as_producer(
        self, producer_id: int, back: int, count: int, older: int, offset: int | None
    ) -> None:
        """What comes next, a repetition, both, or what leaves a gap; with this epoch or an older one."""
        last = self.model.last(self.model.log, producer_id)
        first = max(0, (0 if last is None else last + 1) - back)
        epoch = max(0, self.model.epoch(self.model.log, producer_id) - older)
        producer = (producer_id, epoch, first)
        values = [b"p%d-%d" % (producer_id, first + at) for at in range(count)]
        columns = Columns.build(values, producers=[(count, *producer)])
        self._publish(Waiting("producer", values, self._guard(offset), producer), columns)

    @rule(
        ids=st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=5),
        offset=st.sampled_from([None, None, 0, 1]),
    )
    def publish_with_ids(self, ids: list[bytes | None], offset: int | None) -> None:
        values = [b"i%d" % at for at in range(len(ids))]
        columns = Columns.build(values, dedup_ids=ids)
        self._publish(Waiting("ids", values, self._guard(offset), ids=ids), columns)

    @rule(offset=st.integers(0, 2))
    def compare_and_set(self, offset: int) -> None:
        self._publish(Waiting("plain", [b"c"], self._guard(offset)), Columns.build([b"c"]))

    @rule()
    def publish_unguarded(self) -> None:
        self.sequencer.add_one(PublishOne(b"u", None, None, Level.ALL, 1), None)
        self.queue.append(Waiting("unguarded", [b"u"], Guard()))

    @rule(producer_id=st.integers(1, 2))
    def begin_producer(self, producer_id: int) -> None:
        part = Waiting("begin", [], None, (producer_id, 0, 0))
        self.sequencer.add_begin(BeginProducer(producer_id), part)
        self.queue.append(part)

    def _guard(self, offset: int | None) -> Guard:
        return Guard(None if offset is None else len(self.model.log) + offset)

    def _publish(self, part: Waiting, columns: Columns) -> None:
        self.sequencer.add_many(PublishMany(columns, Level.ALL, 1, part.guard), part)
        self.queue.append(part)

    @rule(passes_us=st.sampled_from([0, 1, 1_000_000, WINDOW_US - 1, WINDOW_US]))
    def wait(self, passes_us: int) -> None:
        self.now_us += passes_us

    @precondition(lambda self: self.queue)
    @rule(fails=st.booleans())
    def commit(self, fails: bool) -> None:
        """All that waits is told the same as by the model, and stored, or none of it."""
        appends = self.sequencer.take()
        assert appends is not None
        before = len(self.model.log)
        self.admission.decide(appends, before, self.now_us)
        log, expected = list(self.model.log), []
        for part in self.queue:
            next_offset = len(log)
            told = self.model.decide(log, part, self.now_us)
            if part.kind != "unguarded":
                expected.append((part, told, next_offset))
        assert [(part, _kind(told)) for part, told, _ in expected] == [
            (decided.token, _kind(decided.answer if decided.refusal is None else type(decided.refusal)))
            for decided in appends.decided
        ]
        for (part, told, next_offset), decided in zip(expected, appends.decided, strict=True):
            if decided.refusal is None:
                self._check_answer(part, told, decided.answer, log, next_offset)
        assert [value for batch in appends.batches for value in batch.value_list()] == [
            row.value for row in log[before:]
        ]
        if fails:
            self.admission.failed()
        else:
            self._store(appends, log)
        self.queue = []

    def _check_answer(
        self, part: Waiting, told: Any, answer: Any, log: list[Stored], next_offset: int
    ) -> None:
        if part.kind == "begin":
            assert answer == told
            return
        firsts = {offset: place for place, offset in reversed(list(enumerate(told)))}
        assert answer.duplicates == tuple(
            place for place, offset in enumerate(told) if offset < next_offset or firsts[offset] != place
        )
        if part.kind != "producer":
            assert answer.offsets == told
            return
        own = [at for at, row in enumerate(log) if row.producer and row.producer[0] == part.producer[0]]
        for right, given in zip(told, answer.offsets, strict=True):
            # Only what lies far back may be unknown.
            assert given == right or (given is None and right not in own[-RUNS_KEPT:])

    def _store(self, appends: Appends, log: list[Stored]) -> None:
        base = len(self.model.log)
        for batch in appends.batches:
            batch.base_offset, batch.append_time_us = base, self.now_us
            base += batch.count
            self.batches.append(batch)
        self.model.log = log
        self.admission.stored(base)

    @rule()
    def store_tables(self) -> None:
        self.snapshot = encode(self.admission, self.admission.noted_end)
        self.snapshot_end = self.admission.noted_end

    @rule(process=st.booleans(), uses_snapshot=st.booleans(), loses=st.integers(0, 2))
    def restart(self, process: bool, uses_snapshot: bool, loses: int) -> None:
        """From the log alone, or from what was stored once and the log behind it.

        With the process one of the last batches may be lost, if nothing was stored of the tables since.
        """
        if process:
            self.begun, self.model.begun = Begun(), {}
            if loses and len(self.batches) > loses:
                self._lose(self.batches[-loses])
        self._start()
        self.admission.is_guarded = True
        if self.snapshot is not None and uses_snapshot:
            decode(self.snapshot, self.admission, self.now_us)
        end = self.admission.noted_end
        behind = [batch for batch in self.batches if batch.base_offset >= end]
        self.admission.read(behind, len(self.model.log), self.now_us)

    @rule(producer_id=st.integers(1, 2), loses=st.integers(1, 3))
    def lose_one_of_three(self, producer_id: int, loses: int) -> None:
        """Three records of a producer, of which one is lost, are published again."""
        if self.queue:
            self.commit(fails=False)
        for _ in range(3):
            self.publish_as_producer(producer_id, 0, 1, 0, None)
            self.commit(fails=False)
        self.restart(process=True, uses_snapshot=True, loses=loses)
        self.publish_as_producer(producer_id, 3, 4, 0, None)

    def _lose(self, batch: Columns) -> None:
        """The power takes a batch that was not synced, and leaves those behind it."""
        if self.snapshot_end <= batch.base_offset:
            self.batches = [kept for kept in self.batches if kept is not batch]
            for offset in range(batch.base_offset, batch.base_offset + batch.count):
                self.model.log[offset] = Stored(b"", 0)


def _kind(told: Any) -> Any:
    return told if isinstance(told, type) else "answered"


TestPublishing = Publishing.TestCase


# -- producers ------------------------------------------------------------------------------------------------


def decided(columns: Columns, guard: Guard = Guard(), admission: Admission | None = None, at: int = 0) -> Any:
    """What one publish is told; it is stored."""
    sequencer = Sequencer()
    sequencer.add_many(PublishMany(columns, Level.ALL, 1, guard), "asker")
    appends = sequencer.take()
    assert appends is not None
    if admission is None:
        admission = Admission("t/0", window_us=WINDOW_US)
    admission.is_guarded = True
    admission.decide(appends, at, 0)
    admission.stored(at + sum(batch.count for batch in appends.batches))
    ((_, answer, refusal),) = appends.decided
    if refusal is not None:
        raise refusal
    return answer.offsets


def one(producer_id: int, epoch: int, sequence: int, count: int = 1) -> Columns:
    return Columns.build([b"v"] * count, producers=[(count, producer_id, epoch, sequence)])


def test_first_sequence_of_an_unknown_producer_is_zero_unless_it_says_that_it_begins() -> None:
    """So records that were lost before the first one that is stored are missed."""
    with pytest.raises(SequenceOutOfOrder, match="0 comes next") as refused:
        decided(one(7, 1, 5))
    assert (refused.value.sequence, refused.value.expected) == (5, 0)
    assert decided(one(7, SOURCE_EPOCH, 5), Guard(rises=True)) == (0,)


def test_sequences_end_with_64_bits() -> None:
    """The last one is stored and repeated; a batch that would pass it is refused."""
    admission = Admission("t/0")
    last = SEQUENCE_END - 1
    assert decided(one(2**64 - 1, 1, last), Guard(rises=True), admission) == (0,)
    assert decided(one(2**64 - 1, 1, last), Guard(), admission, at=1) == (0,)
    with pytest.raises(InvalidArgument, match="64 bits"):
        decided(one(2**64 - 1, 1, last, count=2), Guard(), admission, at=1)


def test_epochs_end_below_that_of_sources() -> None:
    """Nobody begins more often than that, and nobody begins as a source."""
    table = ProducerTable(10)
    known = KnownProducer(EPOCH_MAX - 1, 0, 0, ((0, 1, 0),))
    assert table.begin(1, known) == (EPOCH_MAX, 1)
    with pytest.raises(InvalidArgument):
        table.begin(1, known)
    with pytest.raises(InvalidArgument):
        table.begin(2, KnownProducer(SOURCE_EPOCH, 0, 0, ((0, 1, 0),)))


def test_the_producer_that_was_silent_longest_is_forgotten_with_words() -> None:
    """One too many, or one too old; but never a source."""
    table = ProducerTable(2)
    table.put(9, heard(None, (1, 9, SOURCE_EPOCH, 0), 0, 0), 0)
    for producer_id in (1, 2, 1, 3):
        table.put(producer_id, heard(table.get(producer_id), (1, producer_id, 1, 0), 0, 0), 0)
    assert [producer_id for producer_id, _ in table] == [9, 1, 3]
    assert table.forgotten == [(2, "more than 2 producers publish to the partition")]
    age_us = PRODUCER_AGE_S * 1_000_000
    table.forget_old(age_us)
    assert len(table) == 3
    table.forget_old(age_us + 1)
    assert [producer_id for producer_id, _ in table] == [9]
    assert table.forgotten[-1] == (3, "it has published nothing for 7 days")


def test_begun_epochs_are_bounded() -> None:
    """Only of those that nobody publishes as: what is forgotten is not given out again."""
    begun = Begun()
    table = ProducerTable(2, begun)
    begun.follow([(1, True)])
    begun.follow([(1, True)])
    begun.follow([(1, False)])
    for producer_id in (1, 2, 3, 1, 4):
        table.begin(producer_id, None, owner=5)
    assert len(begun) == 2
    assert begun.latest(1) == (2, 5)
    assert begun.latest(2) == begun.latest(3) == (0, 0)
    begun.follow([(1, False)])
    table.begin(5, None)
    table.begin(6, None)
    assert begun.latest(1) == (0, 0)
    assert table.begin(1, None)[0] > 2


def test_looking_for_a_life_to_forget_ends_when_all_are_open() -> None:
    """Then there are more than the limit, until some of them are closed."""
    begun = Begun()
    table = ProducerTable(2, begun)
    for producer_id in range(1, 201):
        begun.follow([(producer_id, True)])
        table.begin(producer_id, None)
    assert len(begun) == 200
    for producer_id in range(1, 201):
        begun.follow([(producer_id, False)])
    for producer_id in range(201, 211):
        table.begin(producer_id, None)
    assert len(begun) == 2


def test_the_owner_of_the_latest_life_may_not_have_heard_of_it() -> None:
    """Its question was cancelled: it begins again. Nobody else goes on from there."""
    table = ProducerTable(2)
    assert table.begin(1, None, owner=5) == (1, 0)
    assert table.begin(1, None, owner=5, epoch=1) == (2, 0)
    assert table.begin(1, None, owner=5, epoch=1) == (3, 0)
    assert table.begin(1, None, owner=6) == (4, 0)
    with pytest.raises(ProducerFenced, match="epoch 4 has begun"):
        table.begin(1, None, owner=5, epoch=3)
    with pytest.raises(ProducerFenced):
        table.begin(1, KnownProducer(9, 0, 0, ((0, 1, 0),)), owner=6, epoch=4)


def test_a_duplicate_that_lies_far_back_is_known_without_its_offset() -> None:
    """Of a producer among others, whose records do not stand next to each other."""
    admission = Admission("t/0")
    for sequence in range(RUNS_KEPT + 1):
        assert decided(one(7, 1, sequence), Guard(), admission, at=2 * sequence) == (2 * sequence,)
    assert decided(one(7, 1, 0, RUNS_KEPT + 2), Guard(), admission, at=100) == (
        None,
        *range(2, 2 * RUNS_KEPT + 1, 2),
        100,
    )
    assert admission.duplicates == RUNS_KEPT + 1


def test_a_record_that_power_loss_took_before_others_may_still_come() -> None:
    """The log has 1 and 3: a repetition of all stores 0 and 2, once, and goes on."""
    admission = Admission("t/0")
    admission.is_guarded = True
    for offset, sequence in ((1, 1), (3, 3)):
        batch = one(7, 1, sequence)
        batch.base_offset = offset
        admission.read([batch], offset + 1, 0)
    read = Admission("t/0")
    decode(encode(admission, 4), read, 0)
    for each in (admission, read):
        assert decided(one(7, 1, 0, count=5), Guard(), each, at=4) == (4, 1, 5, 3, 6)
        assert decided(one(7, 1, 0, count=6), Guard(), each, at=7) == (4, 1, 5, 3, 6, 7)


def test_a_refused_batch_leaves_nothing_behind() -> None:
    """Its first run would have been in order: it is still next."""
    admission = Admission("t/0")
    mixed = Columns.build([b"a", b"b"], producers=[(1, 7, 1, 0), (1, 8, 1, 3)])
    with pytest.raises(SequenceOutOfOrder):
        decided(mixed, Guard(), admission)
    assert decided(one(7, 1, 0), Guard(), admission) == (0,)


def test_producers_and_ids_do_not_mix() -> None:
    """A duplicate id would leave a gap in the sequences."""
    columns = Columns.build([b"a"], dedup_ids=[b"a"], producers=[(1, 7, 1, 0)])
    with pytest.raises(InvalidArgument, match="one of them"):
        decided(columns)


# -- deduplication ids ----------------------------------------------------------------------------------------


def test_an_id_is_held_exactly_as_long_as_the_window() -> None:
    """A microsecond before its end it is a duplicate, at its end a new message."""
    table = DedupTable(10, 1_000)
    table.put(b"a", (3, 5_000), 5_000)
    assert (table.find(b"a", 5_999), table.find(b"a", 6_000)) == (3, None)


def test_a_full_table_forgets_its_oldest_id_and_counts_it() -> None:
    """But not one whose window was over anyway."""
    table = DedupTable(2, 1_000)
    for at, dedup_id in enumerate((b"a", b"b", b"c")):
        table.put(dedup_id, (at, at), at)
    assert (len(table), table.forgotten_early, table.find(b"a", 2)) == (2, 1, None)
    table.put(b"d", (3, 5_000), 5_000)
    assert (len(table), table.forgotten_early) == (1, 1)


def test_without_a_window_no_id_counts() -> None:
    """And a topic that loses its window forgets them."""
    table = DedupTable(2, 1_000)
    table.put(b"a", (0, 0), 0)
    table.set_window(None, 0, 10)
    assert (len(table), table.find(b"a", 0)) == (0, None)
    admission = Admission("t/0")
    columns = Columns.build([b"a"], dedup_ids=[b"a"])
    assert not admission.needs_tables(columns)
    assert decided(columns, Guard(), admission) == (0,)
    assert decided(columns, Guard(), admission, at=1) == (1,)


def test_ids_of_a_batch_are_duplicates_of_one_another() -> None:
    """The first is stored, and each is told its offset; what lies between stays in order."""
    admission = Admission("t/0", window_us=WINDOW_US)
    columns = Columns.build([b"1", b"2", b"3", b"4"], dedup_ids=[b"a", None, b"a", b"b"])
    assert decided(columns, Guard(), admission, at=5) == (5, 6, 5, 7)


# -- the file -------------------------------------------------------------------------------------------------


def test_the_file_gives_back_what_was_stored() -> None:
    """Producers with their runs, sources, ids with their times."""
    admission = Admission("t/0", window_us=WINDOW_US)
    for sequence in range(3):
        decided(one(2**64 - 1, 2**32 - 2, sequence), Guard(), admission, at=2 * sequence)
    decided(one(5, SOURCE_EPOCH, 9), Guard(rises=True), admission, at=10)
    decided(Columns.build([b"1"], dedup_ids=[b""]), Guard(), admission, at=11)
    read = Admission("t/0", window_us=WINDOW_US)
    decode(encode(admission, 12), read, 0)
    assert list(read.producers) == list(admission.producers)
    assert list(read.ids) == [(b"", (11, 0))]
    assert read.noted_end == 12


def test_the_bytes_of_the_file_stay_as_they_are() -> None:
    """What this version writes, every later one reads."""
    admission = Admission("t/0", window_us=WINDOW_US)
    decided(one(5, 3, 0, count=2), Guard(), admission, at=4)
    decided(Columns.build([b"1"], dedup_ids=[b"ab"]), Guard(), admission, at=6)
    data = encode(admission, 7)
    assert data.hex() == GOLDEN
    read = Admission("t/0", window_us=WINDOW_US)
    decode(bytes.fromhex(GOLDEN), read, 0)
    assert (list(read.producers), list(read.ids)) == (
        [(5, KnownProducer(3, 1, 0, ((0, 2, 4),)))],
        [(b"ab", (6, 0))],
    )


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_flipped_bit_is_noticed(at: int) -> None:
    """Wherever it is, the version included."""
    data = bytearray(encode(Admission("t/0"), 12))
    data[at] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        decode(bytes(data), Admission("t/0"), 0)


def test_a_file_of_a_later_version_is_refused() -> None:
    """With words, not as damage."""
    data = encode(Admission("t/0"), 12)
    head = data[:4] + (2).to_bytes(4, "little")
    later = head + zlib.crc32(data[12:], zlib.crc32(head)).to_bytes(4, "little") + data[12:]
    with pytest.raises(FormatTooNew, match="newer Callboard"):
        decode(later, Admission("t/0"), 0)


def test_limits_bound_the_tables() -> None:
    """Those of the runtime."""
    admission = Admission("t/0", window_us=WINDOW_US, limits=Limits(producers=1, dedup_ids=1))
    for at in range(2):
        decided(one(at + 1, 1, 0), Guard(), admission, at=2 * at)
        decided(Columns.build([b"1"], dedup_ids=[b"%d" % at]), Guard(), admission, at=2 * at + 1)
    assert admission.statistics() == {
        "duplicates": 0,
        "producers": 1,
        "dedup_ids": 1,
        "dedup_forgotten": 1,
    }


def test_every_refusal_is_an_error_of_callboard() -> None:
    """So whoever catches those catches these."""
    for error in (ProducerFenced, SequenceOutOfOrder, OffsetMismatch):
        assert issubclass(error, CallboardError)


@pytest.mark.parametrize("at_once", [True, False])
def test_ids_of_a_clock_that_was_ahead_by_more_before_are_read_as_of_its_last_end(at_once: bool) -> None:
    """Also when what follows in the log is read by itself."""
    year_us, now_us = 365 * 86_400 * 10**6, 10**15
    admission = Admission("t/0", window_us=WINDOW_US)
    admission.is_guarded = True
    stamps = {0: 2 * year_us, 1: -year_us // 12, 2: year_us, 3: 0}
    batches = []
    for offset, ahead_us in stamps.items():
        columns = Columns.build([b"x"], dedup_ids=[b"%d" % offset])
        columns.base_offset, columns.append_time_us = offset, now_us + ahead_us
        batches.append(columns)
    for read in [batches] if at_once else [[columns] for columns in batches]:
        admission.read(read, read[-1].base_offset + 1, now_us)
    assert [admission.ids.find(b"%d" % offset, now_us) for offset in (1, 2, 3)] == [None, 2, 3]
