"""Made-up values by a `ValueModel`: as long as they are to be, the same for the same seed wherever they are made.

The model's words are made up once for a seed. Words that began alike in the recording begin alike here, and the first
characters in which they differ are different. All examples are then written out, in the order of the recording. One
that is JSON stays JSON in all values that are made of it.

An event's value is an example from the stretch that its time lies in: of those that are about as long as the value is
to be, each in its turn, in each partition. So what comes together in the recording comes together here, and nothing
comes again before the others have come. The slots that are bound get the row of the event's key. What is lacking then
is put to the end of one word, the first of the example's *soft* words (the longest in a string of JSON, else the
longest of those that are drawn anew, else of all), and what is too much is taken away there: of JSON also from the ends
of others, each of which keeps a character, else from the end of the value. A value that lacks more than
`PAD_BYTES_MAX` goes on with other examples. What would be no JSON then becomes one string in an object or array.

Everything is whole numbers. Only lists of the events' spans are made in Python, all else in columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from callboard.simulations.workload.drawing import GOLDEN, below, stream_of, words
from callboard.simulations.workload.json_values import is_json, quotes_of, wrapped
from callboard.simulations.workload.profile_format import VALUE_BIN_BYTES
from callboard.simulations.workload.value_model import (
    CLASSES,
    KINDS,
    MARK,
    SLOT,
    WORD,
    Numbers,
    Template,
    ValueModel,
    classes_of,
)

PAD_BYTES_MAX: Final = 4_096
"""At the end of one word."""
SOFT_WORDS_MAX: Final = 32
SOFT_PART: Final = 3
"""An example of JSON has so many soft words that one byte of this many may be taken away, if there are as many."""
EVENTS_AT_A_TIME: Final = 16_384

_SMALL: Final = b"eeeeeeetttttaaaaooooiiiinnnnsssshhhrrrddllluuccmmwwffggyyppbbvkx"
"""About as often as in text."""
_ALPHABETS: Final[dict[str, bytes]] = {
    "a": _SMALL,
    "A": _SMALL.upper(),
    "d": b"0123456789",
    "e": b"123456789",
    "o": b"0",
    "h": b"0123456789abcdef",
    "H": b"0123456789ABCDEF",
    "x": b"0123456789abc",
    "m": b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "p": bytes(range(0xB0, 0xC0)),
    "q": bytes(range(0x80, 0xC0)),
    "r": bytes(range(0x80, 0xC0)),
    "b": bytes(range(1, 256)),
}
"""Of the last byte of a character."""
_FIRST_BYTES: Final = {"p": b"\xd0", "q": b"\xe4\xb9", "r": b"\xf0\x9f\x98"}
_CODES: Final = {kind: code for code, kind in enumerate(CLASSES, 1)}
_PADDED: Final = {**dict.fromkeys("aAdhHmb"), "e": "d"}
"""Classes of words that may be longer or shorter, by their last character; where it is another, of what is added."""
_BLANK: Final = " "
"""What JSON without a soft word ends with."""
SIZE_STEP: Final = VALUE_BIN_BYTES
"""Examples are as long as an event's value if they are in its class of sizes: of an event that is all that is drawn."""
SHORTER: Final = 64
"""An example is shorter than the value by one byte of so many, and by less than a class of sizes: it is seldom cut."""
LONGER: Final = 64
"""An example that is to be longer is taken up to this many times farther than one that is to be cut."""
FITTING_MAX: Final = 16
"""Of the examples that can be made as short as a value has to be, this many are taken: the longest."""
_BITS: Final = 40
"""Of sizes, in a code of group and size."""

_SIZES = np.array([1, *(len(_ALPHABETS[kind]) for kind in CLASSES)], dtype=np.uint64)
_TABLE: Any = np.zeros((len(CLASSES) + 1, 256), dtype=np.uint8)
for _kind, _code in _CODES.items():
    _TABLE[_code, : len(_ALPHABETS[_kind])] = np.frombuffer(_ALPHABETS[_kind], dtype=np.uint8)


