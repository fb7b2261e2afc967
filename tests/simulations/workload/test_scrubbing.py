"""Scrubbed values: as long, of the same kind, as compressible, and without a token of the recorded ones."""

from __future__ import annotations

import json
import pathlib
import random
import re
import struct
import zlib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.simulations.workload.scrubbing import Scrubber

WINDOW_BYTES = 65_536
NEAR = 0.25
"""How far compression may be from that of the recorded values."""


def ratio(values: Sequence[bytes]) -> float:
    """How many times smaller zlib makes values that lie behind each other."""
    whole = b"\n".join(values)
    parts = [whole[start : start + WINDOW_BYTES] for start in range(0, len(whole), WINDOW_BYTES)]
    return len(whole) / sum(len(zlib.compress(part, 6)) for part in parts)


def tokens(values: Sequence[bytes]) -> set[bytes]:
    """Runs of at least four letters or digits: shorter ones may be equal by chance."""
    found = {token for value in values for token in re.findall(rb"[0-9A-Za-z]{4,}", value)}
    return found - {b"true", b"false", b"null"}


def scrubbed(values: Sequence[bytes], secret: bytes = b"secret") -> list[bytes]:
    """With one scrubber."""
    scrubber = Scrubber(secret)
    return [scrubber.scrub(value) for value in values]


def events() -> Iterator[bytes]:
    """JSON events of a made-up system."""
    drawn = random.Random(7)
    names = [f"{drawn.choice(['web', 'db', 'cache'])}-{number:02}.example.com" for number in range(40)]
    for second in range(4_000):
        yield json.dumps(
            {
                "at": f"2020-09-22T00:{second // 60:02}:{second % 60:02}.{drawn.randrange(999):03}Z",
                "host": {
                    "name": drawn.choice(names),
                    "address": f"10.0.{drawn.randrange(4)}.{drawn.randrange(256)}",
                },
                "id": f"{drawn.getrandbits(64):016x}",
                "code": drawn.choice([4624, 4688, 4689, 5156]),
                "ok": drawn.random() < 0.5,
                "path": "C:\\Windows\\System32\\svchost.exe",
                "user": f"Zoë{drawn.randrange(300)}",
            }
        ).encode()


def frames() -> Iterator[bytes]:
    """Values that are no text: names with lengths before them, integers and floats."""
    drawn = random.Random(7)
    for number in range(4_000):
        name = b"sensor-%03d" % drawn.randrange(60)
        yield b"\x0a\x0a" + name + b"\x12" + struct.pack("<qd", 1_600_000_000 + number, drawn.random())


@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode))
def test_a_scrubbed_value_is_as_long_and_no_letter_stays(value: bytes) -> None:
    """And what is UTF-8 is that still (S1, S2)."""
    (found,) = scrubbed([value])
    assert len(found) == len(value)
    for token in re.finditer(rb"[0-9A-Za-z]{3,}", value):
        after = found[token.start() : token.end()]
        if token[0] not in (b"true", b"false", b"null") and b"\\" not in value:
            same = [at for at, byte in enumerate(token[0]) if byte == after[at] and byte != 0x30]
            assert not same
    try:
        value.decode()
    except UnicodeDecodeError:
        return
    if not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", value):
        assert found.decode() is not None


@given(st.sets(st.from_regex(r"[0-9]{1,6}|[a-zA-Z]{1,6}", fullmatch=True), min_size=2, max_size=40))
def test_different_numbers_and_words_stay_different(words: set[str]) -> None:
    """So a field has as many values as before (S3)."""
    chosen = sorted(words - {"true", "null", "false"})
    found = scrubbed([word.encode() for word in chosen])
    assert len(set(found) - {b"true", b"null", b"false"}) == len(chosen)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_json_stays_json(document: object) -> None:
    """With values of the same types."""
    for is_ascii in (True, False):
        text = json.dumps(document, ensure_ascii=is_ascii).encode(errors="surrogatepass")
        (found,) = scrubbed([text])
        if not is_ascii and b"\xed" in text:  # a lone surrogate is no UTF-8
            continue
        assert _shape(json.loads(found)) == _shape(document)


def _shape(document: object) -> object:
    if isinstance(document, dict):
        return [_shape(each) for each in document.values()]
    return [_shape(each) for each in document] if isinstance(document, list) else type(document)


@pytest.mark.parametrize("make", [events, frames])
def test_compression_stays_what_it_was(make: object) -> None:
    """And no token is left."""
    values = list(make())  # type: ignore[operator]
    found = scrubbed(values)
    assert abs(ratio(found) / ratio(values) - 1) < NEAR
    assert not tokens(found) & tokens(values)


def test_a_web_servers_lines_compress_as_before(nasa_log: pathlib.Path) -> None:
    """Each is as long as it was, and no host and no path is left."""
    lines = nasa_log.read_bytes().splitlines()[1:]
    found = scrubbed(lines)
    assert list(map(len, found)) == list(map(len, lines))
    assert abs(ratio(found) / ratio(lines) - 1) < 0.05
    kept = tokens(found) & tokens(lines)
    assert len(kept) < len(tokens(lines)) / 200  # four digits are often some other number
    assert not [token for token in kept if len(token) > 5]


def test_copies_share_words_and_have_numbers_and_ids_of_their_own() -> None:
    """So ten copies, of which one comes shortly after the other, compress about as well as the recording."""
    one, other = (Scrubber(b"secret", own).scrub(b"GET /images?id=a1b2c3 1250") for own in (b"0", b"1"))
    assert one.split(b"=")[0] == other.split(b"=")[0]
    assert not set(one.split(b"=")[1].split()) & set(other.split(b"=")[1].split())
    lines = list(events())
    copied = [[Scrubber(b"secret", b"%d" % own).scrub(line) for line in lines] for own in range(10)]
    apart = [line for at in range(len(lines)) for own in range(10) for line in copied[own][at - own :][:1]]
    assert abs(ratio(apart) / ratio(lines) - 1) < NEAR


def test_another_secret_is_another_text() -> None:
    """Nobody can try a guess without it."""
    value = b"alice paid 1250 to bob"
    assert scrubbed([value]) == scrubbed([value]) != scrubbed([value], b"other")
