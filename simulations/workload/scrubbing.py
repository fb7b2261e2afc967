"""Values without their content: as long, and they compress as well. Pure.

A value is taken apart into *tokens*: runs of letters or of digits, of bytes beyond ASCII, of JSON's escapes of
characters. Each token is replaced by another of the same length and kind. What lies between tokens stays, and so do
JSON's three words: what was JSON, CSV or a log line is that still.

Equal tokens are replaced by equal tokens, whatever they stand in, so that a compressor finds the repetitions that it
found before. Numbers of one length that begin alike do so afterwards. The replacement depends on a secret; who does not
have it cannot try whether a token stands for a guess.

A value that is no text keeps its zeros. Its other bytes outside of tokens are replaced by others that depend on the
byte before.

Invariants
----------
S1  A scrubbed value is as long as the value, and valid UTF-8 when that is.
S2  No letter or digit of a token stays where it was, but for a number's leading zero.
S3  Different numbers stay different, and so do different words, but for JSON's.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

TOKENS_KEPT: Final = 100_000
"""Replacements that are remembered; then all are forgotten."""
TOKEN_BYTES_KEPT: Final = 64
"""Longer tokens are not remembered."""
RUNS_MAX: Final = 3
"""A word of more runs of letters and digits than this is an id: one token."""
JSON_WORDS: Final = frozenset({b"true", b"false", b"null"})

_TEXT = re.compile(rb"(?:\\u[0-9A-Fa-f]{4})+|\\[\"\\/bfnrt]|[0-9A-Za-z]+|[\x80-\xff]+")
_BINARY = re.compile(rb"[0-9A-Za-z]{3,}|[^\x00]")
_RUN = re.compile(rb"[0-9]+|[A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_HEX = re.compile(rb"[0-9a-f]+|[0-9A-F]+")

_DIGITS: Final = b"0123456789"
_CLASSES: Final = (
    _DIGITS,
    b"abcdefghijklmnopqrstuvwxyz",
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    bytes(range(0x80, 0xC0)),
    bytes(range(0xC2, 0xE0)),
    bytes(range(0xE1, 0xED)),
    bytes(range(0xF1, 0xF4)),
)
"""Bytes that are replaced by each other. Those beyond ASCII follow UTF-8: what follows a first byte, and the first
bytes of two, three and four, but for those after which not everything may follow."""
_HEX_CLASSES: Final = (_DIGITS, b"abcdef", b"ABCDEF")


def _ring(classes: tuple[bytes, ...]) -> dict[int, tuple[bytes, int]]:
    return {byte: (each, place) for each in classes for place, byte in enumerate(each)}


_RING: Final = _ring(_CLASSES) | {
    **dict.fromkeys((0xE0, 0xED, 0xEE, 0xEF), (_CLASSES[5], 0)),
    **dict.fromkeys((0xF0, 0xF4), (_CLASSES[6], 0)),
}
_HEX_RING: Final = _ring(_HEX_CLASSES)


class Scrubber:
    """Scrubs values with one secret, and remembers up to this many replacements.

    What becomes of words of letters depends on the secret alone, and what of all else on `own` too: copies of a
    recording are of one service, and of other individuals.
    """

    def __init__(self, secret: bytes, own: bytes = b"", tokens_kept: int = TOKENS_KEPT) -> None:
        self._common = hashlib.blake2b(secret).digest()
        self._own = hashlib.blake2b(own, key=self._common).digest()
        self._tokens_kept = tokens_kept
        self._known: dict[bytes, bytes] = {}
        self._tables: dict[int, bytes] = {}

    def scrub(self, value: bytes) -> bytes:
        """The value without its content."""
        if _is_text(value):
            return _TEXT.sub(lambda found: self._token(found[0]), value)
        return _BINARY.sub(lambda found: self._part(value, found), value)

    def _part(self, value: bytes, found: re.Match[bytes]) -> bytes:
        token = found[0]
        if len(token) > 1:
            return self._token(token)
        before = value[found.start() - 1] if found.start() else 0
        table = self._tables.get(before)
        if table is None:
            table = self._tables[before] = self._table(before)
        return table[token[0] - 1 : token[0]]

    def _table(self, before: int) -> bytes:
        """The bytes 1 to 255 in an order of their own."""
        drawn = self._drawn(b"table", bytes((before,)), 4 * 256)
        places = {byte: drawn[4 * byte : 4 * byte + 4] for byte in range(1, 256)}
        order: list[int] = sorted(places, key=lambda byte: (places[byte], byte))
        return bytes(order)

    def _token(self, token: bytes) -> bytes:
        found = self._known.get(token)
        if found is None:
            found = self._made(token)
            if len(token) <= TOKEN_BYTES_KEPT:
                if len(self._known) >= self._tokens_kept:
                    self._known.clear()
                self._known[token] = found
        return found

    def _made(self, token: bytes) -> bytes:
        if token[0] == 0x5C:
            return self._escapes(token) if len(token) > 2 else token
        if token[0] >= 0x80:
            return self._word(token, _RING)
        if token in JSON_WORDS:
            return token
        if token.isalpha():
            return self._word(token, _RING, self._common)
        runs = _RUN.findall(token)
        if len(runs) > RUNS_MAX:
            return self._word(token, _HEX_RING if _HEX.fullmatch(token) else _RING)
        return b"".join([self._number(run) if run.isdigit() else self._word(run, _RING) for run in runs])

    def _word(self, word: bytes, ring: dict[int, tuple[bytes, int]], secret: bytes | None = None) -> bytes:
        """The second half is turned by what the first is, then the first by what the second has become."""
        middle = len(word) // 2
        first, second = word[:middle], word[middle:]
        second = _turned(second, self._drawn(b"second", first, len(second), secret), ring)
        return _turned(first, self._drawn(b"first", second, len(first), secret), ring) + second

    def _number(self, digits: bytes) -> bytes:
        """Each digit is turned by what stands before it."""
        count = len(digits)
        if count > TOKEN_BYTES_KEPT:
            return self._word(digits, _RING)
        found = bytearray()
        for place, digit in enumerate(digits):
            (drawn,) = self._drawn(b"%d" % count, digits[:place], 1)
            number = digit - 0x30
            if place or count == 1:
                found.append(0x30 + (number + 1 + drawn % 9) % 10)
            else:  # JSON has no numbers that begin with zeros
                found.append(0x31 + (number + drawn % 8) % 9 if number else 0x30)
        return bytes(found)

    def _escapes(self, token: bytes) -> bytes:
        """Other characters of the same kind of escape: of U+0100 to U+07FF."""
        drawn = self._drawn(b"escapes", token, len(token) // 3)
        characters = [0x100 + (drawn[at] << 8 | drawn[at + 1]) % 0x700 for at in range(0, len(token) // 3, 2)]
        return b"".join([b"\\u%04x" % character for character in characters])

    def _drawn(self, name: bytes, text: bytes, count: int, secret: bytes | None = None) -> bytes:
        """`count` bytes that are as good as random, the same for the same text and secret."""
        state = hashlib.blake2b(text, key=secret or self._own, person=name, digest_size=64)
        if count <= 64:
            return state.digest()[:count]
        return hashlib.shake_128(state.digest()).digest(count)


def _turned(text: bytes, turns: bytes, ring: dict[int, tuple[bytes, int]]) -> bytes:
    found = bytearray(text)
    for at, byte in enumerate(text):
        alphabet, place = ring.get(byte, (b"", 0))
        if alphabet:
            found[at] = alphabet[(place + 1 + turns[at] % (len(alphabet) - 1)) % len(alphabet)]
    return bytes(found)


def _is_text(value: bytes) -> bool:
    if value.isascii():
        return _CONTROL.search(value) is None
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(value) is None
