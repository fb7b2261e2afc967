"""Values of several kinds, and what a model that is learned from them makes of others."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any
from zlib import compress

from callboard.simulations.workload.value_learning import Sampled, learn
from callboard.simulations.workload.value_model import ValueModel

SECRETS = ("Ottokar", "Brunhilde", "Sigismund", "Walburga", "Eustachius")
"""Long enough that none is made up by chance."""


def json_orders(many: int, seed: int = 1) -> list[tuple[bytes, bytes]]:
    """Orders of some customers, as JSON: key and value."""
    random_ = random.Random(seed)
    found = []
    for number in range(many):
        who = random_.choice(SECRETS)
        value = {
            "order_id": random_.randrange(10**12, 10**13),
            "customer": who,
            "placed_at": f"2026-03-{1 + number * 27 // many:02}T10:{random_.randrange(60):02}:00Z",
            "paid": random_.random() < 0.7,
            "note": random_.choice(
                ["", "Lieferung an den Nachbarn", "Grüße aus Übersee \u2603", 'mit "Schleife"\n']
            ),
            "total": random_.choice([0, 12.5, 1e-7, 199]),
        }
        found.append((who.encode(), json.dumps(value, ensure_ascii=random_.random() < 0.5).encode()))
    return found


def json_notices(many: int, seed: int = 1) -> list[tuple[bytes, bytes]]:
    """Notices of some sources, each of which has a text of its own, as JSON: key and value."""
    random_ = random.Random(seed)
    texts = [" ".join(random_.choices(SECRETS, k=1 + 3 * number)) for number in range(8)]
    found = []
    for _ in range(many):
        which = random_.randrange(len(texts))
        value = {
            "source": f"source-{which}",
            "about": texts[which],
            "code": random_.randrange(100),
            "is_known": random_.random() < 0.5,
        }
        found.append((b"source-%d" % which, json.dumps(value).encode()))
    return found


def log_lines(many: int, seed: int = 1) -> list[tuple[bytes, bytes]]:
    """Requests of some clients, as lines."""
    random_ = random.Random(seed)
    paths = [f"/katalog/{random_.choice(SECRETS).lower()}/{random_.randrange(10**6)}.html" for _ in range(40)]
    found = []
    for number in range(many):
        host = f"rechner{random_.randrange(12)}.beispielnetz.example"
        line = f"{host} - [{807_256_800 + number}] GET {random_.choice(paths)} {random_.choice([200, 304])}"
        found.append((host.encode(), line.encode()))
    return found


def packed_records(many: int, seed: int = 1) -> list[tuple[None, bytes]]:
    """Records of no text: a header that never differs, zeros, a counter, some letters, and noise."""
    random_ = random.Random(seed)
    return [
        (None, b"\xca\xfe\x00\x00\x00" + number.to_bytes(4, "big") + b"abcdefgh\x00" + random_.randbytes(12))
        for number in range(many)
    ]


def sampled(records: Sequence[tuple[bytes | None, bytes]], stretches: int = 4) -> list[Sampled]:
    """The records as a sample: stretches of a second each."""
    each = -(-len(records) // stretches)
    return [
        Sampled(number * 1_000_000, records[number * each : (number + 1) * each])
        for number in range(stretches)
    ]


def learned(records: Sequence[tuple[bytes | None, bytes]], stretches: int = 4) -> ValueModel:
    """The model of such a sample."""
    model = learn(sampled(records, stretches))
    assert model is not None
    return model


def made(
    value_library: Any, model: ValueModel, sizes: Sequence[int], keys: Sequence[int], seed: str = "7"
) -> list[bytes]:
    """Values of these sizes and keys, spread over four seconds."""
    import numpy as np

    numbers: Any = np.arange(len(sizes))
    words = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    key = np.array(keys, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    return value_library.Library(model, seed).values(
        at_us=numbers * 4_000_000 // max(len(sizes), 1),
        key=key,
        size=np.array(sizes, dtype=np.int64),
        word=words,
        lane=np.zeros_like(numbers),
        before=0,
    )


def ratio(values: Sequence[bytes]) -> float:
    """How many times shorter a batch of them is when it is packed."""
    text = b"".join(values)
    return len(text) / len(compress(text, 6))


def long_words(values: Sequence[bytes]) -> set[str]:
    """Words of letters from six on, and numbers from eight digits on, in small letters."""
    text = b"\n".join(values).decode("utf-8", "replace").lower()
    return set(re.findall(r"[^\W\d_]{6,}", text)) | set(re.findall(r"\d{8,}", text))
