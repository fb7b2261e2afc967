"""Rescales a recording, with Spark: copies of its own sequences, each with other keys and a little later.

Vocabulary
----------
copy     the recording once more. Copy 0 has the recorded times; each other copy is later by a step of its own
partial  the last copy of a scale that is not whole: the keys of a share (`callboard.recordings.sharing`)

Rows are made copy by copy from the recorded ones, each on its own, and then sorted by time, the place in the recording,
and the copy, in which no two rows are equal. So the same recording, scale and seed give the same bytes, however Spark
divides the work; and what a key's records have to do with each other is kept exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.recordings.manifest import Manifest
from callboard.recordings.sharing import Share
from callboard.simulations.workload.profile_format import EVENTS_MAX, SECOND_US, TIME_US_MAX
from callboard.simulations.workload.storage import check_partitions, told_errors, write_recording
from callboard.spark import register
from callboard.spark.files import absolute, check_new
from callboard.spark.partition_logs import read_manifest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from callboard.simulations.workload.renaming import Names
    from callboard.simulations.workload.scrubbing import Scrubber

COPIES_MAX: Final = 100_000
STEPS_US: Final = (86_400 * SECOND_US, 3_600 * SECOND_US, 60 * SECOND_US, SECOND_US, 1_000, 1)
"""Of clocks."""
SHIFT_PARTS: Final = 200
"""Copies are spread over this part of the recording's span,"""
SHIFT_PARTS_LEAST: Final = 20
"""or up to this one where the clock's steps are too coarse for that,"""
SHIFT_US_MAX: Final = 3_600 * SECOND_US
"""but over no more than an hour: so the hours of a day stay what they are."""
ORDER: Final = ("source_partition", "source_offset", "copy")
READ: Final = "partition,offset,timestamp,key,value,headers,priority,expiry,dedup_id,append_time"
OPTIONAL: Final = ("headers", "priority", "expiry", "dedup_id")
DEDUP_BYTES: Final = 16
SCRUBBERS_MAX: Final = 16
"""Copies are scrubbed by this many in turn, with other numbers and ids. If all were scrubbed alike, a value would come
once for each copy within a short time, and a compressor would find it again."""
_TYPES: Final = {
    "partition": "int",
    "timestamp": "bigint",
    "append_time": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<name:string,value:binary>>",
    "priority": "int",
    "expiry": "bigint",
    "dedup_id": "binary",
    "due": "bigint",
    "source_partition": "int",
    "source_offset": "bigint",
    "copy": "bigint",
}


