"""A stored failure: a run that broke a promise, with everything that is needed to meet it again.

A bare seed rots: when code changes, it draws another workload, another plan, another schedule, and quietly passes. So
a stored failure holds what the seed drew, and how often each fault had an effect; when a run of it fits no longer, that
is said loudly. It is one CBOR document for programs, and the same as JSON for people; both can be read back. What is
read comes from somewhere: it is checked before anything is run, and holds no text that could steer a terminal.

Vocabulary
----------
scenario   the name under which the run's code is found
promise    what was broken, by the checker's name; `raised: <type>` when the run failed in another way
hits       index of a fault in the plan -> how often it had an effect
tape       the schedule; None when that of the scheduler is enough
scheduler  who decides without a tape; empty when the seed draws it
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import attrs
import cbor2

from callboard.control.frames import load_plain
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.limits import MIB
from callboard.simulations.faults import Plan
from callboard.simulations.world.tape import Tape

FORMAT: Final = 1
HEAD: Final = "callboard-failure"
EARLIER_HEAD: Final = "callboard-capsule"
"""What files of earlier versions begin with."""
STORED_BYTES_MAX: Final = 64 * MIB
NAME_CHARACTERS_MAX: Final = 200
WORDS_CHARACTERS_MAX: Final = 20_000
HITS_MAX: Final = 100_000


class StaleFailure(CallboardError):
    """A stored failure no longer says anything about this version of the code. Search again with its seed."""


@attrs.frozen(kw_only=True)
class StoredFailure:
    """One stored failure. `workload` is plain data (see `values`): only its scenario knows its type."""

    scenario: str
    seed: int
    scheduler: str
    workload: Any
    plan: Plan
    tape: Tape | None
    hits: dict[int, int]
    promise: str
    words: str
    version: str
    note: str = ""
    """How it came about, for people."""

    def to_cbor(self) -> bytes:
        """The stored failure as bytes."""
        return cbor2.dumps(self._data())

    def to_json(self) -> str:
        """The stored failure as indented text, ends with a newline."""
        return f"{json.dumps(self._data(), indent=1, ensure_ascii=False)}\n"

    def _data(self) -> dict[str, Any]:
        return {
            HEAD: FORMAT,
            "scenario": self.scenario,
            "promise": self.promise,
            "words": self.words,
            "note": self.note,
            "version": self.version,
            "seed": self.seed,
            "scheduler": self.scheduler,
            "workload": self.workload,
            "plan": self.plan.to_data(),
            "hits": [[index, count] for index, count in sorted(self.hits.items())],
            "tape": None if self.tape is None else self.tape.to_data(),
        }


def read_stored_failure(stored: bytes) -> StoredFailure:
    """The stored failure in these bytes, CBOR or JSON. Raises `InvalidArgument` when they are none."""
    if len(stored) > STORED_BYTES_MAX:
        raise _bad(f"it is larger than {STORED_BYTES_MAX} bytes")
    data = _decoded(stored)
    if isinstance(data, dict) and EARLIER_HEAD in data and HEAD not in data:
        data = {HEAD: data.pop(EARLIER_HEAD), **data}
    if not isinstance(data, dict) or HEAD not in data:
        raise _bad("it does not say that it is one")
    if data[HEAD] != FORMAT:
        raise _bad(f"it is of format {str(data[HEAD])[:20]!r}, this version reads {FORMAT}")
    unknown = sorted(str(name)[:40] for name in set(data) - NAMES)
    missing = sorted(NAMES - set(data))
    if unknown or missing:
        wrong = [*(f"unknown field {name!r}" for name in unknown[:5]), *(f"no {name}" for name in missing)]
        raise _bad("; ".join(wrong))
    return StoredFailure(
        scenario=_text(data, "scenario"),
        seed=_seed(data["seed"]),
        scheduler=_text(data, "scheduler"),
        workload=_checked(data["workload"], 0),
        plan=Plan.from_data(data["plan"]),
        tape=None if data["tape"] is None else Tape.from_data(data["tape"]),
        hits=_hits(data["hits"]),
        promise=_text(data, "promise"),
        words=_lines(data, "words"),
        version=_text(data, "version"),
        note=_lines(data, "note"),
    )


NAMES: Final = frozenset({HEAD, *(field.name for field in attrs.fields(StoredFailure))})


def _decoded(stored: bytes) -> Any:
    try:
        return json.loads(stored) if stored.lstrip()[:1] == b"{" else load_plain(stored)
    except (ValueError, RecursionError) as error:
        raise _bad(f"it is neither CBOR nor JSON ({str(error)[:100]})") from None


def _text(data: dict[str, Any], name: str) -> str:
    return _printable(_short(data, name, NAME_CHARACTERS_MAX), name)


def _lines(data: dict[str, Any], name: str) -> str:
    """Text of several lines, as the words of an exception may be."""
    text = _short(data, name, WORDS_CHARACTERS_MAX)
    _printable(text.replace("\n", ""), name)
    return text


def _short(data: dict[str, Any], name: str, characters_max: int) -> str:
    text = data[name]
    if not isinstance(text, str) or len(text) > characters_max:
        raise _bad(f"its {name} is no text of at most {characters_max} characters")
    return text


def _printable(text: str, name: str) -> str:
    """The text: it is shown, and an escape sequence or a change of direction would make it say something else."""
    if not text.isprintable():
        raise _bad(f"its {name} has a character that cannot be printed")
    return text


def _seed(seed: object) -> int:
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise _bad("its seed is no integer from 0 to 2**64 - 1")
    return seed


def _hits(data: object) -> dict[int, int]:
    if not isinstance(data, list) or len(data) > HITS_MAX:
        raise _bad("its hits are no list")
    for pair in data:
        is_pair = isinstance(pair, list) and len(pair) == 2
        if not is_pair or any(type(number) is not int or number < 0 for number in pair):
            raise _bad("its hits are no pairs of counts")
    return dict(data)


def _checked(data: Any, depth: int) -> Any:
    """The workload as far as it can be checked without its scenario: plain, finite, not too deep."""
    if depth > 40:
        raise _bad("its workload is nested too deeply")
    if isinstance(data, list):
        return [_checked(item, depth + 1) for item in data]
    if isinstance(data, dict):
        if not all(isinstance(name, str) for name in data):
            raise _bad("its workload has a field without a name")
        return {_printable(name, "workload"): _checked(item, depth + 1) for name, item in data.items()}
    if isinstance(data, str):
        return _printable(data, "workload")
    if data is None or isinstance(data, bool | int) or (isinstance(data, float) and math.isfinite(data)):
        return data
    raise _bad(f"its workload holds a {type(data).__name__}")


def _bad(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"this is no stored failure: {why}. Nothing was run. Use a file that a sweep wrote."
    )