@lru_cache(maxsize=4)
def library_of(model: ValueModel, seed: str) -> Library:
    """The library of a part of a workload. Tasks of one process share it."""
    return Library(model, seed)


class _Text(NamedTuple):
    """A symbol, written out."""

    text: bytes
    drawn: bytes
    """For each byte the code of its class where it is drawn anew, else 0."""
    linked: int
    """Not 0: wherever the word is in a value, the same is drawn."""
    last: str = ""
    """The class of the last character; "" for what is no word."""
    spare: int = 0
    """How many bytes may be taken away at the end."""


class _Soft(NamedTuple):
    """A soft word of an example. The first three rank it: the highest is the first to be changed."""

    is_string: bool
    is_drawn: bool
    spare: int
    end: int
    pad: int


_Span = tuple[int, int, int, int, int, int]
"""Begin and end of a part of an example, that ends with a soft word or lies before a bound slot: the slot, counted from
1, or 0; and of the soft word the bytes to spare, those of the soft words before it in rank, and its pad or -1."""


class _Spans:
    """Texts one behind the other, and parts of them by place."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.drawn = bytearray()
        self.places: list[Any] = []

    def add(self, parts: Iterable[_Text]) -> None:
        """Append some."""
        for part in parts:
            begin = part.linked or len(self.text) + (1 << 32)
            self.places.append(np.arange(begin, begin + len(part.text), dtype=np.uint64))
            self.text += part.text
            self.drawn += part.drawn


class Library:
    """The made-up examples of a model."""

    def __init__(self, model: ValueModel, seed: str) -> None:
        self._streams = [stream_of(seed, "made-up values", number) for number in range(6)]
        self._model = model
        self._words: list[_Text] = list(_vocabulary(model, self._streams[0]))
        self._phrases: list[list[_Text]] = [
            [self._symbol(symbol) for symbol in phrase] for phrase in model.phrases
        ]
        spans = _Spans()
        self._pads = self._add_pads(spans)
        self._add_rows(spans)
        self._add_examples(spans)
        self._text, self._drawn = bytes(spans.text), bytes(spans.drawn)
        self._places = np.concatenate(spans.places)
        self._at_us = np.array([stretch.at_us for stretch in model.stretches], dtype=np.int64)
        del self._phrases, self._words

    def values(self, *, at_us: Any, key: Any, size: Any, word: Any, lane: Any, before: int) -> list[bytes]:
        """The value of each event, of `size` bytes.

        `at_us` is its time since the profile's start, `key` a word that its key has (its own without a key), `word`
        one that no other event has, and `lane` the partition it goes to: each takes its turns for itself. About
        `before` events of each lane were there before.
        """
        if not len(size):
            return []
        stretch = np.maximum(np.searchsorted(self._at_us, at_us, side="right") - 1, 0)
        some = below(words(self._streams[2], word), 1 << 31)
        template = self._template[self._by_size.member(self._by_size.group(stretch, size), some)]
        row = self._rows(template, key, size)
        bound_bytes = self._row_bytes[row]
        group = self._by_rest.group(stretch * len(self._first_row) + template, size - bound_bytes)
        turn = _turns(group * (int(lane.max()) + 1) + lane, np.argsort(at_us, kind="stable"))
        turn += below(words(self._streams[3], lane), 1 << 31)
        turn += before * self._by_rest.counts[group] // self._examples_of[stretch]
        example = self._fitting(self._by_rest.member(group, turn), size - bound_bytes, turn)
        found: list[bytes] = []
        for start in range(0, len(size), EVENTS_AT_A_TIME):
            chosen = slice(start, start + EVENTS_AT_A_TIME)
            found += self._written(example[chosen], row[chosen], key[chosen], size[chosen], word[chosen])
        return found

    def _rows(self, template: Any, key: Any, size: Any) -> Any:
        """The row of each key: of all its template has, or of those that leave room for the rest of a value."""
        first, many = self._first_row[template], self._rows_of[template]
        found = first + below(key, many)
        room = size - self._least_of[template]
        rare = np.flatnonzero((self._row_bytes[found] > room) & (first > 0))
        code = (template[rare] << _BITS) + np.maximum(room[rare], 0)
        fitting = np.searchsorted(self._row_codes, code, side="right") - first[rare]
        found[rare] = first[rare] + below(key[rare], np.maximum(fitting, 1))
        return found

    def _fitting(self, example: Any, room: Any, turn: Any) -> Any:
        """The examples; where one is JSON that cannot be made so short, one of the next that can, if there is any."""
        misfits = np.flatnonzero(self._is_json[example] & (self._least[example] > room))
        template = self._template[example[misfits]]
        code = (template << _BITS) + np.maximum(room[misfits], 0)
        fitting = np.searchsorted(self._least_codes, code, side="right")
        fitting -= np.searchsorted(self._least_codes, template << _BITS)
        last = np.searchsorted(self._least_codes, code, side="right") - 1
        found = self._by_least[last - turn[misfits] % np.clip(fitting, 1, FITTING_MAX)]
        example[misfits] = np.where(fitting > 0, found, example[misfits])
        return example

    # -- writing out the model

    def _symbol(self, symbol: int) -> _Text:
        place, kind = divmod(symbol, KINDS)
        if kind == WORD:
            return self._words[place]
        text = (self._model.marks if kind == MARK else self._model.names)[place].encode()
        return _Text(text, bytes(len(text)), 0)

    def _add_pads(self, spans: _Spans) -> dict[str, int]:
        """For each class where a text of it begins."""
        found = {}
        for kind, other in _PADDED.items():
            alphabet = np.frombuffer(_ALPHABETS[other or kind], dtype=np.uint8)
            drawn = words(self._streams[1], np.arange(PAD_BYTES_MAX) + len(spans.text))
            text = alphabet[below(drawn, len(alphabet))].tobytes()
            found[kind] = len(spans.text)
            spans.add([_Text(text, bytes(len(text)), 0)])
        found[_BLANK] = len(spans.text)
        spans.add([_Text(_BLANK.encode() * PAD_BYTES_MAX, bytes(PAD_BYTES_MAX), 0)])
        return found

    def _add_rows(self, spans: _Spans) -> None:
        """The rows of all templates, one behind the other; those of one by their bytes.

        The first is that of templates without bound slots.
        """
        starts, stops, first_span, row_bytes, template_of = [0], [0], [0], [0], [-1]
        self._first_row: Any = np.zeros(len(self._model.templates), dtype=np.int64)
        self._rows_of: Any = np.ones(len(self._model.templates), dtype=np.int64)
        for number, template in enumerate(self._model.templates):
            if template.rows:
                self._first_row[number], self._rows_of[number] = len(first_span), len(template.rows)
            by_bytes = sorted(template.rows, key=lambda row: sum(map(self._phrase_bytes, row)))
            for row in by_bytes:
                first_span.append(len(starts))
                begin = len(spans.text)
                for phrase in row:
                    starts.append(len(spans.text))
                    spans.add(self._phrases[phrase])
                    stops.append(len(spans.text))
                row_bytes.append(len(spans.text) - begin)
                template_of.append(number)
        self._row_starts, self._row_stops = np.array(starts), np.array(stops)
        self._row_first_span, self._row_bytes = np.array(first_span), np.array(row_bytes)
        self._row_codes = (np.array(template_of, dtype=np.int64) << _BITS) + self._row_bytes
        """Of all rows, ascending: the template, and how long it is."""

    def _phrase_bytes(self, phrase: int) -> int:
        return sum(len(part.text) for part in self._phrases[phrase])

    def _add_examples(self, spans: _Spans) -> None:
        rows = [
            (number, example)
            for number, stretch in enumerate(self._model.stretches)
            for example in stretch.examples
        ]
        written = [
            self._example(spans, self._model.templates[example[0]], example[1:]) for _, example in rows
        ]
        self._template: Any = np.array([example[0] for _, example in rows], dtype=np.int64)
        stretch: Any = np.array([number for number, _ in rows], dtype=np.int64)
        self._rest: Any = np.array([parts[-1][1] - parts[0][0] for parts in written], dtype=np.int64)
        self._span_count: Any = np.array(list(map(len, written)), dtype=np.int64)
        self._first_span = np.cumsum(self._span_count) - self._span_count
        self._spans: Any = np.array([part for parts in written for part in parts], dtype=np.int64).T
        self._is_json: Any = np.array(self._json_examples(spans, written), dtype=bool)
        self._least: Any = self._rest - np.add.reduceat(self._spans[3], self._first_span)
        """Bytes of each example when all is taken away that may be."""
        codes = (self._template << _BITS) + self._least
        self._by_least = np.argsort(codes, kind="stable")
        self._least_codes = codes[self._by_least]
        first_codes = np.searchsorted(self._least_codes, np.arange(len(self._first_row)) << _BITS)
        self._least_of: Any = self._least[self._by_least[np.minimum(first_codes, len(codes) - 1)]]
        """The same of the template's shortest; templates without examples are never asked for."""
        ends = np.r_[0, np.cumsum(self._rest)]
        firsts: Any = np.searchsorted(stretch, np.arange(len(self._model.stretches) + 1))
        self._examples_of = np.diff(firsts)
        begin = written[0][0][0]
        self._regions = [
            (begin + int(ends[one]), begin + int(ends[two])) for one, two in pairwise(firsts.tolist())
        ]
        self._stretch = stretch
        means = [
            int(self._row_bytes[first : first + many].sum()) // many
            for first, many in zip(self._first_row.tolist(), self._rows_of.tolist(), strict=True)
        ]
        self._by_size = _Groups(stretch, self._rest + np.array(means)[self._template])
        self._by_rest = _Groups(stretch * len(means) + self._template, self._rest)

    def _example(self, spans: _Spans, template: Template, phrases: Numbers) -> list[_Span]:
        """Write it out."""
        left = iter(phrases)
        begin = len(spans.text)
        words_found: list[_Soft] = []
        bound: list[int] = []
        slot, quotes, starts_json = 0, 0, False
        for item in template.items:
            slot += item == SLOT
            if item == SLOT and slot - 1 in template.bound:
                bound.append(len(spans.text))
                continue
            for part in self._phrases[next(left)] if item == SLOT else (self._symbol(item),):
                starts_json |= len(spans.text) == begin and part.text.lstrip()[:1] in (b"{", b"[")
                spans.add((part,))
                quotes += quotes_of(part.text) if not part.last else 0
                if part.last in self._pads:
                    is_drawn = not part.drawn.endswith(b"\0")
                    is_string = starts_json and quotes % 2 == 1
                    pad = self._pads[part.last]
                    words_found.append(_Soft(is_string, is_drawn, part.spare, len(spans.text), pad))
        if starts_json and not words_found:
            words_found.append(_Soft(False, False, 0, len(spans.text), self._pads[_BLANK]))
        softs = _softest(words_found, starts_json, len(spans.text) - begin)
        none = (0, 0, -1)
        ends = [(end, 0, soft) for end, soft in softs.items()]
        ends += [(end, nth, none) for nth, end in enumerate(bound, 1)]
        ends.sort()
        found: list[_Span] = []
        for end, nth, soft in [*ends, (len(spans.text), 0, none)]:
            found.append((begin, end, nth, *soft))
            begin = end
        return found

    def _json_examples(self, spans: _Spans, written: list[list[_Span]]) -> list[bool]:
        """Which examples are JSON, with something in their bound slots, and anything where characters are drawn."""
        codes = np.frombuffer(bytes(spans.drawn), dtype=np.uint8)
        plain = np.frombuffer(bytes(spans.text), dtype=np.uint8)
        text = np.where(codes > 0, _TABLE[codes, 0], plain).tobytes()
        return [
            is_json(b"".join([text[begin:end] + (b"1" if slot else b"") for begin, end, slot, *_ in parts]))
            for parts in written
        ]

    # -- writing values

    def _written(self, example: Any, row: Any, key: Any, size: Any, word: Any) -> list[bytes]:
        """The values of some events.

        Each has its example's spans. A span is up to three parts: its text, what is added to the soft word that it
        ends with, and the phrase of the bound slot behind it.
        """
        count = self._span_count[example]
        event: Any = np.repeat(np.arange(len(example)), count)
        span = np.arange(len(event)) + np.repeat(self._first_span[example] - np.cumsum(count) + count, count)
        begin, end, slot, spare, before, pad = self._spans[:, span]
        lacking = (size - self._row_bytes[row] - self._rest[example])[event]
        cut = np.clip(-lacking - before, 0, spare)
        added = np.where(pad >= 0, np.clip(lacking, 0, PAD_BYTES_MAX), 0)
        bound = np.where(slot > 0, self._row_first_span[row][event] + slot - 1, 0)
        starts = np.stack([begin, pad, self._row_starts[bound]], axis=1)
        stops = np.stack([end - cut, pad + added, self._row_stops[bound]], axis=1)
        starts, lengths = starts.reshape(-1), (stops - starts).reshape(-1)
        of_event: Any = np.repeat(event, 3)
        whole_bytes = np.bincount(of_event, lengths, len(example)).astype(np.int64)
        before = np.cumsum(lengths) - lengths
        before -= before[np.searchsorted(of_event, np.arange(len(example)))][of_event]
        lengths = np.clip(size[of_event] - before, 0, lengths)
        parts = np.flatnonzero(lengths)
        starts, lengths, of_event = starts[parts], lengths[parts], of_event[parts]
        seeds = np.where(parts % 3 == 2, key[of_event], word[of_event])
        whole = self._joined(starts, lengths, seeds)
        ends = np.r_[0, np.cumsum(lengths)][np.searchsorted(of_event, np.arange(len(example)), side="right")]
        values = [whole[one:two] for one, two in pairwise([0, *ends.tolist()])]
        made = np.diff(ends, prepend=0)
        for place in np.flatnonzero(made < size).tolist():
            values[place] += self._more(int(example[place]), int(size[place] - made[place]), int(word[place]))
        for place in np.flatnonzero(self._is_json[example] & (whole_bytes != size)).tolist():
            values[place] = wrapped(values[place])
        return values

    def _joined(self, starts: Any, lengths: Any, seeds: Any) -> bytes:
        """These parts of the text; what is drawn anew is drawn by their seeds."""
        text, drawn = self._text, self._drawn
        pairs = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        codes = np.frombuffer(b"".join([drawn[start:stop] for start, stop in pairs]), dtype=np.uint8)
        joined = bytearray(b"".join([text[start:stop] for start, stop in pairs]))
        holes = np.flatnonzero(codes)
        ends = np.cumsum(lengths)
        part = np.searchsorted(ends, holes, side="right")
        place = self._places[holes - (ends - lengths)[part] + starts[part]]
        found = words(self._streams[4], place * np.uint64(GOLDEN) ^ seeds[part])
        code = codes[holes]
        chosen = (found >> np.uint64(32)) * _SIZES[code] >> np.uint64(32)
        np.frombuffer(joined, dtype=np.uint8)[holes] = _TABLE[code, chosen]
        return bytes(joined)

    def _more(self, example: int, lacking: int, word: int) -> bytes:
        """What a value that is longer than all examples goes on with: the stretch, from somewhere on."""
        start, stop = self._regions[int(self._stretch[example])]
        if start == stop:
            start, stop = min(self._pads.values()), min(self._pads.values()) + PAD_BYTES_MAX
        region = self._text[start:stop]
        begin = word % len(region)
        return (region[begin:] + region * (lacking // len(region) + 1))[:lacking]


class _Groups:
    """Examples by what they are of, and by size."""

    def __init__(self, of: Any, size: Any) -> None:
        code = (of << _BITS) + size // SIZE_STEP
        self._order = np.argsort(code, kind="stable")
        self._codes, self._firsts, self.counts = np.unique(
            code[self._order], return_index=True, return_counts=True
        )

    def group(self, of: Any, size: Any) -> Any:
        """The group of that size, or one next to it, rather of smaller examples; there is one of each `of`."""
        wanted = np.maximum(size - np.minimum(size // SHORTER, SIZE_STEP - 1), 0)
        code = (of << _BITS) + wanted // SIZE_STEP
        above = np.minimum(np.searchsorted(self._codes, code), len(self._codes) - 1)
        below_it = np.maximum(above - 1, 0)
        return np.where(self._apart(below_it, code) <= LONGER * self._apart(above, code), below_it, above)

    def _apart(self, group: Any, code: Any) -> Any:
        codes = self._codes[group]
        return np.where(codes >> _BITS == code >> _BITS, np.abs(codes - code), 1 << _BITS)

    def member(self, group: Any, turn: Any) -> Any:
        """An example of the group."""
        return self._order[self._firsts[group] + turn % self.counts[group]]


def _turns(group: Any, order: Any) -> Any:
    """For each event how many of its group are before it in that order."""
    ordered = group[order]
    by_group = np.argsort(ordered, kind="stable")
    firsts = np.searchsorted(ordered[by_group], ordered[by_group])
    found: Any = np.empty(len(group), dtype=np.int64)
    found[order[by_group]] = np.arange(len(group)) - firsts
    return found


def _softest(found: list[_Soft], is_json: bool, length: int) -> dict[int, tuple[int, int, int]]:
    """The soft words of an example, by where they end: one, or of JSON more."""
    softs: dict[int, tuple[int, int, int]] = {}
    before = 0
    ranked = sorted(found, key=lambda soft: soft[:3], reverse=True)
    for soft in ranked[: SOFT_WORDS_MAX if is_json else 1]:
        if softs and before * SOFT_PART >= length:
            break
        if softs and not soft.spare:
            continue
        softs[soft.end] = (soft.spare, before, -1 if softs else soft.pad)
        before += soft.spare
    return softs


def _vocabulary(model: ValueModel, stream: int) -> Iterable[_Text]:
    """All words: they begin with what they have in common, and go on differently where it ends."""
    characters = _Characters(stream)
    path: list[bytes] = []
    used: list[set[bytes]] = [set()]
    for place, (shared, shape, fixed, is_linked) in enumerate(model.words):
        classes = classes_of(model.shapes[shape])
        del path[shared:], used[shared + 1 :]
        for kind in classes[shared:fixed]:
            path.append(characters.other_than(used[-1], kind))
            used[-1].add(path[-1])
            used.append(set())
        text = b"".join(path)
        drawn = bytes(len(text))
        for kind in classes[fixed:]:
            first = _FIRST_BYTES.get(kind, b"")
            text += first + b"?"
            drawn += bytes(len(first)) + bytes((_CODES[kind],))
        kept = classes.rstrip("".join(_PADDED))
        spare = len(classes) - max(len(kept), 1)
        yield _Text(text, drawn, (place + 1) << 33 if is_linked else 0, classes[-1], spare)


class _Characters:
    """Draws characters one by one."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._drawn: list[int] = []
        self._count = 0

    def other_than(self, used: set[bytes], kind: str) -> bytes:
        """One of the class; one that is not used, if there is one."""
        alphabet, first = _ALPHABETS[kind], _FIRST_BYTES.get(kind, b"")
        place = (self._word() >> 32) * len(alphabet) >> 32
        for byte in alphabet[place:] + alphabet[:place]:
            found = first + bytes((byte,))
            if found not in used:
                return found
        return first + alphabet[place : place + 1]

    def _word(self) -> int:
        if not self._drawn:
            indices = np.arange(self._count, self._count + 4_096)
            self._drawn = words(self._stream, indices)[::-1].tolist()
            self._count += 4_096
        return self._drawn.pop()
