"""`callboard record` and `callboard recording`, as they are typed."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

RECORDS = 500


@pytest.fixture
def topic(command: Any) -> Any:
    """A topic `web` of two partitions, a record a second, fifty users."""
    command.run("topic", "create", "web", "partitions=2")
    lines = [
        json.dumps(
            {
                "value": f"line {number}",
                "key": f"user-{number % 50}",
                "headers": {"type": "even" if number % 2 == 0 else "odd"},
                "timestamp": f"2026-11-21T00:{number // 60:02}:{number % 60:02}+00:00",
            }
        )
        for number in range(RECORDS)
    ]
    command.run("publish", "web", "--json-lines", stdin="\n".join(lines).encode())
    return command


def head(command: Any, name: str, partition: str) -> list[str]:
    """The values of one partition of a recording."""
    options = ("--partition", partition, "--max", "1000", "--json")
    found = command.run("recording", "head", name, *options)
    return [record["value"] for record in found.documents]


def test_a_topic_is_recorded_looked_at_and_verified(topic: Any) -> None:
    """What was published is in the recording."""
    topic.run("record", "data", "--topic", "web", "--out", "day")
    found = topic.run("recording", "info", "day", "--json").json
    assert (found["records"], found["partitions"], found["keys"]) == (RECORDS, 2, 50)
    assert (found["first_time"], found["span_s"]) == ("2026-11-21T00:00:00+00:00", RECORDS - 1)
    assert b"500" in topic.run("recording", "info", "day").out
    assert topic.run("recording", "verify", "day", "--json").json["is_sound"]
    values = head(topic, "day", "0") + head(topic, "day", "1")
    assert sorted(values) == sorted(f"line {number}" for number in range(RECORDS))


def test_records_are_chosen_by_their_headers(topic: Any) -> None:
    """Alone, and together with the key."""
    topic.run("record", "data", "--topic", "web", "--out", "even", "--header", "type=ev*")
    assert topic.run("recording", "info", "even", "--json").json["records"] == RECORDS // 2
    made = topic.run("recording", "cut", "even", "--out", "two", "--key", "user-2", "--header", "type=even")
    assert f"two holds {RECORDS // 50} records" in made.err
    assert topic.run("recording", "info", "two", "--json").json["records"] == RECORDS // 50
    refused = topic.run("recording", "cut", "even", "--out", "none", "--header", "type", code=2)
    assert "NAME=PATTERN" in refused.err


def test_a_live_topic_is_recorded_beside_its_owner(topic: Any) -> None:
    """Without its lock; the owner goes on."""
    owner = topic.start("publish", "web")
    follower = topic.start("consume", "web", "--follow")
    owner.type(b"one more\n")
    while follower.line() != b"one more\n":
        pass
    follower.end(signal.SIGTERM)
    topic.run("record", "--topic", "web", "--out", "day")
    assert topic.run("recording", "info", "day", "--json").json["records"] == RECORDS + 1
    assert owner.end(signal.SIGTERM).code == 143


def test_names_and_payloads_are_hidden(topic: Any) -> None:
    """What was published is nowhere in the files."""
    topic.run("record", "--topic", "web", "--out", "day", "--hash-keys", "pepper", "--scrub-payloads")
    stored = b"".join(path.read_bytes() for path in topic.folder.glob("day/*/*"))
    assert b"user-" not in stored
    assert b"line" not in stored
    assert topic.run("recording", "info", "day", "--json").json["keys"] == 50


def test_a_part_is_recorded_cut_and_merged(topic: Any) -> None:
    """By offset, by time, by key; two halves make the whole."""
    topic.run("record", "--topic", "web", "--out", "few", "--from", "10", "--to", "20", "--key", "user-*")
    assert topic.run("recording", "info", "few", "--json").json["records"] == 20
    topic.run("record", "--topic", "web", "--out", "day")
    noon = "2026-11-21T00:05:00+00:00"
    topic.run("recording", "cut", "day", "--out", "first", "--to", noon)
    topic.run("recording", "cut", "day", "--out", "second", "--from", noon)
    topic.run("recording", "merge", "second", "first", "--out", "both")
    assert topic.run("recording", "info", "both", "--json").json["records"] == RECORDS
    for partition in "01":
        assert head(topic, "day", partition) == head(topic, "both", partition)
    topic.run("recording", "cut", "day", "--out", "users", "--key", "user-1")
    assert topic.run("recording", "info", "users", "--json").json["records"] == RECORDS // 50


def test_what_was_made_is_told_as_json(topic: Any) -> None:
    """As `info` does; what two recordings of one topic are merged into is of that topic."""
    made = topic.run("record", "data", "--topic", "web", "--out", "day", "--json").json
    assert made.pop("lost") == []
    assert made == topic.run("recording", "info", "day", "--json").json
    part = topic.run("recording", "cut", "day", "--out", "part", "--key", "user-1", "--json").json
    assert (part["recording"], part["records"], part["source"]["cut_from"]) == (
        "part",
        RECORDS // 50,
        made["id"],
    )
    both = topic.run("recording", "merge", "part", "day", "--out", "both", "--json").json
    assert (both["records"], both["source"]["topic"]) == (RECORDS + RECORDS // 50, "web")


def test_damage_is_found(topic: Any) -> None:
    """One byte is enough; the exit code says so."""
    topic.run("record", "--topic", "web", "--out", "day")
    (path,) = topic.folder.glob("day/0/*.log")
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert b"bytes of day/0/" in topic.run("recording", "verify", "day", code=4).out
    topic.run("recording", "cut", "day", "--out", "other", code=1)
    path.unlink()
    assert not topic.run("recording", "verify", "day", "--json", code=4).json["is_sound"]
    assert "is missing" in topic.run("recording", "info", "day", code=1).err
    assert not (topic.folder / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("record", "--topic", "nope", "--out", "x"), 1, "no topic 'nope'"),
        (("record", "--topic", "web", "--out", "nowhere/x"), 2, "no folder"),
        (("record", "--topic", "web", "--out", "data"), 2, "there already"),
        (("record", "--topic", "web", "--out", "x", "--hash-keys", ""), 2, "salt"),
        (("record", "--topic", "web", "--out", "x", "--from", "noon"), 2, "no place to start"),
        (("record", "--topic", "web", "--out", "x", "--from", "10", "--to", "10"), 2, "nothing lies from 10"),
        (("record", "--topic", "web", "--out", "x", "--from", "end"), 2, "nothing lies from end"),
        (("record", "--topic", "web", "--out", "data/x"), 2, "a stranger there"),
        (("record", "--topic", "web", "--out", "x" * 201), 2, "too long"),
        (("recording", "cut", "data", "--out", "x"), 1, "no recording"),
        (("recording", "info", "nowhere"), 1, "no recording"),
        (("recording", "merge", "--out", "x"), 2, "RECORDING"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    topic: Any, arguments: tuple[str, ...], code: int, words: str
) -> None:
    """And nothing is made."""
    before = sorted(path.name for path in topic.folder.iterdir())
    assert words in topic.run(*arguments, code=code).err
    assert sorted(path.name for path in topic.folder.iterdir()) == before


def test_a_cut_needs_instants(topic: Any) -> None:
    """Offsets of a recording are no times; and the beginning comes before the end."""
    topic.run("record", "--topic", "web", "--out", "day")
    assert "no instant" in topic.run("recording", "cut", "day", "--out", "x", "--from", "7", code=2).err
    early, late = "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"
    span = ("--from", late, "--to", early)
    assert "empty" in topic.run("recording", "cut", "day", "--out", "x", *span, code=2).err
