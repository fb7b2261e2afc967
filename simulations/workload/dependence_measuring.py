"""Measures what joins the events of a recording (`dependence`), with Spark.

Two looks at the rows: along each key, for its windows and the sizes of its values, and along each window, for its times
and the order of its keys. The driver gets counts, and of the most frequent keys how many events they have where; it
gets no key.

Of events at one instant, those with the lower offset come first; where rows have no offsets, those with the lower hash
of their key, then those with the smaller value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from callboard.simulations.workload.dependence import (
    AGAIN_ONE,
    CLOCKS_US,
    HOT_MAX,
    HOT_PAIRS,
    RARE_MAX,
    Counts,
    Dependence,
    Grid,
    HotKey,
    size_classes,
    windows_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from callboard.simulations.workload.profile_format import WorkloadProfile

FOUND: Final = "name string, row bigint, column bigint, many bigint"


def measure_dependence(rows: DataFrame, profile: WorkloadProfile) -> Dependence:
    """What joins the events of `rows`: `timestamp`, `key`, `value_bytes`, and perhaps `partition` and `offset`.

    `profile` is what else is known of them; it has events.
    """
    from pyspark.sql import functions as f
    from pyspark.storagelevel import StorageLevel

    time = f.col("timestamp") - f.lit(profile.start_us)
    grid = Grid(profile.bucket_us, _clock(rows.select(time.alias("time")), profile.bucket_us))
    ends = windows_of(profile.bucket_counts)
    is_placed = {"partition", "offset"} <= set(rows.columns)
    hashed = f.when(f.col("key").isNotNull(), f.xxhash64("key")).otherwise(f.lit(0)).alias("code")
    ties = ["partition", "offset"] if is_placed else ["code", "value_bytes"]
    bin_of = f"value_bytes div {profile.value_bin_bytes}L"
    placed = rows.select(
        time.alias("time"),
        hashed,
        "key",
        "value_bytes",
        f.expr(bin_of).alias("bin"),
        *(ties if is_placed else []),
        _at(f.expr(f"(timestamp - {profile.start_us}L) div {profile.bucket_us}L"), ends[:-1]).alias("window"),
        _at(f.expr(bin_of), size_classes(profile.value_bytes)).alias("class"),
    )
    pairs = _pairs(placed, ties).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        tables = _along_keys(pairs)
        size_stays, size_same = _stays(pairs, profile)
        hot, others = _keys(pairs, profile)
    finally:
        pairs.unpersist()
    tables |= _along_windows(placed, ties, grid, has_keys=profile.keyless < profile.events)
    return Dependence(
        clock_us=grid.clock_us,
        parts=_parts(tables.get("parts", ()), grid, len(profile.bucket_counts)),
        second_splits=tuple(
            tables.get(f"second {depth}", ()) for depth in range(grid.cell_bits - grid.part_bits)
        ),
        step_splits=tuple(tables.get(f"step {depth}", ()) for depth in range(grid.step_bits)),
        hot=hot,
        others=others,
        size_stays=size_stays,
        size_same=size_same,
        **{
            name: tables.get(name, ())
            for name in (
                *("starts", "runs", "returns", "paces", "pace_returns"),
                *("size_first", "size_next", "window_sizes"),
            )
        },
    )


def _clock(times: DataFrame, bucket_us: int) -> int:
    from pyspark.sql import functions as f

    possible = [clock for clock in CLOCKS_US if clock <= bucket_us]
    off = times.agg(*[f.max(f.col("time") % clock).alias(str(clock)) for clock in possible]).first()
    return next(clock for clock in possible if off[str(clock)] == 0)


def _at(number: Column, borders: Iterable[int]) -> Column:
    """How many of the borders are not above a number."""
    from pyspark.sql import functions as f

    numbers = ", ".join(f"{border}L" for border in borders)
    if not numbers:
        return f.lit(0)
    return f.size(f.filter(f.expr(f"array({numbers})"), lambda border: border <= number))


# -- along each key


def _pairs(placed: DataFrame, ties: list[str]) -> DataFrame:
    """How many events of a key have which class, and which one before, in each window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_key = Window.partitionBy("key").orderBy("time", *ties)
    before = f.lag("class").over(of_key).alias("before")
    stays = [
        (f.lag(what).over(of_key) == f.col(what)).cast("bigint").alias(name)
        for what, name in (("bin", "stays"), ("value_bytes", "same"))
    ]
    with_before = placed.select("key", "window", "class", before, *stays)
    many = [f.count("*").alias("many")]
    many += [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("stays", "same")]
    return with_before.groupBy("key", "window", "class", "before").agg(*many)