@attrs.frozen(kw_only=True)
class Rescaling:
    """How a recording is rescaled. Raises `InvalidArgument` for what cannot be."""

    scale: Fraction = Fraction(1)
    scrubs: bool = False
    """Replace values and keys; else values, and the keys of copy 0, are kept."""
    shift_us: int | None = None
    """The most that a copy is later; None: a 200th of the recording's span, at most an hour."""
    partitions: int | None = None
    """None: those of the recording."""
    seed: str = "0"

    def __attrs_post_init__(self) -> None:
        if not 0 < self.scale <= COPIES_MAX:
            raise InvalidArgument(
                f"scale {self.scale}: a recording is copied above 0 and at most {COPIES_MAX:,} times."
            )
        if self.shift_us is not None and self.shift_us < 0:
            raise InvalidArgument("copies are shifted to later times. Give --shift seconds from 0 on.")
        if self.partitions is not None:
            check_partitions(self.partitions)

    @property
    def copies(self) -> int:
        """How many there are, with the partial one."""
        return -(-self.scale.numerator // self.scale.denominator)

    @property
    def share(self) -> Share | None:
        """Of the last copy; None when it is whole."""
        part = self.scale - self.scale.numerator // self.scale.denominator
        return Share(part, self.seed) if part else None


@attrs.frozen(kw_only=True)
class Facts:
    """What is to be known of a recording before its copies can be made."""

    records: int
    keyless: int
    first_us: int
    last_us: int
    step_us: int
    """Of the clock: the largest of `STEPS_US` that divides all times."""
    columns: frozenset[str]
    """Those of `OPTIONAL` that some record has."""


@attrs.frozen(kw_only=True)
class Copying:
    """What tasks know: how a row becomes its copies."""

    rescaling: Rescaling
    names: Names
    shifts_us: tuple[int, ...]
    """How much later each copy is."""
    partitions: int
    is_spread: bool
    """Whether records without a key are dealt to partitions anew; else copy c turns the recorded ones by c."""
    secret: str
    columns: tuple[str, ...]

    @property
    def schema(self) -> str:
        """Of the rows that are made."""
        return ", ".join(f"{name} {_TYPES[name]}" for name in self.columns)


def rescale(session: SparkSession, recording: str, out: str, rescaling: Rescaling) -> Manifest:
    """Rescale a recording to `out`, a folder that is not there yet.

    Raises `InvalidArgument`, `RecordingInvalid`, `FormatTooNew`, `StorageError`; then nothing is left.
    """
    check_new(out)
    manifest = read_manifest(recording)
    register(session)
    secret = _secret(manifest.digest, rescaling.seed)
    partitions = rescaling.partitions or len(manifest.partitions)
    with told_errors():
        rows = session.read.format("callboard").option("columns", READ).load(absolute(recording))
        facts = facts_of(rows)
        _check(facts, rescaling, recording)
        with _keys(rows, rescaling.share) as keys:
            copying = Copying(
                rescaling=rescaling,
                names=_names(keys, rescaling, facts, secret, recording),
                shifts_us=shifts_of(rescaling, facts.first_us, facts.last_us, facts.step_us),
                partitions=partitions,
                is_spread=partitions != len(manifest.partitions),
                secret=secret,
                columns=_columns(facts),
            )
            is_ordered = all(row.is_ordered for row in manifest.partitions)
            copied = _numbered(_due(rows, is_ordered), keys, facts).mapInArrow(
                partial(_copies, copying), copying.schema
            )
            return write_recording(
                copied,
                out,
                partitions=partitions,
                source=_source(rescaling, manifest),
                order=ORDER,
                time="due",
                seed=rescaling.seed,
            )


def _secret(digest: str, seed: str) -> str:
    """What scrubbing depends on: without the recording it is unknown, whatever the seed."""
    text = seed.encode(errors="surrogateescape")
    return hashlib.blake2b(text, key=digest.encode(), digest_size=32).hexdigest()


def _source(rescaling: Rescaling, manifest: Manifest) -> dict[str, str]:
    found = {
        "made_by": "callboard workload rescale",
        "scale": str(rescaling.scale),
        "seed": rescaling.seed,
        "values": "scrubbed" if rescaling.scrubs else "kept",
    }
    return found if rescaling.scrubs else found | {"rescaled_from": manifest.digest}


def shifts_of(rescaling: Rescaling, first_us: int, last_us: int, step_us: int) -> tuple[int, ...]:
    """How much later each copy is: copy 0 not at all, the others by different multiples of `step_us`.

    They are drawn from 1 step up to the longest shift. When all are used up, they are drawn again.
    """
    import numpy as np

    from callboard.simulations.workload.drawing import NUMBERS_MAX, permuted, stream_of

    most_us = rescaling.shift_us
    if most_us is None:
        span_us, others = last_us - first_us, rescaling.copies - 1
        room_us = min(others * step_us, span_us // SHIFT_PARTS_LEAST)
        most_us = min(max(span_us // SHIFT_PARTS, room_us), SHIFT_US_MAX)
    steps = min(most_us // step_us, NUMBERS_MAX)
    copies: Any = np.arange(rescaling.copies - 1, dtype=np.int64)
    if not steps:
        return (0,) * rescaling.copies
    drawn = permuted(stream_of(rescaling.seed, "shifts"), copies % steps, steps) + 1
    found = (0, *(drawn * step_us).tolist())
    if last_us + max(found) > TIME_US_MAX:
        raise InvalidArgument("the copies would end after the year 9999. Give a shorter --shift.")
    return found


def _check(facts: Facts, rescaling: Rescaling, recording: str) -> None:
    if not facts.records:
        raise InvalidArgument(f"{recording} holds no records, and nothing can be made of it. Name another.")
    if facts.records * rescaling.copies > EVENTS_MAX:
        raise InvalidArgument(
            f"scale {rescaling.scale} makes too many records of {facts.records:,}. Give a smaller one."
        )


# -- what Spark counts


def facts_of(rows: DataFrame) -> Facts:
    """In one query, without values."""
    from pyspark.sql import functions as f

    found = rows.agg(
        f.count("*").alias("records"),
        f.count(f.when(f.col("key").isNull(), 1)).alias("keyless"),
        f.min("timestamp").alias("first"),
        f.max("timestamp").alias("last"),
        f.coalesce(f.max(f.size("headers")), f.lit(0)).alias("headers"),
        *[f.count(name).alias(name) for name in OPTIONAL if name != "headers"],
        *[
            f.coalesce(f.max(f.abs(f.col("timestamp") % step)), f.lit(0)).alias(f"off_{step}")
            for step in STEPS_US
        ],
    ).first()
    return Facts(
        records=found["records"],
        keyless=found["keyless"],
        first_us=found["first"] or 0,
        last_us=found["last"] or 0,
        step_us=next(step for step in STEPS_US if found[f"off_{step}"] == 0),
        columns=frozenset(name for name in OPTIONAL if found[name] > 0),
    )


@contextmanager
def _keys(rows: DataFrame, share: Share | None) -> Iterator[DataFrame]:
    """Each key once: its number among those of its length, whether it is in the share, and its `plain_prefix`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f
    from pyspark.storagelevel import StorageLevel

    keys = rows.where("key IS NOT NULL").select("key").distinct()
    sized = keys.withColumn("length", f.octet_length("key").cast("bigint"))
    of_length = Window.partitionBy("length").orderBy("key")
    numbered = sized.withColumn("number", f.row_number().over(of_length).cast("bigint") - 1)
    columns = "key binary, length bigint, number bigint, is_in boolean, prefix binary"
    found = numbered.mapInArrow(partial(_looked_at, share), columns).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield found
    finally:
        found.unpersist()


def _looked_at(share: Share | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task."""
    import pyarrow as pa

    from callboard.simulations.workload.renaming import plain_prefix

    for batch in batches:
        keys = batch.column("key").to_pylist()
        is_in = pa.array([share is None or share.holds_key(key) for key in keys], pa.bool_())
        prefixes = pa.array([plain_prefix(key) for key in keys], pa.binary())
        names = ["key", "length", "number", "is_in", "prefix"]
        yield pa.RecordBatch.from_arrays([*batch.columns, is_in, prefixes], names=names)


def _names(keys: DataFrame, rescaling: Rescaling, facts: Facts, secret: str, recording: str) -> Names:
    """The names of all copies that get other keys. Raises `InvalidArgument` when the share is empty."""
    from pyspark.sql import functions as f

    from callboard.simulations.workload.renaming import KeyClass, Names

    found = (
        keys.groupBy("length")
        .agg(
            f.count("*").alias("keys"),
            f.min("prefix").alias("least"),
            f.max("prefix").alias("greatest"),
            f.count(f.when(f.col("is_in"), 1)).alias("chosen"),
        )
        .collect()
    )
    if rescaling.copies == 1 and not facts.keyless and not any(row["chosen"] for row in found):
        raise InvalidArgument(
            f"scale {rescaling.scale} takes none of the {sum(row['keys'] for row in found):,} keys of {recording}."
            " Give a larger one, or another --seed."
        )
    classes = [
        # An empty key says nothing, and may stay.
        KeyClass(row["length"], row["keys"])
        if rescaling.scrubs and not row["length"]
        else KeyClass(row["length"], row["keys"], _bytes(row["least"]), _bytes(row["greatest"]))
        for row in found
    ]
    return Names.of(classes, rescaling.copies - (not rescaling.scrubs), secret)


def _bytes(found: bytearray | None) -> bytes | None:
    return None if found is None else bytes(found)


def _due(rows: DataFrame, is_ordered: bool) -> DataFrame:
    """With the time by which rows are sorted: a row is never put before one that it was recorded behind."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if is_ordered:
        return rows.withColumn("due", f.col("timestamp"))
    so_far = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    return rows.withColumn("due", f.max("timestamp").over(so_far))


def _numbered(rows: DataFrame, keys: DataFrame, facts: Facts) -> DataFrame:
    """With the number of each row's key."""
    from pyspark.sql import functions as f

    bare = rows.where("key IS NULL").withColumns(
        {"number": f.lit(None).cast("bigint"), "is_in": f.lit(None).cast("boolean")}
    )
    if facts.keyless == facts.records:
        return bare
    keyed = rows.where("key IS NOT NULL").join(keys.select("key", "number", "is_in"), "key")
    return keyed.unionByName(bare) if facts.keyless else keyed


def _columns(facts: Facts) -> tuple[str, ...]:
    """Of the rows that are made. How long a record lives is counted from its append time on."""
    optional: list[str] = [name for name in OPTIONAL if name in facts.columns]
    if "expiry" in facts.columns:
        optional.append("append_time")
    return ("partition", "timestamp", "key", "value", *optional, "due", *ORDER)


# -- in tasks


def _copies(copying: Copying, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the copies of these rows."""
    from callboard.simulations.workload.scrubbing import TOKENS_KEPT, Scrubber

    rescaling = copying.rescaling
    many = min(rescaling.copies, SCRUBBERS_MAX) if rescaling.scrubs else 0
    secret = copying.secret.encode()
    scrubbers = [Scrubber(secret, b"%d" % number, TOKENS_KEPT // many) for number in range(many)]
    for batch in batches:
        rows = _Rows(copying, batch, scrubbers)
        for copy in range(rescaling.copies):
            yield rows.copy(copy)


class _Rows:
    """Recorded rows; the methods of columns have their names."""

    def __init__(self, copying: Copying, batch: pa.RecordBatch, scrubbers: Sequence[Scrubber]) -> None:
        import numpy as np
        import pyarrow.compute as pc

        self._copying = copying
        self._scrubbers = scrubbers
        """Of the copies, in turn; none where values are kept."""
        self._batch = batch
        self._has_key = pc.is_valid(batch.column("key")).to_numpy(zero_copy_only=False)
        encoded = pc.dictionary_encode(batch.column("key"))
        self._keys = encoded.dictionary
        self._which = encoded.indices
        """The row's key among `_keys`; null when it has none."""
        numbers = pc.fill_null(batch.column("number"), 0).to_numpy(zero_copy_only=False)
        firsts: Any = np.zeros(len(self._keys), dtype=np.int64)
        places: Any = pc.fill_null(self._which, 0).to_numpy(zero_copy_only=False)
        firsts[places[self._has_key]] = np.flatnonzero(self._has_key)
        self._numbers = numbers[firsts]
        self._lengths = pc.binary_length(self._keys).to_numpy(zero_copy_only=False).astype(np.int64)

    def copy(self, copy: int) -> pa.RecordBatch:
        """The rows of one copy."""
        import numpy as np
        import pyarrow as pa

        copying, batch, count = self._copying, self._batch, self._batch.num_rows
        keys = self._names(copy)
        shift_us = copying.shifts_us[copy]
        scrubber = self._scrubbers[copy % len(self._scrubbers)] if self._scrubbers else None
        found: dict[str, Any] = {
            "partition": self._partition(keys, copy),
            "timestamp": _later(batch.column("timestamp"), shift_us),
            "key": keys.take(self._which),
            "value": _scrubbed(batch.column("value"), scrubber),
            "due": _later(batch.column("due"), shift_us),
            "source_partition": batch.column("partition"),
            "source_offset": batch.column("offset"),
            "copy": pa.array(np.full(count, copy, dtype=np.int64)),
        }
        if "append_time" in copying.columns:
            found["append_time"] = found["timestamp"]
            found["expiry"] = self._expiry(shift_us)
        if "headers" in copying.columns:
            found["headers"] = _scrubbed_headers(batch.column("headers"), scrubber)
        if "priority" in copying.columns:
            found["priority"] = batch.column("priority")
        if "dedup_id" in copying.columns:
            found["dedup_id"] = self._dedup_id(copy)
        whole = pa.RecordBatch.from_arrays(
            [found[name] for name in copying.columns], names=list(copying.columns)
        )
        return whole if (chosen := self._chosen(copy)) is None else whole.filter(chosen)

    def _chosen(self, copy: int) -> Any:
        """Which rows the partial copy has; None for one that is whole."""
        import pyarrow as pa

        rescaling = self._copying.rescaling
        share = rescaling.share
        if share is None or copy < rescaling.copies - 1:
            return None
        offsets, is_in = self._batch.column("offset").to_pylist(), self._batch.column("is_in").to_pylist()
        return pa.array(
            [
                share.holds_offset(offset) if chosen is None else chosen
                for offset, chosen in zip(offsets, is_in, strict=True)
            ],
            pa.bool_(),
        )

    def _names(self, copy: int) -> Any:
        """The keys in this copy."""
        import numpy as np
        import pyarrow as pa

        names, scrubs = self._copying.names, self._copying.rescaling.scrubs
        if not copy and not scrubs:
            return self._keys
        found: list[bytes] = [b""] * len(self._keys)
        for length in np.unique(self._lengths).tolist():
            at = np.flatnonzero(self._lengths == length)
            renamed = names.of_keys(length, copy - (not scrubs), self._numbers[at])
            for index, name in zip(at.tolist(), renamed, strict=True):
                found[index] = name
        return pa.array(found, pa.binary())

    def _partition(self, keys: Any, copy: int) -> Any:
        """Where `publish` puts the keys; rows without one stay together, or are dealt anew."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from callboard.simulations.workload.content import partitions_of_keys
        from callboard.simulations.workload.drawing import below, stream_of, words

        copying, many = self._copying, self._copying.partitions
        recorded = self._batch.column("partition").to_numpy(zero_copy_only=False).astype(np.int64)
        bare = (recorded + copy) % many
        if copying.is_spread:
            for partition in np.unique(recorded).tolist():
                at = recorded == partition
                stream = stream_of(copying.rescaling.seed, "spread", partition, copy)
                offsets = self._batch.column("offset").to_numpy(zero_copy_only=False)[at]
                bare[at] = below(words(stream, offsets), many)
        of_keys: Any = np.append(partitions_of_keys(keys.to_pylist(), many), 0).astype(np.int64)
        which = pc.fill_null(self._which, len(keys)).to_numpy(zero_copy_only=False)
        return pa.array(np.where(self._has_key, of_keys[which], bare).astype(np.int32))

    def _expiry(self, shift_us: int) -> Any:
        """Records live as long as they did."""
        import pyarrow.compute as pc

        batch = self._batch
        lived = pc.subtract(batch.column("expiry"), batch.column("append_time"))
        return pc.add(_later(batch.column("timestamp"), shift_us), lived)

    def _dedup_id(self, copy: int) -> Any:
        """Copies are no repetitions of what they are copies of."""
        import pyarrow as pa

        given = self._batch.column("dedup_id")
        if not copy and not self._scrubbers:
            return given
        secret = f"{self._copying.secret}/{copy}".encode()
        key = hashlib.blake2b(secret, digest_size=32).digest()
        return pa.array(
            [
                None if each is None else hashlib.blake2b(each, digest_size=DEDUP_BYTES, key=key).digest()
                for each in given.to_pylist()
            ],
            pa.binary(),
        )


def _scrubbed_headers(headers: Any, scrubber: Scrubber | None) -> Any:
    """Their names are kept."""
    import pyarrow as pa

    if scrubber is None:
        return headers
    pairs = headers.flatten()
    hidden = pa.StructArray.from_arrays(
        [pairs.field(0), _scrubbed(pairs.field(1), scrubber)], fields=list(pairs.type)
    )
    ends = pa.array(accumulate((len(each or ()) for each in headers.to_pylist()), initial=0), pa.int32())
    return pa.ListArray.from_arrays(ends, hidden, type=headers.type)


def _later(times: Any, shift_us: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(times, pa.scalar(shift_us, pa.int64()))


def _scrubbed(values: Any, scrubber: Scrubber | None) -> Any:
    import pyarrow as pa

    if scrubber is None:
        return values
    return pa.array(
        [None if value is None else scrubber.scrub(value) for value in values.to_pylist()], pa.binary()
    )
