"""The sequencer forms commits: order kept, every token out once, sizes bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.partition.commands import Level, PublishMany, PublishOne
from callboard.actors.partition.queues import Sequencer
from callboard.log.format.columns import Columns
from callboard.log.limits import CANCELLED_SIFT_BYTES, COMMIT_BYTES_MAX


def single(value: bytes, level: Level = Level.ALL, size: int | None = None) -> PublishOne:
    return PublishOne(value, None, None, level, len(value) if size is None else size)


def test_neighbouring_singles_become_one_frame_and_batches_stay_their_own() -> None:
    """Singles, a batch, singles: three frames, in the order of arrival."""
    sequencer = Sequencer()
    for value in (b"a", b"b"):
        sequencer.add_one(single(value), None)
    sequencer.add_many(PublishMany(Columns.build([b"c", b"d"]), Level.LEADER, 2), None)
    sequencer.add_one(single(b"e"), None)
    commit = sequencer.take()
    assert commit is not None
    assert [batch.value_list() for batch in commit.batches] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
    assert (commit.records, commit.durable, sequencer.records, sequencer.size_bytes) == (5, True, 0, 0)
    assert sequencer.take() is None


def test_a_commit_without_level_all_needs_no_sync() -> None:
    """Only a record at level ALL makes its commit durable."""
    sequencer = Sequencer()
    sequencer.add_one(single(b"a", Level.LEADER), None)
    sequencer.add_one(single(b"b", Level.NONE), None)
    commit = sequencer.take()
    assert commit is not None
    assert not commit.durable


def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    """Records of publishers that gave up are left out; those that nobody ever waited for stay (QU1, QU4)."""
    sequencer = Sequencer(is_abandoned=lambda token: token == "gone")
    for value, token in ((b"a", "gone"), (b"b", None), (b"c", "here")):
        sequencer.add_one(single(value), token)
    sequencer.add_many(PublishMany(Columns.build([b"d", b"e"]), Level.ALL, CANCELLED_SIFT_BYTES), "gone")
    appends = sequencer.take()
    assert appends is not None
    assert [batch.value_list() for batch in appends.batches] == [[b"b", b"c"]]
    assert (appends.size_bytes, appends.cancelled, appends.unawaited) == (
        3 + CANCELLED_SIFT_BYTES,
        3,
        {0: (1, 1)},
    )
    assert (sequencer.records, sequencer.size_bytes, sequencer.cancelled) == (0, 0, 3)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("one"), st.integers(1, COMMIT_BYTES_MAX)),
            st.tuples(st.just("many"), st.integers(1, 4)),
            st.tuples(st.just("take"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_everything_leaves_once_in_order_and_tokens_get_their_offsets(steps: list[tuple[str, int]]) -> None:
    """QU1, QU3: whatever the interleaving, records leave in order and every token goes with its own offset, once."""
    sequencer, expected, left, replies = Sequencer(), [], [], []
    next_offset = 0

    def take() -> None:
        nonlocal next_offset
        commit = sequencer.take()
        if commit is None:
            return
        assert commit.size_bytes <= COMMIT_BYTES_MAX or len(commit.parts) == 1
        bases = []
        for batch in commit.batches:
            bases.append(next_offset)
            next_offset += batch.count
            left.extend(batch.value_list())
        for part, base in zip(commit.parts, bases, strict=True):
            tokens = part.tokens
            for offset, told in enumerate(tokens, base):
                told.append(offset)

    for number, (kind, argument) in enumerate(steps):
        if kind == "take":
            take()
            continue
        reply: list[int] = []
        replies.append((reply, len(expected)))
        values = [b"%d.%d" % (number, part) for part in range(argument if kind == "many" else 1)]
        expected.extend(values)
        if kind == "one":
            sequencer.add_one(single(values[0], size=argument), reply)
        else:
            sequencer.add_many(PublishMany(Columns.build(values), Level.ALL, 8), reply)
    while sequencer.records:
        take()
    assert left == expected
    assert [reply for reply, _ in replies] == [[offset] for _, offset in replies]
    assert sequencer.size_bytes == 0