def _stays(pairs: DataFrame, profile: WorkloadProfile) -> tuple[int, int]:
    """`size_stays` and `size_same`: how often that is so beyond chance."""
    from pyspark.sql import functions as f

    rows = pairs.where("before = class").groupBy("class").agg(f.sum("many"), f.sum("stays"), f.sum("same"))
    found = [tuple(map(int, row)) for row in rows.collect()]
    bins = [(what, what, many) for what, many in profile.value_bytes]
    lengths = [(size // profile.value_bin_bytes, size, many) for size, many in profile.value_sizes]
    borders = size_classes(profile.value_bytes)
    stays = _beyond(_chances(bins, borders), [(where, many, some) for where, many, some, _ in found])
    same = _beyond(_chances(lengths, borders), [(where, many, some) for where, many, _, some in found])
    return max(stays, same), same


def _chances(sizes: Iterable[tuple[int, int, int]], borders: Sequence[int]) -> dict[int, Fraction]:
    """How often two events of a class have one size. Sizes are (bin, size, events)."""
    events, squares = Counter[int](), Counter[int]()
    for bin_, _, many in sizes:
        where = bisect_right(borders, bin_)
        events[where] += many
        squares[where] += many * many
    return {where: Fraction(squares[where], many**2) for where, many in events.items()}


def _beyond(chances: dict[int, Fraction], found: Iterable[tuple[int, int, int]]) -> int:
    """The share beyond chance, in `AGAIN_ONE` parts. `found` has rows of (class, cases, cases in which it is so)."""
    cases, chance = 0, Fraction(0)
    is_so = 0
    for where, many, some in found:
        cases, is_so, chance = cases + many, is_so + some, chance + many * chances.get(where, Fraction(0))
    if is_so == cases:
        return AGAIN_ONE if cases else 0
    return max(0, (is_so - chance) * AGAIN_ONE // (cases - chance)) if cases > chance else 0


def _along_keys(pairs: DataFrame) -> dict[str, Counts]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def counted(name: str, frame: DataFrame, row: Column, column: Column) -> DataFrame:
        named = frame.select(f.lit(name).alias("name"), row.alias("row"), column.alias("column"), "many")
        return named.groupBy("name", "row", "column").agg(f.sum("many").alias("many"))

    events = f.sum("many").over(Window.partitionBy("key"))
    rare = pairs.where("key IS NOT NULL").withColumn("events", events).where(f"events <= {RARE_MAX}")
    found = (
        counted("window_sizes", pairs, f.col("window"), f.col("class"))
        .unionAll(counted("size_first", rare.where("before IS NULL"), f.lit(0), f.col("class")))
        .unionAll(counted("size_next", rare.where("before IS NOT NULL"), f.col("before"), f.col("class")))
    )
    return _collected(found)


def _keys(pairs: DataFrame, profile: WorkloadProfile) -> tuple[tuple[HotKey, ...], tuple[Any, ...]]:
    """The hot keys, and all others."""
    from pyspark.sql import functions as f

    again = f.sum(f.when(f.col("before") == f.col("class"), f.col("many")).otherwise(0))
    cells = pairs.groupBy("key", "window", "class").agg(f.sum("many").alias("many"), again.alias("again"))
    keys = cells.groupBy("key").agg(
        f.sum("many").alias("events"),
        f.sum("again").alias("again"),
        f.min("window").alias("first"),
        f.max("window").alias("last"),
        f.sort_array(f.collect_list(f.struct("window", "class", "many"))).alias("cells"),
    )
    with_key = keys.where("key IS NOT NULL")
    found = keys.where("key IS NULL").drop("key").collect()
    hot = [_hot_key(found[0]) if found else HotKey((), (), 0)]
    bits = f.length(f.bin("events")).cast("bigint")
    others = {
        (row["first"], row["last"], row["bits"]): (row["keys"], row["events"])
        for row in with_key.groupBy("first", "last", bits.alias("bits"))
        .agg(f.count("*").alias("keys"), f.sum("events").alias("events"))
        .collect()
    }
    left = HOT_PAIRS
    top = with_key.drop("key").orderBy(f.desc("events"), "again", "cells").limit(HOT_MAX - 1)
    for row in top.collect():
        key = _hot_key(row)
        left -= len(key.windows)
        if left < 0:
            break
        hot.append(key)
        kind = row["first"], row["last"], row["events"].bit_length()
        keys_there, events_there = others[kind]
        others[kind] = keys_there - 1, events_there - row["events"]
    return tuple(hot), tuple((*kind, *many) for kind, many in sorted(others.items()) if many[0])


def _hot_key(row: Any) -> HotKey:
    windows: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for window, which, many in row["cells"]:
        windows[window] = windows.get(window, 0) + many
        sizes[which] = sizes.get(which, 0) + many
    events, followers = row["events"], row["events"] - 1
    # How much more often than by chance a class comes again.
    by_chance = sum(many * many for many in sizes.values())
    beyond = row["again"] * events * events - followers * by_chance
    room = followers * (events * events - by_chance)
    again = max(beyond, 0) * AGAIN_ONE // room if room else 0
    return HotKey(tuple(sorted(windows.items())), tuple(sorted(sizes.items())), min(again, AGAIN_ONE))


# -- along each window


def _along_windows(placed: DataFrame, ties: list[str], grid: Grid, *, has_keys: bool) -> dict[str, Counts]:
    from pyspark.sql import functions as f

    sorted_rows = (
        placed.select("window", "time", "code", *[name for name in ties if name != "code"])
        .repartition("window")
        .sortWithinPartitions("window", "time", *ties)
        .select("window", "time", "code")
    )
    found = sorted_rows.mapInArrow(partial(_count_windows, grid, has_keys), FOUND)
    return _collected(found.groupBy("name", "row", "column").agg(f.sum("many").alias("many")))


def _count_windows(grid: Grid, has_keys: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the counts of its windows, one by one."""
    import numpy as np
    import pyarrow as pa

    from callboard.simulations.workload.counting import count_window

    def rows_of(parts: list[Any]) -> pa.RecordBatch:
        _, times, keys = np.concatenate(parts, axis=1)
        found = count_window(grid, times, keys, has_keys=has_keys)
        names = [name for name, counts in found.items() for _ in range(len(counts))]
        table = np.concatenate(list(found.values()))
        return pa.RecordBatch.from_arrays(
            [pa.array(names, pa.string()), *(pa.array(column, pa.int64()) for column in table.T)],
            names=["name", "row", "column", "many"],
        )

    parts: list[Any] = []
    for batch in batches:
        columns = np.stack([column.to_numpy().astype(np.int64) for column in batch.columns])
        for part in np.split(columns, np.flatnonzero(np.diff(columns[0])) + 1, axis=1):
            if parts and part.shape[1] and parts[0][0, 0] != part[0, 0]:
                yield rows_of(parts)
                parts = []
            if part.shape[1]:
                parts.append(part)
    if parts:
        yield rows_of(parts)


def _parts(counts: Counts, grid: Grid, buckets: int) -> tuple[int, ...]:
    width = 1 << grid.part_bits
    found = [0] * (buckets * width)
    for bucket, part, many in counts:
        found[bucket * width + part] = many
    return tuple(found)


def _collected(frame: DataFrame) -> dict[str, Counts]:
    found: dict[str, list[tuple[int, int, int]]] = {}
    for row in frame.collect():
        found.setdefault(row["name"], []).append((row["row"], row["column"], row["many"]))
    return {name: tuple(sorted(counts)) for name, counts in found.items()}
