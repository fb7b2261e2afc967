"""Learns from a sample of values what made-up ones look like: a `ValueModel`. Pure.

A value is cut into fields, and a field into words and marks. They are counted over the whole sample, so the model
depends on the sample alone: not on how the work was divided, nor on the order in which the counts were made.

Vocabulary
----------
word      letters, digits and characters beyond ASCII without anything between them. What is no UTF-8 is cut into words
          of letters and digits, if they have six at least, and into words of up to four bytes
mark      what stands between words; in bytes that are no text, zeros
name      of a JSON field, if at least half of all values have it; also `true`, `false` and `null`
field     in JSON a string, a number or another scalar; else what stands between blanks, commas, quotes and the like;
          all of what is no text, and of a value of a form that comes once
template  what values of one form have in common: marks, names, fields that never differ, and slots for the others
bound     of a slot: what fills it follows from the record's key
stem      what a word that a single value has shares with the beginnings of others. The rest is drawn anew for each
          made-up value
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

import attrs

from callboard.simulations.workload.value_model import (
    CHARACTER_BYTES,
    IDENTIFIER,
    KEPT_WORDS,
    KINDS,
    MARK,
    NAME,
    SLOT,
    WORD,
    Numbers,
    Stretch,
    Template,
    ValueModel,
    Word,
)

MODEL_BYTES_MAX: Final = 320 * 1024
"""Of the model as JSON. What would be longer is learned from half of the sample."""
NAME_SHARE: Final = 2
"""A JSON field's name is kept when one value of this many has it."""
BOUND_PAIRS_MIN: Final = 8
"""Without as many neighbours of one key, and of two, nothing is said to follow from the key."""
HEX_MIN: Final = 6
MIXED_MIN: Final = 12

