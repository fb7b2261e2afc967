"""What values look like, field by field, in integers and a few texts: the section `values` of a profile. Pure.

No word of a recording is in it, and no value can be read from it. A word is a shape: how many letters, digits and so
on. Only what is between words is kept as it is, and the names of JSON fields that at least half of all values have.

    names      texts: names of JSON fields, and the scalars of JSON that are words (`KEPT_WORDS`)
    marks      texts without a letter, a digit or anything beyond ASCII: what stands between words. Escapes of JSON such
               as "\\n", and the e of a number's exponent, are marks, too
    shapes     texts: runs of characters of one class, each with its length, such as "A1a6" (see `CLASSES`)
    words      lists of four: [how many characters it begins with in common with the word before,
               its shape, how many of its characters are the same in every value, and whether the rest is the same
               wherever the word comes in one value (1), or drawn wherever it comes (0)]; sorted, so that words which
               begin alike are neighbours
    phrases    lists of symbols: what fields hold
    templates  objects {"items", "bound", "rows"}. Items are symbols, and -1 for a slot, which a phrase fills. The slots
               `bound` (counted from 0) are filled by the key's row, which is one of `rows`: a phrase for each
    stretches  objects {"at_us", "examples"}: consecutive values, the first of which came so long after the recording's
               first. An example is [template, a phrase for each slot that is not bound ...]

A symbol is three times a place in one of the lists, plus 0 for a word, 1 for a mark and 2 for a name. Places count
from 0.

Invariants, checked whenever a model is made:

V1. Marks and names hold what is said above, and so no other words.
V2. Every place exists; an example fills each slot of its template that is not bound, and a row each that is.
V3. There is a stretch, each has an example, and they are in ascending order of `at_us`.
V4. All words, phrases and examples, written out, have at most `WRITTEN_BYTES_MAX`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs

WORD: Final = 0
MARK: Final = 1
NAME: Final = 2
KINDS: Final = 3
SLOT: Final = -1

CLASSES: Final = {
    "a": "small letters",
    "A": "capital letters",
    "d": "digits",
    "e": "a digit that is not 0",
    "o": "0",
    "h": "digits and small letters of hexadecimal numbers",
    "H": "the same with capitals",
    "x": "hexadecimal digits of an escape in JSON",
    "m": "letters and digits, mixed",
    "p": "characters of two bytes in UTF-8",
    "q": "of three",
    "r": "of four",
    "b": "bytes that are no text, but 0",
}
CHARACTER_BYTES: Final = {"p": 2, "q": 3, "r": 4}
"""Of a class; of the others one."""
KEPT_WORDS: Final = frozenset({"true", "false", "null", "NaN", "Infinity", "-Infinity"})
"""Scalars of JSON that are no numbers; many programs write the last three."""
IDENTIFIER: Final = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@-]{0,63}")
MARKS: Final = re.compile(r"[^A-Za-z0-9\u0080-\U0010ffff]+|\\[bfnrtu]|[eE][+-]?")
"""A backslash of JSON takes its letter along, and so does a number its exponent."""
SHAPE: Final = re.compile(rf"(?:[{''.join(CLASSES)}][1-9][0-9]{{0,5}}){{1,4096}}")
_RUN = re.compile(r"([A-Za-z])(\d+)")

ENTRIES_MAX: Final = 1_000_000
"""Of one list."""
WRITTEN_BYTES_MAX: Final = 64 * 1024 * 1024
TIME_US_MAX: Final = 2**62

Word = tuple[int, int, int, int]
Numbers = tuple[int, ...]


def classes_of(shape: str) -> str:
    """The class of each character of a word."""
    return "".join(kind * int(many) for kind, many in _RUN.findall(shape))


def shape_bytes(shape: str) -> int:
    """The length of words of that shape."""
    return sum(int(many) * CHARACTER_BYTES.get(kind, 1) for kind, many in _RUN.findall(shape))


@attrs.frozen(kw_only=True)
class Template:
    """What values of one form have in common; see the module."""

    items: Numbers
    bound: Numbers = ()
    rows: tuple[Numbers, ...] = ()


@attrs.frozen(kw_only=True)
class Stretch:
    """Consecutive values; see the module."""

    at_us: int
    examples: tuple[Numbers, ...]


@attrs.frozen(kw_only=True, cache_hash=True)
class ValueModel:
    """What values look like; for the fields see the module. Raises `ValueError` if they contradict each other."""

    names: tuple[str, ...]
    marks: tuple[str, ...]
    shapes: tuple[str, ...]
    words: tuple[Word, ...]
    phrases: tuple[Numbers, ...]
    templates: tuple[Template, ...]
    stretches: tuple[Stretch, ...]

    def __attrs_post_init__(self) -> None:
        problem = next(_contradictions(self), None)
        if problem is not None:
            raise ValueError(f"contradicts its format: {problem}")

    def to_json(self) -> str:
        """As a profile holds it."""
        return json.dumps(attrs.asdict(self), sort_keys=True, separators=(",", ":"))


def read_model(value: Any) -> ValueModel:
    """A model from untrusted parsed JSON. Raises `ValueError` with the end of a sentence about it."""
    texts = {name: _texts(value, name) for name in ("names", "marks", "shapes")}
    words = _lists(value, "words")
    if any(len(word) != 4 for word in words):
        raise ValueError("holds a word that is not four numbers")
    templates = [
        Template(
            items=_numbers(_member(each, "items")),
            bound=_numbers(_member(each, "bound")),
            rows=_lists(each, "rows"),
        )
        for each in _list(_member(value, "templates"))
    ]
    stretches = []
    for each in _list(_member(value, "stretches")):
        (at_us,) = _numbers([_member(each, "at_us")])
        stretches.append(Stretch(at_us=at_us, examples=_lists(each, "examples")))
    return ValueModel(
        **texts,
        words=tuple((shared, shape, fixed, linked) for shared, shape, fixed, linked in words),
        phrases=_lists(value, "phrases"),
        templates=tuple(templates),
        stretches=tuple(stretches),
    )


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise ValueError(f"lacks `{name}`")
    return value[name]


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > ENTRIES_MAX:
        raise ValueError(f"holds something that is not a list of at most {ENTRIES_MAX} entries")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    found = _list(_member(value, name))
    if not all(isinstance(text, str) for text in found):
        raise ValueError(f"holds something in `{name}` that is not a text")
    return tuple(found)


def _numbers(value: Any) -> Numbers:
    found = _list(value)
    if not all(type(each) is int for each in found):
        raise ValueError("holds something that is not a whole number where one must be")
    return tuple(found)


def _lists(value: Any, name: str) -> tuple[Numbers, ...]:
    return tuple(map(_numbers, _list(_member(value, name))))


# -- the invariants


def _contradictions(model: ValueModel) -> Iterator[str]:
    """Each is a problem; those after the first may be wrong, since they take for granted what it denies."""
    if not all(name in KEPT_WORDS or IDENTIFIER.fullmatch(name) for name in model.names):
        yield "a name is not one"
    if not all(MARKS.fullmatch(mark) for mark in model.marks):
        yield "a mark holds a letter, a digit, or what is beyond ASCII"
    if not all(SHAPE.fullmatch(shape) for shape in model.shapes):
        yield "a shape is not one"
    yield from _word_problems(model)
    bytes_of = _SymbolBytes(model)
    if not all(map(bytes_of.knows, (symbol for phrase in model.phrases for symbol in phrase))):
        yield "a phrase has a symbol that is not there"
    for template in model.templates:
        slots = template.items.count(SLOT)
        if not all(symbol == SLOT or bytes_of.knows(symbol) for symbol in template.items):
            yield "a template has a symbol that is not there"
        if any(one >= two for one, two in pairwise((-1, *template.bound, slots))):
            yield "a template's bound slots are not slots of it in ascending order"
        if bool(template.bound) != bool(template.rows):
            yield "a template has bound slots without rows, or rows without them"
        if not all(_fills(row, len(template.bound), len(model.phrases)) for row in template.rows):
            yield "a row does not fill the bound slots"
    if not model.stretches or not all(stretch.examples for stretch in model.stretches):
        yield "there is no stretch, or one without an example"
    if any(one.at_us > two.at_us for one, two in pairwise(model.stretches)) or not all(
        0 <= stretch.at_us <= TIME_US_MAX for stretch in model.stretches
    ):
        yield "stretches are not in ascending order of time"
    yield from _example_problems(model, bytes_of)


def _word_problems(model: ValueModel) -> Iterator[str]:
    before = 0
    lengths = [sum(int(many) for _, many in _RUN.findall(shape)) for shape in model.shapes]
    for shared, shape, fixed, is_linked in model.words:
        if not 0 <= shape < len(lengths) or is_linked not in (0, 1):
            yield "a word has a shape that is not there, or is neither linked nor not"
            return
        if not 0 <= shared <= min(before, fixed) or fixed > lengths[shape]:
            yield "a word begins with more than it or the word before it has"
            return
        before = fixed


def _fills(phrases: Iterable[int], slots: int, known: int) -> bool:
    found = list(phrases)
    return len(found) == slots and all(0 <= phrase < known for phrase in found)


class _SymbolBytes:
    """How long what symbols stand for is."""

    def __init__(self, model: ValueModel) -> None:
        shapes = [shape_bytes(shape) for shape in model.shapes]
        self._of_kind = (
            [shapes[word[1]] for word in model.words],
            [len(mark) for mark in model.marks],
            [len(name) for name in model.names],
        )

    @property
    def of_all_words(self) -> int:
        """Of each once."""
        return sum(self._of_kind[WORD])

    def knows(self, symbol: int) -> bool:
        """Whether there is such a symbol."""
        return 0 <= symbol and symbol // KINDS < len(self._of_kind[symbol % KINDS])

    def of(self, symbols: Iterable[int]) -> int:
        """Of all together; slots have none."""
        return sum(self._of_kind[symbol % KINDS][symbol // KINDS] for symbol in symbols if symbol != SLOT)


def _example_problems(model: ValueModel, bytes_of: _SymbolBytes) -> Iterator[str]:
    phrases = [bytes_of.of(phrase) for phrase in model.phrases]
    bare = [bytes_of.of(template.items) for template in model.templates]
    slots = [template.items.count(SLOT) - len(template.bound) for template in model.templates]
    written = sum(phrases) + bytes_of.of_all_words
    written += sum(phrases[phrase] for template in model.templates for row in template.rows for phrase in row)
    for stretch in model.stretches:
        for example in stretch.examples:
            number, filled = (example or (-1,))[0], example[1:]
            if not 0 <= number < len(slots) or not _fills(filled, slots[number], len(phrases)):
                yield "an example does not fill its template"
                return
            written += bare[number] + sum(phrases[phrase] for phrase in filled)
    if written > WRITTEN_BYTES_MAX:
        yield f"words, phrases and examples have {written} bytes, more than {WRITTEN_BYTES_MAX}"
