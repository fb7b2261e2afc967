"""Options and parsing that several commands share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from callboard.actors.broker.settings import TOPIC_FIELDS, Field
from callboard.log.errors import InvalidArgument

directory_option = click.option(
    "-d",
    "--directory",
    envvar="CALLBOARD_DIRECTORY",
    default="data",
    show_default=True,
    show_envvar=True,
    help="The runtime's directory.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def parse_place(text: str) -> int | str | datetime:
    """ "beginning", "end", an offset, or an ISO 8601 instant (UTC unless it says otherwise)."""
    if text in ("beginning", "end"):
        return text
    if text.isdigit():
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f'{text!r:.60} is no place to start: use "beginning", "end", an offset, or an instant such as'
            " 2026-11-21T12:00:00+00:00."
        ) from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def parse_settings(given: tuple[str, ...], fields: Mapping[str, Field] = TOPIC_FIELDS) -> dict[str, Any]:
    """Settings from `name=value` arguments; unknown names and wrong values are left for the check that names all."""
    settings: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals:
            raise InvalidArgument(f"{item!r:.60} is not of the form name=value. Nothing was changed.")
        field = fields.get(name.replace("-", "_"))
        settings[name.replace("-", "_")] = _value(text, field.kind if field else "choice")
    return settings


def _value(text: str, kind: str) -> Any:
    if text.lower() == "none" and kind != "choice":
        return None
    if kind == "bool" and text.lower() in ("true", "false", "yes", "no"):
        return text.lower() in ("true", "yes")
    if kind in ("int", "seconds"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            return text
    return text


def print_json(found: Any) -> None:
    """One JSON document on standard output; bytes as text where they are text, else as hexadecimal."""
    click.echo(json.dumps(found, default=_plain))


def _plain(found: Any) -> Any:
    if isinstance(found, (bytes, bytearray)):
        return text_of(bytes(found))
    return str(found)


def text_of(data: bytes) -> str:
    """Bytes for people: as text when they are printable UTF-8, else as `hex:...`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "hex:" + data.hex()
    return text if all(c.isprintable() or c in "\t\n" for c in text) else "hex:" + data.hex()