_JSON_PART = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[^\s{}\[\],:"]+', re.DOTALL | re.ASCII)
_BETWEEN_FIELDS = re.compile(r'([\s,;|"=]+)', re.ASCII)
_LETTERS: Final = r"A-Za-z0-9\u0080-\U0010ffff"
_WORDS = re.compile(rf"[{_LETTERS}]+|[^{_LETTERS}]+")
_JSON_WORDS = re.compile(
    rf"(?<=\\u)[0-9a-fA-F]{{4}}|\\u(?=[0-9a-fA-F]{{4}})|\\[bfnrt]|\\.?|[{_LETTERS}]+|[^{_LETTERS}\\]+",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"\d+|\D+", re.ASCII)
_RUNS = re.compile(r"[0-9]+|[a-z]+|[A-Z]+")
_BYTES = re.compile(r"[A-Za-z0-9]{6,}|\x00+|(?:(?![A-Za-z0-9]{6})[^\x00]){1,4}", re.DOTALL)
_RAW, _ESCAPED, _LOW_HEX, _HIGH_HEX, _MIXED = "\1\2\3\4\5"
"""Begin words that are of one class as a whole: words of different classes have no beginning in common."""
_TAGS: Final = {_RAW: "b", _ESCAPED: "x", _LOW_HEX: "h", _HIGH_HEX: "H", _MIXED: "m"}
_HEX_DIGITS: Final = {_LOW_HEX: frozenset("0123456789abcdef"), _HIGH_HEX: frozenset("0123456789ABCDEF")}
_CLASS_OF_BYTES: Final = {1: "a", **{many: kind for kind, many in CHARACTER_BYTES.items()}}

Token = tuple[int, str]
"""`WORD`, `MARK` or `NAME`, and its text; (SLOT, "") in a skeleton."""


class Sampled(NamedTuple):
    """Consecutive records of one partition."""

    at_us: int
    """Time of the first, since that of the recording's first."""
    records: Sequence[tuple[bytes | None, bytes]]
    """Keys and values."""


@attrs.define
class _Record:
    """A value, taken apart."""

    key: bytes | None
    skeleton: tuple[Token, ...]
    fields: list[tuple[Token, ...]]


def learn(sample: Sequence[Sampled]) -> ValueModel | None:
    """What the values of a sample have in common; None for an empty sample."""
    sample = [stretch for stretch in sample if stretch.records]
    while sample:
        model = _learn(sample)
        if len(model.to_json()) <= MODEL_BYTES_MAX:
            return model
        if len(sample) > 1:
            sample = sample[::2]
        elif len(sample[0].records) > 1:
            sample = [sample[0]._replace(records=sample[0].records[: len(sample[0].records) // 2])]
        else:
            return None
    return None


def _learn(sample: Sequence[Sampled]) -> ValueModel:
    names = _names(sample)
    records = [[_record(key, value, names) for key, value in stretch.records] for stretch in sample]
    flat = [record for stretch in records for record in stretch]
    often = Counter(record.skeleton for record in flat)
    for record in flat:
        if often[record.skeleton] == 1:
            _as_one_field(record)
    book = _Book(flat)
    templates = _Templates(flat, book)
    stretches = tuple(
        Stretch(at_us=stretch.at_us, examples=tuple(map(templates.example, found)))
        for stretch, found in zip(sample, records, strict=True)
    )
    return ValueModel(
        names=tuple(book.names),
        marks=tuple(book.marks),
        shapes=tuple(book.shapes),
        words=tuple(book.words),
        phrases=tuple(book.phrases),
        templates=tuple(templates.all),
        stretches=stretches,
    )


# -- from bytes to fields and words


def _text(value: bytes) -> str | None:
    """The value as text; None when it is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _names(sample: Sequence[Sampled]) -> frozenset[str]:
    """Names of JSON fields that are kept."""
    counts: Counter[str] = Counter()
    values = 0
    for stretch in sample:
        for _, value in stretch.records:
            values += 1
            text = _text(value)
            if text is not None and _is_json(text):
                counts.update({part for kind, part in _json_parts(text) if kind == NAME})
    return frozenset(
        name for name, many in counts.items() if many * NAME_SHARE >= values and IDENTIFIER.fullmatch(name)
    )


def _record(key: bytes | None, value: bytes, names: frozenset[str]) -> _Record:
    text = _text(value)
    if text is None:
        return _Record(key, ((SLOT, ""),), [tuple(_byte_tokens(value.decode("latin-1")))])
    is_json = _is_json(text)
    skeleton: list[Token] = []
    fields: list[tuple[Token, ...]] = []
    for kind, part in _json_parts(text) if is_json else _text_parts(text):
        if kind == MARK and skeleton and skeleton[-1][0] == MARK:
            skeleton[-1] = (MARK, skeleton[-1][1] + part)
        elif kind == MARK or (kind == NAME and part in names):
            skeleton.append((kind, part))
        else:
            skeleton.append((SLOT, ""))
            fields.append(_tokens(part, is_json))
    return _Record(key, tuple(skeleton), fields)


def _text_parts(text: str) -> Iterator[Token]:
    """Marks between fields, and fields as slots."""
    for index, part in enumerate(_BETWEEN_FIELDS.split(text)):
        if part:
            yield (MARK if index % 2 else SLOT), part


def _json_parts(text: str) -> Iterator[Token]:
    """The same of JSON, and its names."""
    done = 0
    for match in _JSON_PART.finditer(text):
        if match.start() > done:
            yield MARK, text[done : match.start()]
        done = match.end()
        if match[0][0] != '"':
            yield SLOT, match[0]
            continue
        colon = match[1] or ""
        inside = match[0][1 : len(match[0]) - len(colon) - 1]
        yield MARK, '"'
        if inside:
            yield (NAME if colon else SLOT), inside
        yield MARK, '"' + colon
    if done < len(text):
        yield MARK, text[done:]


def _tokens(field: str, is_json: bool) -> tuple[Token, ...]:
    if field in KEPT_WORDS and is_json:
        return ((NAME, field),)
    if _NUMBER.fullmatch(field):
        # An exponent's letter is no word, which would get another one.
        return tuple((WORD if part.isdigit() else MARK, part) for part in _DIGITS.findall(field))
    found: list[Token] = []
    for part in (_JSON_WORDS if is_json else _WORDS).findall(field):
        if not _is_word(part):
            # The character behind a backslash that is none of JSON's escapes is as good as any word.
            found += [(WORD if _is_word(each) else MARK, each) for each in _escape(part)]
        elif found and found[-1] == (MARK, "\\u"):
            found.append((WORD, _ESCAPED + part))
        else:
            found.append((WORD, _tagged(part)))
    return tuple(found)


def _escape(part: str) -> Sequence[str]:
    return _WORDS.findall(part) if part[:1] == "\\" and part[1:] not in tuple("bfnrtu") else (part,)


def _is_word(part: str) -> bool:
    return part[0] >= "\x80" or part[0].isalnum()


def _byte_tokens(text: str) -> Iterator[Token]:
    for part in _BYTES.findall(text):
        is_text = len(part) >= HEX_MIN and part.isascii() and part.isalnum()
        yield (MARK, part) if part[0] == "\0" else (WORD, _tagged(part) if is_text else _RAW + part)


def _as_one_field(record: _Record) -> None:
    """Of a form that comes once."""
    fields = iter(record.fields)
    whole = [token for item in record.skeleton for token in (next(fields) if item[0] == SLOT else (item,))]
    record.skeleton, record.fields = ((SLOT, ""),), [tuple(whole)]


# -- words


def _tagged(word: str) -> str:
    """The word; behind a tag if it is of one class as a whole."""
    if len(word) >= HEX_MIN and word.isascii() and not word.isalpha() and not word.isdigit():
        for tag, digits in _HEX_DIGITS.items():
            if digits.issuperset(word):
                return tag + word
        if len(word) >= MIXED_MIN and len(_RUNS.findall(word)) * 3 > len(word):
            return _MIXED + word
    return word


def _shape_of(word: str) -> str:
    """The classes of a word's characters, each with how many of it follow each other."""
    if word[0] in _TAGS:
        return f"{_TAGS[word[0]]}{len(word) - 1}"
    runs: list[tuple[str, int]] = []
    is_leading = True
    for character in word:
        kind = _class_of(character)
        if kind == "d" and is_leading:
            kind = "o" if character == "0" else "e"
        is_leading = kind == "o"
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return "".join(f"{kind}{many}" for kind, many in runs)


def _class_of(character: str) -> str:
    if character.isascii():
        return "d" if character.isdigit() else "a" if character.islower() else "A"
    return _CLASS_OF_BYTES[len(character.encode())]


def _shared(one: str, two: str) -> int:
    """How many characters two words begin with in common."""
    return sum(1 for _ in takewhile(bool, map(str.__eq__, one, two)))


class _Book:
    """Gives a place in the model's lists to what is used."""

    def __init__(self, records: Sequence[_Record]) -> None:
        self.names: dict[str, int] = {}
        self.marks: dict[str, int] = {}
        self.shapes: dict[str, int] = {}
        self.words: list[Word] = []
        self.phrases: dict[Numbers, int] = {}
        self._phrase_of: dict[tuple[Token, ...], int] = {}
        self._word_of: dict[str, int] = {}
        self._add_words(records)

    def symbol(self, token: Token) -> int:
        """The symbol of a word, a mark, a name or a slot."""
        kind, text = token
        if kind == SLOT:
            return SLOT
        if kind == WORD:
            return KINDS * self._word_of[text] + WORD
        known = self.marks if kind == MARK else self.names
        return KINDS * known.setdefault(text, len(known)) + kind

    def symbols(self, field: tuple[Token, ...]) -> Numbers:
        """Those of a field."""
        return tuple(map(self.symbol, field))

    def phrase(self, field: tuple[Token, ...]) -> int:
        """The place of the phrase for a field."""
        found = self._phrase_of.get(field)
        if found is None:
            found = self.phrases.setdefault(self.symbols(field), len(self.phrases))
            self._phrase_of[field] = found
        return found

    def _add_words(self, records: Sequence[_Record]) -> None:
        """Words of one value alone that have stem and shape in common are one entry: they differ in what is drawn."""
        entries: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        times, shared_by = _counted(records)
        ordered = sorted(times)
        for before, word, after in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
            is_tagged = word[0] in _TAGS
            stem, linked = word, ""
            if word not in shared_by:
                stem = word[: max(_shared(word, before), _shared(word, after), is_tagged)]
                linked = word if times[word] > 1 else ""
            entries[stem, _shape_of(word), linked].append(word)
        previous = ""
        for place, ((stem, shape, linked), members) in enumerate(sorted(entries.items())):
            tag = stem[:1] in _TAGS
            shape_place = self.shapes.setdefault(shape, len(self.shapes))
            shared = max(_shared(previous, stem) - tag, 0)
            self.words.append((shared, shape_place, len(stem) - tag, int(bool(linked))))
            previous = stem
            self._word_of |= dict.fromkeys(members, place)


def _counted(records: Sequence[_Record]) -> tuple[Counter[str], set[str]]:
    """How often each word comes, and which come in several values."""
    times: Counter[str] = Counter()
    first: dict[str, int] = {}
    shared: set[str] = set()
    for number, record in enumerate(records):
        for field in record.fields:
            for kind, text in field:
                if kind == WORD:
                    times[text] += 1
                    if first.setdefault(text, number) != number:
                        shared.add(text)
    return times, shared


# -- templates


class _Form(NamedTuple):
    template: int
    open: tuple[int, ...]
    """The slots that examples fill."""


class _Templates:
    """The template of each skeleton."""

    def __init__(self, records: Sequence[_Record], book: _Book) -> None:
        self._book = book
        self._forms: dict[tuple[Token, ...], _Form] = {}
        self.all: list[Template] = []
        by_skeleton: dict[tuple[Token, ...], list[_Record]] = defaultdict(list)
        for record in records:
            by_skeleton[record.skeleton].append(record)
        for skeleton, members in by_skeleton.items():
            self._add(skeleton, members)

    def example(self, record: _Record) -> Numbers:
        """The template, and the phrases of its slots that do not follow from the key."""
        form = self._forms[record.skeleton]
        return (form.template, *(self._book.phrase(record.fields[slot]) for slot in form.open))

    def _add(self, skeleton: tuple[Token, ...], members: Sequence[_Record]) -> None:
        first = members[0].fields
        constant = {
            slot
            for slot, field in enumerate(first)
            if len(members) > 1 and all(record.fields[slot] == field for record in members)
        }
        slots = [slot for slot in range(len(first)) if slot not in constant]
        bound = [slot for slot in _bound(members) if slot not in constant]
        items: list[int] = []
        slot = 0
        for token in skeleton:
            items += (
                self._book.symbols(first[slot])
                if token[0] == SLOT and slot in constant
                else (self._book.symbol(token),)
            )
            slot += token[0] == SLOT
        rows: dict[bytes | None, Numbers] = {}
        for record in members if bound else ():
            if record.key not in rows:
                rows[record.key] = tuple(self._book.phrase(record.fields[slot]) for slot in bound)
        self._forms[skeleton] = _Form(len(self.all), tuple(slot for slot in slots if slot not in bound))
        self.all.append(
            Template(items=tuple(items), bound=tuple(map(slots.index, bound)), rows=tuple(rows.values()))
        )


def _bound(members: Sequence[_Record]) -> list[int]:
    """Slots that nearly always hold what they held with this key before, and seldom what another key has."""
    slots = range(len(members[0].fields))
    same, other = [0] * len(slots), [0] * len(slots)
    pairs = others = 0
    last: dict[bytes, _Record] = {}
    previous: _Record | None = None
    for record in members:
        if record.key is None:
            continue
        if (before := last.get(record.key)) is not None:
            pairs += 1
            for slot in slots:
                same[slot] += before.fields[slot] == record.fields[slot]
        if previous is not None and previous.key != record.key:
            others += 1
            for slot in slots:
                other[slot] += previous.fields[slot] == record.fields[slot]
        last[record.key] = previous = record
    if pairs < BOUND_PAIRS_MIN or others < BOUND_PAIRS_MIN:
        return []
    return [slot for slot in slots if same[slot] * 20 >= pairs * 19 and other[slot] * 2 <= others]
