"""The character of a day of web traffic, as numbers: rates, skew, sizes and mix, and no name or address.

`profile.json` beside this module was measured from a public trace of 12.87 hours (see its `source`) by
`python -m callboard.traffic.measure`. Every list holds pairs `(what, how many)`.

buckets      events in each `bucket_s` seconds, in the order of time
bursts       (events that share a second, seconds)
same_host    (neighbours within a second that come from one host, neighbours within a second)
hosts, urls  (requests, hosts or URLs with that many), most popular first
host_bytes   (length of the name, hosts); url_bytes likewise
requests     ("method status", requests)
sizes        (size class, answers with status 200): class c holds sizes from 2**(c/4)
             up to 2**((c+1)/4) bytes; -1 no body
"""

from __future__ import annotations

import json
import pkgutil
from typing import Any

import attrs

from callboard.log.errors import InvalidArgument

_PROFILE_FILE = "profile.json"

Pairs = tuple[tuple[int, int], ...]


@attrs.frozen(kw_only=True)
class Profile:
    """The profile of one day of traffic, as numbers. Every list holds pairs `(what, how many)`."""

    source: str
    bucket_s: int
    buckets: tuple[int, ...]
    bursts: Pairs
    same_host: tuple[int, int]
    hosts: Pairs
    urls: Pairs
    host_bytes: Pairs
    url_bytes: Pairs
    requests: tuple[tuple[str, int], ...]
    sizes: Pairs

    def to_json(self) -> str:
        """The text of `profile.json`: one line per field, ends with a newline."""
        fields = attrs.asdict(self)
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"


def profile_from_json(text: str | bytes) -> Profile:
    """The inverse of `Profile.to_json`. Raises `InvalidArgument` for anything else."""
    try:
        found = json.loads(text)
        return Profile(**{name: _frozen(value) for name, value in found.items()})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"This is not a traffic profile: {error}") from None


def load_profile() -> Profile:
    """The profile that is shipped with Callboard."""
    data = pkgutil.get_data(__package__, _PROFILE_FILE)
    if data is None:
        raise InvalidArgument(f"{_PROFILE_FILE} is missing from this installation. Install Callboard again.")
    return profile_from_json(data)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
