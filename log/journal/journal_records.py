"""What journal frames hold: events behind a control record, snapshots behind an announcement.

A journal is a log of opaque events, so its segments and frames are those of every log; this page adds only what a
journal must know to be replayed. The first record of a frame is its *control record*; the frame after an announcement
is the snapshot itself, one record without a control record.

Example, one segment that begins with a snapshot (numbers are sequence numbers, one per record):

```
40 control(SNAPSHOT, proven=42)            the announcement, a frame of its own
41 <the snapshot's bytes>                  a frame of its own
42 control(EVENTS, proven=42)  43 <event>  44 <event>
45 control(EVENTS, proven=45)  46 <event>
47 control(MARK, proven=47)                closed cleanly: nothing before 47 is in doubt
```

Vocabulary
----------
sequence   a record's number in the journal: its offset. Control records have one too.
proven     every record below this sequence number had survived a sync when the control record was written. A valid
           frame thus proves those before it; what lies past the highest `proven` is the *unproven tail*.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from callboard.log.format.columns import Columns
from callboard.log.format.fields import too_new

CONTROL: Final = struct.Struct("<BQ")
"""Kind and proven."""
CONTROL_BYTES: Final = CONTROL.size


class Kind(enum.IntEnum):
    """What the frame of a control record is."""

    EVENTS = 0
    """Events follow in the same frame."""
    SNAPSHOT = 1
    """The next frame is a snapshot that equals the replay of everything before: it may be skipped when damaged."""
    HEAL = 2
    """The next frame is a snapshot that replaces whatever earlier segments hold, written after a failure."""
    MARK = 3
    """Nothing follows in the frame: it only carries `proven`. A clean close writes one."""
    GAP = 4
    """Repair wrote this frame in place of damaged ones: its span is lost, and that was reported."""


class Control(NamedTuple):
    """A decoded control record."""

    kind: Kind
    proven: int


KINDS: Final = {int(kind): kind for kind in Kind}


def columns_of_control(kind: Kind, proven: int) -> Columns:
    """A frame that holds nothing but a control record."""
    return Columns.build([CONTROL.pack(kind, proven)])


def decode_control(record: bytes | None, *, behind_gap: bool = False) -> Control | None:
    """The control record, or None when these bytes are none. Raises `FormatTooNew` when its kind is unknown.

    Behind a gap, in which an announcement may have been, a record of this length may be a snapshot: what does not
    look like a known control record is none then.
    """
    if record is None or len(record) != CONTROL_BYTES:
        return None
    number, proven = CONTROL.unpack(record)
    kind = KINDS.get(number)
    if kind is None and behind_gap:
        return None
    if kind is None:
        raise too_new(
            f"a frame of a journal has the unknown kind {number}", found=number, supported=max(Kind)
        )
    return Control(kind, proven)
